"""Exact extraction by bucket elimination: classes are eliminated one by one, each at its best for every state of its neighbours.

Time and memory are exponential in the width of the elimination order only, which is small where an e-graph is a chain of layers;
elsewhere the answer is None, and the integer program decides. (Dechter, Bucket elimination, Artificial Intelligence 113, 1999.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import ClassId
from .prune import Candidate, Candidates

Table = NDArray[Any]
Cycle = tuple[ClassId, ...]
Needs = dict[tuple[ClassId, ClassId], set[int]]  # class and operand class → states of the class with that operand
LARGEST_TABLE = 1 << 16  # entries of one table
MOST_HUB_STATES = 64  # joint states of hubs
ROUNDS = 40  # of excluding cycles
NEVER = 1 << 60  # more than any cost
ABSENT = 0  # state of a class that is not built; state n is its option n - 1


@dataclass(frozen=True)
class _Factor:
    """A cost table over the joint states of some classes, `classes` in order of elimination.

    `costs` is [words, states of each class …]: a cost is a sequence of words compared lexicographically; an axis of one word is
    broadcast to all.
    """

    classes: tuple[ClassId, ...]
    costs: Table


def cheapest_by_elimination(options: Candidates, roots: Sequence[ClassId], first: int) -> dict[ClassId, Candidate] | None:
    """Return the cheapest acyclic choice by the cost levels from `first` on; None where a table would exceed LARGEST_TABLE entries.

    Cycles of two and three classes are excluded from the start, longer ones lazily, when a cheapest choice contains them.
    """
    unary = _unary(options, frozenset(roots), first)
    if unary is None:
        return None
    needs = _needs(options)
    excluded: set[Cycle] = set(_triangles(needs))
    for _ in range(ROUNDS):
        state = _cheapest(options, unary, needs, excluded)
        if state is None:
            return None
        choice = {c: options[c][s - 1] for c, s in state.items() if s != ABSENT}
        cycles = set(_cycles(choice, roots))
        if not cycles:
            return choice
        excluded |= cycles
    return None


def _cheapest(options: Candidates, unary: Mapping[ClassId, Table], needs: Needs, excluded: set[Cycle]) -> dict[ClassId, int] | None:
    """Return the cheapest state of each class, None where tables would become too large; a few hubs are conditioned on."""
    sizes = {c: len(candidates) + 1 for c, candidates in options.items()}
    neighbours = _neighbours(options, excluded)
    hubs: list[ClassId] = []
    while (order := _order(neighbours, sizes)) is None:
        hubs.append(max(neighbours, key=lambda c: len(neighbours[c])))
        if math.prod(sizes[c] for c in hubs) > MOST_HUB_STATES:
            return None
        neighbours = {c: adjacent - {hubs[-1]} for c, adjacent in neighbours.items() if c != hubs[-1]}
    place = {c: n for n, c in enumerate((*order, *hubs))}
    factors = [*(_Factor((c,), unary[c]) for c in place), *_pairs(options, needs, place)]
    factors += [_exclusion(cycle, unary, needs, place) for cycle in sorted(excluded)]
    cheapest: tuple[list[int], dict[ClassId, int]] | None = None
    for states in itertools.product(*(range(sizes[c]) for c in hubs)):
        hub_states = dict(zip(hubs, states, strict=True))
        cost, state = _states(order, [_restricted(f, hub_states) for f in factors])
        if cost[0] < NEVER and (cheapest is None or cost < cheapest[0]):
            cheapest = cost, {**state, **hub_states}
    return cheapest[1] if cheapest is not None else None


def _restricted(factor: _Factor, states: Mapping[ClassId, int]) -> _Factor:
    """Return a factor restricted to the states of some classes, which come last among its own."""
    free_classes = tuple(c for c in factor.classes if c not in states)
    index: Any = (..., *(states[c] for c in factor.classes[len(free_classes) :]))
    return _Factor(free_classes, np.asarray(factor.costs[index]))


def _unary(options: Candidates, roots: frozenset[ClassId], first: int) -> dict[ClassId, Table] | None:
    """Return the cost of each state of each class as words; None where the sum of a level does not fit into a word."""
    levels = range(first, len(next(iter(options.values()))[0].cost))
    units = {k: math.gcd(*(o.cost[k] for candidates in options.values() for o in candidates)) or 1 for k in levels}
    largest = {k: 1 + sum(max(o.cost[k] for o in candidates) // units[k] for candidates in options.values()) for k in levels}
    if any(n >= NEVER for n in largest.values()):
        return None
    words = _words(largest)
    tables = {}
    for c, candidates in options.items():
        absent = NEVER if c in roots else 0
        costs = [[absent, *(sum(o.cost[k] // units[k] * weight for k, weight in word.items()) for o in candidates)] for word in words]
        tables[c] = np.array(costs, np.int64)
    return tables


def _words(largest: Mapping[int, int]) -> list[dict[int, int]]:
    """Return the weight of each level in its word: as many levels share a word as keep its sums below NEVER; earlier words dominate."""
    words: list[dict[int, int]] = [{}]
    weight = 1
    for k in sorted(largest, reverse=True):
        if weight * largest[k] >= NEVER:
            words.append({})
            weight = 1
        words[-1][k] = weight
        weight *= largest[k]
    return words[::-1]


def _needs(options: Candidates) -> Needs:
    """Return for each class and operand class the states of the class that need the operand."""
    needs: Needs = {}
    for c, candidates in options.items():
        for n, o in enumerate(candidates):
            for d in o.children:
                needs.setdefault((c, d), set()).add(n + 1)
    return needs


def _triangles(needs: Needs) -> Iterator[Cycle]:
    """Yield the cycles of three classes."""
    operands: dict[ClassId, set[ClassId]] = {}
    for c, d in needs:
        operands.setdefault(c, set()).add(d)
    for c, d in needs:
        if c < d:
            yield from ((c, d, e) for e in operands.get(d, ()) if e > c and c in operands.get(e, ()))


def _neighbours(options: Candidates, excluded: set[Cycle]) -> dict[ClassId, set[ClassId]]:
    neighbours: dict[ClassId, set[ClassId]] = {c: {d for o in candidates for d in o.children} for c, candidates in options.items()}
    for c, operands in [*((c, set(operands)) for c, operands in neighbours.items())]:
        for d in operands:
            neighbours[d].add(c)
    for cycle in excluded:
        for c in cycle:
            neighbours[c].update(d for d in cycle if d != c)
    return neighbours


def _order(neighbours: Mapping[ClassId, set[ClassId]], states: Mapping[ClassId, int]) -> list[ClassId] | None:
    """Return an elimination order by minimum degree; None where a table would exceed LARGEST_TABLE entries."""
    remaining = {c: set(n) for c, n in neighbours.items()}
    buckets: dict[int, dict[ClassId, None]] = {}
    for c, n in remaining.items():
        buckets.setdefault(len(n), {})[c] = None
    order: list[ClassId] = []
    while remaining:
        degree = min(d for d, bucket in buckets.items() if bucket)
        c = next(iter(buckets[degree]))
        if math.prod(states[d] for d in (c, *remaining[c])) > LARGEST_TABLE:
            return None
        adjacent = remaining.pop(c)
        del buckets[degree][c]
        for d in adjacent:
            del buckets[len(remaining[d])][d]
            remaining[d] |= adjacent
            remaining[d] -= {c, d}
            buckets.setdefault(len(remaining[d]), {})[d] = None
        order.append(c)
    return order


def _states(order: Sequence[ClassId], factors: Sequence[_Factor]) -> tuple[list[int], dict[ClassId, int]]:
    """Return the words of the least cost, NEVER where there is no choice, and the cheapest state of each class."""
    place = {c: n for n, c in enumerate(order)}
    pending_factors: dict[ClassId, list[_Factor]] = {c: [] for c in order}
    total: Table = np.zeros(1, np.int64)
    for f in factors:
        if f.classes:
            pending_factors[f.classes[0]].append(f)
        else:
            total = np.minimum(total + f.costs, NEVER)
    decisions: list[tuple[ClassId, tuple[ClassId, ...], Table]] = []
    for c in order:
        factor = _factor_sum(pending_factors.pop(c), place)
        open_classes = factor.classes[1:]
        least_state = _least(factor.costs)
        decisions.append((c, open_classes, least_state))
        costs = np.take_along_axis(factor.costs, least_state[None, None], axis=1)[:, 0]
        if open_classes:
            pending_factors[open_classes[0]].append(_Factor(open_classes, costs))
        else:
            total = np.minimum(total + costs, NEVER)
    state: dict[ClassId, int] = {}
    for c, open_classes, least_state in reversed(decisions):
        state[c] = int(least_state[tuple(state[d] for d in open_classes)])
    return [int(n) for n in total], state


def _least(costs: Table) -> Table:
    """Return the lexicographically least state along axis 1 of costs [words, states, …]."""
    if len(costs) == 1:
        return np.asarray(costs[0].argmin(axis=0))
    is_least = np.ones(costs.shape[1:], bool)
    for word in costs:
        contenders = np.where(is_least, word, 2 * NEVER)
        is_least = contenders == contenders.min(axis=0)
    return np.asarray(is_least.argmax(axis=0))


def _pairs(options: Candidates, needs: Needs, place: Mapping[ClassId, int]) -> Iterator[_Factor]:
    """Yield the constraint between each class and each operand class: states that need an operand exclude its absence."""
    for (c, d), states in needs.items():
        table = np.zeros((len(options[c]) + 1, len(options[d]) + 1), np.int64)
        rows = sorted(states)
        table[rows, ABSENT] = NEVER
        for back in needs.get((d, c), ()):
            table[rows, back] = NEVER
        yield _Factor((c, d), table[None]) if place[c] < place[d] else _Factor((d, c), table.T[None])


def _exclusion(cycle: Cycle, unary: Mapping[ClassId, Table], needs: Needs, place: Mapping[ClassId, int]) -> _Factor:
    """Return the constraint that not every class of a cycle needs the next one."""
    successor = dict(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    classes = tuple(sorted(cycle, key=place.__getitem__))
    table = np.zeros([unary[c].shape[1] for c in classes], np.int64)
    table[np.ix_(*(sorted(needs[c, successor[c]]) for c in classes))] = NEVER
    return _Factor(classes, table[None])


def _factor_sum(factors: Sequence[_Factor], place: Mapping[ClassId, int]) -> _Factor:
    """Return the sum of factors."""
    classes = tuple(sorted({c for f in factors for c in f.classes}, key=place.__getitem__))
    total: Table | None = None
    for f in factors:
        sizes = dict(zip(f.classes, f.costs.shape[1:], strict=True))
        aligned = f.costs.reshape([len(f.costs), *(sizes.get(c, 1) for c in classes)])
        total = aligned if total is None else np.minimum(total + aligned, NEVER)
    assert total is not None
    return _Factor(classes, total)


def _cycles(choice: Mapping[ClassId, Candidate], roots: Sequence[ClassId]) -> Iterator[Cycle]:
    """Yield cycles of a choice below the roots, each starting at its least class; at least one if there is any."""
    path: list[ClassId] = []
    on_path: set[ClassId] = set()
    finished_classes: set[ClassId] = set()
    work = [(r, False) for r in roots]
    while work:
        c, leaving = work.pop()
        if leaving:
            finished_classes.add(c)
            on_path.discard(path.pop())
        elif c in on_path:
            cycle = path[path.index(c) :]
            least = cycle.index(min(cycle))
            yield (*cycle[least:], *cycle[:least])
        elif c not in finished_classes:
            path.append(c)
            on_path.add(c)
            work.append((c, True))
            work.extend((d, False) for d in sorted(choice[c].children) if d not in finished_classes)
