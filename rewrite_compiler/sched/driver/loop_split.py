"""Splits of loops: one command runs as many steps of a loop as it can at a time, and the host goes over the parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..codelet import Affine
from .matching import Match
from .operation import Reach


def splits(m: Match, loop: str) -> Iterator[tuple[Match, str]]:
    """Yield a match with a loop that sums go over in equal parts, the fewest first, and the name of the loop over them.

    The loop within a part keeps the name. The last part may end behind the last step where all that is added there is zero.
    """
    count, outer, may_end_behind = m.outer[loop], name_of_parts(loop), _adds_nothing_behind(m, loop)
    for parts in range(2, (count + 1) // 2 + 1):
        steps = -(-count // parts)
        if count % parts == 0 or (may_end_behind and steps * (parts - 1) < count):
            yield _split(m, loop, outer, parts, steps), outer


def name_of_parts(loop: str) -> str:
    """Return the name of the loop over the parts of another."""
    return f"parts of {loop}"


def _adds_nothing_behind(m: Match, loop: str) -> bool:
    """Tell whether an operand that annuls what is added has no elements behind the last step of a loop."""
    extent = dict(m.operation.loops)[loop]
    ends = (
        s for s in m.operands if any(a == Affine(0, ((loop, 1),)) and n == extent for a, n in zip(s.reach.axes, s.reach.shape, strict=True))
    )
    return any(m.computation.is_annulled_by(s.access) for s in ends)


def _split(m: Match, loop: str, outer: str, parts: int, steps: int) -> Match:
    extent = steps * m.lane_extent(loop)

    def of(r: Reach) -> Reach:
        axes = (Affine(a.constant, tuple(sorted((*a.terms, *((outer, f * extent) for v, f in a.terms if v == loop))))) for a in r.axes)
        return replace(r, axes=tuple(axes))

    loops = [pair for v, n in m.operation.loops for pair in ([(outer, parts), (v, extent)] if v == loop else [(v, n)])]
    operation = replace(m.operation, loops=tuple(loops), operands=tuple(map(of, m.operation.operands)))
    return replace(m, operation=operation, operands=tuple(replace(s, reach=of(s.reach)) for s in m.operands))
