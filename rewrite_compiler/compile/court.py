"""Rules from files: each is judged before it is used; one that is not proved is refused, or stamped when it is trusted by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..egraph.lint import growth_of
from ..errors import AnswerNo, UsageError
from ..limits import Limits
from ..prove.cache import court_cache
from ..prove.court import judge_rule
from ..prove.record import proof_record
from ..prove.shipped import Certificate, certificate_of_record, certificate_of_rule
from ..prove.verdict import Proof
from ..rewrite.domain import EVERYWHERE, Domain
from ..rewrite.rule import Rule
from ..rewrite.ruleset import collect, every_rule, rules_at, shipped_rules
from .plan import Plan

LEAST = 4  # axes of operands that a rule without a certificate may match


@dataclass(frozen=True)
class Admitted:
    """The rules that may be used, what the plan says of those used on trust, and the certificates of judged ones by name."""

    rules: tuple[Rule, ...]
    notes: tuple[str, ...]
    certificates: Mapping[str, Certificate]


def admitted(shipped: Iterable[Rule], paths: Sequence[Path], trusted: Sequence[str], limits: Limits | None = None) -> Admitted:
    """Return shipped rules, which have their certificates, with those of files; AnswerNo R102 or R103 for one that is not proved."""
    added = [r for path in paths for r in rules_at(path, limits)]
    names = {r.name for r in added}
    for name in trusted:
        if name not in names:
            raise UsageError("F203", f'no rule file has a rule called "{name}"', help=f"rules given: {', '.join(sorted(names)) or 'none'}")
    known = collect((*shipped, *added))
    certified = set(every_rule())
    foreign = [r for r in added if r not in certified]
    proofs = {r.name: _judged(r, trusted) for r in foreign}
    notes = [f"rule {name} is {p.verdict} and used on trust (R108)" for name, p in proofs.items() if not p.is_proved]
    growth = growth_of(foreign, known[: len(known) - len(added)])
    notes += [] if growth is None else [f"added rules may not come to an end: {growth}"]
    within = tuple(replace(r, domain=_domain(r, proofs)) if r.name in proofs else proved(r) for r in known)
    return Admitted(within, tuple(notes), {n: certificate_of_record("rule", n, proof_record(p)) for n, p in proofs.items()})


def _domain(r: Rule, proofs: Mapping[str, Proof]) -> Domain:
    """Return what a rule of a file is proved for; of one that is used on trust, everything."""
    proof = proofs[r.name]
    return Domain(proof.ranks) if proof.is_proved else EVERYWHERE


@cache
def proved(r: Rule) -> Rule:
    """Return a shipped rule where its certificate holds."""
    found = certificate_of_rule(r)
    return replace(r, domain=Domain(LEAST if found is None else found.ranks))


def rules_of(plan: Plan, limits: Limits | None = None) -> list[Rule]:
    """Return the rules that a plan was made with."""
    settings = plan.settings
    court = admitted(shipped_rules(), [Path(f) for f in settings["rules"]], settings["trusted"], limits)
    return [r for r in court.rules if r.name not in settings["without"]]


def _judged(r: Rule, trusted: Sequence[str]) -> Proof:
    """Return the proof of a rule, or of one that is used on trust what the court says of it."""
    proof = judge_rule(r, court_cache())
    if proof.is_proved or r.name in trusted:
        return proof
    problem = proof.problem
    assert problem is not None
    raise AnswerNo(problem.code, problem.sentence, place=problem.place, help=f"{problem.help}, or name it with --trust-unproved")
