"""Vectorised copies: consecutive elements are loaded and stored as one vector."""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

from llvmlite import ir

from ...lang import intervals as iv
from ...lowering.loop_ir import Copy
from .operators import scatter_lanes
from .protocol import RoutinePrinter

WORD = ir.IntType(64)


def print_copy(p: RoutinePrinter, s: Copy) -> None:
    """Print a copy as one vector, or as a loop where both arrays are one, their types differ, or an index may be outside.

    For an array of dynamic size, one bounds check covers all elements.
    """
    target, source = p.arrays[s.array], p.arrays[s.source]
    ends = ((s.index, target, s.stride * s.count), (s.start, source, s.width * s.count))
    checked_ends = [(t, a, n) for t, a, n in ends if a.static is None or not iv.inside(t.interval, (0, a.static - n))]
    if s.array == s.source or not _is_bitwise(s, target.kind, source.kind) or any(a.static is not None for _, a, _ in checked_ends):
        p.loop(s.loop)
        return
    if not checked_ends:
        _print_vector(p, s)
        return
    in_bounds = [p.b.icmp_unsigned("<", p.value(t), _start_count(p, a.size, n)) for t, a, n in checked_ends]
    with p.b.if_else(reduce(p.b.and_, in_bounds)) as (inside, outside):
        with inside:
            _print_vector(p, s)
        with outside:
            p.loop(s.loop)


def _start_count(p: RoutinePrinter, size: ir.Value, count: int) -> Any:
    """Return the number of valid first indices of `count` consecutive elements; hoisted to the entry block where the size is there."""
    b = p.entry_builder if isinstance(size, ir.Instruction) and size.parent is p.entry else p.b
    places = b.sub(size, ir.Constant(WORD, count - 1))
    return b.select(b.icmp_signed("<", places, ir.Constant(WORD, 0)), ir.Constant(WORD, 0), places)


def _is_bitwise(s: Copy, target: Any, source: Any) -> bool:
    """Tell whether a copy moves bits unchanged: equal types, low bits of wider integers, or little-endian words of bytes."""
    is_integer, is_cut = target.kind in "iu" and source.kind in "iu", s.low is not None
    if is_cut and 8 * target.itemsize > s.low:
        return False
    if s.width > 1:
        is_word = target.itemsize == s.width and (is_cut or target.kind == "u")
        return bool(source.str == "|u1" and is_integer and is_word and sys.byteorder == "little")
    return bool(is_integer and target.itemsize <= source.itemsize and s.stride == 1) if is_cut else bool(target == source)


def _print_vector(p: RoutinePrinter, s: Copy) -> None:
    target, source = p.arrays[s.array], p.arrays[s.source]
    target_type = ir.VectorType(p.kind_of(target), s.stride * s.count)
    source_type = ir.VectorType(p.kind_of(target if s.width > 1 else source), s.count)
    place, start = (
        p.b.bitcast(p.b.gep(a.base, [p.value(t)]), kind.as_pointer())
        for a, t, kind in ((target, s.index, target_type), (source, s.start, source_type))
    )
    vector = p.with_alias_scope(source, p.b.load(start, align=source.kind.itemsize))
    if s.stride > 1:
        vector = scatter_lanes(p.b, vector, p.with_alias_scope(target, p.b.load(place, align=target.kind.itemsize)))
    p.with_alias_scope(
        target, p.b.store(vector if vector.type == target_type else p.b.trunc(vector, target_type), place, align=target.kind.itemsize)
    )
