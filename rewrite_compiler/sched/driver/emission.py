"""Emission: the commands of a schedule, written with the control state that each leaves behind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from ...ila import Ila
from ...lang.binders import static_shape
from ...readings.arrays.labelled_array import Data
from ...target.timing import Region as Span
from ..instructions.computation import Computation, clears, computations, shifts
from ..instructions.control import Settings, reset_state
from ..instructions.image import attachment, condition_values, word_bits
from ..instructions.macros import PlannedIla
from ..instructions.movement import Address, Mover, computing_readers, readers, writers
from .matching import Match, matches
from .operation import Reach, broadcast, clearing, continuation
from .program import BYTE, LITERALS, Block, Code, Images, Lanes, Program, blocks_of, command_bits, lane_bits
from .pushing import is_pusher, push
from .schedule import COPIED, Failure, Place, Schedule, excess_of, is_chained, schedules
from .start import first_step
from .synchronisation import ended
from .transport import NOTHING, Contents, load_from_image, read_by_bus, store_by_bus, store_to_image, stored_bits
from .writer import NotEmitted, Writer, columns_of, runs_of

Run = Mapping[str, Data]  # steps of the host's loops, one after the other


def emitted(chain: Sequence[Schedule], code: Code) -> Program:
    """Return the program of schedules, each of which goes on with the results of the one before.

    Of results that are no sums the low bytes alone are stored in an image where those say them.

    Raises:
        NotEmitted: an operand or a result cannot be moved.
    """
    s = chain[-1]
    w = Writer(s.ila, dict(reset_state(s.ila)))
    ends = {name: max(part.needs.get(name, 0) for part in chain) for part in chain for name in part.needs}
    for excess in (excess_of(s.ila, p, ends.get(p.memory, 0)) for part in chain for p in part.places):
        if excess:
            raise NotEmitted(excess)
    if s.ila.externals and not chain[0].match.operation.reduced and s.match.part_bits == code.bits:
        code = code.low_bytes
    emissions = [Emission(part, w, code.bits) for part in chain]
    if len(chain) > 1 and chain[0].tile is not None:
        _emit_tiles(emissions)
    else:
        for e in emissions:
            e.run()
        emissions[-1].finish()
    return _program(s, w, code.bits, code.signed)


def _program(s: Schedule, w: Writer, code_bits: int, signed: bool) -> Program:
    bits = {name: lane_bits(s.ila, name) for name in {b.instruction for b in w.commands if b.lanes.elements.size}}
    commands = _without_macros(s.ila, ended(s.ila, w) if s.ila.externals else w.commands)
    shape, images = s.match.operation.shape, _images(w) if s.ila.externals else None
    return Program(blocks_of(commands), shape, code_bits, signed, bits, images, command_bits(s.ila))


def _without_macros(ila: Ila, blocks: Sequence[Block]) -> Sequence[Block]:
    """Return commands with those of macros in place of their steps; the last of each group has what all of it computes."""
    if not isinstance(ila, PlannedIla):
        return blocks
    result: list[Block] = []
    for m, members in itertools.groupby(blocks, key=lambda b: ila.macros.get(b.instruction)):
        group = list(members)
        if m is None:
            result += group
            continue
        steps = [(b.instruction, {name: int(x[n]) for name, x in b.columns.items()}) for b in group for n in range(b.count)]
        commands = [Block(name, columns_of(fields)) for name, fields in ila.commands_of(m, steps)]
        result += [*commands[:-1], *(replace(b, steps=sum(x.steps for x in group)) for b in commands[-1:])]
    return result


def unfinished(s: Schedule, code_bits: int) -> tuple[Program, Data, Data]:
    """Return the program that leaves results in memory, their addresses [elements, axes of the memory] after it, and which they are.

    Raises:
        NotEmitted: an operand cannot be moved.
    """
    w = Writer(s.ila, dict(reset_state(s.ila)))
    for excess in (excess_of(s.ila, p, s.needs.get(p.memory, 0)) for p in s.places):
        if excess:
            raise NotEmitted(excess)
    e = Emission(s, w, code_bits)
    e.load_operands()
    last: dict[str, int] = {}
    for steps in e.runs():
        e.step(steps, keeps=False)
        last = {v: int(x[-1]) for v, x in steps.items()}
    p = e.schedule.result
    return _program(s, w, code_bits, signed=True), e.addresses_of(p, last), p.region.elements(last)


def _emit_tiles(emissions: Sequence[Emission]) -> None:
    """Write the commands of a chain whose first computation leaves one tile of results at a time: all others go over it before the next."""
    first, *others = emissions
    tile = first.schedule.tile or {}
    last = {v: n - 1 for v, n in first.schedule.outside if v in first.schedule.within_tile}
    first.load_operands()
    for steps in first.runs():
        first.step(steps, keeps=False)
        if all(steps[v][-1] == n for v, n in last.items()):
            origin = {v: int(x[-1]) * tile[v] for v, x in steps.items() if v not in last}
            for e in others:
                e.origin = origin
                e.run()
            others[-1].finish()


def _by_bus(movers: Sequence[Mover]) -> str:
    """Return which instructions reach which memories by the bus, and where registers say so, as text."""
    pointers = [sorted(m.addressing.leaves) if m.addressing.is_dictated else [] for m in movers]
    ways = [f"{m.instruction} {m.memory}" + " at " * bool(p) + ", ".join(p) for m, p in zip(movers, pointers, strict=True)]
    return f"over the bus: {', '.join(dict.fromkeys(ways)) or 'no instruction'}"


def _images(w: Writer) -> Images:
    bits = {name: word_bits(w.ila, name) for name in w.sizes}
    return Images(dict(w.sizes), tuple(w.inputs), tuple(w.outputs), tuple(w.constants), bits)


@lru_cache(maxsize=64)
def _shifters(ila: Ila, memory: str, bits: int) -> tuple[tuple[Computation, Settings], ...]:
    """Return what shifts what lies in a memory right by so many bits."""
    return tuple((c, values) for c in computations(ila) if c.result.memory == memory for values in shifts(c, bits))


class Emission:
    """One schedule on its way to commands."""

    def __init__(self, s: Schedule, writer: Writer, code_bits: int) -> None:
        self.schedule, self.ila, self.writer, self.code_bits = s, s.ila, writer, code_bits
        self.pending = NOTHING
        self.loaded: dict[int, tuple[int, ...]] = {}
        self.origin: Mapping[str, int] = {}  # where the tile begins that it works on
        self.reduced = [v for v, _ in s.outside if v in s.match.operation.reduced]
        self.elements: dict[tuple[int, tuple[int, ...]], Data] = {}  # what is loaded again, by operand and what moves it

    def run(self) -> None:
        """Write the commands of all steps of the host, and what they need."""
        self.load_operands()
        for steps in self.runs():
            self.step(steps)

    def runs(self) -> Iterator[Run]:
        """Yield the steps of the host's loops, together those between which nothing but the command's fields and data changes."""
        loops = [v for v, _ in self.schedule.outside]
        extents = [n for _, n in self.schedule.outside]
        steps = dict(zip(loops, np.indices(extents).reshape(len(loops), -1), strict=True)) if loops else {}
        count = math.prod(extents)
        for first, end in runs_of(self._is_new(steps, count)):
            yield {v: x[first:end] for v, x in steps.items()}

    def _is_new(self, steps: Run, count: int) -> Data:
        """Tell of each step whether something else must be done before its command than fields say."""
        s = self.schedule
        commands = [x.computation.instruction for x in (s, s.starter) if isinstance(x, Schedule)]
        if any(self.writer.issues_singly(name) for name in commands):
            return np.ones(count, bool)
        is_first = self._is_first(steps, count)
        is_new = is_first & (s.starter is not None)
        if s.starter is not None:
            is_new[1:] |= is_first[:-1]
        if s.is_tiled:
            is_new |= np.all([steps[v] == 0 for v in s.within_tile], axis=0)
        reloaded = [p.slot.reach for p in s.operands if p.base is None and not s.computation.carries(p.memory)]
        for v in {v for reach in reloaded for v in steps if reach.moves_with(v)}:
            is_new[1:] |= steps[v][1:] != steps[v][:-1]
        return is_new

    def _is_first(self, steps: Run, count: int) -> Data:
        """Tell of each step whether it is the first of a reduction."""
        is_first = np.ones(count, bool)
        for v in self.reduced:
            is_first &= steps[v] == 0
        return is_first

    def load_operands(self) -> None:
        """Bring what lies in memory from the first command on."""
        s = self.schedule
        for n, p in enumerate(s.operands):
            if p.base is not None and not is_chained(s.match, p.slot) and self.loaded.get(n) != self._key(p, {}):
                self.loaded[n] = self._key(p, {})
                self.load(p, {}, p.region.elements({}, self.origin))
        self.schedule = self.tabled()  # before others: theirs may be part of it
        if self.is_initialised and not s.is_tiled:
            self.initialise({})

    def finish(self) -> None:
        """Write the reads of all results."""
        if not self.schedule.is_tiled:
            self.pending = self.results({})
        self.drain()

    @property
    def is_initialised(self) -> bool:
        """Whether accumulators must be written before the first command."""
        m = self.schedule.match
        is_needed = m.computation.accumulates and m.starts is None and not is_chained(m, m.result)
        return is_needed and self.schedule.starter is None

    def step(self, steps: Run, *, keeps: bool = True) -> None:
        """Write what the commands of a run compute, and what they need; their results are kept, or left to a computation on them."""
        s = self.schedule
        count = len(next(iter(steps.values()))) if steps else 1
        point = {v: int(x[0]) for v, x in steps.items()}
        is_first = not any(point[v] for v in self.reduced)
        is_new_tile = s.is_tiled and not any(point[v] for v in s.within_tile)
        if keeps and is_new_tile:
            self.keep_results(point)  # what lies there leaves before operands overwrite it
        if is_first and s.starter == COPIED:
            self.copy_first(point)
            return
        for n, p in enumerate(s.operands):
            if p.base is None and not is_chained(s.match, p.slot) and not s.computation.carries(p.memory):
                self.reload(n, p, point)
        if self.is_initialised and is_new_tile:
            self.initialise(point)
        s = s.starter if is_first and isinstance(s.starter, Schedule) else s
        settings: dict[str, int | Data] = {**s.at(steps)}
        if s.match.starts is not None:
            name, start, keep = s.match.starts
            settings[name] = np.where(self._is_first(steps, count), start, keep)
        self.writer.issue(self._computed(s, steps, columns_of(settings, count), count))
        self.writer.contents.pop(s.result.memory, None)

    def _computed(self, s: Schedule, steps: Run, columns: Mapping[str, Data], count: int) -> Block:
        """Return the commands of a run."""
        c, carried = s.computation, next((p for p in s.operands if s.computation.carries(p.memory)), None)
        b = Block(c.instruction, columns, count, steps=count * math.prod(s.inside.values()))
        if carried is not None:
            lanes = self.lanes_of(s, carried, steps, count)
            b = replace(b, vector=carried.memory, source=carried.slot.reach.source, lanes=lanes)
        if not self.ila.externals:
            return b
        point = {v: int(x[0]) for v, x in steps.items()}
        reads = tuple(Span(p.memory, *self.span_of(p, point)) for p in s.operands if p is not carried)
        writes = (Span(s.result.memory, *self.span_of(s.result, point)),)
        if c.accumulates:
            reads = (*reads, *writes)
        if s.table:
            base = int(columns[c.table_base][0])
            reads = (*reads, Span(c.table, base, base + len(s.table)))
        return replace(b, reads=reads, writes=writes)

    def span_of(self, p: Place, steps: Mapping[str, int]) -> tuple[int, int]:
        """Return the addresses of a region."""
        first = self.base_of(p, steps)[0] if p.base is None else p.base
        return first, first + p.region.addresses

    def tabled(self) -> Schedule:
        """Return the schedule with its table where its words lie already, or behind the others, where they are brought now.

        Raises:
            NotEmitted: there is no room for it.
        """
        s, memory = self.schedule, self.schedule.computation.table if self.schedule.table else ""
        words = self.writer.tables.setdefault(memory, {})
        if not s.table:
            return s
        order = [*range(len(words) + 1)]
        at = next(n for n in order if all((words.get(a + n, x) ^ x) & s.table_bits[a] == 0 for a, x in s.table.items()))
        schedule = s.with_table_at(at) if at else s
        if isinstance(schedule, Failure):
            raise NotEmitted(f"{memory} has no room for another table: {schedule.reason}")
        new = {a: x for a, x in schedule.table.items() if a not in words}
        if new:
            self.store(memory, LITERALS, np.array([*new])[:, None], np.array([*new.values()]))
            words |= new
        return replace(schedule, table=schedule.table)

    def _key(self, p: Place, steps: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(n for at in (self.origin, steps) for v, n in at.items() if p.slot.reach.moves_with(v))

    def copy_first(self, steps: Mapping[str, int]) -> None:
        """Bring to accumulators what the first step of a reduction would bring there."""
        p, reach = self.schedule.result, first_step(self.schedule)
        assert reach is not None
        self.store(p.memory, reach.name, self.addresses_of(p, steps), p.region.initial(reach, steps))

    def lanes_of(self, s: Schedule, p: Place, steps: Run, count: int) -> Lanes:
        """Return what the lanes of commands carry."""
        addresses = p.region.addresses_from((0,) * len(p.slot.access.address))
        lanes = Lanes.empty(count, static_shape(s.computation.summary.instruction.operands[p.memory].leaf)[0])
        lanes.elements[:, addresses[:, 0]] = p.region.elements(steps, self.origin)
        return lanes

    def base_of(self, p: Place, steps: Mapping[str, int], registers: Settings | None = None) -> Address:
        """Return where the region of a place begins now, or while registers hold other values."""
        control = {**(self.writer.registers if registers is None else registers), **self.schedule.at(steps)}
        base = p.addressing.base(control)
        return base if p.base is None else (p.base, *base[1:])

    def addresses_of(self, p: Place, steps: Mapping[str, int], registers: Settings | None = None) -> Data:
        """Return where the elements of a place lie now, or while registers hold other values."""
        return p.region.addresses_from(self.base_of(p, steps, registers))

    # -- operands

    def reload(self, n: int, p: Place, steps: Mapping[str, int]) -> None:
        """Bring the region of an operand to its memory unless it lies where the command reads it."""
        key = self._key(p, steps)
        if self.loaded.get(n) != (*key, *self.base_of(p, steps)):
            if (n, key) not in self.elements:
                self.elements[n, key] = p.region.elements(steps, self.origin)
            self.load(p, steps, self.elements[n, key])
            self.loaded[n] = *key, *self.base_of(p, steps)

    def load(self, p: Place, steps: Mapping[str, int], elements: Data) -> None:
        """Bring the region of an operand to its memory."""
        pushers = [m for m in writers(self.ila) if m.memory == p.memory and p.base is None and is_pusher(self.writer, m)]
        if not any(push(self.writer, m, p.slot.reach.source, elements, partial(self.addresses_of, p, steps)) for m in pushers):
            self.store(p.memory, p.slot.reach.source, self.addresses_of(p, steps), elements)

    def initialise(self, steps: Mapping[str, int]) -> None:
        """Bring what accumulators start from to them."""
        s, start = self.schedule, self.schedule.match.initial
        clear = self.clear() if start is None else None
        if clear is not None:
            Emission(clear, self.writer, self.code_bits).run()
            return
        memory, source = s.result.memory, start.name if start else ""
        if self.is_stored(memory, source, self.addresses_of(s.result, steps), s.result.region.initial(start, steps)):
            return
        fill = self.fill(start) if start else None
        if fill is None:
            raise self.not_brought(memory, source)
        emission = Emission(fill, self.writer, self.code_bits)
        emission.origin = {v: steps[v] * n for v, n in (s.tile or {}).items() if v in steps and v not in s.within_tile}
        emission.run()

    def store(self, memory: str, source: str, addresses: Data, elements: Data) -> None:
        """Write elements to a memory, by the bus or from an image.

        Raises:
            NotEmitted: no instruction does.
        """
        if not self.is_stored(memory, source, addresses, elements):
            raise self.not_brought(memory, source)

    def is_stored(self, memory: str, source: str, addresses: Data, elements: Data) -> bool:
        """Write elements to a memory, by the bus or from an image; tell whether an instruction does."""
        contents = Contents(addresses, elements, np.zeros_like(elements))
        return store_by_bus(self.writer, memory, source, contents) or load_from_image(self.writer, memory, source, contents)

    def not_brought(self, memory: str, source: str) -> NotEmitted:
        """Return the refusal of elements that no instruction writes to a memory."""
        return NotEmitted(f"no instruction brings {source or 'zeros'} to {memory} ({_by_bus(writers(self.ila))})")

    # -- results

    def results(self, steps: Mapping[str, int]) -> Contents:
        """Return where the results of a command lie, each element once."""
        p = self.schedule.result
        contents = Contents(self.addresses_of(p, steps), p.region.elements(steps, self.origin), p.region.parts)
        return (contents if p.region.is_distinct else contents.once()).without_zeros()

    def keep_results(self, steps: Mapping[str, int]) -> None:
        """Note results that the next command writes; what lies there already is read before."""
        new = self.results(steps)
        if self.pending.meets(new):
            self.drain()
        self.pending = self.pending.with_others(new)

    def drain(self) -> None:
        """Read all results that lie in memory, by the bus or to an image.

        Raises:
            NotEmitted: no instruction does.
        """
        memory = self.schedule.result.memory
        if not read_by_bus(self.writer, memory, self.pending) and not self.stored(memory):
            result = self.schedule.result.slot.reach.name
            computing = "".join(f"; {name} computes with what it reads" for name in computing_readers(self.ila, memory))
            ways = f"{_by_bus(readers(self.ila))}{computing}"
            raise NotEmitted(f"no instruction returns the result {result} from the memory {memory} as it lies ({ways})")
        self.pending = NOTHING

    def stored(self, memory: str) -> bool:
        """Store results, as many bits at a time as a copy takes, the next ones shifted down; tell whether there is a copy.

        Raises:
            NotEmitted: a copy takes the low bits alone, and nothing shifts the others down.
        """
        bits = stored_bits(self.writer, memory)
        if not bits or not store_to_image(self.writer, memory, self.pending, 0):
            return False
        lows = range(bits, min(self.schedule.match.part_bits, self.code_bits), bits)
        shift = self.shift(bits) if lows else None
        if shift is None and lows:
            reason = f"{bits} at a time leave the others, which none shifts down"
            raise NotEmitted(f"no instruction moves {memory} outside in {self.code_bits} bits: {reason}")
        if shift is None:
            return True
        for low in lows:
            Emission(shift, self.writer, self.code_bits).run()
            store_to_image(self.writer, memory, self.pending, low // BYTE)
        return True

    def shift(self, bits: int) -> Schedule | None:
        """Return the schedule of an instruction that shifts all results in memory right; None where there is none."""
        op = continuation(self.schedule.match.operation)
        options = ((m, values) for c, values in _shifters(self.ila, self.schedule.result.memory, bits) for m in matches(op, c))
        return self.first_of(options)

    def clear(self) -> Schedule | None:
        """Return the schedule of an instruction that sets accumulators to zero; None where there is none."""
        op, fixed = clearing(self.schedule.match.operation, self.schedule.tile), attachment(self.ila, "")
        clearing_here = [c for c in clears(self.ila) if c.result.memory == self.schedule.result.memory]
        clearing_here.sort(key=lambda c: c.instruction != self.schedule.computation.instruction)  # its lanes are those that compute
        return self.first_of((m, v) for c in clearing_here for m in matches(op, c) for v in condition_values(c.conditions, fixed))

    def fill(self, start: Reach) -> Schedule | None:
        """Return the schedule of an instruction that copies an operand in memory to all accumulators; None where there is none."""
        op, fixed = broadcast(self.schedule.match.operation, start, self.schedule.tile), attachment(self.ila, "")
        memory = self.schedule.result.memory
        copies = [c for c in computations(self.ila) if c.result.memory == memory and not c.accumulates and c.is_copy]
        return self.first_of((m, v) for c in copies for m in matches(op, c) for v in condition_values(c.conditions, fixed))

    def first_of(self, options: Iterable[tuple[Match, Settings]]) -> Schedule | None:
        """Return the first schedule that goes over the results in memory."""
        every = (s for m, switches in options for s in schedules(self.ila, m, switches, self.schedule))
        return next((s for s in every if isinstance(s, Schedule)), None)
