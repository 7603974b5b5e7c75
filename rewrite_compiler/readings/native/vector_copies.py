"""Copies: elements side by side, as one vector."""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

from llvmlite import ir

from ...lang import intervals as iv
from ...lowering.loop_ir import Copy
from .operators import spread
from .protocol import RoutinePrinter

WORD = ir.IntType(64)


def copy(p: RoutinePrinter, s: Copy) -> None:
    """Print a copy; one by one where it is one array, the kinds differ, or an index is outside.

    Of an array whose size is not known here, the places are compared with it once for all elements.
    """
    to, source = p.arrays[s.array], p.arrays[s.source]
    ends = ((s.index, to, s.stride * s.count), (s.start, source, s.width * s.count))
    asked = [(t, a, n) for t, a, n in ends if a.static is None or not iv.inside(t.interval, (0, a.static - n))]
    if s.array == s.source or not _is_alike(s, to.kind, source.kind) or any(a.static is not None for _, a, _ in asked):
        p.loop(s.loop)
        return
    if not asked:
        _vector(p, s)
        return
    fits = [p.b.icmp_unsigned("<", p.value(t), _starts(p, a.size, n)) for t, a, n in asked]
    with p.b.if_else(reduce(p.b.and_, fits)) as (inside, outside):
        with inside:
            _vector(p, s)
        with outside:
            p.loop(s.loop)


def _starts(p: RoutinePrinter, size: ir.Value, count: int) -> Any:
    """Return at how many places of an array so many elements start; computed once where the size is known from the start."""
    b = p.start if isinstance(size, ir.Instruction) and size.parent is p.entry else p.b
    places = b.sub(size, ir.Constant(WORD, count - 1))
    return b.select(b.icmp_signed("<", places, ir.Constant(WORD, 0)), ir.Constant(WORD, 0), places)


def _is_alike(s: Copy, to: Any, source: Any) -> bool:
    """Tell whether elements of one kind are those of the other bit by bit, their low bits, or words of bytes."""
    is_integer, is_cut = to.kind in "iu" and source.kind in "iu", s.low is not None
    if is_cut and 8 * to.itemsize > s.low:
        return False
    if s.width > 1:
        is_word = to.itemsize == s.width and (is_cut or to.kind == "u")
        return bool(source.str == "|u1" and is_integer and is_word and sys.byteorder == "little")
    return bool(is_integer and to.itemsize <= source.itemsize and s.stride == 1) if is_cut else bool(to == source)


def _vector(p: RoutinePrinter, s: Copy) -> None:
    to, source = p.arrays[s.array], p.arrays[s.source]
    into = ir.VectorType(p.kind_of(to), s.stride * s.count)
    read = ir.VectorType(p.kind_of(to if s.width > 1 else source), s.count)
    place, start = (
        p.b.bitcast(p.b.gep(a.base, [p.value(t)]), kind.as_pointer()) for a, t, kind in ((to, s.index, into), (source, s.start, read))
    )
    vector = p.told(source, p.b.load(start, align=source.kind.itemsize))
    if s.stride > 1:
        vector = spread(p.b, vector, p.told(to, p.b.load(place, align=to.kind.itemsize)))
    p.told(to, p.b.store(vector if vector.type == into else p.b.trunc(vector, into), place, align=to.kind.itemsize))
