"""Layout: how the elements of an array lie in memory for one kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..lang.binders import Leaf, static_shape
from ..lang.named import Data

SLACK = 256  # elements behind the last one that a vector may read


@dataclass(frozen=True)
class Layout:
    """A copy of a leaf: its axes in order, but `lane` innermost, in panels of `block` where it is more than 1, pairs of `pair` inside."""

    leaf: Leaf
    kind: str
    lane: int | None = None
    block: int = 1
    pair: int | None = None

    @property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """Axis, elements below one of its steps, and steps, from the outermost part to the innermost."""
        shape = static_shape(self.leaf)
        outer, inner = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
        for axis, extent in enumerate(shape):
            cut = 2 if axis == self.pair else self.block if axis == self.lane else 1
            if axis == self.lane and cut == 1:
                inner.insert(0, (axis, 1, extent))
                continue
            outer.append((axis, cut, -(-extent // cut)))
            if cut > 1:
                inner.insert(0 if axis == self.lane else len(inner), (axis, 1, cut))
        outer.sort(key=lambda p: p[0] != self.lane or self.block == 1)
        return (*outer, *inner)

    def strides(self) -> dict[tuple[int, int], int]:
        """Return by axis and elements below a step of its part how many elements such a step is."""
        found, at = dict[tuple[int, int], int](), 1
        for axis, below, steps in reversed(self.parts):
            found[axis, below] = at
            at *= steps
        return found

    def packed(self, x: Data) -> Data:
        """Return the elements of an array in this layout, zeros behind odd ends."""
        axes = range(x.ndim)
        cuts = {axis: below for axis, below, _ in self.parts if below > 1}
        wanted = [-(-n // cuts.get(a, 1)) * cuts.get(a, 1) for a, n in enumerate(x.shape)]
        order = [(axis, below) for axis, below, _ in self.parts]
        total = int(np.prod(wanted, dtype=np.int64))
        flat = np.zeros(total + SLACK, self.kind)
        body = flat[:total].reshape([steps for *_, steps in self.parts])
        if wanted != list(x.shape):
            whole = np.zeros(wanted, self.kind)
            whole[tuple(slice(n) for n in x.shape)] = x
            x = whole
        natural, shape = [], []
        for a in axes:
            cut = cuts.get(a, 1)
            natural += [(a, cut), (a, 1)] if cut > 1 else [(a, 1)]
            shape += [wanted[a] // cut, cut] if cut > 1 else [wanted[a]]
        body[...] = x.reshape(shape).transpose([natural.index(k) for k in order])
        return flat
