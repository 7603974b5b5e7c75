"""Recorded terms: what numpy computed from contents that differ between samples is computed again by the same rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .arrays import Evaluator, Scope
from .binders import Array
from .expr import Expr
from .named import Axes, Axis, Data, Named, Store, gather
from .placed import placed, split
from .tape import Diverged, Tape

if TYPE_CHECKING:
    from collections.abc import Mapping

Rule = Callable[[Evaluator, Expr], Named]


class _Operands(Evaluator):
    """An evaluator of one rule: the values of the operands are given."""

    def __init__(self, ev: Evaluator, seen: Mapping[Expr, Named]) -> None:
        super().__init__({}, ev.axes.fixed(), ev.real)
        self.kernels, self.modular, self.is_steady = ev.kernels, ev.modular, True
        self.given = seen
        self.scope = Scope(None, ev.scope.known)

    def value(self, e: Expr) -> Named:
        if e.op == "const":
            return super().value(e)
        if e.op == "var" and e not in self.given:
            return self._variable(e)
        if e not in self.given:
            raise Diverged
        return self.given[e]

    def whole(self, e: Expr, order: Sequence[Axis] = ()) -> Named:
        return self.value(e)

    def store_of(self, a: Array) -> Store:
        raise Diverged


def recorded(ev: Evaluator, tape: Tape, e: Expr, rule: Rule) -> Named:
    """Return what a rule gives; where it is computed along the sample axis, the tape computes it again."""
    outer, ev.seen = ev.seen, {}
    modular = ev.modular
    try:
        found = rule(ev, e)
        seen = ev.seen
    finally:
        ev.seen = outer
    if tape.sample not in found.axes or tape.owns(found.data):
        return found
    after, ev.modular = ev.modular, modular
    again = _Operands(ev, {a: tape.steady_named(x) for a, x in seen.items()})
    ev.modular = after
    out = tape.empty(found.data.shape, found.data.dtype)
    out[...] = found.data
    tape.again(out, lambda: _aligned(again, rule(again, e), found.axes))
    return Named(out, found.axes)


def _aligned(ev: Evaluator, x: Named, axes: tuple[Axis, ...]) -> Data:
    if not set(x.axes) <= set(axes):
        raise Diverged
    return ev.axes.full(x, axes)


def gathered(tape: Tape, store: Store, origin: Sequence[int], indices: Sequence[Named], sizes: Sequence[int], axes: Axes) -> Named:
    """Return what advanced indexing reads, recorded."""

    def inside(given: Sequence[Named]) -> list[Named]:
        moved = [tape.sample in i.axes for i in given]
        return [Named(np.clip(i.data, 0, n - 1), i.axes) if m else i for i, n, m in zip(given, sizes, moved, strict=True)]

    reads = axes.union(*(i.axes for i in indices))
    if tape.sample not in reads and (view := placed(store, origin, inside(indices), reads, axes)) is not None:
        copy = tape.empty((*axes.shape(store.batch), *axes.shape(reads)), store.data.dtype)
        tape.assign(split(copy, len(store.batch), view[1]), view[0])
        return axes.ordered(copy, (*store.batch, *reads))
    found = gather(store, origin, inside(indices), axes)
    out = tape.empty(found.data.shape, found.data.dtype)
    out[...] = found.data
    then, places, fixed = tape.steady_store(store), [*map(tape.steady_named, indices)], axes.fixed()
    tape.again(out, lambda: gather(then, origin, inside(places), fixed).data)
    return Named(out, found.axes)
