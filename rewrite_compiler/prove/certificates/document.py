"""The verdicts on rules, mappings and accelerator models as one document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...rewrite.rule import Rule, short_place
from ...target import Target
from ..verdict import Proof
from . import json_record as record
from .cache import Cache
from .json_record import ModelVerdict
from .judge import judge_cases, model_case, proofs, rule_case, target_cases

SCHEMA = "flexmatch.prove/1"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Verdicts:
    """Everything that was judged."""

    rules: tuple[Proof, ...]
    mappings: tuple[Proof, ...]
    ilas: tuple[ModelVerdict, ...]

    @property
    def is_good(self) -> bool:
        """Tell whether everything is proved."""
        return all(p.is_proved for p in (*self.rules, *self.mappings)) and all(c.is_good for c in self.ilas)


def prove(
    rules: Iterable[Rule],
    targets: Sequence[Target] = (),
    progress: Progress = lambda _: None,
    *,
    instances: int | None = None,
    jobs: int = 1,
    kept: Cache | None = None,
    specs: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> Verdicts:
    """Judge rules, the mappings of targets, and the models they are built on.

    Rules are tried at so many drawn `instances` beside their proof. With
    `jobs` above 1 so many processes judge; they find a target by its name, or by its text in `specs`. Verdicts are taken
    from a cache only when one is given. With `only`, mappings of these names are judged and no models.
    """
    names = {t.name: (specs or {}).get(t.name, t.name) for t in targets}
    groups = [
        [c for t in targets for c in target_cases(t, names[t.name]) if only is None or c.name in only],  # first: they take longest
        [rule_case(r, instances) for r in rules],
        [model_case(t, names[t.name]) for t in targets if only is None],
    ]
    verdicts = iter(judge_cases([c for group in groups for c in group], kept or Cache(None), progress, jobs))
    mappings, of_rules, models = ([next(verdicts) for _ in group] for group in groups)
    return Verdicts(proofs(of_rules), proofs(mappings), tuple(map(record.model_of, models)))


def to_json(verdicts: Verdicts) -> dict[str, Any]:
    """Return the document; only `seconds` and `kept` may differ between two runs on the same sources."""
    return {
        "schema": SCHEMA,
        "rules": [_proof(p) for p in verdicts.rules],
        "mappings": [_proof(p) for p in verdicts.mappings],
        "ilas": [record.model_record(m) for m in verdicts.ilas],
    }


def _proof(p: Proof) -> dict[str, Any]:
    return {
        "name": p.name, "at": short_place(p.at), "verdict": p.verdict, "strength": p.strength, "evidence": p.evidence, "ranks": p.ranks,
        "counterexample": None if p.counterexample is None else str(p.counterexample), "grade": p.grade,
        "suggestion": p.suggestion or None, "left_out": p.left_out or None,
        "measured": [record.figure_record(m) for m in p.measured], "seconds": round(p.seconds, 3), "kept": p.kept or None,
    }  # fmt: skip
