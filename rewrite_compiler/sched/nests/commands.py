"""Commands of a configuration: operands go to memories, registers are set, the instruction runs, and results come back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from ...ila import Ila
from ...ila.summary import Opaque, summarise
from ...lang import intervals as iv
from ..driver.matching import NONE
from ..driver.program import Block, Program, blocks_of, command_bits, lane_bits
from ..driver.transport import Contents, read_by_bus, store_by_bus
from ..driver.writer import NotEmitted, Writer, columns_of
from ..instructions.control import Settings, reset_state, setters
from ..instructions.movement import writers
from .copies import RunCopy, run_copies
from .places import Configuration, Layout, NoPlaces

Shapes = Mapping[str, tuple[int, ...]]


def program(ila: Ila, c: Configuration, shapes: Shapes, at: Mapping[str, int], code: tuple[int, bool]) -> Program:
    """Return the program of an operation at sizes; `code` are bits and sign of a result's code.

    Raises:
        NotEmitted: an operand, a register or a result cannot be moved.
    """
    if ila.externals:
        raise NotEmitted("operands lie outside of the device, where no configured instruction reads them")
    w, segments = Writer(ila, dict(reset_state(ila))), list[int]()
    emission = Commands(w, c)
    try:
        for layout in layouts(ila, c, shapes, at):
            emission.run(layout)
            segments.append(emission.ran)
    except NoPlaces as reason:
        raise NotEmitted(str(reason)) from None
    parts = [w.commands[a:b] for a, b in itertools.pairwise([0, *segments, len(w.commands)])]
    blocks = [blocks_of(part) for part in parts]
    ends = [*itertools.accumulate(map(len, blocks))][:-1]
    waits = frozenset(n - 1 for n in ends) if ila.waits else frozenset[int]()
    names = {x.instruction for x in w.commands if x.lanes.elements.size}
    shape = shapes[c.result.operand]
    return Program(
        tuple(b for part in blocks for b in part), shape, *code, {n: lane_bits(ila, n) for n in names}, None, command_bits(ila), waits,
    )  # fmt: skip


def layouts(ila: Ila, c: Configuration, shapes: Shapes, at: Mapping[str, int]) -> Iterator[Layout]:
    """Yield the layout of each step of the loops that no loop of the nest takes."""
    names = [n for p in c.result.places for term in p for n in term if n not in c.loops]
    for steps in itertools.product(*(range(at[n]) for n in names)):
        yield Layout(ila, c, shapes, at, dict(zip(names, steps, strict=True)))


@lru_cache(maxsize=64)
def _written_memories(ila: Ila, name: str) -> frozenset[str]:
    """Return the memories that an instruction writes."""
    summary = summarise(ila, name)
    return frozenset() if isinstance(summary, Opaque) else frozenset(t.write.memory for *_, t in summary.transitions())


class Commands:
    """The commands of one call on their way into a writer."""

    def __init__(self, w: Writer, c: Configuration) -> None:
        """Take the writer."""
        self.w, self.c, self.ila, self.ran = w, c, w.ila, 0
        self.loaded: dict[str, list[tuple[str, Contents]]] = {}  # what lies in each memory

    def run(self, layout: Layout) -> None:
        """Write the commands of one step."""
        operands = layout.operands()
        self.refuse_overlaps(operands, layout.results())
        items = [(memory, name, x) for name, by_memory in operands.items() for memory, x in by_memory.items()]
        for memory, name, x in sorted(items, key=lambda item: not self.staging(item[0])):
            if not any(n == name and same(x, y) for n, y in self.loaded.get(memory, [])):
                self.store(memory, name, x)
        fields = self.c.nest.summary.instruction.operands
        control = self.c.control(self.ila, layout.at)
        self.set({name: control[name] for name in self.c.registers if name not in fields})
        arguments = {name: layout.at.get(x, 0) if not x.isdigit() else int(x) for name, x in self.c.registers.items() if name in fields}
        steps = math.prod(layout.extent(v) for v, n in (*self.c.nest.loops, *self.c.nest.steps) if n.value is None)
        self.w.issue(Block(self.c.nest.instruction, columns_of(arguments), steps=steps))
        self.ran = len(self.w.commands)
        for memory in _written_memories(self.ila, self.c.nest.instruction):
            self.loaded.pop(memory, None)
        self.read(*layout.results())

    def refuse_overlaps(self, operands: Mapping[str, Mapping[str, Contents]], results: tuple[str, Contents]) -> None:
        """Refuse tensors that share an address, but for what results start from.

        Raises:
            NotEmitted: two do.
        """
        initial = self.c.initial.operand if self.c.initial is not None else ""
        every = [(n, m, x) for n, by_memory in operands.items() for m, x in by_memory.items()]
        every += [(self.c.result.operand, *results)]
        for (a, m, x), (b, n, y) in itertools.combinations(every, 2):
            shared = {*map(tuple, x.addresses.tolist())} & {*map(tuple, y.addresses.tolist())} if m == n else set()
            if shared and initial not in (a, b):
                raise NotEmitted(f"{a} and {b} would lie at the same addresses of {m}, from {min(shared)[0]:,} on")

    # -- registers

    def set(self, values_by_name: Settings) -> None:
        """Write the commands after which registers hold values.

        Raises:
            NotEmitted: a field does not hold one.
        """
        groups: dict[str, dict[str, int]] = {}
        for name, x in values_by_name.items():
            if name in setters(self.ila):
                groups.setdefault(setters(self.ila)[name].instruction, {})[name] = x
        for instruction, values in groups.items():
            fields = {
                f: self.w.registers[r]
                for r, f in next(s for s in setters(self.ila).values() if s.instruction == instruction).fields.items()
            }
            for name, x in values.items():
                field = setters(self.ila)[name].fields[name]
                interval = self.ila.instructions[instruction].operands[field].leaf.interval
                if not iv.inside((x, x), interval):
                    raise NotEmitted(f"{name} holds at most {interval[1]:,}, not {x:,}")
                fields[field] = x
            if any(self.w.registers[r] != x for r, x in values.items()):
                self.w.issue(Block(instruction, columns_of(fields)))

    # -- operands

    def staging(self, memory: str) -> bool:
        """Tell whether a memory is filled from another only."""
        return not any(m.memory == memory and not m.shifted for m in writers(self.ila))

    def store(self, memory: str, name: str, x: Contents) -> None:
        """Bring elements to a memory: by commands that carry them, or to another memory first and from there.

        Raises:
            NotEmitted: no instruction does.
        """
        contents = _with_zeros_between(x)
        if self.carried(memory, name, contents) or any(self.copied(c, name, contents) for c in run_copies(self.ila) if c.memory == memory):
            self.loaded.setdefault(memory, []).append((name, x))
            return
        raise NotEmitted(f"no instruction brings {name} to {memory}")

    def carried(self, memory: str, name: str, contents: Contents) -> bool:
        """Write elements by the first instruction that carries them; tell whether there is one."""
        is_carried = store_by_bus(self.w, memory, name, contents)
        if is_carried:
            self.loaded.pop(memory, None)
        return is_carried

    def copied(self, c: RunCopy, name: str, contents: Contents) -> bool:
        """Carry elements to the memory that a copy reads, and copy them; tell whether that can be."""
        first, last = int(contents.addresses.min()), int(contents.addresses.max())
        setting = c.settings(first, 0, last + 1 - first, self.w.registers)
        if setting is None:
            return False
        settings, count = setting
        if not self.carried(c.source, name, _segment(contents, first, count, 0)):
            return False
        fields = self.ila.instructions[c.instruction].operands
        self.set({k: x for k, x in settings.items() if k not in fields})
        self.w.issue(Block(c.instruction, columns_of({k: x for k, x in settings.items() if k in fields})))
        return True

    # -- results

    def read(self, memory: str, x: Contents) -> None:
        """Write the reads of results.

        Raises:
            NotEmitted: no instruction returns them.
        """
        if not read_by_bus(self.w, memory, x):
            raise NotEmitted(f"no instruction returns results from {memory}")


def _with_zeros_between(x: Contents) -> Contents:
    """Return contents with zeros at the addresses between, where an instruction may read over what it does not use."""
    if x.addresses.shape[1] > 1:
        return x
    first, last = int(x.addresses.min()), int(x.addresses.max())
    return _segment(x, first, last + 1 - first, first)


def _segment(x: Contents, first: int, count: int, at: int) -> Contents:
    """Return what lies at so many addresses from one on, zeros between, as it lies from another on."""
    elements, digits, places = np.full(count, NONE), np.zeros(count, np.int64), x.addresses[:, 0] - first
    elements[places], digits[places] = x.elements, x.digits
    return Contents(np.arange(at, at + count)[:, None], elements, digits)


def same(a: Contents, b: Contents) -> bool:
    """Tell whether the same elements lie at the same addresses."""
    return all(np.array_equal(x, y) for x, y in ((a.addresses, b.addresses), (a.elements, b.elements), (a.digits, b.digits)))
