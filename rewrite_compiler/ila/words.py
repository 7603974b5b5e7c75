"""Words: a stream of instruction words, decoded and applied by one compiled loop as far as they move data.

The loop takes the words in their order, which is what the queues of a device do while no token is missing. It ends at the
first word that moves no data between the device and a memory outside of it, or whose token is not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SpecError
from ..lang.arith import maximum, minimum
from ..lang.binders import Comprehension, Leaf, array, scalar_array, static_shape
from ..lang.expr import Expr, lift
from ..lang.named import Data, storage_dtype
from ..lang.step import Let, Step, assign, loop, reads_of, seq, updates_of, when
from .model import Ila, Instruction, Operand
from .playing import Inputs, given, search, shared

if TYPE_CHECKING:
    from ..lang.native import NativeFunction
    from .stream import Stream

PIECE = 1 << 16  # words of one call
TOKENS = 1 << 30
LEVEL = 1


@dataclass(frozen=True, eq=False)
class Words:
    """The compiled loop, the column of words, its numbers, and the counters of tokens."""

    function: NativeFunction
    column: Leaf
    count: Leaf
    done: Leaf
    tokens: Mapping[str, Leaf]


def advance(sim: Stream, words: Data, at: int, tokens: Counter[str]) -> int:
    """Run the loop from word `at` on; return the first word that it left. The tokens are changed in place."""
    made = words_of(sim.ila)
    if made is None:
        return at
    numbers = {leaf: np.zeros((), storage_dtype(leaf.interval)) for leaf in (made.count, made.done, *made.tokens.values())}
    for name, leaf in made.tokens.items():
        numbers[leaf][()] = tokens.get(name, 0)
    piece = words[at : at + PIECE]
    numbers[made.count][()] = len(piece)
    f = made.function
    call = f.bound([None if m is made.column else numbers[m] if m in numbers else sim.memories[m].data for m in f.memories])
    call.put_rows({made.column: piece})
    try:
        call()
    finally:
        sim.machine.forget(frozenset(f.memories))
        done = int(numbers[made.done])
        for name, leaf in made.tokens.items():
            tokens[name] = int(numbers[leaf])
        sim.executed += done
        sim.reached = at + done
    return at + done


@lru_cache(maxsize=16)
def words_of(ila: Ila) -> Words | None:
    """Return the compiled loop of a model; None where there is no machine code for it, or nothing moves data."""
    try:
        from ..lang.native import NativeFunction
    except ImportError:
        return None
    chosen = [i for i in ila.instructions.values() if _moves(ila, i)]
    if not chosen:
        return None
    (name, leaf), *others = ila.inputs.items()
    if others or leaf.rank != 1:
        return None
    column = Leaf((2 * PIECE, *static_shape(leaf)), leaf.interval, False, f"column_{name}")
    count, done, row, going = (Leaf((), (0, n), False, x) for x, n in (("count", PIECE), ("done", PIECE), ("row", PIECE), ("going", 1)))
    names = dict.fromkeys(t for q in ila.queues for t in (*q.takes.values(), *q.gives.values()))
    tokens = {t: Leaf((), (0, TOKENS), False, f"token_{t}") for t in names}
    step = _loop(ila, chosen, column, (count, done, row, going), tokens)
    try:
        apart = frozenset((column, count, done, *tokens.values()))
        function = NativeFunction(step, apart=apart, local=frozenset((row, going)), level=LEVEL)
    except SpecError:
        return None
    return Words(function, column, count, done, tokens)


def _moves(ila: Ila, i: Instruction) -> bool:
    """Tell whether an instruction reads or writes a memory outside of the device."""
    outside = {e.leaf for e in ila.externals.values()}
    return not outside.isdisjoint(reads_of(i.update).union(u.memory for u in updates_of(i.update)))


def _loop(ila: Ila, chosen: Sequence[Instruction], column: Leaf, own: Sequence[Leaf], tokens: Mapping[str, Leaf]) -> Step:
    count, done, row, going = own
    (leaf,) = ila.inputs.values()
    inputs: Inputs = {leaf: lambda j: column[(row[()], *j)]}
    after = seq(assign(row, minimum(row[()] + 1, PIECE)), assign(done, row[()]))

    def each(_: Expr) -> Step:
        decodes = [given(i.decode, inputs) for i in chosen]
        steps = [_operands(i, inputs, _taken(ila, i, tokens, seq(i.update, after), assign(going, 0))) for i in chosen]
        found = shared(decodes, lambda parts: search(parts, steps, assign(going, 0)))
        return when((going[()] == 1) & (row[()] < count[()]), found)

    return seq(assign(row, 0), assign(done, 0), assign(going, 1), loop(count[()], each))


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
