"""Trap analysis by intervals: indices inside of arrays of a known size, divisors other than zero, shifts by no negative amount."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..lang import intervals as iv
from ..lang.binders import Leaf
from .dead_code import statements_of
from .loop_ir import Allocate, Routine, Tree

DIVISIONS = frozenset({"div", "mod", "tdiv", "tmod"})
SHIFTS = frozenset({"shl", "shr"})


def static_size(leaf: Leaf) -> int | None:
    """Return the number of elements of a memory with a constant shape; None for one outside of a device."""
    extents = [n for n in leaf.shape if isinstance(n, int)]
    size = math.prod(extents)
    return size if len(extents) == len(leaf.shape) and size < 1 << 31 else None


def sizes_of(routine: Routine) -> dict[str, int]:
    """Return the number of elements of every array of constant size: memories, tables and local arrays."""
    counts = {n: math.prod(t.shape) for n, t in routine.tables.items()}
    counts |= {s.name: int(s.size.data) for s in statements_of(routine.body) if isinstance(s, Allocate) and s.size.op == "const"}
    sizes = {n: static_size(leaf) for n, leaf in routine.memories.items()}
    return counts | {n: size for n, size in sizes.items() if size is not None}


def is_inside(index: Tree, size: int | None) -> bool:
    """Tell whether the interval of an index lies in an array of `size` elements."""
    return size is not None and iv.inside(index.interval, (0, size - 1))


def cannot_trap(t: Tree, sizes: Mapping[str, int]) -> bool:
    """Tell whether evaluating a tree never traps, given the number of elements of each array."""
    if t.op == "load" and not is_inside(t.args[0], sizes.get(t.data)):
        return False
    if t.op in DIVISIONS and not is_not_zero(t.args[1]):
        return False
    if t.op in SHIFTS and not is_not_negative(t.args[1]):
        return False
    return all(cannot_trap(a, sizes) for a in t.args)


def is_not_zero(t: Tree) -> bool:
    """Tell whether an integer is never zero."""
    low, high = t.interval
    return (low is not None and low > 0) or (high is not None and high < 0)


def is_not_negative(t: Tree) -> bool:
    """Tell whether an integer is never negative."""
    low = t.interval[0]
    return low is not None and low >= 0
