"""Play: columns of raw commands on a device. Plain writes and reads are decoded and applied by compiled loops.

An instruction is plain when it does nothing but store words in memories or registers, or reads words of memories back. A
loop ends at the first command that is none of its own. Instructions with a range of addresses have the first loop: theirs
are the many commands. The others get one, made without optimisation, when there were some of them, and all have one loop
when commands of the two kinds alternate. What is not plain is executed as any single command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SpecError, UsageError
from ...lang import intervals as iv
from ...lang.binders import Array, Leaf, static_shape
from ...lang.expr import Expr
from ...lang.step import Require, Seq, Step, Together, Update
from ...lang.structural_hash import Digest, Undigested
from ...readings.arrays.labelled_array import Data, storage_dtype
from ..model import DATA, Ila, Instruction
from .decode_loop import Columns, loop_of
from .device_protocol import CommandDevice
from .instruction_families import plain_of
from .repeated_commands import run_of

if TYPE_CHECKING:
    from ...readings.native.printer import NativeFunction

PATIENCE = 64  # commands of configuration, one by one, before machine code is made for them too
TURNS = 512  # from one loop to the other, 10–20 µs each, before there is one loop for both
RANGES, OTHERS, ALL = "ranges", "others", "all"
REPEATED = 3  # commands of one instruction, one by one, before numpy looks for a run of them
PIECE = 1 << 18  # commands of one call, which costs 50–100 µs; the loop touches no row behind the last of them
ROWS = 2 * PIECE  # of columns as they are declared: what the first row and the length of a run can add up to
ARRAYS_OF_THEIR_OWN = ("reduce", "call", "table")
SCALARS, WORD = ("count", "done"), "data"
# of optimisation: copies are vectors already, and at level 2 the first compilation takes several times as long
LEVEL = {RANGES: 1, OTHERS: 0, ALL: 1}


@dataclass(frozen=True, eq=False)
class Decoder:
    """The compiled loop, the columns it reads, and what reads give."""

    function: NativeFunction
    columns: Mapping[Leaf, str]
    gives: Leaf
    scalars: Mapping[str, Leaf]

    @cached_property
    def states(self) -> frozenset[Leaf]:
        """The memories of a device that the loop reads or writes."""
        return frozenset(self.function.memories) - self.columns.keys() - set(self.scalars.values()) - {self.gives}


class _Bound:
    """The loop on the memories of one device."""

    def __init__(self, sim: CommandDevice, made: Decoder) -> None:
        self.made = made
        self.numbers = {name: np.zeros((), storage_dtype(leaf.interval)) for name, leaf in made.scalars.items()}
        states = {leaf: sim.memories[leaf].data for leaf in made.states}
        self.call = made.function.bound([states.get(m) for m in made.function.memories])
        self.call.put({leaf: self.numbers[name] for name, leaf in made.scalars.items()})
        self.places = [(made.function.numbers[leaf], leaf) for leaf in made.states]

    def run(self, columns: Mapping[str, Data], gives: Data) -> int:
        """Run the commands of the columns; return how many there are before one that is not plain."""
        self.numbers["count"][()] = len(gives)
        rows = {leaf: columns[name] for leaf, name in self.made.columns.items()} | {self.made.gives: gives}
        self.call.put_rows({leaf: data for leaf, data in rows.items() if leaf in self.made.function.numbers})
        self.call()
        return int(self.numbers["done"])

    def refresh(self, sim: CommandDevice) -> None:
        """Take arrays that are new in the place of others."""
        held = self.call.held
        moved = {leaf: sim.memories[leaf].data for n, leaf in self.places if held[n] is not sim.memories[leaf].data}
        self.call.put(moved)


def play(sim: CommandDevice, columns: Mapping[str, Data]) -> Data:
    """Execute commands given as columns by input ([count] or [count, lanes]); return [count, bytes], rows of reads filled in."""
    given, count = _columns(sim.ila, columns)
    is_compiled = sim.reading == "native" and not sim.samples and not sim.strict
    gives = np.zeros((count, _width(sim.ila)), np.uint8)
    at = 0
    by_runs, before, times = sim.reading == "arrays" and not sim.samples and not sim.strict, None, 0
    while at < count:
        at = _plain(sim, given, gives, at) if is_compiled else at
        if at < count:
            found = _single(sim, given, gives, at)
            sim.singles += found is not None and is_plain(sim.ila, found)
            at, times, before = at + 1, times + 1 if found is before else 0, found
        if by_runs and before is not None and times >= REPEATED and at < count:
            at, times = run_of(sim, before, given, gives, at), 0
    return gives


def _columns(ila: Ila, columns: Mapping[str, Data]) -> tuple[dict[str, Data], int]:
    count = len(next(iter(columns.values()), ()))
    found = {}
    for name, leaf in ila.inputs.items():
        shape = (count, *static_shape(leaf))
        kind = np.dtype(storage_dtype(leaf.interval))
        data = np.asarray(columns.get(name, np.zeros(shape, kind)))
        if data.shape != shape or not _is_within(data, leaf):
            raise UsageError("F203", f"the column {name} must be {shape} numbers in {leaf.interval[0]}…{leaf.interval[1]}")
        found[name] = np.ascontiguousarray(data, kind)
    unknown = sorted(columns.keys() - found.keys())
    if unknown:
        raise UsageError("F203", f'{ila.name} has no input "{unknown[0]}"', help=f"inputs: {', '.join(ila.inputs)}")
    return found, count


def _is_within(data: Data, leaf: Leaf) -> bool:
    if data.dtype.kind not in "iubf" or data.size == 0:
        return data.size == 0
    ends = (np.iinfo(data.dtype).min, np.iinfo(data.dtype).max) if data.dtype.kind in "iu" else (None, None)
    return iv.inside(ends, leaf.interval) or iv.inside((int(data.min()), int(data.max())), leaf.interval)


def _plain(sim: CommandDevice, given: Mapping[str, Data], gives: Data, at: int) -> int:
    """Run the compiled loops in turn from command `at` on; return the first command that none of them knows."""
    before, turns = -1, 0
    while before < at < len(gives):
        before = at
        for made in _loops(sim):
            ended = _part(sim, made, given, gives, at) if at < len(gives) else at
            turns += ended > at
            at = ended
    sim.turns += max(turns - 1, 0)
    return at


def _loops(sim: CommandDevice) -> list[Decoder]:
    """Return the loops that it pays to have by now."""
    kinds = (ALL,) if sim.turns >= TURNS else (RANGES, OTHERS) if sim.singles >= PATIENCE else (RANGES,)
    return [made for kind in kinds if (made := decoder_of(sim.ila, kind)) is not None]


def _part(sim: CommandDevice, made: Decoder, given: Mapping[str, Data], gives: Data, at: int) -> int:
    """Run a compiled loop from command `at` on; return the first command that it left."""
    if made not in sim.calls:
        sim.calls[made] = _Bound(sim, made)
    bound: _Bound = sim.calls[made]
    bound.refresh(sim)
    is_stopped = False
    while at < len(gives) and not is_stopped:
        piece = slice(at, min(at + PIECE, len(gives)))
        done = bound.run({name: x[piece] for name, x in given.items()}, gives[piece])
        is_stopped = done < piece.stop - at
        at += done
        sim.executed += done
    sim.machine.forget(made.states)
    return at


def _single(sim: CommandDevice, given: Mapping[str, Data], gives: Data, at: int) -> Instruction | None:
    """Execute one command; return its instruction."""
    command = {name: int.from_bytes(data[at].tobytes(), "little") for name, data in given.items()}
    answer = sim.command({name: value for name, value in command.items() if value})
    if answer is not None:
        gives[at] = np.frombuffer(answer.to_bytes(gives.shape[1], "little"), np.uint8)
    return sim.decoded(command)


def _width(ila: Ila) -> int:
    """Return how many bytes a read gives at most."""
    shapes = [math.prod(static_shape(i.result)) for i in ila.instructions.values() if i.result is not None]
    return max(shapes, default=1)


@lru_cache(maxsize=48)
def decoder_of(ila: Ila, kind: str = ALL) -> Decoder | None:
    """Return the compiled loop for a kind of instructions; None where there is no machine code for it or none of them is plain."""
    try:
        from ...readings.native.code_cache import kept_step
        from ...readings.native.printer import NativeFunction
    except ImportError:
        return None
    columns = {name: Leaf((ROWS, *static_shape(x)), x.interval, False, f"column_{name}") for name, x in ila.inputs.items()}
    gives = Leaf((ROWS, _width(ila)), iv.of_width(8, False), False, "gives")
    scalars = {name: Leaf((), (0, PIECE), False, name) for name in SCALARS}
    chosen = [i for i in ila.instructions.values() if (kind == ALL or _is_range(i) == (kind == RANGES)) and is_plain(ila, i)]
    if not chosen:
        return None
    apart = (*columns.values(), *scalars.values(), gives)

    def make() -> NativeFunction:
        plain = [plain_of(i, _updates(i.update) or (), is_range=_is_range(i)) for i in chosen]
        inputs = {leaf: columns[name] for name, leaf in ila.inputs.items()}
        step, local = loop_of(ila, plain, Columns(inputs, gives, PIECE, scalars["count"], scalars["done"]))
        return NativeFunction(step, apart=frozenset(apart), local=local, level=LEVEL[kind])

    leaves = (*apart, *(s.leaf for s in ila.states.values()))
    digest = _digest(kind, chosen, leaves)
    try:
        function = make() if digest is None else kept_step(digest, leaves, make)
    except SpecError:
        return None
    return Decoder(function, {leaf: name for name, leaf in columns.items()}, gives, scalars)


def _digest(kind: str, chosen: Sequence[Instruction], leaves: Sequence[Leaf]) -> str | None:
    """Return the digest of everything that the loop is made from; None where a term has none."""
    found = Digest()
    try:
        found.say(kind)
        found.add(*leaves)
        for i in chosen:
            found.say(i.name, [(name, o.input) for name, o in i.operands.items()])
            found.add(i.decode, *(x for o in i.operands.values() for x in (o.leaf, o.term)), *(() if i.result is None else (i.result,)))
            for u in _updates(i.update) or ():
                found.add(u.memory, *u.variables, *u.extents, *u.address, u.value)
    except Undigested:
        return None
    return found.text()


def _is_range(instruction: Instruction) -> bool:
    """Tell whether an instruction has operands in its address."""
    return any(o.input != WORD for o in instruction.operands.values())


@lru_cache(maxsize=1024)
def is_plain(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether an instruction stores words and gives bytes of data memories, and does nothing else."""
    parts = _updates(instruction.update)
    if parts is None or not instruction.decode.reads <= frozenset(ila.inputs.values()):
        return False
    if instruction.result is not None and not _gives_bytes(ila, instruction.result):
        return False
    return all(map(_is_store, parts)) and bool(parts or instruction.result is not None)


def _gives_bytes(ila: Ila, result: Array) -> bool:
    """Tell whether a result is bytes of data memories."""
    data = {s.leaf for s in ila.states.values() if s.binding == DATA and s.leaf.shape}
    return not result.reads.isdisjoint(data) and iv.inside(result.interval, (0, 255))


def _is_store(u: Update) -> bool:
    """Tell whether an update of so many elements always needs neither sums nor arrays of its own."""
    return all(n.value is not None for n in u.extents) and _are_words((u.value, *u.address), set())


def _are_words(terms: Sequence[Expr], seen: set[Expr]) -> bool:
    """Tell whether terms have no sums, functions, tables or arrays below them."""
    for x in terms:
        if x in seen:
            continue
        seen.add(x)
        if x.op in ARRAYS_OF_THEIR_OWN or (x.op == "load" and not isinstance(x.data, Leaf)) or not _are_words(x.args, seen):
            return False
    return True


def _updates(step: Step) -> tuple[Update, ...] | None:
    """Return the updates of a step that go together; None when it does more. Diagnostics of strict simulation are none."""
    if isinstance(step, Update):
        return (step,)
    if isinstance(step, Together):
        return step.updates
    if not isinstance(step, Seq):
        return None
    parts = [x for x in step.steps if not isinstance(x, Require) or x.always]
    return _updates(parts[0]) if len(parts) == 1 else None if parts else ()
