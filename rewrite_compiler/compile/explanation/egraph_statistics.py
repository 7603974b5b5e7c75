"""E-graph statistics of a plan: growth by rounds, and matches, new e-nodes and seconds of each rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...egraph.graph.outcome import Saturation
from ...rewrite.rule import Rule, short_place
from ...target import Mapping
from ..matching.match import constructor_of


def egraph_document(s: Saturation, rules: Sequence[Rule], mappings: Sequence[Mapping]) -> dict[str, Any]:
    """Return the section `egraph` of a plan document; rules and mappings in the order of their births."""
    return {
        "regions": s.regions, "forms": s.forms, "rounds": s.rounds,
        "e_nodes": s.graph.e_nodes, "e_classes": len(s.graph.classes), "growth": list(s.growth),
        "rules": len(rules) + len(mappings),
        "fired": [
            {"rule": name, "at": short_place(at), "matches": s.matches[key],
             "new_nodes": s.e_nodes_added.get(name, s.e_nodes_by_birth.get(birth, 0))}
            for birth, (name, key, at) in enumerate(_keys_and_places(rules, mappings)) if s.matches.get(key)
        ],
        "stop": {"reason": s.reason, "detail": s.detail},
    }  # fmt: skip


def rule_seconds(s: Saturation, rules: Sequence[Rule], mappings: Sequence[Mapping]) -> dict[str, float]:
    """Return the seconds of search and action of each rule that matched, by its name."""
    return {name: s.rule_seconds[key] for name, key, _ in _keys_and_places(rules, mappings) if key in s.rule_seconds}


def back_off_notes(s: Saturation, rules: Sequence[Rule]) -> list[str]:
    """Return a note on each added rule that the back-off scheduler held back."""
    at = {r.name: short_place(r.place) for r in rules}
    return [f"rule {name} ({at[name]}) was held back for {n} rounds: it made too many e-nodes at once" for name, n in s.rounds_held.items()]


def _keys_and_places(rules: Sequence[Rule], mappings: Sequence[Mapping]) -> list[tuple[str, str, str]]:
    return [(r.name, r.name, r.place) for r in rules] + [(m.name, constructor_of(m).name, m.rule.place) for m in mappings]
