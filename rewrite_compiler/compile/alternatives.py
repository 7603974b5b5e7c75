"""Alternatives: the next cheapest plans, each of which differs from the cheapest in one choice that an option can make again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import AnswerNo, BudgetError
from ..target import Target
from .compile import Options, chosen_targets, compile_model
from .pins import HOST
from .plan import Offload, Plan

TRIED = 40  # choices that are made otherwise, one at a time
Chosen = frozenset[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Alternative:
    """A plan that one more option gives: what it is on the command line, and what the plan costs."""

    option: str
    options: Options
    plan: Plan

    @property
    def cost(self) -> tuple[int, ...]:
        """The cost by the levels of the objective."""
        return tuple(self.plan.extraction["cost"].values())


def alternatives(path: str | Path, accel: Sequence[str | Target], count: int, options: Options | None = None) -> list[Alternative]:
    """Return the `count` cheapest plans that differ from the cheapest in one choice, the cheapest first.

    A choice is a rule whose sides need not agree bit for bit on a device, an operation's variant, or the place of a layer; of
    layers of one form the first is moved. TRIED choices at most are looked at, in that order.
    """
    given = options or Options()
    targets = chosen_targets(accel, given.limits)
    best = compile_model(path, targets, given)
    seen = {_chosen(best)}
    found: list[Alternative] = []
    for option, changed in list(_choices(best, targets, given))[:TRIED]:
        try:
            plan = compile_model(path, targets, changed)
        except (AnswerNo, BudgetError):  # there is no such plan
            continue
        if _chosen(plan) not in seen:
            seen.add(_chosen(plan))
            found.append(Alternative(option, changed, plan))
    return sorted(found, key=lambda a: a.cost)[:count]


def _chosen(p: Plan) -> Chosen:
    """Return what a plan offloads: operations with the nodes they stand for, and the rules that made them so."""
    return frozenset((o.mapping.name, (*sorted(o.nodes), "by", *sorted(r.rule for r in o.because if r.grade != "E"))) for o in p.offloads)


def _choices(best: Plan, targets: Sequence[Target], given: Options) -> Iterator[tuple[str, Options]]:
    rules = dict.fromkeys(r.rule for o in best.offloads for r in o.because if r.grade != "E" and r.rule != o.mapping.name)
    variants = dict.fromkeys(o.mapping.variant for o in best.offloads)
    for name in (*rules, *variants):
        yield f"--without {name}", replace(given, without=(*given.without, name))
    for o in _of_each_form(best.offloads):
        for place in (*(t.name for t in targets if t.name != o.target.name), HOST):
            yield f"--on {place}={o.nodes[0]}", replace(given, on=(*given.on, f"{place}={o.nodes[0]}"))


def _of_each_form(offloads: Sequence[Offload]) -> list[Offload]:
    return list({(o.mapping.name, o.shapes): o for o in reversed(offloads) if o.nodes}.values())[::-1]
