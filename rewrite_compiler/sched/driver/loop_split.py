"""Splits of loops: one command runs as many steps of a loop as it can at a time, and the host goes over the parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..codelet import Affine
from .matching import Match
from .operation import Reach


def splits(m: Match, loop: str) -> Iterator[tuple[Match, str]]:
    """Yield a match with one of its loops in equal parts, the fewest first, and the name of the loop over them.

    The loop within a part keeps the name.
    """
    count, outer = m.outer[loop], f"parts of {loop}"
    for parts in range(2, count // 2 + 1):
        if count % parts == 0:
            yield _split(m, loop, outer, parts), outer


def _split(m: Match, loop: str, outer: str, parts: int) -> Match:
    extent = m.outer[loop] // parts * m.lane_extent(loop)

    def of(r: Reach) -> Reach:
        axes = (Affine(a.constant, tuple(sorted((*a.terms, *((outer, f * extent) for v, f in a.terms if v == loop))))) for a in r.axes)
        return replace(r, axes=tuple(axes))

    loops = [pair for v, n in m.operation.loops for pair in ([(outer, parts), (v, extent)] if v == loop else [(v, n)])]
    operation = replace(m.operation, loops=tuple(loops), operands=tuple(map(of, m.operation.operands)))
    return replace(m, operation=operation, operands=tuple(replace(s, reach=of(s.reach)) for s in m.operands))
