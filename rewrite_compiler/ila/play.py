"""Play: columns of raw commands on a device. Plain writes and reads are decoded and applied by one compiled loop.

An instruction is plain when it does nothing but store operands in data memories, or reads words back. The loop ends at the
first command that is not plain; that one is executed as any single command, and the loop goes on behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SpecError, UsageError
from ..lang import intervals as iv
from ..lang.binders import Leaf, scalar_array, static_shape
from ..lang.expr import Expr
from ..lang.loops import loads_of
from ..lang.named import Data, storage_dtype
from ..lang.step import Require, Seq, Step, Together, Update, assign, cases, let, loop, make_update, seq, together, update, when
from ..lang.substitute import substitute
from .model import DATA, Ila, Instruction

if TYPE_CHECKING:
    from ..lang.native import NativeFunction
    from .simulate import Simulator

PIECE = 1 << 15  # commands of one call: behind a command that is not plain the rest of them is passed over
Inputs = Mapping[Leaf, Callable[[tuple[Expr, ...]], Expr]]  # the term that an input of a model has at an index
SCALARS = ("count", "stopped", "last", "hit")


@dataclass(frozen=True, eq=False)
class Decoder:
    """The compiled loop, the columns it reads, and what reads give."""

    function: NativeFunction
    columns: Mapping[str, Leaf]
    gives: Leaf
    scalars: Mapping[str, Leaf]


def play(sim: Simulator, columns: Mapping[str, Data]) -> Data:
    """Execute commands given as columns by input ([count] or [count, lanes]); return [count, bytes], rows of reads filled in."""
    given, count = _columns(sim.ila, columns)
    made = decoder_of(sim.ila) if sim.reading == "native" and not sim.samples and not sim.strict else None
    gives = np.zeros((count, _width(sim.ila)), np.uint8)
    at, tail = 0, _Tail(given, gives)
    while at < count:
        at = _plain(sim, made, tail, at) if made is not None else at
        if at < count:
            _single(sim, given, gives, at)
            at += 1
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


def _plain(sim: Simulator, made: Decoder, tail: _Tail, at: int) -> int:
    """Run the compiled loop from command `at` on; return the first command that it left."""
    stopped = 0
    while at < tail.count and not stopped:
        columns, gives, count = tail.piece(at)
        held = {leaf: np.array(count if name == "count" else 0, storage_dtype(leaf.interval)) for name, leaf in made.scalars.items()}
        held |= {leaf: columns[name] for name, leaf in made.columns.items()} | {made.gives: gives}
        made.function([held[m] if m in held else sim.memories[m].data for m in made.function.memories])
        stopped = int(held[made.scalars["stopped"]])
        done = stopped - 1 if stopped else count
        sim.executed += done
        tail.put(at, done)
        at += done
    sim.machine.forget(frozenset(made.function.memories).intersection(sim.memories))
    return at


class _Tail:
    """Columns in pieces of one size: those that end too early are read from a copy of the last rows that is longer."""

    def __init__(self, given: Mapping[str, Data], gives: Data) -> None:
        self.given, self.gives, self.count = given, gives, len(gives)
        self.start = max(0, self.count - PIECE)

    @cached_property
    def last(self) -> Mapping[str, Data]:
        """The last rows and as many behind them as a piece has."""
        return {name: np.concatenate([x[self.start :], np.zeros((PIECE, *x.shape[1:]), x.dtype)]) for name, x in self.given.items()}

    @cached_property
    def answers(self) -> Data:
        """What those rows give."""
        return np.zeros((2 * PIECE, self.gives.shape[1]), np.uint8)

    def piece(self, at: int) -> tuple[Mapping[str, Data], Data, int]:
        """Return columns and answers of PIECE rows from `at` on, and how many of them are commands."""
        if at + PIECE <= self.count:
            return {name: x[at : at + PIECE] for name, x in self.given.items()}, self.gives[at : at + PIECE], PIECE
        low = at - self.start
        return {name: x[low : low + PIECE] for name, x in self.last.items()}, self.answers[low : low + PIECE], self.count - at

    def put(self, at: int, done: int) -> None:
        """Keep the answers of `done` commands from `at` on."""
        if at + PIECE > self.count:
            self.gives[at : at + done] = self.answers[at - self.start : at - self.start + done]


def _single(sim: Simulator, given: Mapping[str, Data], gives: Data, at: int) -> None:
    command = {name: int.from_bytes(data[at].tobytes(), "little") for name, data in given.items()}
    answer = sim.command({name: value for name, value in command.items() if value})
    if answer is not None:
        gives[at] = np.frombuffer(answer.to_bytes(gives.shape[1], "little"), np.uint8)


def _width(ila: Ila) -> int:
    """Return how many bytes a read gives at most."""
    shapes = [math.prod(static_shape(i.result)) for i in ila.instructions.values() if i.result is not None]
    return max(shapes, default=1)


@lru_cache(maxsize=16)
def decoder_of(ila: Ila) -> Decoder | None:
    """Return the compiled loop of a model; None where there is no machine code for it or nothing is plain."""
    try:
        from ..lang.native import NativeFunction
    except ImportError:
        return None
    columns = {name: Leaf((PIECE, *static_shape(x)), x.interval, False, f"column_{name}") for name, x in ila.inputs.items()}
    gives = Leaf((PIECE, _width(ila)), iv.of_width(8, False), False, "gives")
    scalars = {name: Leaf((), (0, PIECE), False, name) for name in SCALARS}
    chosen = [i for i in ila.instructions.values() if is_plain(ila, i)]
    if not chosen:
        return None
    try:
        function = NativeFunction(
            _loop(ila, chosen, columns, gives, scalars), apart=frozenset((*columns.values(), *scalars.values(), gives))
        )
    except SpecError:
        return None
    return Decoder(function, columns, gives, scalars)


def is_plain(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether an instruction stores in data memories and gives bytes of the state, and does nothing else."""
    parts = _updates(instruction.update)
    if parts is None or not instruction.decode.reads <= frozenset(ila.inputs.values()):
        return False
    data = {s.leaf for s in ila.states.values() if s.binding == DATA and s.leaf.shape}
    if instruction.result is not None and (
        instruction.result.reads.isdisjoint(data) or not iv.inside(instruction.result.interval, (0, 255))
    ):
        return False
    stored = all(u.memory in data and all(n.value is not None for n in u.extents) for u in parts)
    return stored and bool(parts or instruction.result is not None)


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


def _loop(ila: Ila, chosen: list[Instruction], columns: Mapping[str, Leaf], gives: Leaf, scalars: Mapping[str, Leaf]) -> Step:
    """Return the step that runs plain commands in order until one is not plain, whose number, from 1, it leaves in `stopped`.

    Like commands follow each other: the instruction of the command before is asked first.
    """
    count, stopped, last, hit = (scalars[name] for name in SCALARS)

    def one(row: Expr, inputs: Inputs) -> Step:
        decodes = {n: _given(i, i.decode, inputs) for n, i in enumerate(chosen, 1)}
        applied = {n: _applied(i, inputs, gives, row) for n, i in enumerate(chosen, 1)}
        again = cases(last[()], {n: when(d, applied[n], assign(hit, 0)) for n, d in decodes.items()}, assign(hit, 0))
        search: Step = seq(assign(last, 0), assign(stopped, row + 1))
        for n, d in decodes.items():
            search = when(d, assign(last, n), search)
        return when(stopped[()] == 0, seq(assign(hit, 1), again, when(hit[()] == 0, seq(search, cases(last[()], applied)))))

    def named(row: Expr, left: Sequence[tuple[Leaf, Leaf]], inputs: Inputs) -> Step:
        """Read each scalar input once; lanes are read where they are used."""
        if not left:
            return one(row, inputs)
        (leaf, column), *rest = left
        if leaf.shape:
            return named(row, rest, {**inputs, leaf: lambda j: column[(row, *j)]})
        return let(scalar_array(column[row]), lambda x: named(row, rest, {**inputs, leaf: lambda _: x[()]}), leaf.name)

    pairs = [(leaf, columns[name]) for name, leaf in ila.inputs.items()]
    return loop(count[()], lambda row: named(row, pairs, {}))


def _applied(i: Instruction, inputs: Inputs, gives: Leaf, row: Expr) -> Step:
    """Return what an instruction does; a read gives the state after it."""
    terms = [(u, [_given(i, e, inputs) for e in (*u.address, u.value)]) for u in _updates(i.update) or ()]
    parts: list[Step] = []
    if terms:
        parts.append(together(*(make_update(u.memory, u.variables, u.extents, tuple(a), value) for u, (*a, value) in terms)))
    if i.result is not None:
        result, shape = i.result, static_shape(i.result)
        parts.append(update(gives, shape, lambda *j: ((row, _flat(j, shape)), _given(i, result[j], inputs))))
    return seq(*parts)


def _flat(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    total = index[0]
    for j, n in zip(index[1:], shape[1:], strict=True):
        total = total * n + j
    return total


def _given(i: Instruction, e: Expr, inputs: Inputs) -> Expr:
    """Return a term of an instruction with its operands by what gives them, and the inputs by what stands for them."""
    terms = {o.leaf: o.term for o in i.operands.values()}
    placed = {x: _at(terms[x.data], x.args) for x in loads_of(e) if x.data in terms}
    inner = substitute(e, placed) if placed else e
    read = {x: inputs[x.data](x.args) for x in loads_of(inner) if x.data in inputs}
    return substitute(inner, read) if read else inner


def _at(term: object, index: tuple[Expr, ...]) -> Expr:
    return term if isinstance(term, Expr) else term[index]  # type: ignore[index]
