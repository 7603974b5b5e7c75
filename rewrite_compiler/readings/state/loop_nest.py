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
class LoopNest:
    """Nested loops around updates over the same variables at the same place, the first of them `core`.

    With a `term`, core is m[a] := wrap(m[a] + term) and `others` read its value as `new`; without one, the updates read
    what is written at their own place, and at the places of the loads `elsewhere`.
    """

    loops: tuple[Loop, ...]
    main_update: Update
    other_updates: tuple[Update, ...]
    term: Expr | None = None
    new_value: Leaf | None = None
    distant_loads: tuple[Expr, ...] = ()


def loop_nest_of(loop: Loop) -> LoopNest | None:
    """Return a perfect loop nest around updates as a `Form`, or None where its iterations may not be reordered."""
    loops, inner = _nest(loop)
    if not isinstance(inner, Update | Together):
        return None
    try:
        aligned = _aligned((inner,) if isinstance(inner, Update) else inner.updates)
        return _form(loops, aligned) if aligned else None
    except SpecError:  # a fold that would have to be rebuilt
        return None


def _form(loops: tuple[Loop, ...], updates: Sequence[Update]) -> LoopNest | None:
    written_memories = frozenset(u.memory for u in updates)
    variables = frozenset(x.variable for x in loops)
    if len(written_memories) < len(updates) or any(not _is_invariant(x.extent, variables, written_memories) for x in loops):
        return None
    if not _has_separable_address(updates[0], variables, written_memories):
        return None
    for core in updates:
        nest = _accumulating_nest(loops, core, [u for u in updates if u is not core], variables, written_memories)
        if nest is not None:
            return nest
    loads = dict.fromkeys(x for u in updates for x in loads_of(u.value) if x.data in written_memories)
    distant_loads = tuple(x for x in loads if not _are_same_terms(x.args, updates[0].address))
    is_known = all(_identifies_iteration(x, updates[0], variables, written_memories) for x in distant_loads)
    return LoopNest(loops, updates[0], tuple(updates[1:]), distant_loads=distant_loads) if is_known else None


def _identifies_iteration(load: Expr, u: Update, variables: frozenset[Expr], written_memories: frozenset[Leaf]) -> bool:
    """Tell whether the indices that say which iteration wrote an element are known for a load too."""
    if len(load.args) != len(u.address):
        return False
    loop_indices = [i for i, a in zip(load.args, u.address, strict=True) if not a.free.isdisjoint(variables)]
    return all(i.free.isdisjoint(u.variables) and i.reads.isdisjoint(written_memories) for i in loop_indices)


def _accumulating_nest(
    loops: tuple[Loop, ...], core: Update, other_updates: Sequence[Update], variables: frozenset[Expr], written_memories: frozenset[Leaf]
) -> LoopNest | None:
    term = _added_term(core, written_memories)
    if term is None:
        return None
    new = Leaf(core.extents, core.value.interval, False, "new")
    rewritten_updates = [replace(u, value=substitute(u.value, {core.value: new[core.variables]})) for u in other_updates]
    return (
        LoopNest(loops, core, tuple(rewritten_updates), term, new)
        if all(_is_invariant(u.value, variables, written_memories) for u in rewritten_updates)
        else None
    )


def _aligned(updates: Sequence[Update]) -> list[Update]:
    """Return updates over the variables of the first; nothing when they differ in extents or place."""
    first, aligned = updates[0], []
    for u in updates:
        if not _are_same_terms(u.extents, first.extents):
            return []
        variable_map = dict(zip(u.variables, first.variables, strict=True))
        if not _are_same_terms([substitute(a, variable_map) for a in u.address], first.address):
            return []
        aligned.append(replace(u, variables=first.variables, address=first.address, value=substitute(u.value, variable_map)))
    return aligned


def _are_same_terms(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _nest(loop: Loop) -> tuple[tuple[Loop, ...], Step]:
    loops, inner = [loop], loop.body
    while isinstance(inner, Loop):
        loops.append(inner)
        inner = inner.body
    return tuple(loops), inner


def _is_invariant(e: Expr, variables: frozenset[Expr], written_memories: frozenset[Leaf]) -> bool:
    return e.free.isdisjoint(variables) and e.reads.isdisjoint(written_memories)


def _added_term(u: Update, written_memories: frozenset[Leaf]) -> Expr | None:
    """Return t of m[a] := wrap(m[a] + t), where t reads nothing that is written."""
    value = u.value
    if value.op != "wrap" or value.args[0].op != "add" or iv.of_width(*value.data) != u.memory.interval:
        return None
    for old, term in (value.args[0].args, value.args[0].args[::-1]):
        if old.op == "load" and old.data is u.memory and _are_same_terms(old.args, u.address) and term.reads.isdisjoint(written_memories):
            return term
    return None


def _has_separable_address(u: Update, variables: frozenset[Expr], written_memories: frozenset[Leaf]) -> bool:
    """Tell whether each index depends on loop variables or on the update's own, and on nothing that is written."""
    own_variables = frozenset(u.variables)
    has_invariant_extents = all(_is_invariant(n, variables, written_memories) for n in u.extents)
    return has_invariant_extents and all(
        a.reads.isdisjoint(written_memories) and (a.free.isdisjoint(own_variables) or a.free.isdisjoint(variables)) for a in u.address
    )
