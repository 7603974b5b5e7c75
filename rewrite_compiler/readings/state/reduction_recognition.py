"""Reduction recognition: a nest of loops over m[a] := wrap(m[a] + t) becomes the one update m[a] := wrap(m[a] + Σ t).

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

import numpy as np

from ...errors import SpecError
from ...lang.binders import Comprehension, Leaf, index_variable, reduction
from ...lang.expr import Expr, const, lift, wrap
from ...lang.step import Let, Step, Together, Update, together
from ...lang.substitution import substitute
from ..arrays.batched_memory import samples_of
from ..arrays.labelled_array import Data, LabelledArray, axis_of
from .delinearisation import delinearised
from .execution import Execution
from .loop_nest import LoopNest

MAX_GATHERED_ITERATIONS = 1 << 14  # iterations that are gathered when they meet in no regular pattern
MAX_ADDRESSES = 1 << 22
GRID_ELEMENTS = 1 << 21  # elements of one update: larger nests run loop by loop, in chunks that stay in the cache


@dataclass(frozen=True, eq=False)
class Accumulation:
    """The single step that a nest of loops is equal to, and the contents of the index tables that it reads."""

    step: Step
    tables: dict[Leaf, Data]


def accumulation(machine: Execution, form: LoopNest) -> Accumulation | None:
    """Return the single step equal to a loop nest in the present control state, or None when it must run as loops."""
    try:
        return _accumulation(machine, form)
    except SpecError:  # control that differs between iterations, a term that cannot be rewritten: the loops say what is wrong
        return None


def _accumulation(machine: Execution, form: LoopNest) -> Accumulation | None:
    extents = [machine.evaluator.number(x.extent) for x in form.loops]
    if 1 < math.prod(extents) <= MAX_ADDRESSES:
        form = delinearised(machine, form, extents)
        extents = [machine.evaluator.number(x.extent) for x in form.loops]
    place = _places(machine, form, extents, form.main_update.address) if math.prod(extents) > 1 else None
    if place is None:
        return None
    axes = [axis_of(x.variable) for x in form.loops]
    data = place.data.reshape([n if a in place.axes else 1 for a, n in zip(axes, extents, strict=True)])
    summed = [bool((data == data.take([0], axis)).all()) for axis in range(data.ndim)]
    written_places = data[tuple(slice(0, 1) if is_summed else slice(None) for is_summed in summed)].reshape(-1)
    lanes = math.prod(machine.evaluator.number(n) for n in form.main_update.extents)
    if len(written_places) * lanes * samples_of(machine.memories.values(), machine.axes) > GRID_ELEMENTS:
        return None
    are_apart = len(np.unique(written_places)) == len(written_places)
    if form.term is None:
        is_grid = are_apart and len(written_places) == math.prod(extents) and _reads_are_disjoint(machine, form, extents, written_places)
        return Accumulation(_grid(form, extents), {}) if is_grid else None
    if are_apart:
        return Accumulation(_distinct(form, extents, summed), {})
    meeting = _meetings(written_places) if len(written_places) <= MAX_GATHERED_ITERATIONS else None
    return None if meeting is None else _gathered(form, extents, summed, meeting)


def _reads_are_disjoint(machine: Execution, form: LoopNest, extents: Sequence[int], written_places: Data) -> bool:
    """Tell whether no load from elsewhere reads a place that an iteration writes."""
    for load in form.distant_loads:
        place = _places(machine, form, extents, load.args)
        if place is None or np.isin(place.data, written_places).any():
            return False
    return True


def _places(machine: Execution, form: LoopNest, extents: Sequence[int], address: Sequence[Expr]) -> LabelledArray | None:
    """Return which place each iteration writes (at core's address) or reads, over the loop axes it depends on."""
    variables = [x.variable for x in form.loops]
    axes, place = machine.axes, LabelledArray(0, ())
    with machine.evaluator.inner_scope(axes=list(zip(variables, extents, strict=True))):
        for index, written_index, n in zip(address, form.main_update.address, form.main_update.memory.shape, strict=True):
            if written_index.free.isdisjoint(variables):
                continue
            value = machine.evaluator.value(index)
            grid = axes.union(place.axes, value.axes)
            if math.prod(axes.shape(grid)) > MAX_ADDRESSES or not set(grid) <= set(map(axis_of, variables)):
                return None
            size = machine.evaluator.number(lift(n))
            place = LabelledArray(np.asarray(axes.align(place, grid)) * size + np.asarray(axes.align(value, grid), np.int64), grid)
        order = tuple(a for a in map(axis_of, variables) if a in place.axes)
        data = np.asarray(axes.full(place, place.axes)).transpose([place.axes.index(a) for a in order])
    return LabelledArray(data, order)


def _grid(form: LoopNest, extents: Sequence[int]) -> Step:
    """Return the step when no two iterations meet: the loop variables are variables of the updates."""
    updates = []
    for u in (form.main_update, *form.other_updates):
        variables = (*(x.variable for x in form.loops), *u.variables)
        updates.append(replace(u, variables=variables, extents=(*map(const, extents), *u.extents)))
    return together(*updates)


def _meetings(place: Data) -> Data | None:
    """Return the iterations that meet in each place, one row a place, in order; None when rows differ in length."""
    counts = np.unique(place, return_counts=True)[1]
    if (counts != counts[0]).any():
        return None
    return np.argsort(place, kind="stable").reshape(len(counts), int(counts[0]))


def _distinct(form: LoopNest, extents: Sequence[int], summed: Sequence[bool]) -> Step:
    """Return the step when iterations meet exactly along the summed loops."""
    loops = list(zip((x.variable for x in form.loops), extents, summed, strict=True))
    summed_loops = [(v, n) for v, n, is_summed in loops if is_summed]
    parallel_loops = [(v, n) for v, n, is_summed in loops if not is_summed]
    return _step(form, parallel_loops, summed_loops, {}, {v: const(0) for v, _ in summed_loops})


def _gathered(form: LoopNest, extents: Sequence[int], summed: Sequence[bool], meeting: Data) -> Accumulation:
    """Return the step when the iterations that are not summed meet as the rows of `meeting` say."""
    rows, columns = meeting.shape
    g, j = index_variable("g", rows), index_variable("j", columns)
    loops = list(zip((x.variable for x in form.loops), extents, summed, strict=True))
    summed_loops = [(v, n) for v, n, is_summed in loops if is_summed]
    gathered_loops = [(v, n) for v, n, is_summed in loops if not is_summed]
    tables = {
        Leaf((rows, columns), (0, n - 1), False, "meeting"): p
        for (_, n), p in zip(gathered_loops, _unravelled(meeting, gathered_loops), strict=True)
    }
    term_substitution = {v: table[g, j] for (v, _), table in zip(gathered_loops, tables, strict=True)}
    address_substitution = {v: table[g, 0] for (v, _), table in zip(gathered_loops, tables, strict=True)} | {
        v: const(0) for v, _ in summed_loops
    }
    return Accumulation(_step(form, [(g, rows)], [(j, columns), *summed_loops], term_substitution, address_substitution), tables)


def _unravelled(meeting: Data, gathered_loops: Sequence[tuple[Expr, int]]) -> Sequence[Data]:
    return np.unravel_index(meeting, [n for _, n in gathered_loops])


def _step(
    form: LoopNest,
    parallel_loops: Sequence[tuple[Expr, int]],
    summed_loops: Sequence[tuple[Expr, int]],
    term_substitution: dict[Expr, Expr],
    address_substitution: dict[Expr, Expr],
) -> Step:
    """Return the update over `along` and the update's own variables that adds the term of all iterations `over`."""
    core = form.main_update
    assert form.term is not None
    variables = (*(v for v, _ in parallel_loops), *core.variables)
    extents = (*(const(n) for _, n in parallel_loops), *core.extents)
    address = tuple(substitute(a, address_substitution) for a in core.address)
    bits, signed = core.value.data
    value = wrap(core.memory[address] + _total(substitute(form.term, term_substitution), summed_loops), bits, signed)
    if not form.other_updates or form.new_value is None:
        return Update(core.memory, variables, extents, address, value)
    local = Leaf(extents, value.interval, False, "new")
    value_substitution = {form.new_value[core.variables]: local[variables]}
    updates = [Update(u.memory, variables, extents, address, substitute(u.value, value_substitution)) for u in form.other_updates]
    core_update = Update(core.memory, variables, extents, address, local[variables])
    return Let(local, Comprehension(extents, value.interval, False, variables, value), Together((core_update, *updates)))


def _total(term: Expr, summed_loops: Sequence[tuple[Expr, int]]) -> Expr:
    """Return Σ term; a sum inside is joined with it."""
    variables, extents = tuple(v for v, _ in summed_loops), tuple(const(n) for _, n in summed_loops)
    if not summed_loops:
        return term
    if term.op == "reduce" and term.data[0] == "sum" and all(n.free.isdisjoint(variables) for n in term.args[1:]):
        return reduction("sum", (*variables, *term.data[1]), (*extents, *term.args[1:]), term.args[0])
    return reduction("sum", variables, extents, term)
