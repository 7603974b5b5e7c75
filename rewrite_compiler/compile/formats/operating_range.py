"""Rules that would match at a node of a model, but are not proved for operands as large as its own."""

from __future__ import annotations

from ...limits import Limits
from ...ops.op import Apply
from ...ops.static import holds
from ..matching.pattern_difference import Loose, differs
from ..plan.plan import Plan
from ..plan.user_rules import rules_of


def outside(plan: Plan, name: str, limits: Limits | None = None) -> list[str]:
    """Return a sentence for each rule whose left side and guard fit a node of the model, and whose domain does not."""
    p, found = plan.source, list[str]()
    producer = p.producer()
    nodes = [n for n in p.nodes if any(p.sources[s].name == name for s in n.origins)]
    for rule in rules_of(plan, limits) if nodes else ():
        for n in nodes:
            met = Loose(p)
            if not isinstance(rule.left, Apply) or rule.left.op.name != n.op or differs(met, rule.left, n, producer):
                continue
            binding, given = met.binding(), rule.domain.conditions(rule.pairs, rule.where)
            try:
                if all(holds(c, binding) for c in rule.where) and not all(holds(c, binding) for c in given):
                    found.append(f"{rule.name} does not match: proved for {rule.domain}")
            except KeyError:  # a term of the guard that is not part of the program
                continue
    return found
