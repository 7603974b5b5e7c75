"""Exact choice without a solver: classes are eliminated one by one, each with the best of its options for every choice around it.

Work and memory grow with the number of classes that are open at once, which is small where an e-graph is a chain of layers;
where it is not, the answer is None and the integer program decides.
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
    """What a joint choice of some classes costs; `classes` in order of elimination, the next first.

    Costs are words, the first decides: the first axis of a table is that of its words, or of one that stands for all.
    """

    classes: tuple[ClassId, ...]
    costs: Table


def eliminated(options: Candidates, roots: Sequence[ClassId], first: int) -> dict[ClassId, Candidate] | None:
    """Return the cheapest choice in the levels from `first` on; None where tables would become too large.

    Two classes are never built from each other; a longer cycle is excluded where a cheapest choice has it.
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
    """Return the cheapest state of each class, None where tables would become too large; a few hubs are tried in every state."""
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
    best: tuple[list[int], dict[ClassId, int]] | None = None
    for states in itertools.product(*(range(sizes[c]) for c in hubs)):
        hub_states = dict(zip(hubs, states, strict=True))
        cost, state = _states(order, [_restricted(f, hub_states) for f in factors])
        if cost[0] < NEVER and (best is None or cost < best[0]):
            best = cost, {**state, **hub_states}
    return best[1] if best is not None else None


def _restricted(factor: _Factor, states: Mapping[ClassId, int]) -> _Factor:
    """Return a factor where some classes have a state: those come last among its classes."""
    free_classes = tuple(c for c in factor.classes if c not in states)
    index: Any = (..., *(states[c] for c in factor.classes[len(free_classes) :]))
    return _Factor(free_classes, np.asarray(factor.costs[index]))


def _unary(options: Candidates, roots: frozenset[ClassId], first: int) -> dict[ClassId, Table] | None:
    """Return the cost of each state of each class in words; None where a level does not fit into one."""
    levels = range(first, len(next(iter(options.values()))[0].cost))
    units = {k: math.gcd(*(o.cost[k] for candidates in options.values() for o in candidates)) or 1 for k in levels}
    largest = {k: 1 + sum(max(o.cost[k] for o in found) // units[k] for found in options.values()) for k in levels}
    if any(n >= NEVER for n in largest.values()):
        return None
    words = _words(largest)
    tables = {}
    for c, found in options.items():
        absent = NEVER if c in roots else 0
        costs = [[absent, *(sum(o.cost[k] // units[k] * weight for k, weight in word.items()) for o in found)] for word in words]
        tables[c] = np.array(costs, np.int64)
    return tables


def _words(largest: Mapping[int, int]) -> list[dict[int, int]]:
    """Return the weight of each level in its word: as many levels share one as its sums leave below NEVER; the first word decides."""
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
    """Return for each class and each class that it may need the states that need it."""
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
    for c, operands in [*((c, set(below)) for c, below in neighbours.items())]:
        for d in operands:
            neighbours[d].add(c)
    for cycle in excluded:
        for c in cycle:
            neighbours[c].update(d for d in cycle if d != c)
    return neighbours


def _order(neighbours: Mapping[ClassId, set[ClassId]], states: Mapping[ClassId, int]) -> list[ClassId] | None:
    """Return an order of elimination, fewest open neighbours first; None where a table would become too large."""
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
    """Return which state of the next class costs least, by the words one after the other."""
    if len(costs) == 1:
        return np.asarray(costs[0].argmin(axis=0))
    is_least = np.ones(costs.shape[1:], bool)
    for word in costs:
        contenders = np.where(is_least, word, 2 * NEVER)
        is_least = contenders == contenders.min(axis=0)
    return np.asarray(is_least.argmax(axis=0))


def _pairs(options: Candidates, needs: Needs, place: Mapping[ClassId, int]) -> Iterator[_Factor]:
    """Yield for each class and each class that it may need which states exclude each other."""
    for (c, d), states in needs.items():
        table = np.zeros((len(options[c]) + 1, len(options[d]) + 1), np.int64)
        rows = sorted(states)
        table[rows, ABSENT] = NEVER
        for back in needs.get((d, c), ()):
            table[rows, back] = NEVER
        yield _Factor((c, d), table[None]) if place[c] < place[d] else _Factor((d, c), table.T[None])


def _exclusion(cycle: Cycle, unary: Mapping[ClassId, Table], needs: Needs, place: Mapping[ClassId, int]) -> _Factor:
    """Return that not every class of a cycle may need the next one."""
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
    """Yield cycles of what is chosen below the roots, each from its least class; none only where there is none."""
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
