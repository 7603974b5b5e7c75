"""A nest: what one instruction computes in its own loops, the words it computes with, and where its elements come from and go to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ...ila import CONTROL, Ila
from ...ila.polynomial import term_of
from ...ila.summary import Opaque, Summary, Transition, summarise
from ...lang.binders import Accumulator, FoldResult
from ...lang.expr import Expr
from ...lang.intervals import TRUTH
from ...lang.step import Update
from ...lang.traversal import inner_terms
from ..instructions.copies import NoCopy, Part, Parts

Bounds = tuple[tuple[Expr, Expr], ...]  # variables with their extents


@dataclass(frozen=True, eq=False)
class Nest:
    """An update that computes with words of memories; `fills` are arrays that the instruction computes before, as copies.

    Where the update fills an array itself, `stores` are the copies, each with its conditions, that take it to memory.
    """

    summary: Summary
    conditions: tuple[Expr, ...]
    ordered: Bounds
    update: Update
    fills: Mapping[str, Update]
    stores: tuple[tuple[tuple[Expr, ...], Update], ...]

    @property
    def instruction(self) -> str:
        """The name of the instruction."""
        return self.summary.instruction.name

    @property
    def loops(self) -> Bounds:
        """The loops of the result, outermost first."""
        return (*self.ordered, *zip(self.update.variables, self.update.extents, strict=True))

    @cached_property
    def steps(self) -> Bounds:
        """The loops of sums and folds, outermost first."""
        return tuple(_steps(self.update.value, set()))

    @cached_property
    def words(self) -> tuple[Expr, ...]:
        """The largest copies of words of memory that it computes with."""
        return tuple(dict.fromkeys(_words(self.update.value, {*self.fills, *self._memories}, set())))

    @property
    def _memories(self) -> set[str]:
        return {leaf.name for leaf in self.update.value.reads if leaf.shape}

    @property
    def target(self) -> str:
        """The name of what the update writes."""
        return self.update.memory.name


@lru_cache(maxsize=16)
def nests(ila: Ila) -> tuple[Nest, ...]:
    """Return the nests of a model: what its instructions compute with words of memories."""
    return tuple(n for name in ila.instructions for n in _of(ila, name))


def _of(ila: Ila, name: str) -> Iterator[Nest]:
    summary = summarise(ila, name)
    if isinstance(summary, Opaque):
        return
    every = list(summary.transitions())
    fills = {t.write.memory: t.update for _, _, t in every if t.write.memory not in ila.states and _is_copy(t.update.value)}
    control = {n for n, s in ila.states.items() if s.binding == CONTROL and n not in ila.externals}
    for conditions, loops, t in every:
        if t.write.memory in control or t.write.memory in fills or _is_copy(t.update.value) or not t.reads:
            continue
        ordered = tuple((summary.symbols.variables[v], term_of(p, summary.symbols)) for v, p in loops)
        stores = ((conditions, t.update),) if t.write.memory in ila.states else tuple(_stores(ila, every, t))
        nest = Nest(summary, conditions, ordered, t.update, fills, stores)
        if stores and nest.words:
            yield nest


def _stores(
    ila: Ila, every: Sequence[tuple[tuple[Expr, ...], object, Transition]], t: Transition
) -> Iterator[tuple[tuple[Expr, ...], Update]]:
    """Yield the copies of what a transition computes to memories."""
    for conditions, loops, store in every:
        if store.write.memory in ila.states and not loops and any(r.access.memory == t.write.memory for r in store.reads):
            yield conditions, store.update


def _is_copy(e: Expr) -> bool:
    """Tell whether a value is a copy where its conditions hold or where none does: words joined, cut and shifted."""
    return any(_has_parts(e, holds) for holds in (1, 0))


def _has_parts(e: Expr, holds: int) -> bool:
    try:
        return bool(Parts(lambda x, _: int(x.value) if x.value is not None else holds if x.interval == TRUTH else 0).of(e, {}))
    except NoCopy:
        return False


def symbolic_parts(e: Expr) -> list[Part]:
    """Return the parts of a copy, with terms as indices.

    Raises:
        NoCopy: it is none, or a condition decides what it is.
    """
    return Parts(lambda x, _: x if x.value is None else int(x.value)).of(e, {})


def _words(e: Expr, memories: set[str], visited: set[Expr]) -> Iterator[Expr]:
    if e in visited or e.value is not None:
        return
    visited.add(e)
    is_accumulator = e.op == "load" and isinstance(e.data, Accumulator)
    try:
        names = {p.memory for p in symbolic_parts(e)} if not is_accumulator else set()
    except NoCopy:
        names = set()
    if len(names) == 1 and names <= memories:
        yield e
        return
    for inner in inner_terms(e):
        yield from _words(inner, memories, visited)


def _steps(e: Expr, visited: set[Expr]) -> Iterator[tuple[Expr, Expr]]:
    if e in visited:
        return
    visited.add(e)
    if e.op == "reduce":
        yield from zip(e.data[1], e.args[1:], strict=True)
    if e.op == "load" and isinstance(e.data, FoldResult):
        yield e.data.fold.variable, e.data.fold.extent
    for inner in inner_terms(e):
        yield from _steps(inner, visited)
