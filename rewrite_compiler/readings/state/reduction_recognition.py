"""Nests of loops as one update: m[a] := wrap(m[a] + t) for all iterations becomes m[a] := wrap(m[a] + Σ t).

Addition modulo 2^w is associative and commutative, so the iterations that meet in one element may be added in any order.
Which iterations meet is read from the addresses, which depend on control only; where they do not meet regularly (or a
statement reads what another wrote) the loop stays a loop. An update of another memory at the same place from the new
value (a copy of it in another width) keeps what the last of them leaves. Updates that never meet need no sum: they go
over the whole grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Comprehension, Leaf, index_variable, reduction
from ...lang.expr import Expr, const, lift, wrap
from ...lang.step import Let, Loop, Step, Together, Update, together
from ...lang.substitution import substitute
from ...lang.traversal import loads_of
from ..arrays.batched_memory import samples_of
from ..arrays.delinearisation import factored
from ..arrays.labelled_array import Data, Named, axis_of

if TYPE_CHECKING:
    from .interpreter import Machine

MEETINGS = 1 << 14  # iterations that are gathered when they meet in no regular pattern
ADDRESSES = 1 << 22
GRID_ELEMENTS = 1 << 21  # elements of one update: larger nests run loop by loop, in chunks that stay in the cache


@dataclass(frozen=True, eq=False)
class Form:
    """Nested loops around updates over the same variables at the same place, the first of them `core`.

    With a `term`, core is m[a] := wrap(m[a] + term) and `others` read its value as `new`; without one, the updates read
    what is written at their own place, and at the places of the loads `elsewhere`.
    """

    loops: tuple[Loop, ...]
    core: Update
    others: tuple[Update, ...]
    term: Expr | None = None
    new: Leaf | None = None
    elsewhere: tuple[Expr, ...] = ()


@dataclass(frozen=True, eq=False)
class Accumulation:
    """The one step that a nest of loops is, and the contents of the index tables it reads."""

    step: Step
    tables: dict[Leaf, Data]


def form_of(loop: Loop) -> Form | None:
    """Return what a nest of loops is by its form, or None when it must run as loops."""
    loops, inner = _nest(loop)
    if not isinstance(inner, Update | Together):
        return None
    try:
        aligned = _aligned((inner,) if isinstance(inner, Update) else inner.updates)
        return _form(loops, aligned) if aligned else None
    except SpecError:  # a fold that would have to be rebuilt
        return None


def _form(loops: tuple[Loop, ...], updates: Sequence[Update]) -> Form | None:
    written = frozenset(u.memory for u in updates)
    variables = frozenset(x.variable for x in loops)
    if len(written) < len(updates) or any(not _steady(x.extent, variables, written) for x in loops):
        return None
    if not _separable(updates[0], variables, written):
        return None
    for core in updates:
        found = _accumulating(loops, core, [u for u in updates if u is not core], variables, written)
        if found is not None:
            return found
    loads = dict.fromkeys(x for u in updates for x in loads_of(u.value) if x.data in written)
    elsewhere = tuple(x for x in loads if not _same(x.args, updates[0].address))
    is_known = all(_is_placed(x, updates[0], variables, written) for x in elsewhere)
    return Form(loops, updates[0], tuple(updates[1:]), elsewhere=elsewhere) if is_known else None


def _is_placed(load: Expr, u: Update, variables: frozenset[Expr], written: frozenset[Leaf]) -> bool:
    """Tell whether the indices that say which iteration wrote an element are known for a load too."""
    if len(load.args) != len(u.address):
        return False
    telling = [i for i, a in zip(load.args, u.address, strict=True) if not a.free.isdisjoint(variables)]
    return all(i.free.isdisjoint(u.variables) and i.reads.isdisjoint(written) for i in telling)


def _accumulating(
    loops: tuple[Loop, ...], core: Update, others: Sequence[Update], variables: frozenset[Expr], written: frozenset[Leaf]
) -> Form | None:
    term = _added(core, written)
    if term is None:
        return None
    new = Leaf(core.extents, core.value.interval, False, "new")
    beside = [replace(u, value=substitute(u.value, {core.value: new[core.variables]})) for u in others]
    return Form(loops, core, tuple(beside), term, new) if all(_steady(u.value, variables, written) for u in beside) else None


def _aligned(updates: Sequence[Update]) -> list[Update]:
    """Return updates over the variables of the first; nothing when they differ in extents or place."""
    first, found = updates[0], []
    for u in updates:
        if not _same(u.extents, first.extents):
            return []
        renamed = dict(zip(u.variables, first.variables, strict=True))
        if not _same([substitute(a, renamed) for a in u.address], first.address):
            return []
        found.append(replace(u, variables=first.variables, address=first.address, value=substitute(u.value, renamed)))
    return found


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _nest(loop: Loop) -> tuple[tuple[Loop, ...], Step]:
    loops, inner = [loop], loop.body
    while isinstance(inner, Loop):
        loops.append(inner)
        inner = inner.body
    return tuple(loops), inner


def _steady(e: Expr, variables: frozenset[Expr], written: frozenset[Leaf]) -> bool:
    return e.free.isdisjoint(variables) and e.reads.isdisjoint(written)


def _added(u: Update, written: frozenset[Leaf]) -> Expr | None:
    """Return t of m[a] := wrap(m[a] + t), where t reads nothing that is written."""
    value = u.value
    if value.op != "wrap" or value.args[0].op != "add" or iv.of_width(*value.data) != u.memory.interval:
        return None
    for old, term in (value.args[0].args, value.args[0].args[::-1]):
        if old.op == "load" and old.data is u.memory and _same(old.args, u.address) and term.reads.isdisjoint(written):
            return term
    return None


def _separable(u: Update, variables: frozenset[Expr], written: frozenset[Leaf]) -> bool:
    """Tell whether each index depends on loop variables or on the update's own, and on nothing that is written."""
    own = frozenset(u.variables)
    steady = all(_steady(n, variables, written) for n in u.extents)
    return steady and all(a.reads.isdisjoint(written) and (a.free.isdisjoint(own) or a.free.isdisjoint(variables)) for a in u.address)


# -- with the control state known


def accumulation(machine: Machine, form: Form) -> Accumulation | None:
    """Return the step that the loops of a form are now, or None when they must run as loops."""
    try:
        return _accumulation(machine, form)
    except SpecError:  # control that differs between iterations, a term that cannot be rewritten: the loops say what is wrong
        return None


def _accumulation(machine: Machine, form: Form) -> Accumulation | None:
    extents = [machine.evaluator.number(x.extent) for x in form.loops]
    if 1 < math.prod(extents) <= ADDRESSES:
        form = factored(machine, form, extents)
        extents = [machine.evaluator.number(x.extent) for x in form.loops]
    place = _places(machine, form, extents, form.core.address) if math.prod(extents) > 1 else None
    if place is None:
        return None
    axes = [axis_of(x.variable) for x in form.loops]
    data = place.data.reshape([n if a in place.axes else 1 for a, n in zip(axes, extents, strict=True)])
    summed = [bool((data == data.take([0], axis)).all()) for axis in range(data.ndim)]
    kept = data[tuple(slice(0, 1) if is_summed else slice(None) for is_summed in summed)].reshape(-1)
    lanes = math.prod(machine.evaluator.number(n) for n in form.core.extents)
    if len(kept) * lanes * samples_of(machine.memories.values(), machine.axes) > GRID_ELEMENTS:
        return None
    are_apart = len(np.unique(kept)) == len(kept)
    if form.term is None:
        is_grid = are_apart and len(kept) == math.prod(extents) and _reads_apart(machine, form, extents, kept)
        return Accumulation(_grid(form, extents), {}) if is_grid else None
    if are_apart:
        return Accumulation(_distinct(form, extents, summed), {})
    meeting = _meetings(kept) if len(kept) <= MEETINGS else None
    return None if meeting is None else _met(form, extents, summed, meeting)


def _reads_apart(machine: Machine, form: Form, extents: Sequence[int], written: Data) -> bool:
    """Tell whether no load from elsewhere reads a place that an iteration writes."""
    for load in form.elsewhere:
        place = _places(machine, form, extents, load.args)
        if place is None or np.isin(place.data, written).any():
            return False
    return True


def _places(machine: Machine, form: Form, extents: Sequence[int], address: Sequence[Expr]) -> Named | None:
    """Return which place each iteration writes (at core's address) or reads, over the loop axes it depends on."""
    variables = [x.variable for x in form.loops]
    axes, place = machine.axes, Named(0, ())
    with machine.evaluator.inner(axes=list(zip(variables, extents, strict=True))):
        for index, own, n in zip(address, form.core.address, form.core.memory.shape, strict=True):
            if own.free.isdisjoint(variables):
                continue
            value = machine.evaluator.value(index)
            grid = axes.union(place.axes, value.axes)
            if math.prod(axes.shape(grid)) > ADDRESSES or not set(grid) <= set(map(axis_of, variables)):
                return None
            size = machine.evaluator.number(lift(n))
            place = Named(np.asarray(axes.align(place, grid)) * size + np.asarray(axes.align(value, grid), np.int64), grid)
        order = tuple(a for a in map(axis_of, variables) if a in place.axes)
        data = np.asarray(axes.full(place, place.axes)).transpose([place.axes.index(a) for a in order])
    return Named(data, order)


def _grid(form: Form, extents: Sequence[int]) -> Step:
    """Return the step when no two iterations meet: the loop variables are variables of the updates."""
    made = []
    for u in (form.core, *form.others):
        variables = (*(x.variable for x in form.loops), *u.variables)
        made.append(replace(u, variables=variables, extents=(*map(const, extents), *u.extents)))
    return together(*made)


def _meetings(place: Data) -> Data | None:
    """Return the iterations that meet in each place, one row a place, in order; None when rows differ in length."""
    found = np.unique(place, return_counts=True)[1]
    if (found != found[0]).any():
        return None
    return np.argsort(place, kind="stable").reshape(len(found), int(found[0]))


def _distinct(form: Form, extents: Sequence[int], summed: Sequence[bool]) -> Step:
    """Return the step when iterations meet exactly along the summed loops."""
    loops = list(zip((x.variable for x in form.loops), extents, summed, strict=True))
    over = [(v, n) for v, n, is_summed in loops if is_summed]
    along = [(v, n) for v, n, is_summed in loops if not is_summed]
    return _step(form, along, over, {}, {v: const(0) for v, _ in over})


def _met(form: Form, extents: Sequence[int], summed: Sequence[bool], meeting: Data) -> Accumulation:
    """Return the step when the iterations that are not summed meet as the rows of `meeting` say."""
    rows, columns = meeting.shape
    g, j = index_variable("g", rows), index_variable("j", columns)
    loops = list(zip((x.variable for x in form.loops), extents, summed, strict=True))
    over = [(v, n) for v, n, is_summed in loops if is_summed]
    moving = [(v, n) for v, n, is_summed in loops if not is_summed]
    tables = {
        Leaf((rows, columns), (0, n - 1), False, "meeting"): p for (_, n), p in zip(moving, _unravelled(meeting, moving), strict=True)
    }
    found = {v: table[g, j] for (v, _), table in zip(moving, tables, strict=True)}
    first = {v: table[g, 0] for (v, _), table in zip(moving, tables, strict=True)} | {v: const(0) for v, _ in over}
    return Accumulation(_step(form, [(g, rows)], [(j, columns), *over], found, first), tables)


def _unravelled(meeting: Data, moving: Sequence[tuple[Expr, int]]) -> Sequence[Data]:
    return np.unravel_index(meeting, [n for _, n in moving])


def _step(
    form: Form, along: Sequence[tuple[Expr, int]], over: Sequence[tuple[Expr, int]], inside: dict[Expr, Expr], first: dict[Expr, Expr]
) -> Step:
    """Return the update over `along` and the update's own variables that adds the term of all iterations `over`."""
    core = form.core
    assert form.term is not None
    variables = (*(v for v, _ in along), *core.variables)
    extents = (*(const(n) for _, n in along), *core.extents)
    address = tuple(substitute(a, first) for a in core.address)
    bits, signed = core.value.data
    value = wrap(core.memory[address] + _total(substitute(form.term, inside), over), bits, signed)
    if not form.others or form.new is None:
        return Update(core.memory, variables, extents, address, value)
    local = Leaf(extents, value.interval, False, "new")
    now = {form.new[core.variables]: local[variables]}
    updates = [Update(u.memory, variables, extents, address, substitute(u.value, now)) for u in form.others]
    kept = Update(core.memory, variables, extents, address, local[variables])
    return Let(local, Comprehension(extents, value.interval, False, variables, value), Together((kept, *updates)))


def _total(term: Expr, over: Sequence[tuple[Expr, int]]) -> Expr:
    """Return Σ term; a sum inside is joined with it."""
    variables, extents = tuple(v for v, _ in over), tuple(const(n) for _, n in over)
    if not over:
        return term
    if term.op == "reduce" and term.data[0] == "sum" and all(n.free.isdisjoint(variables) for n in term.args[1:]):
        return reduction("sum", (*variables, *term.data[1]), (*extents, *term.args[1:]), term.args[0])
    return reduction("sum", variables, extents, term)
