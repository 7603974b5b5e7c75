"""Admission of rules from files and operations of targets: each is judged before it is used.

Unproved rules and refuted operations are refused unless they are trusted by name; the plan notes what is used without a proof.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ...egraph.saturation.explosion_lint import explosion_of
from ...errors import AnswerNo, UsageError
from ...limits import Limits
from ...prove.certificates.cache import court_cache
from ...prove.certificates.json_record import proof_record
from ...prove.certificates.operations import Progress, judge_operation
from ...prove.certificates.shipped_certificates import Certificate, certificate_of_record, certificate_of_rule
from ...prove.verdict import Proof
from ...rewrite.domain import EVERYWHERE, Domain
from ...rewrite.rule import Rule
from ...rewrite.ruleset import every_rule, rules_at, shipped_rules, unique_rules
from ...target import Mapping as Operation
from ...target import Target
from .plan import Plan

LEAST_RANK = 4  # axes of operands that a rule without a certificate may match


@dataclass(frozen=True)
class AdmittedRules:
    """The usable rules, notes on those used on trust, and the certificates of judged rules by name."""

    rules: tuple[Rule, ...]
    notes: tuple[str, ...]
    certificates: Mapping[str, Certificate]


def admit_rules(
    shipped: Iterable[Rule], paths: Sequence[Path], trusted: Sequence[str], limits: Limits | None = None, operations: Collection[str] = ()
) -> AdmittedRules:  # fmt: skip
    """Return shipped rules together with judged rules of files, each with the domain it is proved for.

    `trusted` names rules of the files, or `operations`, which are judged when a program uses them.

    Raises:
        UsageError: (F203) a trusted name is neither.
        AnswerNo: (R102, R103) a rule of a file is refuted or not proved, and not trusted.
    """
    added = [r for path in paths for r in rules_at(path, limits)]
    names = {r.name for r in added}
    for name in trusted:
        if name not in names and name not in operations:
            remedy = f"rules given: {', '.join(sorted(names)) or 'none'}; of an accelerator `flexmatch list` shows the operations"
            raise UsageError("F203", f'there is no rule or operation called "{name}"', help=remedy)
    all_rules = unique_rules((*shipped, *added))
    certified = set(every_rule())
    foreign = [r for r in added if r not in certified]
    proofs = {r.name: _judged(r, trusted) for r in foreign}
    notes = [f"rule {name} is {p.verdict} and used on trust (R108)" for name, p in proofs.items() if not p.is_proved]
    growth = explosion_of(foreign, all_rules[: len(all_rules) - len(added)])
    notes += [] if growth is None else [f"added rules may not come to an end: {growth}"]
    usable = tuple(replace(r, domain=_domain(r, proofs)) if r.name in proofs else with_proved_domain(r) for r in all_rules)
    return AdmittedRules(usable, tuple(notes), {n: certificate_of_record("rule", n, proof_record(p)) for n, p in proofs.items()})


def _domain(r: Rule, proofs: Mapping[str, Proof]) -> Domain:
    """Return the domain that a rule of a file is proved for; everything for a rule used on trust."""
    proof = proofs[r.name]
    return Domain(proof.ranks) if proof.is_proved else EVERYWHERE


@cache
def with_proved_domain(r: Rule) -> Rule:
    """Return a shipped rule restricted to the ranks that its certificate covers."""
    certificate = certificate_of_rule(r)
    return replace(r, domain=Domain(LEAST_RANK if certificate is None else certificate.ranks))


def rules_of(plan: Plan, limits: Limits | None = None) -> list[Rule]:
    """Return the rules that a plan was compiled with, those of its files judged anew."""
    settings = plan.settings
    operations = {m.name for t in plan.targets for m in t.mappings.values()}
    court = admit_rules(shipped_rules(), [Path(f) for f in settings["rules"]], settings["trusted"], limits, operations)
    return [r for r in court.rules if r.name not in settings["without"]]


def _judged(r: Rule, trusted: Sequence[str]) -> Proof:
    """Return the verdict on a rule of a file; refuse it unless it is proved or trusted."""
    from ...prove.certificates.judge import judge_rule

    proof = judge_rule(r, court_cache())
    if proof.is_proved or r.name in trusted:
        return proof
    problem = proof.problem
    assert problem is not None
    raise AnswerNo(problem.code, problem.sentence, place=problem.place, help=f"{problem.help}, or name it with --trust-unproved")


@dataclass(frozen=True)
class JudgedOperations:
    """The certificates of the operations that a program uses, by name, and notes on those that are not proved."""

    certificates: Mapping[str, Certificate]
    notes: tuple[str, ...]


def judge_used_operations(
    operations: Iterable[Operation], targets: Sequence[Target], trusted: Sequence[str], progress: Progress
) -> JudgedOperations:
    """Judge the operations that a program uses, and return their certificates with notes.

    Raises:
        AnswerNo: an operation is refuted and not trusted by name; the code is that of its refutation (I105).
    """
    by_name = {t.name: t for t in targets}
    judgements = {m.name: judge_operation(by_name[m.target], m, progress) for m in sorted(operations, key=lambda m: m.name)}
    refuted = {name: j.problem for name, j in judgements.items() if j.problem is not None and j.is_refuted and name not in trusted}
    if refuted:
        (first, problem), *further_names = refuted.items()
        also = f"; refuted, too: {', '.join(name for name, _ in further_names)}" if further_names else ""
        remedy = f"correct driver, numerics or model, leave it out with --without {first}, or use it with --trust-unproved {first}"
        raise AnswerNo(problem.code, f"{problem.sentence}{also}", place=problem.place, help=remedy)
    notes = [
        f"operation {name} is {j.certificate.verdict} and used on trust (R108){'' if j.is_refuted else f': {j.certificate.evidence}'}"
        for name, j in judgements.items()
        if j.problem is not None
    ]
    return JudgedOperations({name: j.certificate for name, j in judgements.items()}, tuple(notes))
