"""Rules that match at a node of a model outside the domain they are proved for."""

from __future__ import annotations

from ...limits import Limits
from ...ops.op import Apply
from ...ops.static import RealComparison, holds
from ..matching.pattern_difference import PartialMatch, first_difference
from ..plan.plan import Plan
from ..plan.user_rules import rules_of


def domain_exclusions(plan: Plan, name: str, limits: Limits | None = None) -> list[str]:
    """Return a sentence for each rule whose left side and guard match at a node of the model, but whose proved domain excludes it."""
    p, sentences = plan.source, list[str]()
    producer = p.producer()
    nodes = [n for n in p.nodes if any(p.sources[s].name == name for s in n.origins)]
    for rule in rules_of(plan, limits) if nodes else ():
        for n in nodes:
            partial_match = PartialMatch(p)
            if not isinstance(rule.left, Apply) or rule.left.op.name != n.op or first_difference(partial_match, rule.left, n, producer):
                continue
            binding, domain = partial_match.binding(), rule.domain.conditions(rule.pairs, rule.where)
            try:
                failed = [c for c in domain if not holds(c, binding)] if all(holds(c, binding) for c in rule.where) else []
            except KeyError:  # a term of the guard that is not part of the program
                continue
            if failed:
                domain_text = "finite numbers" if isinstance(failed[0], RealComparison) else str(rule.domain)
                sentences.append(f"{rule.name} does not match: proved for {domain_text}")
    return sentences
