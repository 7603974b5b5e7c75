"""Words: a stream of instruction words, decoded and applied by one compiled loop.

The loop takes the words in their order, which is what the queues of a device do while no token is missing. It ends at the
first word that is none of its own, or whose token is not there. The first loop knows the instructions that move data between
the device and a memory outside of it; in long streams there is one of all instructions, which is found again on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SpecError
from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Comprehension, Leaf, array, scalar_array, static_shape
from ...lang.expr import Expr, lift
from ...lang.step import Let, Step, assign, loop, reads_of, seq, updates_of, when
from ...lang.structural_hash import Digest, Undigested
from ...readings.arrays.labelled_array import Data, storage_dtype
from ..model import Ila, Instruction, Operand
from .decode_loop import Inputs, given, search, shared
from .device_protocol import WordDevice

if TYPE_CHECKING:
    from ...readings.native.printer import NativeFunction

PIECE = 1 << 16  # words of one call
TOKENS = 1 << 30
MOVING, ALL, KEPT = "moving", "all", "kept"
LEVELS = {MOVING: 1, ALL: 2}  # of optimisation: what computes is worth it
SINGLES = 1 << 13  # words, one by one, that take as long as the loop of all instructions to be compiled


@dataclass(frozen=True, eq=False)
class Words:
    """The compiled loop, the column of words, its numbers, and the counters of tokens."""

    function: NativeFunction
    column: Leaf
    count: Leaf
    done: Leaf
    tokens: Mapping[str, Leaf]

    @cached_property
    def memories(self) -> frozenset[Leaf]:
        """Everything that the loop reads or writes."""
        return frozenset(self.function.memories)


class _Bound:
    """The loop on the memories of one device, which are put into the call when they are others."""

    def __init__(self, made: Words) -> None:
        own = (made.count, made.done, *made.tokens.values())
        self.numbers = {leaf: np.zeros((), storage_dtype(leaf.interval)) for leaf in own}
        self.call = made.function.bound([self.numbers.get(m) for m in made.function.memories])
        self.states = [(n, m) for n, m in enumerate(made.function.memories) if m not in self.numbers and m is not made.column]


def advance(sim: WordDevice, words: Data, at: int, tokens: Counter[str]) -> int:
    """Run the loop from word `at` on; return the first word that it left. The tokens are changed in place."""
    made = words_of(sim.ila, ALL if sim.singles >= SINGLES else KEPT) or words_of(sim.ila)
    if made is None:
        return at
    if made not in sim.calls:
        sim.calls[made] = _Bound(made)
    bound: _Bound = sim.calls[made]
    numbers, piece = bound.numbers, words[at : at + PIECE]
    for name, leaf in made.tokens.items():
        numbers[leaf][()] = tokens.get(name, 0)
    numbers[made.count][()] = len(piece)
    bound.call.put({m: sim.memories[m].data for n, m in bound.states if bound.call.held[n] is not sim.memories[m].data})
    bound.call.put_rows({made.column: piece})
    try:
        bound.call()
    finally:
        sim.machine.forget(made.memories)
        done = int(numbers[made.done])
        for name, leaf in made.tokens.items():
            tokens[name] = int(numbers[leaf])
        sim.executed += done
        sim.reached = at + done
    sim.singles += sim.reached < len(words)
    return sim.reached


@lru_cache(maxsize=16)
def words_of(ila: Ila, kind: str = MOVING) -> Words | None:
    """Return a compiled loop of a model; None where there is no machine code for it, or no instruction of the kind.

    `ALL` has all instructions that need nothing but their word and the state; `KEPT` is the same one where it is kept on disk.
    """
    try:
        from ...readings.native.code_cache import found_step, kept_step
        from ...readings.native.printer import NativeFunction
    except ImportError:
        return None
    chosen = [i for i in ila.instructions.values() if (_moves if kind == MOVING else _is_plain)(ila, i)]
    (name, leaf), *others = ila.inputs.items()
    if not chosen or others or leaf.rank != 1:
        return None
    column = Leaf((2 * PIECE, *static_shape(leaf)), leaf.interval, False, f"column_{name}")
    count, done, row, going = (Leaf((), (0, n), False, x) for x, n in (("count", PIECE), ("done", PIECE), ("row", PIECE), ("going", 1)))
    names = dict.fromkeys(t for q in ila.queues for t in (*q.takes.values(), *q.gives.values()))
    tokens = {t: Leaf((), (0, TOKENS), False, f"token_{t}") for t in names}
    apart = (column, count, done, *tokens.values())

    def make() -> NativeFunction:
        held = {name: (leaf, Leaf((), leaf.interval, False, f"held_{name}")) for name, leaf in tokens.items()}
        step = _loop(ila, chosen, column, (count, done, row, going), held)
        local = frozenset((row, going, *(inner for _, inner in held.values())))
        return NativeFunction(step, apart=frozenset(apart), local=local, level=LEVELS[kind])

    leaves = (*apart, *(s.leaf for s in ila.states.values()))
    digest = _digest(ila, "" if kind == MOVING else ALL, chosen, leaves)
    try:
        if kind == KEPT:
            function = None if digest is None else found_step(digest, leaves)
        else:
            function = make() if digest is None else kept_step(digest, leaves, make)
    except SpecError:
        return None
    return None if function is None else Words(function, column, count, done, tokens)


def _digest(ila: Ila, kind: str, chosen: Sequence[Instruction], leaves: Sequence[Leaf]) -> str | None:
    """Return the digest of everything that the loop is made from; None where a term has none."""
    found = Digest()
    try:
        found.say(kind, [(q.name, sorted(q.instructions), [*q.takes.items()], [*q.gives.items()]) for q in ila.queues])
        found.add(*ila.inputs.values(), *leaves)
        for i in chosen:
            found.say(i.name, list(i.operands))
            found.add(i.decode, *(x for o in i.operands.values() for x in (o.leaf, o.term)))
            found.step(i.update)
    except Undigested:
        return None
    return found.text()


def _is_plain(ila: Ila, i: Instruction) -> bool:
    """Tell whether an instruction needs nothing but its word and the state, and no one waits for it."""
    is_awaited = ila.interrupt is not None and ila.interrupt in {u.memory for u in updates_of(i.update)}
    return i.result is None and not is_awaited and i.decode.reads <= frozenset(ila.inputs.values())


def _moves(ila: Ila, i: Instruction) -> bool:
    """Tell whether an instruction reads or writes a memory outside of the device."""
    outside = {e.leaf for e in ila.externals.values()}
    return not outside.isdisjoint(reads_of(i.update).union(u.memory for u in updates_of(i.update)))


def _loop(ila: Ila, chosen: Sequence[Instruction], column: Leaf, own: Sequence[Leaf], tokens: Mapping[str, tuple[Leaf, Leaf]]) -> Step:
    """Return the loop; of each token it counts those given to it, and its own while it runs."""
    count, done, row, going = own
    held = {name: inner for name, (_, inner) in tokens.items()}
    (leaf,) = ila.inputs.values()
    inputs: Inputs = {leaf: lambda j: column[(row[()], *j)]}
    after = seq(assign(row, minimum(row[()] + 1, PIECE)), assign(done, row[()]))

    def each(_: Expr) -> Step:
        decodes = [given(i.decode, inputs) for i in chosen]
        steps = [_operands(i, inputs, _taken(ila, i, held, seq(i.update, after), assign(going, 0))) for i in chosen]
        found = shared(decodes, lambda parts: search(parts, steps, assign(going, 0)))
        return when((going[()] == 1) & (row[()] < count[()]), found)

    taken = [assign(inner, given[()]) for given, inner in tokens.values()]
    left = [assign(given, inner[()]) for given, inner in tokens.values()]
    return seq(assign(row, 0), assign(done, 0), assign(going, 1), *taken, loop(count[()], each), *left)


def _operands(i: Instruction, inputs: Inputs, step: Step) -> Step:
    """Return a step with the operands of an instruction computed from its word."""
    for o in i.operands.values():
        step = Let(o.leaf, _array(o, inputs), step)
    return step


def _array(o: Operand, inputs: Inputs) -> Comprehension:
    if isinstance(o.term, Expr):
        return scalar_array(given(o.term, inputs))
    term = o.term
    return array(lambda *j: given(term[j], inputs), static_shape(o.leaf))


def _taken(ila: Ila, i: Instruction, tokens: Mapping[str, Leaf], step: Step, otherwise: Step) -> Step:
    """Return a step that takes its tokens before and gives others after; `otherwise` where one is not there."""
    queue = next((q for q in ila.queues if i.name in q.instructions), None)
    if queue is None:
        return step
    sides = (queue.takes, queue.gives)
    takes, gives = ([(i.operands[o].leaf[()] != 0, tokens[t]) for o, t in side.items() if o in i.operands] for side in sides)
    there = lift(1)
    for is_asked, token in takes:
        there = there & (~is_asked | (token[()] > 0))
    before = [assign(token, maximum(token[()] - is_asked, 0)) for is_asked, token in takes]
    after = [assign(token, minimum(token[()] + is_asked, TOKENS)) for is_asked, token in gives]
    return when(there, seq(*before, step, *after), otherwise)
