"""Batches of raw commands as columns: plain instructions are decoded and executed by compiled loops.

An instruction is plain when all it does is store words in memories or registers, or read words of memories back. A loop ends at
the first command that it does not decode. Instructions with operands in their address come in large numbers and have a loop
of their own from the start; the others get one, compiled without optimisation, once enough of them were executed singly, and one
loop takes all of them once commands of the two kinds alternate often. Other instructions are executed as single commands.
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
from ...lang.structural_hash import StructuralHash, Undigested
from ...readings.arrays.labelled_array import Data, storage_dtype
from ..model import DATA, Ila, Instruction
from .decode_loop import Columns, loop_of
from .device_protocol import CommandDevice
from .instruction_families import plain_of
from .repeated_commands import execute_run

if TYPE_CHECKING:
    from ...readings.native.printer import NativeFunction

PATIENCE = 64  # commands of configuration, one by one, before machine code is made for them too
TURNS = 512  # from one loop to the other, 10–20 µs each, before there is one loop for both
RANGES, OTHERS, ALL = "ranges", "others", "all"
REPEATED = 3  # commands of one instruction, one by one, before numpy looks for a run of them
PIECE = 1 << 18  # commands of one call, which costs 50–100 µs; the loop touches no row behind the last of them
ROWS = 2 * PIECE  # of columns as they are declared: what the first row and the length of a run can add up to
ALLOCATING_OPERATORS = ("reduce", "call", "table")
SCALARS, WORD = ("count", "done"), "data"
# of optimisation: copies are vectors already, and at level 2 the first compilation takes several times as long
LEVEL = {RANGES: 1, OTHERS: 0, ALL: 1}


@dataclass(frozen=True, eq=False)
class Decoder:
    """A compiled decode loop: its function, the columns it reads by input name, the rows of read results, and its scalars."""

    function: NativeFunction
    columns: Mapping[Leaf, str]
    gives: Leaf
    scalars: Mapping[str, Leaf]

    @cached_property
    def states(self) -> frozenset[Leaf]:
        """The state elements that the loop reads or writes."""
        return frozenset(self.function.memories) - self.columns.keys() - set(self.scalars.values()) - {self.gives}


class _BoundLoop:
    """The loop on the memories of one device."""

    def __init__(self, sim: CommandDevice, decoder: Decoder) -> None:
        self.decoder = decoder
        self.numbers = {name: np.zeros((), storage_dtype(leaf.interval)) for name, leaf in decoder.scalars.items()}
        states = {leaf: sim.memories[leaf].data for leaf in decoder.states}
        self.call = decoder.function.bind([states.get(m) for m in decoder.function.memories])
        self.call.put({leaf: self.numbers[name] for name, leaf in decoder.scalars.items()})
        self.places = [(decoder.function.numbers[leaf], leaf) for leaf in decoder.states]

    def run(self, columns: Mapping[str, Data], gives: Data) -> int:
        """Execute the commands of the columns; return how many there are before the first that is not plain."""
        self.numbers["count"][()] = len(gives)
        rows = {leaf: columns[name] for leaf, name in self.decoder.columns.items()} | {self.decoder.gives: gives}
        self.call.put_rows({leaf: data for leaf, data in rows.items() if leaf in self.decoder.function.numbers})
        self.call()
        return int(self.numbers["done"])

    def refresh(self, sim: CommandDevice) -> None:
        """Rebind memories whose arrays were replaced since the last call."""
        bound_arrays = self.call.arrays
        replaced = {leaf: sim.memories[leaf].data for n, leaf in self.places if bound_arrays[n] is not sim.memories[leaf].data}
        self.call.put(replaced)


def play(sim: CommandDevice, columns: Mapping[str, Data]) -> Data:
    """Execute commands given as columns by input, [count] or [count, lanes]; return the results of reads as rows [count, bytes].

    Raises:
        UsageError: F203, a column is of no input, or has another shape or values outside of its input's range.
    """
    arrays, count = _checked_columns(sim.ila, columns)
    is_compiled = sim.reading == "native" and not sim.samples and not sim.strict
    gives = np.zeros((count, _width(sim.ila)), np.uint8)
    position = 0
    by_runs, previous, repeats = sim.reading == "arrays" and not sim.samples and not sim.strict, None, 0
    while position < count:
        position = _run_plain(sim, arrays, gives, position) if is_compiled else position
        if position < count:
            instruction = _run_single(sim, arrays, gives, position)
            sim.singles += instruction is not None and is_plain(sim.ila, instruction)
            position, repeats, previous = position + 1, repeats + 1 if instruction is previous else 0, instruction
        if by_runs and previous is not None and repeats >= REPEATED and position < count:
            position, repeats = execute_run(sim, previous, arrays, gives, position), 0
    return gives


def _checked_columns(ila: Ila, columns: Mapping[str, Data]) -> tuple[dict[str, Data], int]:
    count = len(next(iter(columns.values()), ()))
    arrays = {}
    for name, leaf in ila.inputs.items():
        shape = (count, *static_shape(leaf))
        dtype = np.dtype(storage_dtype(leaf.interval))
        data = np.asarray(columns.get(name, np.zeros(shape, dtype)))
        if data.shape != shape or not _is_within(data, leaf):
            raise UsageError("F203", f"the column {name} must be {shape} numbers in {leaf.interval[0]}…{leaf.interval[1]}")
        arrays[name] = np.ascontiguousarray(data, dtype)
    unknown_names = sorted(columns.keys() - arrays.keys())
    if unknown_names:
        raise UsageError("F203", f'{ila.name} has no input "{unknown_names[0]}"', help=f"inputs: {', '.join(ila.inputs)}")
    return arrays, count


def _is_within(data: Data, leaf: Leaf) -> bool:
    if data.dtype.kind not in "iubf" or data.size == 0:
        return data.size == 0
    ends = (np.iinfo(data.dtype).min, np.iinfo(data.dtype).max) if data.dtype.kind in "iu" else (None, None)
    return iv.inside(ends, leaf.interval) or iv.inside((int(data.min()), int(data.max())), leaf.interval)


def _run_plain(sim: CommandDevice, columns: Mapping[str, Data], gives: Data, position: int) -> int:
    """Run the compiled loops in turn from a position on; return the first command that none of them decodes."""
    previous, turns = -1, 0
    while previous < position < len(gives):
        previous = position
        for decoder in _worthwhile_loops(sim):
            end = _run_loop(sim, decoder, columns, gives, position) if position < len(gives) else position
            turns += end > position
            position = end
    sim.loop_switches += max(turns - 1, 0)
    return position


def _worthwhile_loops(sim: CommandDevice) -> list[Decoder]:
    """Return the loops whose compilation the commands executed so far make worthwhile."""
    kinds = (ALL,) if sim.loop_switches >= TURNS else (RANGES, OTHERS) if sim.singles >= PATIENCE else (RANGES,)
    return [decoder for kind in kinds if (decoder := decoder_of(sim.ila, kind)) is not None]


def _run_loop(sim: CommandDevice, decoder: Decoder, columns: Mapping[str, Data], gives: Data, position: int) -> int:
    """Run a compiled loop from a position on; return the first command that it does not decode."""
    if decoder not in sim.calls:
        sim.calls[decoder] = _BoundLoop(sim, decoder)
    bound: _BoundLoop = sim.calls[decoder]
    bound.refresh(sim)
    is_stopped = False
    while position < len(gives) and not is_stopped:
        piece = slice(position, min(position + PIECE, len(gives)))
        executed = bound.run({name: x[piece] for name, x in columns.items()}, gives[piece])
        is_stopped = executed < piece.stop - position
        position += executed
        sim.executed += executed
    sim.machine.invalidate(decoder.states)
    return position


def _run_single(sim: CommandDevice, columns: Mapping[str, Data], gives: Data, position: int) -> Instruction | None:
    """Execute one command; return its instruction."""
    command = {name: int.from_bytes(data[position].tobytes(), "little") for name, data in columns.items()}
    answer = sim.command({name: value for name, value in command.items() if value})
    if answer is not None:
        gives[position] = np.frombuffer(answer.to_bytes(gives.shape[1], "little"), np.uint8)
    return sim.decode(command)


def _width(ila: Ila) -> int:
    """Return how many bytes a read gives at most."""
    shapes = [math.prod(static_shape(i.result)) for i in ila.instructions.values() if i.result is not None]
    return max(shapes, default=1)


@lru_cache(maxsize=48)
def decoder_of(ila: Ila, kind: str = ALL) -> Decoder | None:
    """Return the compiled loop for a kind of instructions; None without machine code or where no instruction of the kind is plain."""
    try:
        from ...readings.native.code_cache import cached_step
        from ...readings.native.printer import NativeFunction
    except ImportError:
        return None
    columns = {name: Leaf((ROWS, *static_shape(x)), x.interval, False, f"column_{name}") for name, x in ila.inputs.items()}
    gives = Leaf((ROWS, _width(ila)), iv.of_width(8, False), False, "gives")
    scalars = {name: Leaf((), (0, PIECE), False, name) for name in SCALARS}
    instructions = [i for i in ila.instructions.values() if (kind == ALL or _is_range(i) == (kind == RANGES)) and is_plain(ila, i)]
    if not instructions:
        return None
    disjoint_leaves = (*columns.values(), *scalars.values(), gives)

    def make() -> NativeFunction:
        plain_instructions = [plain_of(i, _updates(i.update) or (), is_range=_is_range(i)) for i in instructions]
        inputs = {leaf: columns[name] for name, leaf in ila.inputs.items()}
        step, local = loop_of(ila, plain_instructions, Columns(inputs, gives, PIECE, scalars["count"], scalars["done"]))
        return NativeFunction(step, noalias=frozenset(disjoint_leaves), local=local, level=LEVEL[kind])

    leaves = (*disjoint_leaves, *(s.leaf for s in ila.states.values()))
    digest = _digest(kind, instructions, leaves)
    try:
        function = make() if digest is None else cached_step(digest, leaves, make)
    except SpecError:
        return None
    return Decoder(function, {leaf: name for name, leaf in columns.items()}, gives, scalars)


def _digest(kind: str, instructions: Sequence[Instruction], leaves: Sequence[Leaf]) -> str | None:
    """Return the digest of everything that the loop is made from; None where a term has none."""
    digest = StructuralHash()
    try:
        digest.add_words(kind)
        digest.add(*leaves)
        for i in instructions:
            digest.add_words(i.name, [(name, o.input) for name, o in i.operands.items()])
            digest.add(i.decode, *(x for o in i.operands.values() for x in (o.leaf, o.term)), *(() if i.result is None else (i.result,)))
            for u in _updates(i.update) or ():
                digest.add(u.memory, *u.variables, *u.extents, *u.address, u.value)
    except Undigested:
        return None
    return digest.text()


def _is_range(instruction: Instruction) -> bool:
    """Tell whether an instruction has operands in its address."""
    return any(o.input != WORD for o in instruction.operands.values())


@lru_cache(maxsize=1024)
def is_plain(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether an instruction only stores words and returns bytes of data memories, and decodes without reading the state."""
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


def _are_words(terms: Sequence[Expr], visited: set[Expr]) -> bool:
    """Tell whether terms have no sums, functions, tables or arrays below them."""
    for x in terms:
        if x in visited:
            continue
        visited.add(x)
        if x.op in ALLOCATING_OPERATORS or (x.op == "load" and not isinstance(x.data, Leaf)) or not _are_words(x.args, visited):
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
