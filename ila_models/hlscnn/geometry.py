"""HLSCNN convolution: sizes, positions and addresses, read from the configuration registers."""

from __future__ import annotations

from dataclasses import dataclass

from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import Expr, Leaf, Operand, clamp, lift, maximum, minimum

from .memories import LANES, VECTOR
from .revisions import SPAD0_BASE, Revision


@dataclass(frozen=True, eq=False)
class Side:
    """Rows or columns: tap k of output number i reads input position i·stride + k − before; it lies at first + i·step.

    `count` outputs are reached by at least one tap.
    """

    size: Expr
    kernel: Expr
    stride: Expr
    before: Expr
    first: Expr
    step: Expr
    count: Expr
    extent: Expr  # output positions, reached or not

    @property
    def padded(self) -> Expr:
        """Length of the input together with the positions outside of it that taps reach."""
        return clamp((self.count - 1) * self.stride + self.kernel, 0, None)

    def holds(self, position: Expr) -> Expr:
        """Tell whether a padded position is one of the input."""
        return (position >= self.before) & (position < self.before + self.size)

    def taps(self, position: Expr) -> Expr:
        """Return how many kernel positions an input position meets: k ≡ position modulo the stride."""
        return clamp((self.kernel - position % self.stride + self.stride - 1) // self.stride, 0, None)

    def number(self, position: Expr, k: Expr) -> Expr:
        """Return the output that an input position reaches through kernel position k; none if not in 0 … count − 1."""
        return (position + self.before - k) // self.stride

    def place(self, i: Expr) -> Expr:
        """Return the output position of output number i."""
        return self.first + i * self.step


def _side(m: Ila, p: Revision, name: str) -> Side:
    s = m.s
    size, kernel = getattr(s, f"conv_input_{name}s")[()], getattr(s, f"conv_kernel_{name}s")[()]
    stride = maximum(getattr(s, f"conv_kernel_{name}_stride")[()], 1)
    if p.grouped_output:  # valid convolution: the stride divides, outputs lie side by side
        extent = getattr(s, f"conv_output_{name}s")[()]
        return Side(size, kernel, stride, lift(0), lift(0), lift(1), minimum(extent, (size + stride - 1) // stride), extent)
    half = kernel // 2  # "same" convolution: a stride leaves out outputs, which keep their places
    first = half % stride
    return Side(size, kernel, stride, half - first, first, stride, clamp((size - first + stride - 1) // stride, 0, None), size)


class Geometry:
    """One convolution as configured."""

    def __init__(self, m: Ila, p: Revision) -> None:
        """Read the registers of `m`."""
        s = m.s
        self.p = p
        self._strides = s.conv_kernel_row_stride[()], s.conv_kernel_col_stride[()]
        self.rows, self.cols = _side(m, p, "row"), _side(m, p, "col")
        self.filters = s.conv_filters[()] % (1 << p.filter_bits)
        self.channels = s.conv_input_channels[()] % (1 << p.channel_bits)
        self.blocks = (self.channels + LANES - 1) // LANES
        self.is_unified = p.act_source == "spad1"
        self.activations: Leaf = s.spad1 if self.is_unified else s.soc
        self.act_base = s.conv_act_base[()] - (p.spad1 if self.is_unified else 0)
        self.weight_base = s.conv_weight_base[()] - SPAD0_BASE if self.is_unified else lift(0)
        self.output_base = s.conv_output_base[()] - p.spad1 if self.is_unified else lift(0)
        self.weight_bytes = p.weight_bits // 8

    # -- byte addresses

    def act_address(self, block: Operand, row: Operand, col: Operand, lane: Operand) -> Expr:
        """[block][row][col][lane]"""
        pixel = (lift(block) * self.rows.size + row) * self.cols.size + col
        return self.act_base + pixel * VECTOR + lift(lane) * 2

    def weight_address(self, f: Operand, block: Operand, row: Operand, col: Operand, lane: Operand) -> Expr:
        """[filter][block][kernel row][kernel col][lane]"""
        tap = ((lift(f) * self.blocks + block) * self.rows.kernel + row) * self.cols.kernel + col
        return self.weight_base + (tap * LANES + lane) * self.weight_bytes

    def output_vector(self, group: Operand, row: Operand, col: Operand) -> Expr:
        """[group][row][col]: a group is eight filters, or one filter where outputs are not grouped."""
        return self.output_base + ((lift(group) * self.rows.extent + row) * self.cols.extent + col) * VECTOR

    def output_address(self, f: Operand, row: Operand, col: Operand) -> Expr:
        """The lane of filter f: its own where outputs are grouped, else that of the last filter."""
        if self.p.grouped_output:
            return self.output_vector(lift(f) // LANES, row, col) + lift(f) % LANES * 2
        return self.output_vector(f, row, col) + self.last_lane * 2

    @property
    def last_lane(self) -> Expr:
        """The lane of the last filter."""
        return (self.filters + LANES - 1) % LANES

    # -- sizes in bytes

    @property
    def act_size(self) -> Expr:
        """Bytes of the activations."""
        return self.blocks * self.rows.size * self.cols.size * VECTOR

    @property
    def weight_size(self) -> Expr:
        """Bytes of the weights."""
        return self.filters * self.blocks * self.rows.kernel * self.cols.kernel * LANES * self.weight_bytes

    @property
    def output_size(self) -> Expr:
        """Bytes of the outputs."""
        groups = (self.filters + LANES - 1) // LANES if self.p.grouped_output else self.filters
        return groups * self.rows.extent * self.cols.extent * VECTOR

    # -- conditions

    @property
    def is_apart(self) -> Expr:
        """Every output has a place of its own, and no output lies on an activation."""
        places = self.output_size <= self.p.spad_bytes
        if not self.is_unified:
            return places
        act_end, output_end = self.act_base + self.act_size, self.output_base + self.output_size
        inside = (self.act_base >= 0) & (act_end <= self.p.spad_bytes) & (self.output_base >= 0) & (output_end <= self.p.spad_bytes)
        return inside & ((act_end <= self.output_base) | (output_end <= self.act_base))

    @property
    def ends(self) -> Expr:
        """The loops over kernel positions end: they advance by the strides."""
        return self._strides[0] * self._strides[1] > 0

    @property
    def has_work(self) -> Expr:
        """There is a tap that reaches an output."""
        positive = lift(1)
        for n in (self.filters, self.blocks, self.rows.kernel, self.cols.kernel, self.rows.count, self.cols.count):
            positive = positive & (n > 0)
        return positive
