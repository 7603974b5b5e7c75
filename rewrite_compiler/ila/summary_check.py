"""The check of a summary: every length and address is proved equal to the term it came from, and the whole is replayed.

A polynomial is compared with its term by z3 for all values of loop variables, fields and registers. What the polynomials do not say
(order, conditions, values) is replayed: the update and the step made from the summary run from equal random states in the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SpecError
from ..lang.binders import Comprehension, Leaf, as_shape, static_shape
from ..lang.expr import Expr
from ..lang.step import (
    NOTHING,
    Let,
    Loop,
    Step,
    Update,
    children,
    make_update,
    reads_of,
    require,
    seq,
    terms_in,
    together,
    updates_of,
    when,
)
from ..lang.substitution import substitute
from ..lang.traversal import loads_of, terms_of
from ..readings.arrays.labelled_array import Data, storage_dtype
from ..readings.oracle.emit_python import StepFunction
from ..readings.smt.evaluator import SymbolicEvaluator, fresh_variables, prove_equal
from .model import CONTROL, Ila
from .polynomial import Poly, term_of, text_of
from .summary import Access, Choice, Local, Node, Repeat, Summary, Transition, without_modulus

EXTERNAL_ELEMENTS = 1 << 12  # of an attached external memory in a replay
SIZES = np.array((1, 1, 1, 2, 2, 3, 4))  # values of control elements in a replay that are not 0, mostly
SPARSITIES = (0.25, 0.75)  # shares of control elements that are 0, in turns: some domains want sizes, others no padding
WIDE = 0.1  # share of control elements that may have any value
SECONDS = 5.0
TRIES = 20_000  # draws of control state for one that the diagnostics let pass


@dataclass(frozen=True)
class SummaryVerdict:
    """What the check of a summary came to: equalities proved, replays that changed something, and the first failure.

    An instruction that changes nothing, or that a diagnostic refuses in every state, is idle: there is nothing to replay.
    """

    instruction: str
    equalities: int
    replays: int
    failure: str = ""
    idle: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing failed and, where there is something to replay, some state was inside of the domain."""
        return not self.failure and (self.idle or self.replays > 0)


def check_summary(ila: Ila, summary: Summary, *, seed: int = 0, draws: int = 400, enough: int = 12) -> SummaryVerdict:
    """Prove the polynomials of a summary and replay it at random states, `enough` times within so many draws."""
    name, proved = summary.instruction.name, 0
    for subject, p, term, modulus in _of_node(summary.node):
        failure = _difference(summary, p, term, modulus)
        if failure:
            return SummaryVerdict(name, proved, 0, f"{subject} is not {text_of(p)}{f' mod {modulus}' if modulus else ''}: {failure}")
        proved += 1
    missing = _missing_read(ila, summary)
    if missing:
        return SummaryVerdict(name, proved, 0, f"a read of {missing} is missing")
    is_idle = summary.is_outside or not any(True for _ in updates_of(summary.instruction.update))
    replays, failure = (0, "") if is_idle else replay(ila, summary, np.random.default_rng(seed), draws, enough)
    return SummaryVerdict(name, proved, replays, failure, is_idle)


def _missing_read(ila: Ila, summary: Summary) -> str:
    """Return the memory of a load that a transition does not list; nothing where all are listed."""
    memories = {s.leaf for s in ila.states.values()} - summary.symbols.control
    for _, _, t in summary.transitions():
        listed = {r.load for r in t.reads}
        for e in loads_of(t.value):
            if e.data in memories and e not in listed:
                return str(e.data.name)
    return ""


# -- polynomials

Equality = tuple[str, Poly, Expr, int | None]


def _of_node(node: Node) -> Iterator[Equality]:
    """Yield every polynomial below a node with the term of the update that it stands for."""
    if isinstance(node, Transition):
        for (variable, p), extent in zip(node.loops, node.update.extents, strict=True):
            yield f"the extent of {variable}", p, extent, None
        yield from _of_access(node.write, node.update.address)
        for r in node.reads:
            yield from _of_access(r.access, r.load.args)
    elif isinstance(node, Repeat):
        yield f"the extent of {node.variable}", node.extent, node.loop.extent, None
        yield from _of_node(node.body)
    elif isinstance(node, Choice):
        yield from _of_node(node.then)
        yield from _of_node(node.otherwise)
    elif isinstance(node, Local):
        yield from _of_node(node.fill)
        yield from _of_node(node.body)
    else:
        for part in node.nodes:
            yield from _of_node(part)


def _of_access(access: Access, terms: tuple[Expr, ...]) -> Iterator[Equality]:
    for axis, (p, modulus, term) in enumerate(zip(access.address, access.moduli, terms, strict=True)):
        yield f"axis {axis} of {access.memory}", p, term, modulus


def _difference(summary: Summary, p: Poly, term: Expr, modulus: int | None) -> str:
    """Return why a polynomial is not its term; nothing where they are proved equal for all values."""
    inner, expected_modulus = without_modulus(term) if modulus is not None else (term, None)
    if modulus != expected_modulus:
        return f"it is reduced by {expected_modulus}"
    polynomial_term = term_of(p, summary.symbols)
    if polynomial_term is inner:
        return ""
    names = summary.symbols.names
    leaves = {e: Leaf((), e.interval, False, name) for e, name in names.items()}
    replaced = {e: leaf[()] for e, leaf in leaves.items()}
    sides = [substitute(x, replaced) for x in (polynomial_term, inner)]
    read = sides[0].reads | sides[1].reads
    reading = SymbolicEvaluator({leaf: fresh_variables(leaf.name, ()) for leaf in read})
    verdict = prove_equal([(reading.value(sides[0]), reading.value(sides[1]))], seconds=SECONDS)
    return "" if verdict.outcome == "proved" else str(verdict.outcome)


# -- the step that a summary says


def step_of(ila: Ila, summary: Summary) -> Step:
    """Return the step that a summary says, made from its polynomials."""
    operands = {o.leaf.name: o.leaf for o in summary.instruction.operands.values() if o.leaf.shape}
    return _Builder(summary, {**operands, **{s.name: s.leaf for s in ila.states.values()}}).step(summary.node)


class _Builder:
    def __init__(self, summary: Summary, memories: dict[str, Leaf]) -> None:
        self.symbols, self.memories = summary.symbols, memories

    def step(self, node: Node) -> Step:
        if isinstance(node, Transition):
            return self.update(node)
        if isinstance(node, Repeat):
            return Loop(self.symbols.term(node.variable), term_of(node.extent, self.symbols), self.step(node.body))
        if isinstance(node, Choice):
            return when(node.condition, self.step(node.then), self.step(node.otherwise))
        if isinstance(node, Local):
            self.memories = {**self.memories, node.leaf.name: node.leaf}
            u = self.update(node.fill)
            array = Comprehension(as_shape(u.extents), u.value.interval, u.value.real, u.variables, u.value)
            return Let(node.leaf, array, self.step(node.body))
        if node.parallel:
            return together(*(self.update(t) for t in node.nodes if isinstance(t, Transition)))
        return seq(*map(self.step, node.nodes)) if node.nodes else NOTHING

    def update(self, t: Transition) -> Update:
        variables = tuple(self.symbols.term(v) for v, _ in t.loops)
        extents = tuple(term_of(p, self.symbols) for _, p in t.loops)
        try:
            value = substitute(t.value, {r.load: self.memories[r.access.memory][self.address(r.access)] for r in t.reads})
        except SpecError:
            value = t.value  # reads inside of a fold stay as they are; their addresses are proved, not replayed
        return make_update(self.memories[t.write.memory], variables, extents, self.address(t.write), value)

    def address(self, access: Access) -> tuple[Expr, ...]:
        terms = (term_of(p, self.symbols) for p in access.address)
        return tuple(x if m is None else x % m for x, m in zip(terms, access.moduli, strict=True))


# -- replay


def replay(ila: Ila, summary: Summary, choose: np.random.Generator, draws: int, enough: int) -> tuple[int, str]:
    """Run an update and the step of its summary from equal random states; return how often something changed, and the first difference.

    Draws that the diagnostics of the instruction refuse are outside of the summary's domain and do not count.
    """
    update = summary.instruction.update
    original, claimed = StepFunction(update, strict=True), StepFunction(step_of(ila, summary))
    written_leaves = {u.memory for u in updates_of(update)}
    count, states = 0, _States(ila, summary, choose)
    for _ in range(draws):
        before = states.draw() if count < enough else None
        if before is None:
            break
        after, result = ({leaf: _copy(x) for leaf, x in before.items()} for _ in range(2))
        try:
            _run(original, after)
        except SpecError:
            continue
        _run(claimed, result)
        for leaf in written_leaves:
            if not np.array_equal(after[leaf], result[leaf]):
                return count, f"{leaf.name} differs after a replay with {_text(summary, before)}"
        count += any(not np.array_equal(after[x], before[x]) for x in written_leaves)
    return count, ""


def _text(summary: Summary, contents: Mapping[Leaf, Data]) -> str:
    operands = {name: o.leaf for name, o in summary.instruction.operands.items()}
    return (
        ", ".join(f"{name}={int(contents[leaf][()])}" for name, leaf in operands.items() if leaf in contents and not leaf.shape)
        or "no fields"
    )


def _copy(x: Data) -> Data:
    """Return a copy of contents, of which nothing but the first elements was set; zeros cost no pages."""
    copy = np.zeros(x.shape, x.dtype)
    copy.reshape(-1)[:EXTERNAL_ELEMENTS] = x.reshape(-1)[:EXTERNAL_ELEMENTS]
    return copy


def _run(function: StepFunction, contents: Mapping[Leaf, Data]) -> None:
    views: dict[Leaf, MutableSequence[Any]] = {leaf: x.reshape(-1).data for leaf, x in contents.items()}  # type: ignore[misc]
    function([views[leaf] for leaf in function.memories])


class _States:
    """Random contents of everything that an instruction reads or writes: sizes mostly small, inside of what its diagnostics demand."""

    def __init__(self, ila: Ila, summary: Summary, choose: np.random.Generator) -> None:
        self.choose, update = choose, summary.instruction.update
        leaves = reads_of(update) | {u.memory for u in updates_of(update)}
        self.externals = {e.leaf: e for e in ila.externals.values()}
        states = {s.leaf for s in ila.states.values() if s.binding == CONTROL}
        control = (states | {o.leaf for o in summary.instruction.operands.values()}) & leaves
        self.control = sorted(control, key=lambda leaf: str(leaf.name))
        self.data = sorted(leaves - control, key=lambda leaf: str(leaf.name))
        self.sizes = frozenset[Leaf]().union(*(e.reads for e in _lengths(update)))
        demands = [x for x in summary.domain if x.reads <= control]
        self.sparsity = SPARSITIES[0]
        self.domain = StepFunction(seq(*(require(x, "I103", "inside of the domain") for x in demands)), strict=True)

    def draw(self) -> dict[Leaf, Data] | None:
        """Return one state of the domain; None where none of many draws lies in it."""
        for _ in range(TRIES):
            self.sparsity = float(self.choose.choice(SPARSITIES))
            contents = {leaf: self.random(leaf, is_control=True) for leaf in self.control}
            self.attach(contents)
            try:
                _run(self.domain, contents)
            except SpecError:
                continue
            return contents | {leaf: self.random(leaf, is_control=False) for leaf in self.data}
        return None

    def attach(self, contents: Mapping[Leaf, Data]) -> None:
        """Attach one of the external memories from address 0 on."""
        attached = self.choose.integers(max(len(self.externals), 1))
        for n, external in enumerate(self.externals.values()):
            for register, value in ((external.base, 0), (external.size, EXTERNAL_ELEMENTS * (n == attached))):
                if register in contents:
                    contents[register][()] = value

    def random(self, leaf: Leaf, *, is_control: bool) -> Data:
        low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
        data = np.zeros((EXTERNAL_ELEMENTS,) if leaf in self.externals else static_shape(leaf), storage_dtype(leaf.interval))
        flat = data.reshape(-1)
        count = min(flat.size, EXTERNAL_ELEMENTS)
        if is_control and (leaf in self.sizes or self.choose.random() > WIDE):
            flat[:count] = np.clip(self.choose.choice(SIZES, count) * (self.choose.random(count) > self.sparsity), low, high)
            return data
        flat[:count] = self.choose.integers(low, high, count, np.int64 if high < 1 << 63 else np.uint64, endpoint=True)
        return data


def _lengths(step: Step) -> Iterator[Expr]:
    """Yield the terms that say how often something is done."""
    if isinstance(step, Loop):
        yield step.extent
    for term in terms_in(step):
        for e in terms_of(term):
            yield from e.args[1:] if e.op == "reduce" else ()
    for u in updates_of(step):
        yield from u.extents
    for part in children(step):
        yield from _lengths(part)
