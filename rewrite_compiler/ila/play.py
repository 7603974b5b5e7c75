"""Play: columns of raw commands on a device. Plain writes and reads are decoded and applied by one compiled loop.

An instruction is plain when it does nothing but store words in memories or registers, or reads words of memories back. The
loop ends at the first command that is not plain; that one is executed as any single command, and the loop goes on behind it.
Runs of commands of one instruction have a loop of their own, which asks for that instruction only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SpecError, UsageError
from ..lang import intervals as iv
from ..lang.arith import maximum, minimum
from ..lang.binders import Array, Comprehension, Leaf, scalar_array, static_shape
from ..lang.expr import Expr
from ..lang.loops import loads_of, terms_of
from ..lang.named import Data, storage_dtype
from ..lang.step import Require, Seq, Step, Together, Update, assign, let, loop, make_update, seq, together, update, when
from ..lang.substitute import substitute
from .model import DATA, Ila, Instruction

if TYPE_CHECKING:
    from ..lang.native import NativeFunction
    from .simulate import Simulator

PATIENCE = 64  # commands of configuration, one by one, before machine code is made for them too
PIECE = 1 << 18  # commands of one call, which costs 50–100 µs; the loop touches no row behind the last of them
Inputs = Mapping[Leaf, Callable[[tuple[Expr, ...]], Expr]]  # the term that an input of a model has at an index
SCALARS, LOCALS = ("count", "done"), ("row", "first", "going")
WORD, SHARED = "data", 4
LEVEL = 1  # of optimisation: copies are vectors already, and at level 2 the first compilation takes several times as long


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

    def __init__(self, sim: Simulator, made: Decoder) -> None:
        self.made = made
        self.numbers = {name: np.zeros((), storage_dtype(leaf.interval)) for name, leaf in made.scalars.items()}
        states = {leaf: sim.memories[leaf].data for leaf in made.states}
        self.call = made.function.bound([states.get(m) for m in made.function.memories])
        self.call.put({leaf: self.numbers[name] for name, leaf in made.scalars.items()})
        self.places = [(made.function.numbers[leaf], leaf) for leaf in made.states]

    def run(self, columns: Mapping[str, Data], gives: Data) -> int:
        """Run the commands of the columns; return how many there are before one that is not plain."""
        self.numbers["count"][()] = len(gives)
        self.call.put_rows({leaf: columns[name] for leaf, name in self.made.columns.items()} | {self.made.gives: gives})
        self.call()
        return int(self.numbers["done"])

    def refresh(self, sim: Simulator) -> None:
        """Take arrays that are new in the place of others."""
        held = self.call.held
        moved = {leaf: sim.memories[leaf].data for n, leaf in self.places if held[n] is not sim.memories[leaf].data}
        self.call.put(moved)


def play(sim: Simulator, columns: Mapping[str, Data]) -> Data:
    """Execute commands given as columns by input ([count] or [count, lanes]); return [count, bytes], rows of reads filled in."""
    given, count = _columns(sim.ila, columns)
    is_compiled = sim.reading == "native" and not sim.samples and not sim.strict
    gives = np.zeros((count, _width(sim.ila)), np.uint8)
    at = 0
    while at < count:
        made = decoder_of(sim.ila, sim.singles >= PATIENCE) if is_compiled else None
        at = _plain(sim, made, given, gives, at) if made is not None else at
        if at < count:
            sim.singles += _single(sim, given, gives, at)
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


def _plain(sim: Simulator, made: Decoder, given: Mapping[str, Data], gives: Data, at: int) -> int:
    """Run the compiled loop from command `at` on; return the first command that it left."""
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


def _single(sim: Simulator, given: Mapping[str, Data], gives: Data, at: int) -> bool:
    """Execute one command; tell whether its instruction is plain."""
    command = {name: int.from_bytes(data[at].tobytes(), "little") for name, data in given.items()}
    answer = sim.command({name: value for name, value in command.items() if value})
    if answer is not None:
        gives[at] = np.frombuffer(answer.to_bytes(gives.shape[1], "little"), np.uint8)
    found = sim.decoded(command)
    return found is not None and is_plain(sim.ila, found)


def _width(ila: Ila) -> int:
    """Return how many bytes a read gives at most."""
    shapes = [math.prod(static_shape(i.result)) for i in ila.instructions.values() if i.result is not None]
    return max(shapes, default=1)


@lru_cache(maxsize=16)
def decoder_of(ila: Ila, is_whole: bool = True) -> Decoder | None:
    """Return the compiled loop of a model; None where there is no machine code for it or nothing is plain.

    If it is not whole, it is for instructions with a range of addresses: theirs are the many commands, and their machine
    code is made in a fraction of the time.
    """
    try:
        from ..lang.native import NativeFunction
    except ImportError:
        return None
    columns = {name: Leaf((PIECE, *static_shape(x)), x.interval, False, f"column_{name}") for name, x in ila.inputs.items()}
    gives = Leaf((PIECE, _width(ila)), iv.of_width(8, False), False, "gives")
    scalars, local = ({name: Leaf((), (0, PIECE), False, name) for name in names} for names in (SCALARS, LOCALS))
    chosen = [i for i in ila.instructions.values() if (is_whole or _is_range(i)) and is_plain(ila, i)]
    if not chosen:
        return None
    try:
        step = _loop(ila, chosen, columns, gives, scalars | local)
        apart = frozenset((*columns.values(), *scalars.values(), gives))
        function = NativeFunction(step, apart=apart, local=frozenset(local.values()), level=LEVEL)
    except SpecError:
        return None
    return Decoder(function, {leaf: name for name, leaf in columns.items()}, gives, scalars)


def _is_range(instruction: Instruction) -> bool:
    """Tell whether an instruction has operands in its address."""
    return any(o.input != WORD for o in instruction.operands.values())


@lru_cache(maxsize=1024)
def is_plain(ila: Ila, instruction: Instruction) -> bool:
    """Tell whether an instruction stores words and gives bytes of data memories, and does nothing else."""
    parts = _updates(instruction.update)
    if parts is None or not instruction.decode.reads <= frozenset(ila.inputs.values()):
        return False
    data = {s.leaf for s in ila.states.values() if s.binding == DATA and s.leaf.shape}
    if instruction.result is not None and (
        instruction.result.reads.isdisjoint(data) or not iv.inside(instruction.result.interval, (0, 255))
    ):
        return False
    return all(map(_is_store, parts)) and bool(parts or instruction.result is not None)


def _is_store(u: Update) -> bool:
    """Tell whether an update of so many elements always needs neither sums nor arrays of its own."""
    terms = [x for e in (u.value, *u.address) for x in terms_of(e)]
    is_word = all(x.op not in ("reduce", "call", "table") and (x.op != "load" or isinstance(x.data, Leaf)) for x in terms)
    return is_word and all(n.value is not None for n in u.extents)


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


def _loop(ila: Ila, chosen: list[Instruction], columns: Mapping[str, Leaf], gives: Leaf, own: Mapping[str, Leaf]) -> Step:
    """Return the step that runs plain commands in order until one is not plain, and leaves their number in `done`."""
    count, done, row, first, going = (own[name] for name in (*SCALARS, *LOCALS))

    def inputs(at: Expr) -> Inputs:
        return {leaf: lambda j, column=columns[name]: column[(at, *j)] for name, leaf in ila.inputs.items()}  # type: ignore[misc]

    def applied(n: int, at: Expr) -> Step:
        return seq(_applied(chosen[n], inputs(at), gives, at), assign(row, at + 1))

    def run(n: int) -> Step:
        """Run the command found, and commands of the same instruction behind it where it has a range of addresses."""

        def command(j: Expr) -> Step:
            at = minimum(first[()] + j, PIECE - 1)
            is_like = _given(chosen[n], chosen[n].decode, inputs(at))
            return when(going[()] == 1, when(is_like, applied(n, at), assign(going, 0)))

        if not _is_range(chosen[n]):
            return applied(n, minimum(row[()], PIECE - 1))
        return seq(assign(first, row[()]), loop(maximum(count[()] - first[()], 0), command), assign(going, 1))

    def each(_: Expr) -> Step:
        """Find the instruction of a command and run it; stop where there is none."""
        given = inputs(minimum(row[()], PIECE - 1))
        decodes = [i.decode for i in chosen]
        known = [(_reads(decodes, leaf), given[leaf](())) for leaf in ila.inputs.values() if not leaf.shape]
        step = _named(known, decodes, lambda parts: _shared(parts, lambda found: _search(found, run, assign(going, 0))))
        return when((going[()] == 1) & (row[()] < count[()]), step)

    return seq(assign(row, 0), assign(going, 1), loop(count[()], each), assign(done, row[()]))


def _search(decodes: Sequence[Expr], run: Callable[[int], Step], otherwise: Step) -> Step:
    """Return the step that runs what a command is: what many decodes share is asked first. No command is of two instructions."""
    groups: dict[Expr | None, list[tuple[Expr, int]]] = {}
    for n, decode in enumerate(decodes):
        head, rest = decode.args if decode.op == "bitand" else (None, decode)
        is_shared = head is not None and head.op == "load"
        groups.setdefault(head if is_shared else None, []).append((rest if is_shared else decode, n))
    found = otherwise
    for head, parts in groups.items():
        inner = otherwise if head is not None else found
        for rest, n in parts:
            inner = when(rest, run(n), inner)
        found = inner if head is None else when(head, inner, found)
    return found


def _reads(terms: Sequence[Expr], leaf: Leaf) -> list[Expr]:
    """Return the reads of a scalar input in terms."""
    return list(dict.fromkeys(x for t in terms for x in loads_of(t) if x.data is leaf))


def _named(known: Sequence[tuple[Sequence[Expr], Expr]], terms: list[Expr], body: Callable[[list[Expr]], Step]) -> Step:
    """Return body(terms) with each known subterm (how it stands there, what gives its value) computed once."""
    if not known:
        return body(terms)
    (there, value), *rest = known
    if not there:
        return _named(rest, terms, body)
    return let(scalar_array(value), lambda x: _named(rest, [substitute(t, dict.fromkeys(there, x[()])) for t in terms], body))


def _shared(terms: list[Expr], body: Callable[[list[Expr]], Step]) -> Step:
    """Return body(terms) with what many of them share computed once."""
    counts = Counter(x for t in terms for x in set(terms_of(t)) if x.op not in ("load", "const"))
    found = [x for x, n in counts.items() if n >= SHARED]
    inner = {y for x in found for a in x.args for y in terms_of(a)}
    return _named([([x], x) for x in found if x not in inner], terms, body)


def _applied(i: Instruction, inputs: Inputs, gives: Leaf, row: Expr) -> Step:
    """Return what an instruction does; a read gives the state after it."""
    terms = [(u, [_given(i, e, inputs) for e in (*u.address, u.value)]) for u in _updates(i.update) or ()]
    parts: list[Step] = []
    if terms:
        parts.append(together(*(make_update(u.memory, u.variables, u.extents, tuple(a), value) for u, (*a, value) in terms)))
    if i.result is not None:
        result, shape = i.result, static_shape(i.result)
        parts.append(update(gives, shape, lambda *j: ((row, _flat(j, shape)), _given(i, _element(result, j), inputs))))
    return seq(*parts)


def _element(a: Array, index: tuple[Expr, ...]) -> Expr:
    """Return an element of an array as the term it is."""
    return substitute(a.body, dict(zip(a.variables, index, strict=True))) if isinstance(a, Comprehension) else a[index]


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
    for rank in (0, 1):  # lanes may be chosen by another input
        read = {x: inputs[x.data](x.args) for x in loads_of(inner) if x.data in inputs and x.data.rank == rank}
        inner = substitute(inner, read) if read else inner
    return inner


def _at(term: object, index: tuple[Expr, ...]) -> Expr:
    return term if isinstance(term, Expr) else term[index]  # type: ignore[index]
