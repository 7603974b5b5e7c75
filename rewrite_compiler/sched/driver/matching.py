"""Matching: which lanes of a computation take which loops of an operation, which operand is which, and how operands lie in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from ...ila.summary import Access
from ...lang import intervals as iv
from ...readings.arrays.labelled_array import Data
from ..codelet import Affine
from ..instructions.computation import Computation, Start
from .operation import CHAINED, ZEROS, Operation, Reach, zeros

NONE = -1  # no element: a zero
BYTE = 8
LOW_FIRST, HIGH_FIRST = "(bytes)", "(bytes, high first)"  # what a lane moves along that goes over the parts of one result's code
PARTS = (LOW_FIRST, HIGH_FIRST)


@dataclass(frozen=True)
class Slot:
    """An operand or the result of a computation, what of the operation it is, and the lanes that move it by element."""

    access: Access
    reach: Reach


@dataclass(frozen=True, eq=False)
class Match:
    """The slots, the loop of the operation that each lane takes (None: only its first), and lanes in order, innermost first."""

    computation: Computation
    operation: Operation
    result: Slot
    operands: tuple[Slot, ...]
    initial: Reach | None  # what the accumulator starts from; None where there is none, or it starts at 0
    lanes: Mapping[str, str | None]
    left: tuple[Reach, ...] = ()  # operands that it leaves to a computation on its results
    starts: Start | None = None  # the switch that leaves the accumulator out, its value for that, and the one to go on

    @property
    def part_bits(self) -> int:
        """How many bits of a result's code an element that it writes has: less than all where a lane goes over its parts."""
        parts = math.prod(n for v, n in self.computation.lanes.items() if self.lanes[v] in PARTS)
        return self.operation.code_bits // parts

    def lane_extent(self, loop: str) -> int:
        """Return how many iterations of a loop lanes take."""
        return self._lane_extents.get(loop, 1)

    @cached_property
    def _lane_extents(self) -> dict[str | None, int]:
        extents: dict[str | None, int] = {}
        for v, n in self.computation.lanes.items():
            extents[self.lanes[v]] = extents.get(self.lanes[v], 1) * n
        return extents

    @cached_property
    def outer(self) -> dict[str, int]:
        """How many steps each loop of the operation takes, those of one step left out."""
        counts = {v: -(-n // self.lane_extent(v)) for v, n in self.operation.loops}
        return {v: n for v, n in counts.items() if n > 1}


def matches(op: Operation, c: Computation) -> Iterator[Match]:
    """Yield the ways in which a computation does a step of an operation."""
    for reaches, initial, left in _assignments(op, c):
        slots = [Slot(a, r) for a, r in zip(c.operands, reaches, strict=True)]
        result = Slot(c.result, op.result)
        options = [[*_parts_for(c, lane, result, slots, op), *_loops_for(lane, n, result, slots, op)] for lane, n in c.lanes.items()]
        for loop_choice in itertools.product(*options):
            lanes = dict(zip(c.lanes, loop_choice, strict=True))
            for start in c.starts or (None,) if initial is None else (None,):
                m = Match(c, op, result, tuple(slots), initial, lanes, left, start)
                if all(is_aligned(m, s, ()) for s in (result, *slots)):
                    yield m


Assignment = tuple[tuple[Reach, ...], Reach | None, tuple[Reach, ...]]


def _assignments(op: Operation, c: Computation) -> Iterator[Assignment]:
    """Yield the operands of an operation in the order of a computation's, what its accumulator starts from, and what is left over."""
    yield from _orders(op, c, len(c.operands))
    if len(c.operands) == len(op.operands) + (0 if c.accumulates and _is_chain(op) else 1):
        for place, zero in itertools.product(range(len(c.operands)), zeros(op)):
            for order, initial, left in _orders(op, c, len(c.operands) - 1):
                if not left:
                    yield (*order[:place], zero, *order[place:]), initial, ()


def _is_chain(op: Operation) -> bool:
    return any(r.name == CHAINED for r in op.operands)


def _orders(op: Operation, c: Computation, count: int) -> Iterator[Assignment]:
    """Yield operands that a computation takes; one that sums go over, or that is the sums, is never left over."""
    for order in itertools.permutations(op.operands, count):
        others = tuple(r for r in op.operands if r not in order)
        for initial in (None, *others) if c.accumulates else (None,):
            left = tuple(r for r in others if r is not initial)
            if (initial is None or not _is_summed(op, initial)) and not any(_is_summed(op, r) or r.name == CHAINED for r in left):
                yield order, initial, left


def _is_summed(op: Operation, r: Reach) -> bool:
    return any(r.moves_with(v) for v in op.reduced)


def coefficients(access: Access, loop: str) -> tuple[int, ...]:
    """Return by how much a lane moves along each axis of a memory."""
    return tuple(p.get((loop,), 0) for p in access.address)


def _signature(lane: str, result: Slot, slots: Sequence[Slot]) -> frozenset[int]:
    return frozenset(n for n, s in enumerate((result, *slots)) if any(coefficients(s.access, lane)))


def _loops_for(lane: str, n_lanes: int, result: Slot, slots: Sequence[Slot], op: Operation) -> list[str | None]:
    """Return the loops of an operation that move the same operands as a lane, longest first, then none."""
    if n_lanes == 1:
        return [None]
    signature = _signature(lane, result, slots)

    def moved(loop: str) -> frozenset[int]:
        return frozenset(n for n, s in enumerate((result, *slots)) if s.reach.moves_with(loop))

    names = [v for v, n in sorted(op.loops, key=lambda x: -x[1]) if moved(v) == signature and n > 1]
    return [*names, None]


def is_aligned(m: Match, s: Slot, loops: Iterable[str]) -> bool:
    """Tell whether each lane moves its operand by one element along one axis, on which others and these loops move by whole steps."""
    names = {x for x in m.lanes.values() if x is not None}
    inside = names.union(loops)
    for v in names:
        for factor, axis in zip(s.reach.factors(v), s.reach.axes, strict=True):
            others = [f for w, f in axis.terms if w != v and w in inside]
            if factor and (factor != 1 or any(f % m.lane_extent(v) for f in others)):
                return False
    return True


def _parts_for(c: Computation, lane: str, result: Slot, slots: Sequence[Slot], op: Operation) -> list[str]:
    """Return the orders in which a lane may go over the parts of a code that lie in words of fewer bits."""
    width = iv.width_of(c.transition.update.memory.interval)
    is_of_result = _signature(lane, result, slots) == frozenset({0})
    return [*PARTS] if is_of_result and width is not None and 1 < c.lanes[lane] == op.code_bits // width[0] else []


def low_end(a: Affine, extents: Mapping[str, int]) -> int:
    """Return the least value of an offset."""
    return a.constant + sum(min(f * (extents[v] - 1), 0) for v, f in a.terms)


def high_end(a: Affine, extents: Mapping[str, int]) -> int:
    """Return the greatest value of an offset."""
    return a.constant + sum(max(f * (extents[v] - 1), 0) for v, f in a.terms)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Addresses [places, axes of the memory] from base 0 on, the index along each axis of the operand, and whether lanes use a place.

    Indices have an axis for each of `shape`, of one element where they do not depend on it.
    """

    shape: tuple[int, ...]
    addresses: Data
    positions: Sequence[Data]
    is_used: Data


@dataclass(frozen=True, eq=False)
class Region:
    """The layout of a slot: `order` are the operand's axes, outermost first; `loops` are the loops that move inside of it."""

    match: Match
    slot: Slot
    order: tuple[int, ...]
    loops: Mapping[str, int]  # steps of the loops inside

    @cached_property
    def unit(self) -> int:
        """Addresses that the lanes of one step reach."""
        return 1 + sum(coefficients(self.slot.access, v)[0] * (n - 1) for v, n in self.lanes.items())

    @cached_property
    def lanes(self) -> dict[str, int]:
        """The lanes that move the slot."""
        return {v: n for v, n in self.match.computation.lanes.items() if any(coefficients(self.slot.access, v))}

    @property
    def is_aligned(self) -> bool:
        """Whether each lane moves its operand by one element along one axis, on which other loops inside move by whole steps."""
        return is_aligned(self.match, self.slot, self.loops)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Iterations of each loop of the operation inside of the region: whole steps."""
        return {v: self.loops.get(v, 1) * self.match.lane_extent(v) for v, _ in self.match.operation.loops}

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Elements along each axis that lanes take at once."""
        reach = self.slot.reach
        return tuple(math.prod({v: self.match.lane_extent(v) for v, f in a.terms if f == 1}.values()) for a in reach.axes)

    @cached_property
    def low(self) -> tuple[int, ...]:
        """The first element along each axis."""
        return tuple(low_end(a, self.extents) for a in self.slot.reach.axes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Steps along each axis."""
        ends = (high_end(a, self.extents) for a in self.slot.reach.axes)
        return tuple(-(-(end + 1 - low) // width) for end, low, width in zip(ends, self.low, self.widths, strict=True))

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Addresses from step to step along each axis."""
        strides, step = [0] * len(self.sizes), self.unit
        for axis in reversed(self.order):
            strides[axis] = step
            step *= self.sizes[axis]
        return tuple(strides)

    @property
    def addresses(self) -> int:
        """Addresses of the region."""
        return self.unit * math.prod(self.sizes)

    def stride(self, loop: str) -> int:
        """Return by how many addresses one step of a loop moves; a loop that is not inside moves the region's contents instead."""
        if loop not in self.loops:
            return 0
        factors = self.slot.reach.factors(loop)
        extent = self.match.lane_extent(loop)
        return sum(f * extent // width * step for f, width, step in zip(factors, self.widths, self.strides, strict=True))

    def addresses_from(self, base: Sequence[int]) -> Data:
        """Return the address of each place [places, axes of the memory], given that of the first."""
        addresses: Data = self._grid.addresses + np.array(base)
        for axis, modulus in enumerate(self.slot.access.moduli):
            if modulus is not None and (addresses[:, axis].min(initial=0) < 0 or addresses[:, axis].max(initial=0) >= modulus):
                addresses[:, axis] %= modulus
        return addresses

    @cached_property
    def is_distinct(self) -> bool:
        """Whether no two of its places have one address."""
        keys = np.zeros(len(self._grid.addresses), np.int64)
        for axis in self.addresses_from((0,) * len(self.slot.access.address)).T:
            steps = axis - axis.min(initial=0)
            keys = keys * (steps.max(initial=0) + 1) + steps
        return int(np.bincount(keys).max(initial=0)) <= 1

    @cached_property
    def ways(self) -> list[Data] | None:
        """How far each element along each axis lies from the first [size, axes of the memory]; None where axes are not apart."""
        reach, m, lanes = self.slot.reach, self.match, self.lanes
        loops = [a.terms[0][0] for a in reach.axes if a.terms]
        is_affine = all(a.constant == 0 and len(a.terms) <= 1 and all(f == 1 for _, f in a.terms) for a in reach.axes)
        is_direct = reach.folded is None and reach.name != ZEROS and len({*loops}) == len(loops)
        lane_counts = {v: math.prod(n for lane, n in lanes.items() if m.lanes[lane] == v) for v in loops}
        if not (is_affine and is_direct and all(n == m.lane_extent(v) for v, n in lane_counts.items())):
            return None
        if any(m.lanes[lane] in PARTS for lane in lanes):
            return None
        return [self._way(axis, a.terms[0][0] if a.terms else "") for axis, a in enumerate(reach.axes)]

    def _way(self, axis: int, loop: str) -> Data:
        elements = np.arange(min(self.slot.reach.shape[axis], self.sizes[axis] * self.widths[axis]))
        steps, left = elements // self.widths[axis], elements % self.widths[axis]
        way = np.zeros((len(elements), len(self.slot.access.address)), np.int64)
        way[:, 0] = steps * self.strides[axis]
        for v, n in reversed(self.lanes.items()):
            if self.match.lanes[v] == loop:
                way += (left % n)[:, None] * np.array(coefficients(self.slot.access, v))
                left = left // n
        return way

    @cached_property
    def _grid(self) -> _Grid:
        """The places of a region and what lies there while no loop outside has moved."""
        lanes, reach = self.lanes, self.slot.reach
        shape = (*self.sizes, *lanes.values())
        grid = np.indices(shape, sparse=True)
        steps, lane_values = grid[: len(self.sizes)], dict(zip(lanes, grid[len(self.sizes) :], strict=True))
        axes = [np.zeros((), np.int64) for _ in self.slot.access.address]
        for v, values in lane_values.items():
            axes = [a + values * c for a, c in zip(axes, coefficients(self.slot.access, v), strict=True)]
        axes[0] = sum((steps[n] * step for n, step in enumerate(self.strides)), axes[0])
        addresses = np.stack([np.broadcast_to(a, shape).reshape(-1) for a in axes]).T
        positions, is_used = [], np.ones((), bool)
        for axis, offset in enumerate(reach.axes if reach.name != ZEROS else ()):
            value = steps[axis] * self.widths[axis] + self.low[axis]
            positions.append(value + sum(factor * self._lane_index(v, lane_values) for v, factor in offset.terms))
        for v, values in lane_values.items():
            if not self._is_used(v):
                is_used = is_used & (values == 0)
        return _Grid(shape, addresses, positions, is_used)

    @cached_property
    def parts(self) -> Data:
        """The byte of an element's code at which each place of a window begins."""
        shape = (*self.sizes, *self.lanes.values())
        first = np.zeros((), np.int64)
        for (v, n), values in zip(self.lanes.items(), np.indices(shape, sparse=True)[len(self.sizes) :], strict=True):
            if self.match.lanes[v] in PARTS:
                order = values if self.match.lanes[v] == LOW_FIRST else n - 1 - values
                first = first * n + order
        return np.broadcast_to(first * (self.match.part_bits // BYTE), shape).reshape(-1)

    def initial(self, start: Reach | None, outside: Mapping[str, int]) -> Data:
        """Return of each place of a result's window the flat index of what its accumulator starts from, or NONE."""
        elements = self.elements(outside)
        if start is None:
            return np.full(elements.shape, NONE)
        loops = [a.terms[0][0] if a.terms else "" for a in self.slot.reach.axes]
        position = dict(zip(loops, np.unravel_index(np.maximum(elements, 0), self.slot.reach.shape), strict=True))
        flat = np.zeros(elements.shape, np.int64)
        for size, a in zip(start.shape, start.axes, strict=True):
            flat = flat * size + a.constant + sum((f * position[v] for v, f in a.terms), np.zeros(elements.shape, np.int64))
        return np.where(elements == NONE, NONE, flat)

    def elements(self, outside: Mapping[str, Any], origin: Mapping[str, int] = MappingProxyType({})) -> Data:
        """Return the flat index of the operand's element at each place, or NONE; where steps are arrays, for each of them.

        `outside` are the steps of loops, of which those count that move the region from outside, `origin` the iteration of each loop at
        which the tile begins that it is a region of.
        """
        reach, m, grid = self.slot.reach, self.match, self._grid
        if reach.name == ZEROS:
            return np.full(len(grid.addresses), NONE)
        begin = {v: n * m.lane_extent(v) for v, n in outside.items() if v not in self.loops}
        shifts = [sum((f * (begin.get(v, 0) + origin.get(v, 0)) for v, f in a.terms), np.zeros((), np.int64)) for a in reach.axes]
        ends = (1,) * len(grid.shape)
        values = [position + n.reshape(*n.shape, *ends) for position, n in zip(grid.positions, shifts, strict=True)]
        flat, is_valid = _flat(values, reach.shape, grid.is_used)
        if reach.folded is not None:
            at = dict(zip(reach.dims, values, strict=True))
            places = [sum((f * at[v] for v, f in a.terms), np.array(a.constant)) for a in reach.folded.axes]
            flat, is_valid = _flat(places, reach.folded.shape, is_valid)
        elements = np.where(is_valid, flat, NONE)
        lead = max((n.shape for n in shifts), key=len, default=())
        return np.broadcast_to(elements, (*lead, *grid.shape)).reshape(*lead, -1)

    def _is_used(self, lane: str) -> bool:
        loop = self.match.lanes[lane]
        return loop in PARTS or (loop is not None and self.slot.reach.moves_with(loop))

    def _lane_index(self, loop: str, lane_values: Mapping[str, Data]) -> Data:
        """Return which iteration of a loop the lanes at each place are, the last lane innermost."""
        index = np.zeros((), np.int64)
        for v, n in self.lanes.items():
            if self.match.lanes[v] == loop:
                index = index * n + lane_values[v]
        return index


def _flat(values: Sequence[Data], shape: Sequence[int], is_valid: Data) -> tuple[Data, Data]:
    """Return the flat index of each place of an array, and whether it is one."""
    flat = np.zeros((), np.int64)
    for value, size in zip(values, shape, strict=True):
        is_valid = is_valid & (value >= 0) & (value < size)
        flat = flat * size + value
    return flat, is_valid


def orders(rank: int) -> list[tuple[int, ...]]:
    """Return the orders of an operand's axes, as they lie first."""
    return list(itertools.permutations(range(rank)))
