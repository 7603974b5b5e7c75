"""flexmatch list: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .common import emit_json, options, parser
from .output import say

SCHEMA = "flexmatch.list/1"


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("list", "List accelerators, operations, rules and applications.")
    given = options(made, arguments)
    document = listing()
    emit_json(document, given.json)
    from ..report.terminal import table

    for kind in ("targets", "mappings", "rules", "apps"):
        rows = ((f"  {row['name']}", "; ".join(filter(None, (row["about"], row.get("proof"))))) for row in document[kind])
        say(given, [f"{kind}:", *table(rows)])
    return 0


def listing() -> dict[str, Any]:
    """Return everything by kind, each with its name, place and one line."""
    from ..apps import APPS, GALLERY
    from ..prove.status import in_short, known_verdicts
    from ..rewrite.rule import short_place as at
    from ..rewrite.ruleset import shipped_rules
    from ..target import load_target, target_names

    targets = [load_target(name) for name in target_names()]
    known = {t.name: known_verdicts(t) for t in targets}
    return {
        "schema": SCHEMA,
        "targets": [
            {
                "name": t.name,
                "about": ", ".join(dict.fromkeys(m.operation for m in t.mappings.values())),
                "parameters": {k: list(v) for k, v in t.parameters.items()},
                "proof": in_short(known[t.name]),
            }
            for t in targets
        ],
        "mappings": [
            {"name": m.name, "about": _first(m.rule.doc), "at": at(m.rule.place), "proof": known[t.name][name]}
            for t in targets
            for name, m in t.mappings.items()
        ],
        "rules": [{"name": r.name, "about": _first(r.doc), "at": at(r.place), "grade": r.grade, "phase": r.phase} for r in shipped_rules()],
        "apps": [{"name": a.name, "about": a.about} for a in (*APPS, *GALLERY)],
    }


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
