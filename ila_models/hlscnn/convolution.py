"""HLSCNN convolution: what ConvTrigger computes, as whole arrays where its regions are apart, in device order elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from rewrite_compiler.ila import Ila, Match
from rewrite_compiler.lang import (
    NOTHING,
    Expr,
    Leaf,
    Operand,
    Step,
    array,
    assign,
    clamp,
    fold,
    let,
    lift,
    loop,
    maximum,
    minimum,
    require,
    select,
    seq,
    signed,
    update,
    when,
)

from .config import CONV_TRIGGER, address_of, is_register
from .memories import LANES, VECTOR, byte, word
from .numerics import accumulated, finished, rounded_sum
from .revisions import SPAD0_BASE, Revision

INT16 = (-(1 << 15), (1 << 15) - 1)


@dataclass(frozen=True, eq=False)
class Side:
    """Rows or columns of a convolution, and how a tap at a kernel position reaches an output position.

    Output number i lies at `first` + i·`step`; its tap k reads input position i·`stride` + k − `above`.
    """

    size: Expr
    kernel: Expr
    stride: Expr
    above: Expr
    first: Expr
    step: Expr
    count: Expr
    extent: Expr  # positions between output 0 and `extent` are addressed with these output sizes

    @property
    def padded(self) -> Expr:
        """Length of the input with the zeros that its taps reach."""
        return (self.count - 1) * self.stride + self.kernel

    @property
    def is_whole(self) -> Expr:
        """All taps of all outputs read inside the input."""
        return (self.above == 0) & (self.padded <= self.size)

    def inside(self, position: Expr) -> Expr:
        """Tell whether a padded position is one of the input."""
        return (position >= self.above) & (position < self.above + self.size)


def _side(m: Ila, p: Revision, name: str, stride: str) -> Side:
    s = m.s
    size, kernel = getattr(s, f"conv_input_{name}")[()], getattr(s, f"conv_kernel_{name}")[()]
    step = maximum(getattr(s, f"conv_kernel_{stride}")[()], 1)
    if p.grouped_output:
        extent = getattr(s, f"conv_output_{name}")[()]
        count = minimum(extent, (size + step - 1) // step)
        return Side(size, kernel, step, lift(0), lift(0), lift(1), count, extent)
    half = kernel // 2
    first = half % step
    count = clamp((size - first + step - 1) // step, 0, None)
    return Side(size, kernel, step, half - first, first, step, count, size)
