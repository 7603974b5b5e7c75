"""The verdicts on rules, mappings and accelerator models as one document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import TARGET_FORMS, UsageError, did_you_mean, each_of
from ...public_calls import CALLBACK_OF_NAME, COUNT, NAMES, ArgumentKind, public
from ...rewrite.rule import Rule, short_place
from ...rewrite.ruleset import rules_at
from ...target import Target, find_target, target_names
from ..verdict import Proof
from . import json_record as record
from .cache import Cache
from .json_record import ModelVerdict
from .judge import judge_cases, model_case, proofs, rule_case, target_cases

SCHEMA = "flexmatch.prove/1"
NAMES_AT = "`flexmatch list` shows the names"
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


@public(
    "prove", only=NAMES, instances=COUNT, jobs=COUNT, progress=CALLBACK_OF_NAME,
    cache=ArgumentKind("a Cache of rewrite_compiler.prove.certificates.cache", (Cache,)),
)  # fmt: skip
def prove(
    rules: Iterable[Rule] | str | Path = (),
    targets: str | Path | Target | Sequence[str | Path | Target] = (),
    *,
    only: Collection[str] | None = None,
    instances: int | None = None,
    jobs: int = 1,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> Verdicts:
    """Judge rules, the mappings of targets, and the models they are built on.

    Rules are objects or the path of a rule file; a target is a name, `name:key=value,…`, the path of a Python file, or a Target. With
    `only`, mappings of these names are judged and no models. Each rule is tried at so many drawn `instances` beside its proof. With
    `jobs` above 1 so many processes judge; they find a Target object by its name. Verdicts come from a cache only if one is given.
    `progress` is called with the name of what is judged.

    Raises:
        InputError: a rule file that cannot be read, or without a rule (R101).
        UsageError: there is no such target (F201), or it has no such parameter (F203).
    """
    if isinstance(rules, str) and rules.partition(":")[0] in target_names():
        raise UsageError("F203", f'"{rules}" is no rule file but an accelerator', help=f'write prove(targets="{rules}")')
    if isinstance(rules, (str, Path)):
        listed = list(rules_at(Path(rules)))
    else:
        listed = each_of(rules, (Rule,), "rules", "Rule objects or the path of a rule file")
    sequence = each_of(targets, (str, Path, Target), "a target", TARGET_FORMS)
    pairs = [(t.name, t) if isinstance(t, Target) else (str(t), find_target(str(t))) for t in sequence]
    operations = {m.name for _, t in pairs for m in t.mappings.values()}
    for name in only or ():
        if name not in operations:
            raise UsageError("F203", f'there is no operation called "{name}"', help=did_you_mean(name, operations) or NAMES_AT)
    return judge_library(listed, pairs, cache or Cache(None), only=only, instances=instances, jobs=jobs, progress=progress)


def judge_library(
    rules: Iterable[Rule], targets: Sequence[tuple[str, Target]], cache: Cache, *, only: Collection[str] | None = None,
    instances: int | None = None, jobs: int = 1, progress: Progress | None = None,
) -> Verdicts:  # fmt: skip
    """Judge rules and targets that are loaded, each with the text by which a process finds it; as `prove` does."""
    groups = [
        [c for text, t in targets for c in target_cases(t, text) if only is None or c.name in only],  # first: they take longest
        [rule_case(r, instances) for r in rules],
        [model_case(t, text) for text, t in targets if only is None],
    ]
    verdicts = iter(judge_cases([c for group in groups for c in group], cache, progress or (lambda _: None), jobs))
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
