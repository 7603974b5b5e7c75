"""Schedules: which loops one command runs and which the host, where operands lie, and the fields that make it so."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Union

import numpy as np

from ...ila import Ila
from ...lang.binders import Leaf
from ..instructions.computation import Computation, is_same
from ..instructions.control import Addressing, Settings, free_names, reset_state, setters
from ..instructions.selection import Nest, NoSelection, Operand, Selection, reads_of, select, words_of
from .loop_split import splits
from .matching import NONE, Match, Region, Slot, orders
from .operation import CHAINED, Reach

Steps = tuple[tuple[str, int], ...]
MOST_ORDERS = 24  # layouts tried of one match
KEPT_SELECTIONS = 1 << 14
COPIED = "(copied)"
Starter = Union["Schedule", str, None]


@dataclass(frozen=True, eq=False)
class Place:
    """A slot in its memory: its region, where that begins, and whether the instruction dictates it (no base of its own)."""

    region: Region
    addressing: Addressing
    base: int | None

    @property
    def slot(self) -> Slot:
        """The slot."""
        return self.region.slot

    @property
    def memory(self) -> str:
        """The memory that it lies in, or the operand of the command that carries it."""
        return self.slot.access.memory

    def moves_from_outside(self, loop: str) -> bool:
        """Tell whether a loop changes what lies in the region, not where in it."""
        return self.slot.reach.moves_with(loop) and loop not in self.region.loops

    def first(self, ila: Ila) -> tuple[int, ...]:
        """Return its first address while all fields and registers are as at first."""
        control = {**dict.fromkeys(self.addressing.free, 0), **reset_state(ila)}
        base = self.addressing.base(control)
        return base if self.base is None else (self.base, *base[1:])


@dataclass(frozen=True, eq=False)
class Schedule:
    """A match with its loops split: `inside` those of one command, `outside` those of the host, outermost first.

    The first step of a reduction may have a `starter`: the schedule of a command that does the same without reading accumulators, or
    COPIED, where what it would bring there is brought to the accumulators themselves.
    """

    ila: Ila
    match: Match
    inside: Mapping[str, int]
    outside: Steps
    result: Place
    operands: tuple[Place, ...]
    switches: Settings
    settings: Settings  # of the first command
    changes: Mapping[str, Settings]  # loop → by how much a step of it changes them
    table: Mapping[int, int]  # words of a control memory that the command reads, by address
    table_bits: Mapping[int, int]  # which bits of each word it reads
    starter: Starter = None
    tiled: tuple[str, ...] = ()  # loops for one step of which alone results lie in memory, though there might be room for all

    @property
    def computation(self) -> Computation:
        """What one command computes."""
        return self.match.computation

    @property
    def tile(self) -> dict[str, int] | None:
        """Iterations of each loop whose results lie in memory at once, where the next tile's overwrite them; None where all do."""
        if not self.is_tiled:
            return None
        return {v: self.result.region.loops.get(v, 1) * self.match.lane_extent(v) for v, _ in self.match.operation.loops}

    @property
    def is_tiled(self) -> bool:
        """Whether results of one tile overwrite those of the one before."""
        return self.result.base is None or any(self.result.moves_from_outside(v) for v, _ in self.outside)

    @cached_property
    def within_tile(self) -> tuple[str, ...]:
        """The host's loops that stay in one tile."""
        return tuple(v for v, _ in self.outside if not self.result.moves_from_outside(v))

    @property
    def places(self) -> tuple[Place, ...]:
        """The result and the operands."""
        return (self.result, *self.operands)

    def at(self, steps: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a command, or of several, whose steps are arrays."""
        settings: dict[str, Any] = dict(self.settings)
        for name, v, change in self._moved_settings:
            if v in steps:
                settings[name] = settings[name] + steps[v] * change
        return settings

    @cached_property
    def _moved_settings(self) -> tuple[tuple[str, str, int], ...]:
        """The settings that a step of a loop changes, the loop, and by how much."""
        return tuple((name, v, x) for v, new in self.changes.items() for name, x in new.items() if x and name in self.settings)

    def with_switches(self, switches: Settings) -> Schedule:
        """Return the schedule with values of what decides a computation's value; those that decide whether it computes stay."""
        names = {x.name for x in self.computation.switches}
        values = {k: x for k, x in switches.items() if k in names} | self.switches
        starter = self.starter.with_switches(switches) if isinstance(self.starter, Schedule) else self.starter
        return replace(self, switches=values, settings={**self.settings, **values}, starter=starter)

    @property
    def chosen_switches(self) -> tuple[Leaf, ...]:
        """The switches that must be chosen: those that say where accumulators start follow from the step."""
        other = self.starter.computation.switches if isinstance(self.starter, Schedule) else ()
        start = self.match.starts[0] if self.match.starts else ""
        return tuple(x for x in dict.fromkeys((*self.computation.switches, *other)) if x.name != start)

    def with_table_at(self, address: int) -> Schedule | Failure:
        """Return the schedule with its table at another address."""
        name = self.computation.table_base
        switches = {**self.switches, name: address}
        candidate = unified(self.ila, self.match, self.places, self.inside, self.outside, switches)
        return candidate if isinstance(candidate, Failure) else replace(candidate, switches=self.switches)

    @property
    def issues(self) -> tuple[int, int]:
        """How many commands compute, and how many addresses of operands are loaded."""
        loads = (p.region.addresses * (1 if p.base is not None else _changes(p, self.outside)) for p in self.operands)
        return math.prod(n for _, n in self.outside), sum(loads)

    @cached_property
    def needs(self) -> dict[str, int]:
        """Addresses of each memory that the regions take."""
        totals: dict[str, int] = {}
        for p in self.places:
            end = (p.base or 0) + p.region.addresses
            totals[p.memory] = max(totals.get(p.memory, 0), end)
        return totals


@dataclass(frozen=True)
class Failure:
    """Why a way to schedule leads nowhere, and how far it came."""

    depth: int
    reason: str


def schedules(ila: Ila, match: Match, switches: Settings, before: Schedule | None = None) -> Iterator[Schedule | Failure]:
    """Yield the schedules of a match under values of its switches, those with the fewest commands first.

    `before` is the schedule whose results it goes on with.
    """
    if before is not None and not _is_beside(match, before):
        yield Failure(0, f"{match.computation.instruction} does not read what {before.computation.instruction} writes")
        return
    if before is not None and not _may_continue(ila, match, before):
        yield _not_as_it_lies(match, before)
        return
    beyond: list[Schedule] = []
    for s in _within(ila, match, switches, before, beyond):
        if isinstance(s, Schedule):
            yield from _with_parts(s)
        yield s
    yield from beyond


def _with_parts(s: Schedule) -> Iterator[Schedule]:
    """Yield schedules in which one command takes parts of the loops that sums go over, where it cannot take all their steps."""
    m = s.match
    for loop, _ in sorted(s.outside, key=lambda x: -x[1]):
        if loop not in m.operation.reduced or (m.starts and m.computation.repeats):
            continue  # one command would start anew with each step
        divided = _in_parts(s, loop)
        if divided is not None:
            yield from _with_parts(divided)
            yield divided
            return


def _in_parts(s: Schedule, loop: str) -> Schedule | None:
    """Return the schedule that issues and loads least, itself included, with a loop of the host in parts that one command takes."""
    best, most, count = s, s.match.outer[loop], s.match.outer[loop]
    for split, outer in splits(s.match, loop):
        parts = split.outer[outer]
        if parts >= most:
            break  # more commands than what is loaded behind the last step
        outside = tuple((outer, parts) if v == loop else (v, n) for v, n in s.outside)
        variants = () if _excess_loops(split, outside) else _with_outside(s.ila, split, outside, s.switches, None, [])
        candidate = next((c for c in variants if isinstance(c, Schedule)), None)
        if candidate is not None and sum(candidate.issues) < sum(best.issues):
            best, steps = candidate, parts * split.outer.get(loop, 1)
            most = parts + -(-candidate.issues[1] * (steps - count) // steps)
    return None if best is s else best


def _within(ila: Ila, match: Match, switches: Settings, before: Schedule | None, beyond: list[Schedule]) -> Iterator[Schedule | Failure]:
    """Yield the schedules whose regions fit into memories, and note the others."""
    loops = list(match.outer.items())
    subsets = [s for n in range(len(loops) + 1) for s in itertools.combinations(loops, n)]
    for outside in sorted(subsets, key=lambda s: math.prod(n for _, n in s)):
        excess = _excess_loops(match, outside)
        if excess:
            yield Failure(0, excess)
            continue
        is_reduced = [v in match.operation.reduced for v, _ in outside]
        if any(is_reduced) and not match.computation.accumulates:
            continue
        if match.starts and match.computation.repeats and not all(v in dict(outside) for v in match.outer if v in match.operation.reduced):
            continue  # one command would start anew with each step
        yield from _with_outside(ila, match, outside, switches, before, beyond)


def _excess_loops(match: Match, outside: Steps) -> str:
    """Return why a computation has too few loops for those that the host leaves to it; nothing where it has enough."""
    c = match.computation
    inside = [v for v, n in match.outer.items() if (v, n) not in outside]
    counted = len(c.loops) - len(c.lanes)
    kinds = {_moved_slots(match, v) for v in inside}  # those of one kind may be one in memory
    if len(kinds) <= counted or c.has_table:
        return ""
    return f"{counted} loops of {c.instruction} cannot take {len(inside)} of the nest"


def _with_outside(
    ila: Ila, match: Match, outside: Steps, switches: Settings, before: Schedule | None, beyond: list[Schedule]
) -> Iterator[Schedule | Failure]:  # fmt: skip
    inside = {v: n for v, n in match.outer.items() if (v, n) not in outside}
    for slots, layout in _layouts(match, before):
        places = _placed(ila, match, slots, layout, inside, before)
        if not all(p.region.is_aligned for p in places):
            yield Failure(len(inside), f"lanes of {match.computation.instruction} do not take whole steps of an axis that loops share")
            continue
        if before is not None and not _is_continued(ila, match, places, before):
            yield _not_as_it_lies(match, before)
            return
        candidate = unified(ila, match, places, inside, outside, switches)
        excess = next((x for p in places if (x := excess_of(ila, p))), "") if isinstance(candidate, Schedule) else ""
        yield Failure(len(inside), excess) if excess else candidate
        if isinstance(candidate, Schedule) and not excess:
            return
        if isinstance(candidate, Schedule) and not beyond and all(p.base is not None or not excess_of(ila, p) for p in places):
            beyond.append(candidate)


def _moved_slots(match: Match, loop: str) -> tuple[bool, ...]:
    return tuple(s.reach.moves_with(loop) for s in (match.result, *match.operands))


def _layouts(match: Match, before: Schedule | None) -> Iterator[tuple[tuple[Slot, ...], tuple[tuple[int, ...], ...]]]:
    """Yield the slots, each with the order in which its axes lie: as they are, then with an axis for each loop, elements repeated.

    The first order is that of the loops, those that sums go over innermost, so that loops of one command may follow each other.
    """
    as_before = None if before is None else before.result.region.order
    slots = (match.result, *match.operands)
    unfolded = tuple(s if is_chained(match, s) else Slot(s.access, s.reach.unfolded(match.operation.loops)) for s in slots)
    loops = sorted((v for v, _ in match.operation.loops), key=lambda v: v in match.operation.reduced)
    is_other = any(a.reach is not b.reach for a, b in zip(slots, unfolded, strict=True))
    for variant in (slots, unfolded) if is_other else (slots,):
        fixed = [as_before if as_before is not None and is_chained(match, s) else None for s in variant]
        first = tuple(order or _order_of(s, loops) for s, order in zip(variant, fixed, strict=True))
        options = [[order] if order is not None else [*orders(len(s.reach.axes))] for s, order in zip(variant, fixed, strict=True)]
        for layout in dict.fromkeys((first, *itertools.islice(itertools.product(*options), MOST_ORDERS))):
            yield variant, layout


def _order_of(s: Slot, loops: Sequence[str]) -> tuple[int, ...]:
    """Return the axes of an operand in the order of the loops that move them."""
    firsts = [min((loops.index(v) for v, _ in a.terms), default=-1) for a in s.reach.axes]
    return tuple(sorted(range(len(firsts)), key=lambda axis: firsts[axis]))


def tiled(s: Schedule, loops: Sequence[str]) -> Schedule | Failure:
    """Return the schedule whose results lie in memory for one step of these loops alone, at the same addresses for each."""
    region = s.result.region
    inside = {v: n for v, n in region.loops.items() if v not in loops}
    result = replace(s.result, region=replace(region, loops=inside))
    starter = s.starter
    candidate = unified(s.ila, s.match, (result, *s.operands), s.inside, s.outside, s.switches)
    return candidate if isinstance(candidate, Failure) else replace(candidate, starter=_restarted(starter, result), tiled=tuple(loops))


def _restarted(starter: Starter, result: Place) -> Starter | None:
    """Return what starts accumulators, with results in another region."""
    if not isinstance(starter, Schedule):
        return starter
    place = starter.result
    places = (replace(place, region=replace(place.region, loops=result.region.loops)), *starter.operands)
    restarted = unified(starter.ila, starter.match, places, starter.inside, starter.outside, starter.switches)
    return restarted if isinstance(restarted, Schedule) else None


def addressing_of(ila: Ila, c: Computation, slot: Slot) -> Addressing:
    """Return how the first address of a slot follows from fields."""
    return Addressing(slot.access, c.summary.symbols, free_names(ila, c.instruction))


def _placed(
    ila: Ila, match: Match, slots: Sequence[Slot], layout: Sequence[tuple[int, ...]], inside: Mapping[str, int], before: Schedule | None
) -> list[Place]:  # fmt: skip
    """Return where each slot lies: one after the other where fields say where, else where the instruction has it."""
    ends: dict[str, int] = {} if before is None else dict(before.needs)
    places = []
    for slot, order in zip(slots, layout, strict=True):
        addressing = addressing_of(ila, match.computation, slot)
        is_dictated = addressing.is_dictated
        region = Region(match, slot, order, inside if is_dictated else match.outer)
        memory = slot.access.memory
        if before is not None and is_chained(match, slot):
            places.append(Place(region, addressing, None if is_dictated else before.result.first(ila)[0]))
            continue
        places.append(Place(region, addressing, None if is_dictated else ends.get(memory, 0)))
        ends[memory] = ends.get(memory, 0) + region.addresses
    return places


def is_chained(match: Match, slot: Slot) -> bool:
    """Tell whether a slot is what the computation before left in memory."""
    if slot is not match.result:
        return slot.reach.name == CHAINED
    return match.operation.overwrites or (match.initial is not None and match.initial.name == CHAINED)


def depth_of(ila: Ila, memory: str) -> int:
    """Return how many addresses a memory has; none for a name that is no memory's."""
    size = ila.states[memory].leaf.shape[0] if memory in ila.states and ila.states[memory].leaf.shape else 0
    return size if isinstance(size, int) else 0


def excess_of(ila: Ila, p: Place, end: int = 0) -> str:
    """Return what is wrong with a region that its memory does not hold, and which loop's cut would help; nothing where it does.

    `end` is the address behind the last of all regions there.
    """
    depth, region = depth_of(ila, p.memory), p.region
    end = max(end, (p.base or 0) + region.addresses)
    if not depth or end <= depth:
        return ""
    name, room = p.slot.reach.name, region.addresses - (end - depth)
    steps = {n: room * size // region.addresses * region.widths[n] for n, size in enumerate(region.sizes) if size > 1}
    cut = max(steps, key=lambda n: steps[n], default=None)
    sizes = p.slot.reach.shape
    dims = p.slot.reach.dims or tuple(f"axis {n}" for n in range(len(sizes)))
    remedy = f": cut {dims[cut]} of {name} to at most {steps[cut]} (of {sizes[cut]})" if cut is not None and steps[cut] > 0 else ""
    return f"{name} takes {region.addresses} addresses of {p.memory}, which with all regions there would need {end} and has {depth}{remedy}"


def _is_beside(match: Match, before: Schedule) -> bool:
    """Tell whether a match works on the memory in which the schedule before leaves its results."""
    place = next(s for s in (match.result, *match.operands) if is_chained(match, s))
    return place.access.memory == before.result.memory


def _not_as_it_lies(match: Match, before: Schedule) -> Failure:
    return Failure(0, f"{match.computation.instruction} does not read what {before.computation.instruction} writes as it lies")


def _may_continue(ila: Ila, match: Match, before: Schedule) -> bool:
    """Tell whether what the schedule before leaves lies where a match reads it, as far as that does not depend on loops inside."""
    slot = next(s for s in (match.result, *match.operands) if is_chained(match, s))
    addressing = addressing_of(ila, match.computation, slot)
    if addressing.is_dictated or before.result.region.ways is None:
        return True
    region = Region(match, slot, before.result.region.order, match.outer)
    return not region.is_aligned or _is_continued(ila, match, (Place(region, addressing, before.result.first(ila)[0]),), before)


def _is_continued(ila: Ila, match: Match, places: Sequence[Place], before: Schedule) -> bool:
    """Tell whether what the schedule before leaves lies where this one reads it."""
    place = next(p for p in places if is_chained(match, p.slot))
    first, ways = before.result.first(ila), before.result.region.ways
    if ways is not None and place.region.ways is not None and not any(_wraps(p, first) for p in (before.result, place)):
        are_equal = all(np.array_equal(a, b) for a, b in zip(ways, place.region.ways, strict=True))
        return are_equal and first == place.first(ila)
    return _contents_of(ila, before.result) == _contents_of(ila, place)


def _wraps(p: Place, first: tuple[int, ...]) -> bool:
    """Tell whether elements that lie behind an address may reach the end of their memory, where it begins anew."""
    ends = np.array(first) + sum(way.max(axis=0, initial=0) for way in p.region.ways or ())
    return any(m is not None and end >= m for end, m in zip(ends.tolist(), p.slot.access.moduli, strict=True))


def _contents_of(ila: Ila, p: Place) -> bytes:
    """Return a digest of which element lies at which address of a region."""
    r = p.region
    accesses = [s.access for s in (r.match.result, *r.match.operands)]
    number = next(n for n, access in enumerate(accesses) if access is r.slot.access)
    return _contents(r.match, number, r.slot.reach, r.order, tuple(r.loops.items()), p.first(ila))


@lru_cache(maxsize=KEPT_SELECTIONS)
def _contents(match: Match, number: int, reach: Reach, order: tuple[int, ...], loops: Steps, first: tuple[int, ...]) -> bytes:
    """Return the digest of the region of the result or of an operand, by its number, of a match."""
    slot = Slot((match.result, *match.operands)[number].access, reach)
    region = Region(match, slot, order, dict(loops))
    addresses, elements = region.addresses_from(first), region.elements({})
    rows = np.column_stack([elements, addresses])[elements != NONE]
    sorted_rows = rows[np.lexsort(rows.T[::-1])]
    is_new = np.any(np.diff(sorted_rows, axis=0, prepend=-2), axis=1)
    return hashlib.sha256(np.ascontiguousarray(sorted_rows[is_new]).tobytes()).digest()


def unified(
    ila: Ila, match: Match, places: Sequence[Place], inside: Mapping[str, int], outside: Steps, switches: Settings
) -> Schedule | Failure:  # fmt: skip
    """Return the schedule with these loops and places, and the fields that make it so."""

    def solution(steps: Mapping[str, int]) -> Selection | NoSelection:
        return _selection(ila, match, places, inside, steps, switches)

    first = solution({})
    if isinstance(first, NoSelection):
        return Failure(len(inside), first.reason)
    if first.table and outside:
        return Failure(len(inside), f"{match.computation.instruction} needs another table for every command")
    free = free_names(ila, match.computation.instruction)
    settings = {k: x for k, x in first.settings.items() if k in free}
    changes: dict[str, Settings] = {}
    for v, _ in outside:
        next_step = solution({v: 1})
        if isinstance(next_step, NoSelection):
            return Failure(len(inside), next_step.reason)
        changes[v] = {k: x - settings.get(k, 0) for k, x in next_step.settings.items() if k in free}
    s = Schedule(
        ila,
        match,
        inside,
        _ordered(match, places, outside),
        places[0],
        tuple(places[1:]),
        switches,
        settings,
        changes,
        *(words_of(first, match.computation.summary.symbols) if first.table else ({}, {})),
    )
    last = {v: n - 1 for v, n in outside}
    corner = solution(last)
    if isinstance(corner, NoSelection):
        return Failure(len(inside), corner.reason)
    if {k: x for k, x in corner.settings.items() if k in free} != s.at(last):
        return Failure(len(inside), "fields are no linear functions of the host's loops")
    return s


def _selection(
    ila: Ila, match: Match, places: Sequence[Place], inside: Mapping[str, int], steps: Mapping[str, int], switches: Settings
) -> Selection | NoSelection:  # fmt: skip
    """Return the fields of the command at some steps of the host's loops."""
    c = match.computation
    operands = [_operand(p, inside, steps) for p in places]
    slots = {id(p.slot.access): o for p, o in zip(places, operands, strict=True)}
    reads = [operands[0] if is_same(r.access, c.result) else slots[id(r.access)] for r in reads_of(c.transition)]
    nest = _coalesced(Nest(tuple(inside.items()), operands[0], tuple(reads)))
    return _selected(ila, c, nest, tuple(sorted(switches.items())))


@lru_cache(maxsize=KEPT_SELECTIONS)
def _selected(ila: Ila, c: Computation, nest: Nest, switches: tuple[tuple[str, int], ...]) -> Selection | NoSelection:
    """Return the fields with which a computation does a nest: layouts, tiles and steps of many schedules have the same one."""
    fixed = {k: v for k, v in reset_state(ila).items() if k not in setters(ila)}
    for e in ila.externals.values():
        fixed |= {e.base.name: 0, e.size.name: 1 << 40}
    return select(c.summary, c.transition, c.outer_loops, nest, {**fixed, **dict(switches)}, ordered=False, parts=c.parts)


def _coalesced(nest: Nest) -> Nest:
    """Return a nest in which loops that follow each other in all operands are one."""
    operands = (nest.result, *nest.operands)
    for outer, inner in itertools.permutations(range(len(nest.loops)), 2):
        count = nest.loops[inner][1]
        if all(o.strides[outer] == o.strides[inner] * count for o in operands):
            rest = [n for n in range(len(nest.loops)) if n != outer]
            loops = tuple((nest.loops[n][0], nest.loops[n][1] * (nest.loops[outer][1] if n == inner else 1)) for n in rest)
            result, *others = (replace(o, strides=tuple(o.strides[n] for n in rest)) for o in operands)
            return _coalesced(Nest(loops, result, tuple(others)))
    return nest


def _operand(p: Place, inside: Mapping[str, int], steps: Mapping[str, int]) -> Operand:
    strides = tuple(p.region.stride(v) for v in inside)
    if p.base is None:
        return Operand(p.memory, None, strides)
    return Operand(p.memory, p.base + sum(n * p.region.stride(v) for v, n in steps.items()), strides)


def _ordered(match: Match, places: Sequence[Place], outside: Steps) -> Steps:
    """Return the host's loops in an order in which what must be loaded again is loaded least often."""
    dictated = [p for p in places[1:] if p.base is None and not match.computation.carries(p.memory)]

    def is_allowed(order: Steps) -> bool:
        is_within = [not places[0].moves_from_outside(v) for v, _ in order]
        return is_within == sorted(is_within)

    def loads(order: Steps) -> int:
        return sum(p.region.addresses * _changes(p, order) for p in dictated)

    allowed = [order for order in itertools.permutations(outside) if is_allowed(order)]
    return min(allowed, key=loads)


def _changes(p: Place, order: Steps) -> int:
    """Return how often the window of a place changes under loops in an order."""
    moving = [n for n, (v, _) in enumerate(order) if p.slot.reach.moves_with(v)]
    return math.prod(n for _, n in order[: moving[-1] + 1]) if moving else 1
