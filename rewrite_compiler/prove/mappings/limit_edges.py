"""Sizes at the edge of a mapping's limits, where a capacity that is wrong by one shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingOf
from functools import partial
from typing import Any

from ...ops.op import ShapeError
from ...target import Mapping
from .draws import EXTENTS, ties
from .driver_code import literals
from .mappings import attributes_at, refusal_at, with_results

MAX_CORNER_CODES = 1 << 17  # of all operands of a size that is tried as a corner
MAX_EDGE_CODES = 1 << 20  # and of one at which a single capacity is used up
MAX_OPEN_CODES = 1 << 12  # and of one that no capacity bounds
ORDERS, STEPS = 6, 16
DIMENSIONS = 4  # of an operation whose sizes are free
LARGEST_DRAWN = max(EXTENTS)  # units of a dimension, on small designs
Sizes = dict[str, int]


def limit_corners(m: Mapping) -> Iterator[MappingOf[str, Any]]:
    """Yield maximal sizes that the limits admit, where no dimension could be larger: one for each order of growing the dimensions."""
    if m.statics:
        return  # its sizes go together: its own trials say which
    units = _units(m)
    candidates: list[dict[str, int]] = []
    for order in itertools.islice(itertools.permutations(units), ORDERS):
        sizes = dict(units)
        for d in order:
            sizes[d] = _largest(m, sizes, d)
        if sizes not in candidates and _codes(m, sizes) <= MAX_CORNER_CODES:
            candidates.append(sizes)
    yield from filter(None, (_admitted(m, sizes) for sizes in candidates))


def _admitted(m: Mapping, sizes: dict[str, int]) -> dict[str, int] | None:
    """Return the sizes, or with one of them a little smaller, as the guard admits them."""
    smaller = ({**sizes, d: n - step} for d, n in sizes.items() for step in range(min(n, STEPS)))
    return next((at for at in smaller if not refusal_at(m, at)), None)


def _largest(m: Mapping, sizes: MappingOf[str, int], d: str) -> int:
    """Return the largest multiple of a dimension's unit that the limits admit beside the other sizes."""
    unit = m.units.get(d, 1)
    return unit * _last(lambda n: m.exceeded_limit({**sizes, d: n * unit}, {}) is None, MAX_CORNER_CODES)


def _last(admits: Callable[[int], bool], most: int) -> int:
    """Return the last of the numbers from 1 on that are admitted, about `most` where all are."""
    low = 1
    while low < most and admits(2 * low):
        low *= 2
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admits(middle) else (low, middle)
    return low


def capacity_edges(m: Mapping) -> Iterator[MappingOf[str, Any]]:
    """Yield for each capacity the smallest sizes that use it up as far as any that were tried; each size once.

    All pairs of dimensions are tried at one unit of the others: the first in small multiples and powers of two, the second as
    large as the limits admit. Where sizes go together with attributes, or there is one alone, a single dimension grows from the
    first trial: the one that makes an operand or a result as large as the limits admit, for each of them.
    """
    if m.statics or len(_units(m)) == 1:
        yield from _extents(m)
        return
    if m.capacities is None or len(_units(m)) > DIMENSIONS:
        return  # sizes of recurrent layers, whose steps are many, are drawn on small designs or named by trials
    candidates = [sizes for sizes in _pairs(m) if _codes(m, sizes) <= MAX_EDGE_CODES and not refusal_at(m, sizes)]
    best: dict[str, tuple[tuple[int, ...], Sizes]] = {}
    for sizes in candidates:
        for limit in m.limits_at(sizes):
            order = limit.most - limit.needs, max(sizes.values()), _codes(m, sizes)
            if limit.what not in best or order < best[limit.what][0]:
                best[limit.what] = order, sizes
    distinct: list[Sizes] = []
    for _, sizes in best.values():
        if sizes not in distinct:
            distinct.append(sizes)
            yield sizes


def literal_edges(m: Mapping, least: int) -> Iterator[MappingOf[str, Any]]:
    """Yield sizes on both sides of each number above `least` that is written in the driver: so many units along each dimension."""
    if m.drive is None:
        return
    units, first = _units(m), dict(m.trials[0]) if m.trials else {}
    dimensions = [d for d in units if any(d in m.axes.of[v.name] for v in m.operands)]
    for n in dict.fromkeys(n for n, _ in literals(m.drive) if n > least):
        for d in dimensions:
            for times in (n, n + 1):
                sizes = _completed(m, {**units, **first, d: times * units[d]})
                if sizes is not None and _codes(m, sizes) <= MAX_EDGE_CODES and not refusal_at(m, sizes):
                    yield sizes


def _completed(m: Mapping, sizes: MappingOf[str, Any]) -> dict[str, Any] | None:
    """Return sizes with those of results, None where the pattern has no meaning at them."""
    operands = {d for v in m.operands for d in m.axes.of[v.name]} | {name for name, _ in m.statics}
    try:
        return with_results(m, {d: n for d, n in sizes.items() if d in operands})
    except (ShapeError, ArithmeticError):
        return None


def _extents(m: Mapping) -> Iterator[Sizes]:
    """Yield sizes with one dimension grown as far as limits admit; together they make every operand and result about as large as can be.

    Of sizes at which it is more than half as large as it can be those count that have the most codes altogether.
    """
    first, tied = {**_units(m), **(m.trials[0] if m.trials else {})}, ties(m)
    grown = [sizes for d in _units(m) if d not in tied and (sizes := _grown(m, first, tied, d)) is not None]
    extents: list[Sizes] = []
    for dims in m.axes.of.values():
        elements = [math.prod(sizes[d] for d in dims) for sizes in grown]
        large = [sizes for sizes, n in zip(grown, elements, strict=True) if 2 * n > max(elements)]
        if large and not any(sizes in large for sizes in extents):
            extents.append(max(large, key=partial(_codes, m)))
    yield from extents


def _grown(m: Mapping, first: MappingOf[str, Any], tied: MappingOf[str, tuple[str, int]], d: str) -> Sizes | None:
    """Return sizes with one dimension, and what is tied to it, as large as the limits admit; fewer where no limit ends it.

    None where not even one of it is admitted.
    """

    def at(count: int) -> Sizes | None:
        sizes = {**first, d: count * m.units.get(d, 1)}
        return _completed(m, {**sizes, **{name: factor * sizes[base] for name, (base, factor) in tied.items()}})

    def admitted(codes: int, count: int) -> bool:
        sizes = at(count)
        return sizes is not None and _codes(m, sizes) <= codes and not refusal_at(m, sizes)

    last = _last(partial(admitted, MAX_EDGE_CODES), MAX_EDGE_CODES)
    beyond = at(last + 1)
    if beyond is None or m.exceeded_limit(beyond, attributes_at(m, beyond)) is None:
        last = _last(partial(admitted, MAX_OPEN_CODES), MAX_OPEN_CODES)
    return at(last) if admitted(MAX_EDGE_CODES, last) else None


def _pairs(m: Mapping) -> Iterator[Sizes]:
    units = _units(m)
    for first, second in itertools.permutations(units, 2):
        for times in (1, 2, 3, 5, *(1 << k for k in range(2, 12))):
            sizes = {**units, first: times * units[first]}
            if m.exceeded_limit(sizes, {}) is None:
                yield {**sizes, second: _largest(m, sizes, second)}


def _units(m: Mapping) -> Sizes:
    return {d: m.units.get(d, 1) for d in dict.fromkeys(d for dims in m.axes.of.values() for d in dims)}


def _codes(m: Mapping, sizes: MappingOf[str, int]) -> int:
    return sum(math.prod(sizes[d] for d in m.axes.of[v.name]) for v in m.operands)
