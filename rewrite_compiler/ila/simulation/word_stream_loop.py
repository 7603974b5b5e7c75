"""Streams of instruction words, decoded and executed by one compiled loop.

The loop takes the words in stream order, as the queues of a device do while no token is missing. It ends at the first word that
it does not decode, or whose token is missing. The first loop has the instructions that access external memory; long streams
use one with all instructions, which is cached on disk. Of a model with many instructions it has those that streams hold, as the
code of all would be too long to be optimised.
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
from ...lang.structural_hash import StructuralHash, Undigested
from ...readings.arrays.labelled_array import Data, storage_dtype
from ..external_memory import WORD
from ..model import Ila, Instruction, Operand
from .decode_loop import Inputs, decision_tree, share_subterms, substitute_inputs
from .device_protocol import WordDevice

if TYPE_CHECKING:
    from ...readings.native.printer import NativeFunction

PIECE = 1 << 16  # words of one call
TOKENS = 1 << 30
MOVING, ALL, CACHED = "moving", "all", "kept"
LEVELS = {MOVING: 1, ALL: 2}  # of optimisation: what computes is worth it
SINGLES = 1 << 13  # words, one by one, that take as long as the loop of all instructions to be compiled
MOST = 64  # instructions of a model whose loop has all of them; those that streams hold take about a fourth of that time


@dataclass(frozen=True, eq=False)
class WordLoop:
    """A compiled loop over instruction words: its function, the column of words, its scalars, and the token counters."""

    function: NativeFunction
    column: Leaf
    count: Leaf
    executed: Leaf
    tokens: Mapping[str, Leaf]

    @cached_property
    def memories(self) -> frozenset[Leaf]:
        """The memories that the loop reads or writes."""
        return frozenset(self.function.memories)


class _BoundLoop:
    """The loop bound to the memories of one device; arrays that were replaced are rebound before a call."""

    def __init__(self, word_loop: WordLoop) -> None:
        scalars = (word_loop.count, word_loop.executed, *word_loop.tokens.values())
        self.numbers = {leaf: np.zeros((), storage_dtype(leaf.interval)) for leaf in scalars}
        self.call = word_loop.function.bind([self.numbers.get(m) for m in word_loop.function.memories])
        self.states = [(n, m) for n, m in enumerate(word_loop.function.memories) if m not in self.numbers and m is not word_loop.column]


def advance(sim: WordDevice, words: Data, position: int, tokens: Counter[str]) -> int:
    """Run the loop from a position on; return the first word that it does not execute. The token counts are updated in place."""
    names = _names(sim, words)
    kind = ALL if sim.singles >= (SINGLES if names is None else SINGLES // 4) else CACHED
    word_loop = word_loop_of(sim.ila, kind, sim.strict, names) or word_loop_of(sim.ila, MOVING, sim.strict)
    if word_loop is None:
        return position
    if word_loop not in sim.calls:
        sim.calls[word_loop] = _BoundLoop(word_loop)
    bound: _BoundLoop = sim.calls[word_loop]
    numbers, piece = bound.numbers, words[position : position + PIECE]
    for name, leaf in word_loop.tokens.items():
        numbers[leaf][()] = tokens.get(name, 0)
    numbers[word_loop.count][()] = len(piece)
    bound.call.put({m: sim.memories[m].data for n, m in bound.states if bound.call.arrays[n] is not sim.memories[m].data})
    bound.call.put_rows({word_loop.column: piece})
    try:
        bound.call()
    finally:
        sim.machine.invalidate(word_loop.memories)
        executed = int(numbers[word_loop.executed])
        for name, leaf in word_loop.tokens.items():
            tokens[name] = int(numbers[leaf])
        sim.executed += executed
        sim.stop_word = position + executed
    if sim.stop_word < len(words):
        sim.singles += 1
        sim.single_names |= {_instruction(sim, words[sim.stop_word])}
    return sim.stop_word


def _names(sim: WordDevice, words: Data) -> frozenset[str] | None:
    """Return the instructions that a device's loop has; None for all of them.

    They are those of its first stream, and whenever so many words ran one by one that another loop pays, those of these words.
    """
    if len(sim.ila.instructions) <= MOST:
        return None
    if sim.loop_names is None:
        row = np.dtype((np.void, words.shape[1]))
        sim.loop_names = frozenset(_instruction(sim, word) for word in np.unique(np.ascontiguousarray(words).view(row)))
    if sim.single_names and sim.singles >= sim.singles_of_loop + SINGLES // 4:
        sim.loop_names, sim.single_names, sim.singles_of_loop = sim.loop_names | sim.single_names, frozenset(), sim.singles
    return sim.loop_names


def _instruction(sim: WordDevice, word: Data) -> str:
    """Return the name of the instruction that decodes a word; nothing without one."""
    instruction = sim.decode({WORD: int.from_bytes(word.tobytes(), "little")})
    return "" if instruction is None else instruction.name


@lru_cache(maxsize=64)
def word_loop_of(ila: Ila, kind: str = MOVING, strict: bool = False, names: frozenset[str] | None = None) -> WordLoop | None:
    """Return a compiled loop of a model; None without machine code for it, or without an instruction of the kind.

    The kind `ALL` has all instructions, or those of the `names`, that need nothing but their word and the state; a third kind is
    the same loop, where it is cached on disk. With `strict` it has the diagnostics of strict simulation.
    """
    try:
        from ...readings.native.code_cache import cached_step, load_step
        from ...readings.native.printer import NativeFunction
    except ImportError:
        return None
    instructions = [
        i
        for i in ila.instructions.values()
        if (_moves_data if kind == MOVING else _is_plain)(ila, i) and (names is None or i.name in names)
    ]
    (name, leaf), *other_inputs = ila.inputs.items()
    if not instructions or other_inputs or leaf.rank != 1:
        return None
    column = Leaf((2 * PIECE, *static_shape(leaf)), leaf.interval, False, f"column_{name}")
    count, executed, row, active = (
        Leaf((), (0, n), False, x) for x, n in (("count", PIECE), ("done", PIECE), ("row", PIECE), ("going", 1))
    )
    token_names = dict.fromkeys(t for q in ila.queues for t in (*q.takes.values(), *q.gives.values()))
    tokens = {t: Leaf((), (0, TOKENS), False, f"token_{t}") for t in token_names}
    disjoint_leaves = (column, count, executed, *tokens.values())

    def make() -> NativeFunction:
        counters = {name: (leaf, Leaf((), leaf.interval, False, f"held_{name}")) for name, leaf in tokens.items()}
        step = _loop(ila, instructions, column, (count, executed, row, active), counters)
        local = frozenset((row, active, *(inner for _, inner in counters.values())))
        return NativeFunction(step, noalias=frozenset(disjoint_leaves), local=local, level=LEVELS[kind], strict=strict)

    leaves = (*disjoint_leaves, *(s.leaf for s in ila.states.values()))
    digest = _digest(ila, ("strict " if strict else "") + ("" if kind == MOVING else ALL), instructions, leaves)
    try:
        if kind == CACHED:
            function = None if digest is None else load_step(digest, leaves)
        else:
            function = make() if digest is None else cached_step(digest, leaves, make)
    except SpecError:
        return None
    return None if function is None else WordLoop(function, column, count, executed, tokens)


def _digest(ila: Ila, kind: str, instructions: Sequence[Instruction], leaves: Sequence[Leaf]) -> str | None:
    """Return the digest of everything that the loop is made from; None where a term has none."""
    digest = StructuralHash()
    try:
        digest.add_words(kind, [(q.name, sorted(q.instructions), [*q.takes.items()], [*q.gives.items()]) for q in ila.queues])
        digest.add(*ila.inputs.values(), *leaves)
        for i in instructions:
            digest.add_words(i.name, list(i.operands))
            digest.add(i.decode, *(x for o in i.operands.values() for x in (o.leaf, o.term)))
            digest.step(i.update)
    except Undigested:
        return None
    return digest.text()


def _is_plain(ila: Ila, i: Instruction) -> bool:
    """Tell whether an instruction needs nothing but its word and the state, and raises no interrupt."""
    is_awaited = ila.interrupt is not None and ila.interrupt in {u.memory for u in updates_of(i.update)}
    return i.result is None and not is_awaited and i.decode.reads <= frozenset(ila.inputs.values())


def _moves_data(ila: Ila, i: Instruction) -> bool:
    """Tell whether an instruction reads or writes a memory outside of the device."""
    external_leaves = {e.leaf for e in ila.externals.values()}
    return not external_leaves.isdisjoint(reads_of(i.update).union(u.memory for u in updates_of(i.update)))


def _loop(
    ila: Ila, instructions: Sequence[Instruction], column: Leaf, scalars: Sequence[Leaf], tokens: Mapping[str, tuple[Leaf, Leaf]]
) -> Step:
    """Return the loop; each token has a global counter and one that is local to the loop."""
    count, executed, row, active = scalars
    counters = {name: inner for name, (_, inner) in tokens.items()}
    (leaf,) = ila.inputs.values()
    inputs: Inputs = {leaf: lambda j: column[(row[()], *j)]}
    advance_row = seq(assign(row, minimum(row[()] + 1, PIECE)), assign(executed, row[()]))

    def each(_: Expr) -> Step:
        decodes = [substitute_inputs(i.decode, inputs) for i in instructions]
        steps = [_operands(i, inputs, _with_tokens(ila, i, counters, seq(i.update, advance_row), assign(active, 0))) for i in instructions]
        dispatch = share_subterms(decodes, lambda parts: decision_tree(parts, steps, assign(active, 0)))
        return when((active[()] == 1) & (row[()] < count[()]), dispatch)

    load_tokens = [assign(inner, counter[()]) for counter, inner in tokens.values()]
    store_tokens = [assign(counter, inner[()]) for counter, inner in tokens.values()]
    return seq(assign(row, 0), assign(executed, 0), assign(active, 1), *load_tokens, loop(count[()], each), *store_tokens)


def _operands(i: Instruction, inputs: Inputs, step: Step) -> Step:
    """Return a step with the operands of an instruction computed from its word."""
    for o in i.operands.values():
        step = Let(o.leaf, _array(o, inputs), step)
    return step


def _array(o: Operand, inputs: Inputs) -> Comprehension:
    if isinstance(o.term, Expr):
        return scalar_array(substitute_inputs(o.term, inputs))
    term = o.term
    return array(lambda *j: substitute_inputs(term[j], inputs), static_shape(o.leaf))


def _with_tokens(ila: Ila, i: Instruction, tokens: Mapping[str, Leaf], step: Step, otherwise: Step) -> Step:
    """Return a step that takes the tokens of an instruction first and gives its tokens last; `otherwise` where one is missing."""
    queue = next((q for q in ila.queues if i.name in q.instructions), None)
    if queue is None:
        return step
    sides = (queue.takes, queue.gives)
    takes, gives = ([(i.operands[o].leaf[()] != 0, tokens[t]) for o, t in side.items() if o in i.operands] for side in sides)
    available = lift(1)
    for is_asked, token in takes:
        available = available & (~is_asked | (token[()] > 0))
    take_steps = [assign(token, maximum(token[()] - is_asked, 0)) for is_asked, token in takes]
    give_steps = [assign(token, minimum(token[()] + is_asked, TOKENS)) for is_asked, token in gives]
    return when(available, seq(*take_steps, step, *give_steps), otherwise)
