"""Emission: the commands of a schedule, written with the control state that each leaves behind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from ...ila import Ila
from ...lang.binders import static_shape
from ...readings.arrays.labelled_array import Data
from ...target.timing import Region as Span
from ..instructions.computation import Computation, clears, computations, shifts
from ..instructions.control import Settings, reset_state
from ..instructions.image import attachment, condition_values, word_bits
from ..instructions.movement import Address, Mover, readers, writers
from .matching import NONE, Match, matches
from .operation import clearing, continuation
from .program import BYTE, LITERALS, Images, Issued, Lane, Program, blocks_of, command_bits, lane_bits
from .pushing import is_pusher, push
from .schedule import COPIED, Failure, Place, Schedule, excess_of, is_chained, schedules
from .start import first_step
from .synchronisation import ended
from .transport import Pending, load_from_image, read_by_bus, store_by_bus, store_to_image, stored_bits
from .writer import NotEmitted, Writer


def emitted(chain: Sequence[Schedule], code_bits: int, signed: bool) -> Program:
    """Return the program of schedules, each of which goes on with the results of the one before.

    Raises:
        NotEmitted: an operand or a result cannot be moved.
    """
    s = chain[-1]
    w = Writer(s.ila, reset_state(s.ila))
    ends = {name: max(part.needs.get(name, 0) for part in chain) for part in chain for name in part.needs}
    for excess in (excess_of(s.ila, p, ends.get(p.memory, 0)) for part in chain for p in part.places):
        if excess:
            raise NotEmitted(excess)
    emissions = [Emission(part, w, code_bits) for part in chain]
    if len(chain) > 1 and chain[0].tile is not None:
        _emit_tiles(emissions)
    else:
        for e in emissions:
            e.run()
        emissions[-1].finish()
    return _program(s, w, code_bits, signed)


def _program(s: Schedule, w: Writer, code_bits: int, signed: bool) -> Program:
    bits = {name: lane_bits(s.ila, name) for name in {c.instruction for c in w.commands if c.lanes}}
    commands = ended(s.ila, w) if s.ila.externals else w.commands
    shape, images = s.match.operation.result.shape, _images(w) if s.ila.externals else None
    return Program(blocks_of(commands), shape, code_bits, signed, bits, images, command_bits(s.ila))


def unfinished(s: Schedule, code_bits: int) -> tuple[Program, Data, Data]:
    """Return the program that leaves results in memory, their addresses [elements, axes of the memory] after it, and which they are.

    Raises:
        NotEmitted: an operand cannot be moved.
    """
    w = Writer(s.ila, reset_state(s.ila))
    for excess in (excess_of(s.ila, p, s.needs.get(p.memory, 0)) for p in s.places):
        if excess:
            raise NotEmitted(excess)
    e = Emission(s, w, code_bits)
    e.load_operands()
    steps: dict[str, int] = {}
    for steps in e.points():
        e.step(steps, keeps=False)
    p = e.schedule.result
    return _program(s, w, code_bits, signed=True), *p.region.window(e.base_of(p, steps), steps)


def _emit_tiles(emissions: Sequence[Emission]) -> None:
    """Write the commands of a chain whose first computation leaves one tile of results at a time: all others go over it before the next."""
    first, *others = emissions
    tile = first.schedule.tile or {}
    last = {v: n - 1 for v, n in first.schedule.outside if v in first.schedule.within_tile}
    first.load_operands()
    for steps in first.points():
        first.step(steps, keeps=False)
        if all(steps[v] == n for v, n in last.items()):
            origin = {v: n * tile[v] for v, n in steps.items() if v not in last}
            for e in others:
                e.origin = origin
                e.run()
            others[-1].finish()


def _by_bus(movers: Sequence[Mover]) -> str:
    """Return which instructions reach which memories by the bus, as text."""
    return f"over the bus: {', '.join(dict.fromkeys(f'{m.instruction} {m.memory}' for m in movers)) or 'no instruction'}"


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
        self.pending: list[Pending] = []
        self.loaded: dict[int, tuple[int, ...]] = {}
        self.origin: Mapping[str, int] = {}  # where the tile begins that it works on

    def run(self) -> None:
        """Write the commands of all steps of the host, and what they need."""
        self.load_operands()
        for steps in self.points():
            self.step(steps)

    def points(self) -> Iterator[dict[str, int]]:
        """Yield the steps of the host's loops."""
        loops = [v for v, _ in self.schedule.outside]
        for point in itertools.product(*(range(n) for _, n in self.schedule.outside)):
            yield dict(zip(loops, point, strict=True))

    def load_operands(self) -> None:
        """Bring what lies in memory from the first command on."""
        s = self.schedule
        for n, p in enumerate(s.operands):
            if p.base is not None and not is_chained(s.match, p.slot) and self.loaded.get(n) != self._key(p, {}):
                self.loaded[n] = self._key(p, {})
                self.load(p, {})
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

    def settings_of(self, s: Schedule, steps: Mapping[str, int], *, is_first: bool) -> Settings:
        """Return the settings of a command; the first of a reduction may start its accumulators."""
        start = s.match.starts
        return s.at(steps) if start is None else {**s.at(steps), start[0]: start[1] if is_first else start[2]}

    def step(self, steps: Mapping[str, int], *, keeps: bool = True) -> None:
        """Write what one command computes, and what it needs; its results are kept, or left to a computation on them."""
        s = self.schedule
        is_first = not any(steps[v] for v in steps if v in s.match.operation.reduced)
        is_new_tile = s.is_tiled and not any(steps[v] for v in s.within_tile)
        if keeps and is_new_tile:
            self.keep_results(steps)  # what lies there leaves before operands overwrite it
        vector_place = None
        if is_first and s.starter == COPIED:
            self.copy_first(steps)
            return
        for n, p in enumerate(s.operands):
            if s.computation.carries(p.memory):
                vector_place = p
            elif p.base is None and not is_chained(s.match, p.slot):
                self.reload(n, p, steps)
        if self.is_initialised and is_new_tile:
            self.initialise(steps)
        self.schedule = self.tabled()
        s = self.schedule.starter if is_first and isinstance(self.schedule.starter, Schedule) else self.schedule
        c = s.computation
        fields = self.writer.with_fields(c.instruction, self.settings_of(s, steps, is_first=is_first))
        reads = tuple(Span(p.memory, *self.span_of(p, steps)) for p in s.operands if p is not vector_place)
        writes = (Span(s.result.memory, *self.span_of(s.result, steps)),)
        if c.accumulates:
            reads = (*reads, *writes)
        if s.table:
            reads = (*reads, Span(c.table, fields[c.table_base], fields[c.table_base] + len(s.table)))
        command = Issued(c.instruction, fields, reads=reads, writes=writes, steps=math.prod(s.inside.values()))
        if vector_place is not None:
            carried = s.operands[self.schedule.operands.index(vector_place)]
            lanes = self.lanes_of(s, carried, steps)
            command = replace(command, vector=carried.memory, source=carried.slot.reach.source, lanes=lanes)
        self.writer.issue(command)
        self.writer.contents.pop(s.result.memory, None)

    def span_of(self, p: Place, steps: Mapping[str, int]) -> tuple[int, int]:
        """Return the addresses of a region."""
        first = self.base_of(p, steps)[0]
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
        at = next(n for n in order if all(words.get(a + n, x) == x for a, x in s.table.items()))
        schedule = s.with_table_at(at) if at else s
        if isinstance(schedule, Failure):
            raise NotEmitted(f"{memory} has no room for another table: {schedule.reason}")
        new: dict[Address, int] = {(a,): x for a, x in schedule.table.items() if a not in words}
        if new:
            self.store(memory, LITERALS, new)
            words |= {a: x for (a, *_), x in new.items()}
        return replace(schedule, table=schedule.table)

    def _key(self, p: Place, steps: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(n for at in (self.origin, steps) for v, n in at.items() if p.slot.reach.moves_with(v))

    def copy_first(self, steps: Mapping[str, int]) -> None:
        """Bring to accumulators what the first step of a reduction would bring there."""
        p, reach = self.schedule.result, first_step(self.schedule)
        assert reach is not None
        addresses, _ = p.region.window(self.base_of(p, steps), steps, self.origin)
        elements = p.region.initial(reach, steps)
        self.store(p.memory, reach.name, dict(zip(map(tuple, addresses.tolist()), elements.tolist(), strict=True)))

    def lanes_of(self, s: Schedule, p: Place, steps: Mapping[str, int]) -> tuple[Lane | None, ...]:
        """Return what the lanes of a command carry."""
        addresses, elements = p.region.window((0,) * len(p.slot.access.address), steps, self.origin)
        leaf = s.computation.summary.instruction.operands[p.memory].leaf
        lanes: list[Lane | None] = [None] * static_shape(leaf)[0]
        for (lane, *_), element in zip(addresses.tolist(), elements.tolist(), strict=True):
            lanes[lane] = None if element == NONE else Lane(element, 0)
        return tuple(lanes)

    def base_of(self, p: Place, steps: Mapping[str, int], registers: Settings | None = None) -> Address:
        """Return where the region of a place begins now, or while registers hold other values."""
        control = {**(self.writer.registers if registers is None else registers), **self.schedule.at(steps)}
        base = p.addressing.base(control)
        return base if p.base is None else (p.base, *base[1:])

    # -- operands

    def reload(self, n: int, p: Place, steps: Mapping[str, int]) -> None:
        """Bring the region of an operand to its memory unless it lies where the command reads it."""
        if self.loaded.get(n) == (*self._key(p, steps), *self.base_of(p, steps)):
            return
        self.load(p, steps)
        self.loaded[n] = *self._key(p, steps), *self.base_of(p, steps)

    def load(self, p: Place, steps: Mapping[str, int]) -> None:
        """Bring the region of an operand to its memory."""

        def window(registers: Settings) -> dict[Address, int]:
            addresses, elements = p.region.window(self.base_of(p, steps, registers), steps, self.origin)
            return dict(zip(map(tuple, addresses.tolist()), elements.tolist(), strict=True))

        pushers = [m for m in writers(self.ila) if m.memory == p.memory and p.base is None and is_pusher(self.writer, m)]
        if not any(push(self.writer, m, p.slot.reach.source, window) for m in pushers):
            self.store(p.memory, p.slot.reach.source, window(self.writer.registers))

    def initialise(self, steps: Mapping[str, int]) -> None:
        """Bring what accumulators start from to them."""
        s = self.schedule
        if s.match.initial is None and self.cleared():
            return
        addresses, _ = s.result.region.window(self.base_of(s.result, steps), steps)
        elements = s.result.region.initial(s.match.initial, steps)
        contents = dict(zip(map(tuple, addresses.tolist()), elements.tolist(), strict=True))
        self.store(s.result.memory, s.match.initial.name if s.match.initial else "", contents)

    def store(self, memory: str, source: str, contents: Mapping[Address, int]) -> None:
        """Write elements to a memory, by the bus or from an image.

        Raises:
            NotEmitted: no instruction does.
        """
        if not store_by_bus(self.writer, memory, source, contents) and not load_from_image(self.writer, memory, source, contents):
            raise NotEmitted(f"no instruction brings {source or 'zeros'} to {memory} ({_by_bus(writers(self.ila))})")

    # -- results

    def results(self, steps: Mapping[str, int]) -> list[Pending]:
        """Return where the results of a command lie, each element once."""
        p = self.schedule.result
        addresses, elements = p.region.window(self.base_of(p, steps), steps, self.origin)
        triples = zip(map(tuple, addresses.tolist()), elements.tolist(), p.region.parts.tolist(), strict=True)
        return [(a, e, byte) for a, (e, byte) in {a: (e, byte) for a, e, byte in triples}.items() if e != NONE]

    def keep_results(self, steps: Mapping[str, int]) -> None:
        """Note results that the next command writes; what lies there already is read before."""
        new = self.results(steps)
        if {a for a, *_ in self.pending} & {a for a, *_ in new}:
            self.drain()
        self.pending += new

    def drain(self) -> None:
        """Read all results that lie in memory, by the bus or to an image.

        Raises:
            NotEmitted: no instruction does.
        """
        memory = self.schedule.result.memory
        if not read_by_bus(self.writer, memory, self.pending) and not self.stored(memory):
            result = self.schedule.result.slot.reach.name
            raise NotEmitted(f"no instruction returns the result {result} from the memory {memory} ({_by_bus(readers(self.ila))})")
        self.pending = []

    def stored(self, memory: str) -> bool:
        """Store results, as many bits at a time as a copy takes, the next ones shifted down; tell whether there is a copy.

        Raises:
            NotEmitted: a copy takes the low bits alone, and nothing shifts the others down.
        """
        bits = stored_bits(self.writer, memory)
        if not bits or not store_to_image(self.writer, memory, self.pending, 0):
            return False
        for low in range(bits, self.schedule.match.part_bits, bits):
            if not self.shifted(bits):
                reason = f"{bits} at a time leave the others, which none shifts down"
                raise NotEmitted(f"no instruction moves {memory} outside in {self.code_bits} bits: {reason}")
            store_to_image(self.writer, memory, self.pending, low // BYTE)
        return True

    def shifted(self, bits: int) -> bool:
        """Shift all results in memory right; tell whether there is an instruction that does."""
        op = continuation(self.schedule.match.operation)
        options = ((m, values) for c, values in _shifters(self.ila, self.schedule.result.memory, bits) for m in matches(op, c))
        return any(self.goes_over(m, values) for m, values in options)

    def cleared(self) -> bool:
        """Set accumulators to zero; tell whether there is an instruction that does."""
        op, fixed = clearing(self.schedule.match.operation, self.schedule.tile), attachment(self.ila, "")
        clearing_here = (c for c in clears(self.ila) if c.result.memory == self.schedule.result.memory)
        options = ((m, v) for c in clearing_here for m in matches(op, c) for v in condition_values(c.conditions, fixed))
        return any(self.goes_over(m, values) for m, values in options)

    def goes_over(self, m: Match, switches: Settings) -> bool:
        """Write commands that go over the results in memory; tell whether they can."""
        schedule = next((s for s in schedules(self.ila, m, switches, self.schedule) if isinstance(s, Schedule)), None)
        if schedule is None:
            return False
        Emission(schedule, self.writer, self.code_bits).run()
        return True
