"""Nests of loops around updates, and those whose iterations may be reordered by what their terms say.

An update m[a] := wrap(m[a] + t) adds modulo 2^w, which is associative and commutative, so its iterations may meet in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.step import Loop, Step, Together, Update
from ...lang.substitution import substitute
from ...lang.traversal import loads_of


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
