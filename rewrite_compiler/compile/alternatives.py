"""Alternative plans: the next cheapest, each reached from the cheapest by one more option."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from ..errors import AnswerNo, BudgetError
from ..target import Target
from .compile import Options, chosen_targets, compile_model
from .matching.pins import HOST
from .plan.plan import Offload, Plan

PlanSignature = frozenset[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Alternative:
    """A plan that one more command-line option gives."""

    option: str
    options: Options
    plan: Plan

    @property
    def cost(self) -> tuple[int, ...]:
        """The cost by the levels of the objective."""
        return tuple(self.plan.extraction["cost"].values())


@dataclass(frozen=True)
class Alternatives:
    """The cheapest alternatives, the number of choices, and the number tried within the time limit."""

    plans: tuple[Alternative, ...]
    choices: int
    attempted: int

    def incompleteness(self, seconds: int) -> str:
        """Return a sentence on the choices not tried within a limit in seconds, empty when all were."""
        remaining = self.choices - self.attempted
        return f"{remaining} of {self.choices} choices were not looked at within alternatives_seconds={seconds}" if remaining else ""


def alternatives(path: str | Path, accel: Sequence[str | Target], count: int, options: Options | None = None) -> Alternatives:
    """Return the `count` cheapest plans that differ from the cheapest in one choice, the cheapest first.

    A choice is the place of a layer, a rule whose sides need not agree bit for bit on a device, or an operation's variant,
    tried in that order; of layers of one form the first that no option pins is moved. After `alternatives_seconds` no
    further one is begun.

    Raises:
        UsageError: as `compile_model` for the options as they are.
        AnswerNo: as `compile_model` for the options as they are.
    """
    base_options = options or Options()
    targets = chosen_targets(accel, base_options.limits)
    best_plan = compile_model(path, targets, base_options)
    signatures = {_signature(best_plan)}
    results: list[Alternative] = []
    choices, looked_at = list(_choices(best_plan, targets, base_options)), 0
    end = monotonic() + base_options.limits.alternatives_seconds
    for option, changed in choices:
        if monotonic() >= end:
            break
        looked_at += 1
        try:
            plan = compile_model(path, targets, changed)
        except (AnswerNo, BudgetError):  # infeasible choice
            continue
        if _signature(plan) not in signatures:
            signatures.add(_signature(plan))
            results.append(Alternative(option, changed, plan))
    return Alternatives(tuple(sorted(results, key=lambda a: a.cost)[:count]), len(choices), looked_at)


def _signature(p: Plan) -> PlanSignature:
    """Return the identity of a plan: its operations with the nodes they stand for, and the rules behind them."""
    return frozenset((o.mapping.name, (*sorted(o.nodes), "by", *sorted(r.rule for r in o.because if r.grade != "E"))) for o in p.offloads)


def _choices(best_plan: Plan, targets: Sequence[Target], base: Options) -> Iterator[tuple[str, Options]]:
    pinned = {text.partition("=")[2] for text in base.on}
    for o in _one_of_each_form([o for o in best_plan.offloads if pinned.isdisjoint(o.nodes)]):
        for place in (*(t.name for t in targets if t.name != o.target.name), HOST):
            yield f"--on {place}={o.nodes[0]}", replace(base, on=(*base.on, f"{place}={o.nodes[0]}"))
    rules = dict.fromkeys(r.rule for o in best_plan.offloads for r in o.because if r.grade != "E" and r.rule != o.mapping.name)
    variants = dict.fromkeys(o.mapping.variant for o in best_plan.offloads)
    for name in (*rules, *variants):
        yield f"--without {name}", replace(base, without=(*base.without, name))


def _one_of_each_form(offloads: Sequence[Offload]) -> list[Offload]:
    return list({(o.mapping.name, o.shapes): o for o in reversed(offloads) if o.nodes}.values())[::-1]
