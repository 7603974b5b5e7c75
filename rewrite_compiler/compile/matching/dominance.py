"""Dominated: offloads that cost more than another way to the same result from the same operands, whatever stays where.

A cheapest program holds none of them: in its place the other way would be cheaper, though operands that lay on the device
were loaded for it and its result were stored there. Without them most of the integer program is gone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from ...egraph import EGraph, ENode
from ...egraph.extraction.prune import CostOf
from ...egraph.graph.graph import ClassId
from ...target import Mapping as Operation
from .placement import RESULT, Key, Placed

DEPTH = 6  # operators one above the other that the other way may have
Memo = dict[tuple[ClassId, int], float]


class Bounds(Protocol):
    """What offloads cost at least."""

    devices: Mapping[str, Operation]

    def __call__(self, c: ClassId, node: ENode) -> tuple[int, ...] | None:
        """Return the cost of an e-node, None for one that must not be chosen."""

    def placed(self) -> Mapping[int, Placed]:
        """Return the offloads that could find an operand on the device or leave their result there, by e-node."""


def without_dominated(graph: EGraph, cost_of: CostOf, devices: AbstractSet[str], placed: Mapping[int, Placed]) -> CostOf:
    """Return costs under which no dominated offload can be chosen."""
    worse = _worse(graph, cost_of, devices, placed, cost_of)

    def cost(c: ClassId, n: ENode) -> tuple[int, ...] | None:
        return None if id(n) in worse else cost_of(c, n)

    return cost


def hopeless(graph: EGraph, bounds: Bounds, cost_of: CostOf) -> set[int]:
    """Return the offloads that are dominated by the host alone, however they are tiled: `bounds` are what they cost at least."""
    devices = bounds.devices.keys()

    def host(c: ClassId, n: ENode) -> tuple[int, ...] | None:
        return None if n.op in devices else cost_of(c, n)

    return _worse(graph, bounds, devices, bounds.placed(), host, moves=2)  # costs are rounded tile by tile


def _worse(
    graph: EGraph, cost_of: CostOf, devices: AbstractSet[str], placed: Mapping[int, Placed], others: CostOf, moves: int = 1
) -> set[int]:
    """Return the offloads that cost more than a way among `others`, and so many times what moving can cost for that one."""
    loads, stores = _most(placed)
    trees = _Trees(graph, others)
    worse = set[int]()
    for c, found in graph.classes.items():
        for n in found.nodes:
            whole = cost_of(c, n) if n.op in devices else None
            if whole is None:
                continue
            one = placed.get(id(n))
            least, moved = (whole[0], 0) if one is None else (min(one.spent.values()), _moved(one, loads, stores))
            if least - moves * moved > trees.cheapest(c, frozenset(n.children), DEPTH, {}):
                worse.add(id(n))
    return worse


def _most(placed: Mapping[int, Placed]) -> tuple[dict[Key, int], dict[Key, int]]:
    """Return by place what loading from it, and storing to it, costs at most."""
    loads, stores = dict[Key, int](), dict[Key, int]()
    for one in placed.values():
        whole = one.spent[frozenset()]
        for k, key in one.operands.items():
            stores[key] = max(stores.get(key, 0), whole - one.spent[frozenset({k})])
        if one.result is not None:
            loads[one.result] = max(loads.get(one.result, 0), whole - one.spent[frozenset({RESULT})])
    return loads, stores


def _moved(one: Placed, loads: Mapping[Key, int], stores: Mapping[Key, int]) -> int:
    """Return what moving its operands to the host, and its result to the device, costs at most."""
    return sum(loads.get(key, 0) for key in one.operands.values()) + (0 if one.result is None else stores.get(one.result, 0))


class _Trees:
    """The cheapest trees of classes at the first level, from operands that are given."""

    def __init__(self, graph: EGraph, cost_of: CostOf) -> None:
        self.graph, self.cost_of = graph, cost_of
        self.ways: dict[ClassId, list[tuple[int, frozenset[ClassId]]]] = {}

    def of(self, c: ClassId) -> list[tuple[int, frozenset[ClassId]]]:
        """Return what each e-node of a class costs, the cheapest first, and its operands that are no constants."""
        if c not in self.ways:
            costed = ((cost[0], n) for n in self.graph.classes[c].nodes if (cost := self.cost_of(c, n)) is not None)
            moving = ((spent, frozenset(d for d in n.children if not self.graph.classes[d].fixed)) for spent, n in costed)
            self.ways[c] = sorted(moving, key=lambda way: way[0])
        return self.ways[c]

    def cheapest(self, c: ClassId, given: AbstractSet[ClassId], depth: int, memo: Memo) -> float:
        """Return the cost of the cheapest tree of so many operators one above the other."""
        if not depth:
            return math.inf
        if (c, depth) not in memo:
            best = math.inf
            for spent, children in self.of(c):
                if spent >= best:
                    break
                best = min(best, spent + sum(self.cheapest(d, given, depth - 1, memo) for d in children if d not in given))
            memo[c, depth] = best
        return memo[c, depth]
