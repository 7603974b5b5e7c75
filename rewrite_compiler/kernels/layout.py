"""Operand packing: the layout of an array in memory for one kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..lang.binders import Leaf, static_shape
from ..readings.arrays.labelled_array import Data
from ..readings.kernels.layout_conversion import copy_layout

LANES = 16  # of every vector
PADDING = 256  # elements behind the last one that a vector may read


@dataclass(frozen=True)
class Layout:
    """The layout of a packed leaf: axes in order, but `lane` innermost, in panels of `block` lanes, with pairs along `pair` inside."""

    leaf: Leaf
    kind: str
    lane: int | None = None
    block: int = 1
    pair: int | None = None

    @property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """The parts of the axes from the outermost to the innermost: axis, elements of it below one step, number of steps."""
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
        if self.lane is None:  # what is summed lies side by side
            outer.sort(key=lambda p: p[0] == self.pair)
        else:
            outer.sort(key=lambda p: p[0] != self.lane or self.block == 1)
        return (*outer, *inner)

    def strides(self) -> dict[tuple[int, int], int]:
        """Return the stride, in elements, of each part: by axis and elements of it below one step."""
        stride_of, at = dict[tuple[int, int], int](), 1
        for axis, below, steps in reversed(self.parts):
            stride_of[axis, below] = at
            at *= steps
        return stride_of

    def pack(self, x: Data) -> Data:
        """Pack an array: a flat array in this layout, padded with zeros; the array itself where it has the layout already."""
        axes = range(x.ndim)
        cuts = {axis: below for axis, below, _ in self.parts if below > 1}
        padded_shape = [-(-n // cuts.get(a, 1)) * cuts.get(a, 1) for a, n in enumerate(x.shape)]
        order = [(axis, below) for axis, below, _ in self.parts]
        if self._is_laid_out(x):
            return x
        total = int(np.prod(padded_shape, dtype=np.int64))
        flat = np.zeros(total + PADDING, self.kind)
        body = flat[:total].reshape([steps for *_, steps in self.parts])
        if padded_shape != list(x.shape):
            padded = np.zeros(padded_shape, self.kind)
            padded[tuple(slice(n) for n in x.shape)] = x
            x = padded
        natural, shape = [], []
        for a in axes:
            cut = cuts.get(a, 1)
            natural += [(a, cut), (a, 1)] if cut > 1 else [(a, 1)]
            shape += [padded_shape[a] // cut, cut] if cut > 1 else [padded_shape[a]]
        copy_layout(body, x.reshape(shape).transpose([natural.index(k) for k in order]))
        return flat

    def _is_laid_out(self, x: Data) -> bool:
        """Tell whether an array lies like this already, and no vector of its last lanes goes beyond its end."""
        if x.dtype != self.kind or self.block > 1 or (self.lane is not None and (self.pair is not None or x.shape[self.lane] % LANES)):
            return False
        if self.pair is not None and x.shape[self.pair] % 2:
            return False
        steps = {axis: step for (axis, below), step in self.strides().items() if below == 1}
        return all(n == 1 or s == steps[a] * x.itemsize for a, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)))
