"""Calls of folds by numpy that a tape plays: on factors that lie where it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from .array_grid import at
from .named import Data
from .tape import Ran, Span

if TYPE_CHECKING:
    from .tape import Tape

NEAR = 64  # bytes
Views = tuple[Data, Data]  # the factors of rows and of columns
Fill = Callable[[Data, Data | None, Sequence[Views]], None]


@dataclass
class _Part:
    """What views that begin near each other read of one array."""

    first: Data
    low: int = 0
    high: int = 0
    views: dict[tuple[int, int], int] = field(default_factory=dict)  # (pair, factor) → how many bytes behind the first

    def take(self, key: tuple[int, int], view: Data, apart: int) -> None:
        """Add a view."""
        reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
        self.views[key] = apart
        self.low = min(self.low, apart + sum(min(r, 0) for r in reach))
        self.high = max(self.high, apart + sum(max(r, 0) for r in reach) + view.itemsize)

    def span(self, tape: Tape) -> Span:
        """Return the elements that they read."""
        size = self.first.itemsize
        return Span(tape.steady(self.first), self.low // size, -(-self.high // size))


def recorded(tape: Tape, views: Sequence[Views], start: Data | None, out: Data, fill: Fill) -> Ran:
    """Return the call that computes `out` again by `fill`; factors that lie outside of the tape do not change."""
    steady: list[list[Data]] = [[tape.steady(x) for x in pair] for pair in views]
    parts = _parts(tape, views)
    shapes = {key: (x.shape, x.dtype, x.strides) for n, pair in enumerate(views) for k, x in enumerate(pair) for key in [(n, k)]}
    like, before = (out.shape, out.dtype, out.strides), None if start is None else (start.shape, start.dtype, start.strides)

    def bind(places: Sequence[int]) -> Callable[[], None]:
        result, *rest = places
        first = None if before is None else at(rest.pop(0), *before)
        given = [list(pair) for pair in steady]
        for part, place in zip(parts, rest, strict=True):
            for (n, k), apart in part.views.items():
                given[n][k] = at(place + apart, *shapes[n, k])
        return partial(fill, at(result, *like), first, [(a, b) for a, b in given])

    reads = [*([] if start is None else [Span(tape.steady(start), 0, start.size)]), *(p.span(tape) for p in parts)]
    return Ran(tape.steady(out), reads, bind, None, object())


def _parts(tape: Tape, views: Sequence[Views]) -> list[_Part]:
    parts: list[_Part] = []
    for n, pair in enumerate(views):
        for k, view in enumerate(pair):
            if not tape.owns(view):
                continue
            for part in parts:
                apart = view.ctypes.data - part.first.ctypes.data
                if part.first.strides == view.strides and part.first.dtype == view.dtype and abs(apart) < NEAR:
                    part.take((n, k), view, apart)
                    break
            else:
                parts.append(_Part(view))
                parts[-1].take((n, k), view, 0)
    return parts
