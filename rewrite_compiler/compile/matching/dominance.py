"""Dominance: offloads that cost more than another tree of the same class over the same operands, wherever tensors are resident.

No cheapest program contains one: the other tree would be cheaper in its place, even if resident operands had to be loaded for it
and its result stored on the device. Removing them removes most of the integer program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from ...egraph.extraction.prune import CostOf
from ...egraph.graph.graph import ClassId, EGraph, ENode
from ...target import Mapping as Operation
from .placement import RESULT, Key, Placement

DEPTH = 6  # levels of operators of the rival tree
Memo = dict[tuple[ClassId, int], tuple[float, float]]  # by class and depth: the least cost, and the limit up to which it was sought


class Bounds(Protocol):
    """Lower bounds of the costs of offloads."""

    devices: Mapping[str, Operation]

    def __call__(self, c: ClassId, node: ENode) -> tuple[int, ...] | None:
        """Return a lower bound of the cost of an e-node by levels, None for one that must not be chosen."""

    def placements(self) -> Mapping[int, Placement]:
        """Return the placement of each offload that can have a resident operand or result, by the id of its e-node."""


def without_dominated(graph: EGraph, cost_of: CostOf, devices: AbstractSet[str], placements: Mapping[int, Placement]) -> CostOf:
    """Return a cost function that forbids dominated offloads."""
    dominated = _dominated(graph, cost_of, devices, placements, cost_of)

    def cost(c: ClassId, n: ENode) -> tuple[int, ...] | None:
        return None if id(n) in dominated else cost_of(c, n)

    return cost


def dominated_by_host(graph: EGraph, bounds: Bounds, cost_of: CostOf) -> set[int]:
    """Return the ids of offloads dominated by host operators alone under any tiling: `bounds` are lower bounds of their costs."""
    devices = bounds.devices.keys()

    def host(c: ClassId, n: ENode) -> tuple[int, ...] | None:
        return None if n.op in devices else cost_of(c, n)

    return _dominated(graph, bounds, devices, bounds.placements(), host, moves=2)  # costs are rounded tile by tile


def _dominated(
    graph: EGraph, cost_of: CostOf, devices: AbstractSet[str], placements: Mapping[int, Placement], rival_cost: CostOf, moves: int = 1
) -> set[int]:
    """Return the ids of offloads that cost more than a tree under `rival_cost` plus `moves` times the largest cost of moving tensors."""
    loads, stores = _largest_moves(placements)
    trees = _Trees(graph, rival_cost)
    dominated = set[int]()
    for c, e_class in graph.classes.items():
        for n in e_class.nodes:
            offload_cost = cost_of(c, n) if n.op in devices else None
            if offload_cost is None:
                continue
            placement = placements.get(id(n))
            least, move_cost = (
                (offload_cost[0], 0)
                if placement is None
                else (min(placement.cost_by_residents.values()), _largest_move(placement, loads, stores))
            )
            limit = least - moves * move_cost
            if trees.has_one_below(limit, c, frozenset(n.children)):
                dominated.add(id(n))
    return dominated


def _largest_moves(placements: Mapping[int, Placement]) -> tuple[dict[Key, int], dict[Key, int]]:
    """Return the largest cost of loading from, and of storing to, each place."""
    loads, stores = dict[Key, int](), dict[Key, int]()
    for placement in placements.values():
        unplaced_cost = placement.cost_by_residents[frozenset()]
        for k, key in placement.operands.items():
            stores[key] = max(stores.get(key, 0), unplaced_cost - placement.cost_by_residents[frozenset({k})])
        if placement.result is not None:
            loads[placement.result] = max(loads.get(placement.result, 0), unplaced_cost - placement.cost_by_residents[frozenset({RESULT})])
    return loads, stores


def _largest_move(placement: Placement, loads: Mapping[Key, int], stores: Mapping[Key, int]) -> int:
    """Return the largest cost of moving an offload's operands to the host and its result to the device."""
    return sum(loads.get(key, 0) for key in placement.operands.values()) + (
        0 if placement.result is None else stores.get(placement.result, 0)
    )


class _Trees:
    """The cheapest trees of classes at the first cost level, over operands that cost nothing."""

    def __init__(self, graph: EGraph, cost_of: CostOf) -> None:
        self.graph, self.cost_of = graph, cost_of
        self.costed_nodes: dict[ClassId, list[tuple[int, frozenset[ClassId]]]] = {}

    def costs_of(self, c: ClassId) -> list[tuple[int, frozenset[ClassId]]]:
        """Return the cost of each e-node of a class and its operands that are not constants, cheapest first."""
        if c not in self.costed_nodes:
            costed = ((cost[0], n) for n in self.graph.classes[c].nodes if (cost := self.cost_of(c, n)) is not None)
            moving = ((node_cost, frozenset(d for d in n.children if not self.graph.classes[d].fixed)) for node_cost, n in costed)
            self.costed_nodes[c] = sorted(moving, key=lambda entry: entry[0])
        return self.costed_nodes[c]

    def has_one_below(self, limit: float, c: ClassId, free_classes: AbstractSet[ClassId]) -> bool:
        """Tell whether a tree of a class costs less than a limit: most often one operator alone does."""
        for node_cost, children in self.costs_of(c):
            if node_cost >= limit:
                return False
            if children <= free_classes:
                return True
        return self.cheapest(c, free_classes, DEPTH, limit, {}) < limit

    def cheapest(self, c: ClassId, free_classes: AbstractSet[ClassId], depth: int, limit: float, memo: Memo) -> float:
        """Return the cost of the cheapest tree of at most `depth` levels of operators, `limit` or more if none is below it."""
        if not depth:
            return math.inf
        least, known_limit = memo.get((c, depth), (0, 0))
        if least < known_limit or limit <= known_limit:
            return least
        least = limit
        for node_cost, children in self.costs_of(c):
            total: float = node_cost
            if total >= least:
                break
            for d in children - free_classes:
                total += self.cheapest(d, free_classes, depth - 1, least - total, memo)
                if total >= least:
                    break
            least = min(least, total)
        memo[c, depth] = least, limit
        return least
