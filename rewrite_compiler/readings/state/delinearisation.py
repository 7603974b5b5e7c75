"""Delinearisation: a loop whose indices come from a table of the control state as the nest of loops that the table enumerates.

Micro-ops of a convolution name their places by filter, channel block, kernel row and column; the loop over them has one
variable. Where every index is a sum of progressions along digits of that variable, each digit becomes a loop of its own,
so that iterations meet, and operands are read, along whole axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...errors import SpecError
from ...lang.binders import Comprehension, index_variable
from ...lang.expr import Expr, const, lift
from ...lang.step import NOTHING, Loop, Update
from ...lang.substitution import substitute
from ..arrays.labelled_array import Data, axis_of
from .execution import Execution
from .loop_nest import LoopNest

MAX_DIGITS = 6
MAX_ELEMENTS = 1 << 22
SeparableIndex = tuple[int, list[Data]]  # an index: its first value, and how far it is from it along each loop


def delinearised(machine: Execution, form: LoopNest, extents: Sequence[int]) -> LoopNest:
    """Return a nest with one loop for each digit of its loop variables; the nest itself where its indices are affine in no digits."""
    indices = list(dict.fromkeys(_indices(form)))
    tables = [_table(machine, form, extents, i) for i in indices] if any(i.reads for i in indices) else []
    separable = [t for t in tables if t is not None]
    if not separable or len(separable) < len(tables):
        return form
    digits = [mixed_radix_of(np.stack([steps[n] for _, steps in separable])) for n in range(len(extents))]
    if None in digits or all(len(d or ()) < 2 for d in digits):
        return form
    try:
        return _rebuilt(form, [d or [1] for d in digits], dict(zip(indices, separable, strict=True)))
    except SpecError:  # a term that cannot be rebuilt
        return form


# -- the indices of a form


def _indices(form: LoopNest) -> Iterator[Expr]:
    """Yield the largest terms inside of indices that depend on the loops and on no variable of updates or reductions."""
    loops = frozenset(x.variable for x in form.loops)
    updates = (form.main_update, *form.other_updates)
    inner_variables = frozenset(v for u in updates for v in u.variables)
    for u in updates:
        for index in u.address:
            yield from _below(index, loops, inner_variables)
    for term in (*(u.value for u in updates), *(() if form.term is None else (form.term,))):
        yield from _in_loads(term, loops, inner_variables, set())


def _in_loads(e: Expr, loops: frozenset[Expr], inner_variables: frozenset[Expr], visited: set[Expr]) -> Iterator[Expr]:
    if e in visited or e.free.isdisjoint(loops):
        return
    visited.add(e)
    if e.op == "reduce":
        inner_variables |= frozenset(e.data[1])
    if e.op == "load" and isinstance(e.data, Comprehension):
        yield from _in_loads(e.data.body, loops, inner_variables | frozenset(e.data.variables), visited)
    for a in e.args:
        yield from _below(a, loops, inner_variables) if e.op == "load" else _in_loads(a, loops, inner_variables, visited)


def _below(e: Expr, loops: frozenset[Expr], inner_variables: frozenset[Expr]) -> Iterator[Expr]:
    if e.free.isdisjoint(loops):
        return
    if e.free.isdisjoint(inner_variables) and e.op != "var":
        yield e
        return
    for a in e.args:
        yield from _below(a, loops, inner_variables)


# -- their values


def _table(machine: Execution, form: LoopNest, extents: Sequence[int], index: Expr) -> SeparableIndex | None:
    """Return the values of an index as a sum over the loops; None where they are not one, or depend on anything else."""
    variables, axes = [x.variable for x in form.loops], machine.axes
    if not index.reads.isdisjoint(u.memory for u in (form.main_update, *form.other_updates)):
        return None
    with machine.evaluator.inner_scope(axes=list(zip(variables, extents, strict=True))):
        value = machine.evaluator.value(index)
        order = [axis_of(v) for v in variables]
        if not set(value.axes) <= set(order) or math.prod(axes.shape(value.axes)) > MAX_ELEMENTS:
            return None
        present = tuple(a for a in order if a in value.axes)
        data = np.asarray(axes.full(value, value.axes), np.int64).transpose([value.axes.index(a) for a in present])
    parts = separable_parts(data.reshape([n if a in present else 1 for a, n in zip(order, extents, strict=True)]))
    return None if parts is None else (parts[0], [np.broadcast_to(s, (n,)) for s, n in zip(parts[1], extents, strict=True)])


def separable_parts(data: Data) -> SeparableIndex | None:
    """Return an array [n₀, n₁, …] as x[0] + Σ_d step_d[i_d]; None where it is no such separable sum."""
    first = int(data.flat[0])
    steps = [data[tuple(slice(None) if m == n else 0 for m in range(data.ndim))] - first for n in range(data.ndim)]
    total: Data = np.full((1,) * data.ndim, first, np.int64)
    for n, s in enumerate(steps):
        total = total + np.expand_dims(s, tuple(m for m in range(data.ndim) if m != n))
    return (first, steps) if (data == total).all() else None


def mixed_radix_of(x: Data, max_digits: int = MAX_DIGITS) -> list[int] | None:
    """Return a mixed radix, outermost digit first, in whose digits every row of `x` [rows, n] is affine; None where there is none."""
    n = x.shape[1]
    if n == 1:
        return [1]
    step = x[:, 1:2] - x[:, :1]
    is_one = (x == x[:, :1] + step * np.arange(n)).all(axis=0)
    run = n if is_one.all() else int(np.argmin(is_one))
    if run == n:
        return [n]
    for size in (r for r in range(run, 1, -1) if n % r == 0 and max_digits > 1):
        parts = x.reshape(len(x), n // size, size)
        if (parts == parts[..., :1] + step[..., None] * np.arange(size)).all():
            outer = mixed_radix_of(parts[..., 0], max_digits - 1)
            if outer is not None:
                return [*outer, size]
    return None


# -- the form over digits


def _rebuilt(form: LoopNest, digits: Sequence[Sequence[int]], indices: dict[Expr, SeparableIndex]) -> LoopNest:
    digit_variables = [[(index_variable("d", n), n) for n in extents] for extents in digits]
    weights = [[math.prod(extents[n + 1 :]) for n in range(len(extents))] for extents in digits]
    replacements: dict[Expr, Expr] = {}
    for loop, loop_digits, weight in zip(form.loops, digit_variables, weights, strict=True):
        replacements[loop.variable] = _sum(0, ((v, w) for (v, n), w in zip(loop_digits, weight, strict=True) if n > 1))
    for index, (first, steps) in indices.items():
        pairs = (
            (v, int(s[w]))
            for index_digits, weight, s in zip(digit_variables, weights, steps, strict=True)
            for (v, n), w in zip(index_digits, weight, strict=True)
            if n > 1
        )
        replacements[index] = _sum(first, pairs)

    def with_digits(u: Update) -> Update:
        return replace(u, address=tuple(substitute(a, replacements) for a in u.address), value=substitute(u.value, replacements))

    return LoopNest(
        loops=tuple(Loop(v, const(n), NOTHING) for variables in digit_variables for v, n in variables),
        main_update=with_digits(form.main_update),
        other_updates=tuple(map(with_digits, form.other_updates)),
        term=None if form.term is None else substitute(form.term, replacements),
        new_value=form.new_value,
        distant_loads=tuple(substitute(x, replacements) for x in form.distant_loads),
    )  # fmt: skip


def _sum(first: int, steps: Iterable[tuple[Expr, int]]) -> Expr:
    total = lift(first)
    for v, step in steps:
        if step:
            total = total + v * step
    return total
