"""Are the reasons why nodes stay on the host true? What a reason names is changed, and the node must then be offloaded.

Host nodes are drawn over the architectures of the gallery or the models of a folder. Where the reason is a capacity, it is lifted;
where it is conditions, the operation is matched without them; where it is the objective, the operator gets a price on the host, and
where conditions are met and the objective still keeps it there, both; where it is that weights must be known, products of computed
tensors are allowed; where the lowerings are named, they are used. Reasons that name no change (an operator that no operation has,
one that only moves data, a pattern of another form, other shapes) are counted apart. Reasons that were not true are shown, and with
fewer true ones than --share the script ends with 1.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from record import Row, finish, options
from styles import models

from rewrite_compiler.compile import Options
from rewrite_compiler.compile.compile import SearchSpace, search_space
from rewrite_compiler.compile.explanation.host_reasons import Distance, HostReasons, Obstacle
from rewrite_compiler.compile.matching.match import MatchResult, match
from rewrite_compiler.compile.matching.pins import NO_PINS, Pins
from rewrite_compiler.egraph.extraction.prune import CostOf
from rewrite_compiler.egraph.graph.graph import EGraph, ENode
from rewrite_compiler.egraph.graph.term_rows import operator_named
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.program import Node, Program
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.ops.op import LAYOUT
from rewrite_compiler.rewrite.ruleset import LOWERING, rules_at
from rewrite_compiler.target import Limit, Mapping, Target, find_target

# a search that a busy machine cuts short is no answer
UNHURRIED = replace(DEFAULT, saturation_seconds=3600, extraction_seconds=3600, alternatives_seconds=3600, solver_seconds=600)
PRICE = 10**9  # on the first level of the objective, beyond all multiply-accumulates of a small model
WITH_LOWERINGS = Options(rules=(Path(LOWERING),))


@dataclass(frozen=True)
class Compiled:
    """A program matched for a target, and why its host nodes stay there."""

    name: str
    program: Program
    target: Target
    space: SearchSpace
    result: MatchResult
    reasons: HostReasons

    def host_nodes(self) -> list[Node]:
        """Return the host nodes that compute."""
        return [n for n in self.result.program.nodes if n.operator is not None and n.operator.kind != LAYOUT and n.origins]

    def takes(self, node: Node, space: SearchSpace, pins: Pins = NO_PINS) -> bool | None:
        """Tell whether an accelerator takes a source node of a node in another search space; None where only other shapes would do."""
        try:
            again = match(self.program, space.rules, space.mappings, UNHURRIED, space.objective, pins)
        except FlexmatchError:
            return False
        except ValueError:  # without its condition on ranks or shapes an operation has no dimensions
            return None
        names = {m.name for m in space.mappings}
        is_taken = any(n.op in names and n.origins & node.origins for n in again.program.nodes)
        return is_taken and self.host_count(again.program, node) < self.host_count(self.result.program, node)

    @staticmethod
    def host_count(p: Program, node: Node) -> int:
        """Return how many host nodes of a program have the operator and a source of a node."""
        return sum(n.op == node.op and bool(n.origins & node.origins) for n in p.nodes)


@dataclass(frozen=True)
class OperatorPreference(Pins):
    """A price on one operator of a source node on the host, which an operation that fits is cheaper than, whatever the objective."""

    op: str = ""
    origins: frozenset[int] = frozenset()

    def restrict(self, cost_of: CostOf, graph: EGraph, devices: MappingOf[str, Mapping]) -> CostOf:
        """Return a cost function with the price on its first level."""

        def cost(c: int, node: ENode) -> tuple[int, ...] | None:
            levels, operator = cost_of(c, node), operator_named(node.op)
            if levels is None or node.op in devices or operator is None or operator.name != self.op or not self.origins & node.origins:
                return levels
            return (levels[0] + PRICE, *levels[1:])

        return cost


def compiled(path: Path, target: Target) -> Compiled:
    """Return a model matched for a target."""
    program, space = load(path).program, search_space([target], Options())
    result = match(program, space.rules, space.mappings, UNHURRIED, space.objective)
    further = [m for m in target.mappings.values() if m.runtime_weights]
    reasons = HostReasons(result.program, space.mappings, result.fitted, unselected=further, lowerings=rules_at(Path(LOWERING)))
    return Compiled(path.stem, program, target, space, result, reasons)


def without_limit(m: Mapping, limit: Limit) -> Mapping:
    """Return a mapping of a device with as much of one capacity as is needed."""
    assert m.capacities is not None
    capacities: Callable[..., Any] = m.capacities

    @wraps(capacities)
    def lifted(*args: Any, **sizes: Any) -> Iterator[Limit]:
        yield from (Limit(x.what, 0, x.most) if x.what == limit.what else x for x in capacities(*args, **sizes))

    return replace(m, capacities=lifted)


def changed(c: Compiled, obstacle: Obstacle) -> SearchSpace | None:
    """Return the search space in which what an obstacle names is no longer in the way; None where it names no change of a mapping."""

    def change(m: Mapping) -> Mapping:
        if m is not obstacle.mapping:
            return m
        if obstacle.limit is not None:
            return without_limit(m, obstacle.limit)
        return replace(m, rule=replace(m.rule, where=tuple(x for x in m.rule.where if not any(x is c for c in obstacle.conditions))))

    if obstacle.limit is None and not obstacle.conditions:
        return None
    return replace(c.space, mappings=[change(m) for m in c.space.mappings])


def is_true(c: Compiled, node: Node) -> tuple[str, bool | None, str]:
    """Return the kind of a node's reason, whether the change that it names offloads the node (None: it names none), and the reason."""
    reason = c.reasons(node)
    if reason.startswith("both factors"):
        return "weights", c.takes(node, search_space([c.target], WITH_LOWERINGS)), reason
    if f"--rules {LOWERING}" in reason:
        return "lowering", c.takes(node, search_space([c.target], WITH_LOWERINGS)), reason
    obstacle = next(iter(c.reasons.obstacles(node)), None)
    if obstacle is None:
        return "no operation", None, reason
    preference = OperatorPreference(op=node.op, origins=node.origins)
    if obstacle.distance == Distance.COST:
        return "objective", c.takes(node, c.space, preference), reason
    space, kind = changed(c, obstacle), obstacle.distance.name.lower()
    if space is None:
        return kind, None, reason
    if c.takes(node, space):
        return kind, True, reason
    return f"{kind}, then the objective", c.takes(node, space, preference), reason


def drawn(paths: Sequence[Path], targets: Sequence[Target], count: int) -> Iterator[tuple[Compiled, Node]]:
    """Yield host nodes of models and targets in turns, each drawn at random, one of each reason in a model."""
    order = random.Random(1)
    share = max(1, count // (len(paths) * len(targets)))
    for path in paths:
        for target in targets:
            c = compiled(path, target)
            nodes = c.host_nodes()
            order.shuffle(nodes)
            by_reason = list({c.reasons(n): n for n in nodes}.values())
            yield from ((c, n) for n in by_reason[:share])


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=200)
    parser.add_argument("--targets", default="flexasr,vta,hlscnn", help="accelerators (default: %(default)s)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="a folder of models, in place of the gallery")
    parser.add_argument("--share", type=float, default=0.95, help="of reasons that must be true (default: %(default)s)")
    args = parser.parse_args()
    verdicts: Counter[tuple[str, bool | None]] = Counter()
    rows: list[Row] = []
    with TemporaryDirectory() as scratch:
        paths = list(models(args.models, Path(scratch)))
        for c, node in drawn(paths, [find_target(t) for t in args.targets.split(",")], args.runs):
            kind, verdict, reason = is_true(c, node)
            verdicts[kind, verdict] += 1
            rows.append({"name": c.name, "target": c.target.name, "op": node.op, "kind": kind, "true": verdict, "reason": reason})
            if verdict is False:
                print(f"not true: {c.name} on {c.target.name}, {node.op}: {reason}", flush=True)
    for (kind, verdict), n in sorted(verdicts.items(), key=str):
        print(f"{n:4} {kind}: {'names no change' if verdict is None else 'true' if verdict else 'NOT true'}")
    judged = [row for row in rows if row["true"] is not None]
    true = sum(bool(row["true"]) for row in judged)
    print(f"{true} of {len(judged)} reasons that name a change are true")
    finish("why_not", rows, args.json)
    raise SystemExit(true < args.share * len(judged))


if __name__ == "__main__":
    main()
