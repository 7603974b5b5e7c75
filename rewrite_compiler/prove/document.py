"""The verdicts on rules, mappings and accelerator models as one document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ila.check import Check, check
from ..rewrite.rule import Rule, short_place
from ..target import Target
from .mappings import prove_mappings
from .rules import prove_rules
from .verdict import Proof

SCHEMA = "flexmatch.prove/1"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Verdicts:
    """Everything that was judged."""

    rules: tuple[Proof, ...]
    mappings: tuple[Proof, ...]
    ilas: tuple[Check, ...]

    @property
    def is_good(self) -> bool:
        """Tell whether everything is proved."""
        return all(p.is_proved for p in (*self.rules, *self.mappings)) and all(c.is_good for c in self.ilas)


def prove(
    rules: Iterable[Rule], targets: Sequence[Target] = (), progress: Progress = lambda _: None, *, instances: int | None = None
) -> Verdicts:
    """Judge rules, the mappings of targets, and the models they are built on.

    Rules are judged at every shape with extents up to 2, or on so many drawn `instances`; the strength says which.
    """
    proved = tuple(_reported(prove_rules(rules, count=instances), progress))
    mappings = tuple(p for t in targets for p in _reported(prove_mappings(t), progress))
    return Verdicts(proved, mappings, tuple(check(t.ila()) for t in targets))


def _reported(proofs: Iterable[Proof], progress: Progress) -> Iterable[Proof]:
    for p in proofs:
        progress(p.name)
        yield p


def to_json(verdicts: Verdicts) -> dict[str, Any]:
    """Return the document; only `seconds` may differ between two identical runs."""
    return {
        "schema": SCHEMA,
        "rules": [_proof(p) for p in verdicts.rules],
        "mappings": [_proof(p) for p in verdicts.mappings],
        "ilas": [_check(c) for c in verdicts.ilas],
    }


def _proof(p: Proof) -> dict[str, Any]:
    return {
        "name": p.name, "at": short_place(p.at), "verdict": p.verdict, "strength": p.strength, "evidence": p.evidence,
        "counterexample": None if p.counterexample is None else str(p.counterexample), "grade": p.grade, "seconds": round(p.seconds, 3),
    }  # fmt: skip


def _check(c: Check) -> dict[str, Any]:
    return {
        "name": c.name, "instructions": c.instructions, "decodes_disjoint": c.decodes_disjoint, "holes": [str(h) for h in c.holes],
        "holes_unknown": c.holes_unknown, "problems": [str(p) for p in c.problems],
    }  # fmt: skip
