"""Counterfactuals: changes of options under which a node on the host would be offloaded, each verified by compiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import AnswerNo, BudgetError, UsageError
from ..ir.program import Node, Program, total_macs
from ..limits import Limits
from ..rewrite.ruleset import LOWERING
from ..target import Target, target_names
from .compile import Options, chosen_targets, compile_model


@dataclass(frozen=True)
class Counterfactual:
    """A change that offloads a node: the option, the operations, their device calls, and multiply-accumulates after and before."""

    option: str
    becomes: tuple[str, ...]
    calls: int
    macs: int
    macs_before: int

    def __str__(self) -> str:
        operation_counts = ", ".join(f"{self.becomes.count(name)} {name}" for name in dict.fromkeys(self.becomes))
        calls = f"{self.calls} device call{'s' if self.calls != 1 else ''}"
        if not self.macs_before:
            return f"with {self.option} it becomes {operation_counts}, {calls}"
        extra_percent = 100 * (self.macs - self.macs_before) / self.macs_before
        return f"with {self.option} it becomes {operation_counts}, {calls}, {extra_percent:+.0f} % MACs"


def counterfactuals(path: str | Path, accel: Sequence[str | Target], node: str, options: Options | None = None) -> list[Counterfactual]:
    """Return the changes of options that offload a node now on the host, smallest first; each has been compiled.

    Raises:
        UsageError: (F201, F202) an accelerator does not exist or is given twice.
    """
    base_options = options or Options()
    targets = chosen_targets(accel, base_options.limits)
    results = []
    for option, accelerators, changed in _changes(targets, node, base_options):
        try:
            plan = compile_model(path, accelerators, changed)
        except (AnswerNo, BudgetError, UsageError):  # infeasible change
            continue
        number = next((n for n, s in enumerate(plan.source.sources) if s.name == node), -1)
        offloads = [o for o in plan.offloads if number in o.node.origins]
        if offloads:
            names = tuple(f"{o.target.name}.{o.mapping.operation}" for o in offloads)
            calls, macs = sum(o.tiling.calls for o in offloads), sum(o.macs for o in offloads)
            origins = frozenset(s for o in offloads for s in o.node.origins)
            results.append(Counterfactual(option, names, calls, macs, total_macs(plan.source, _nodes_from(plan.source, origins))))
    return results


def _changes(targets: Sequence[Target], node: str, base: Options) -> Iterator[tuple[str, Sequence[Target], Options]]:
    """Yield changes of command-line options that may offload a node, each with its accelerators and settings."""
    if base.exact:
        yield "no --exact", targets, replace(base, exact=False)
    for name in base.without:
        yield f"no --without {name}", targets, replace(base, without=tuple(n for n in base.without if n != name))
    for t in targets:
        yield f"--on {t.name}={node}", targets, replace(base, on=(*base.on, f"{t.name}={node}"))
    yield f"--rules {LOWERING}", targets, replace(base, rules=(*base.rules, Path(LOWERING)))
    for extra_target in _further_targets(targets, base.limits):
        yield f"--accel {extra_target.name}", [*targets, extra_target], base


def _further_targets(targets: Sequence[Target], limits: Limits) -> list[Target]:
    present_names = {t.name for t in targets}
    return [*chosen_targets([n for n in target_names() if n not in present_names], limits)] if set(target_names()) - present_names else []


def _nodes_from(p: Program, origins: frozenset[int]) -> list[Node]:
    return [n for n in p.nodes if n.origins & origins]
