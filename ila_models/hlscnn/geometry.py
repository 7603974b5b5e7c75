"""HLSCNN convolution: sizes, positions and addresses, read from the configuration registers."""

from rewrite_compiler.ila import Ila, Region, Registers
from rewrite_compiler.lang import Expr, all_of, ceil_div, clamp, lift, maximum, minimum

from .memories import LANES
from .revisions import SPAD0_BASE, Revision


class Side:
    """Rows or columns: tap k of output number i reads input position i·stride + k − before; it lies at first + i·step.

    `count` outputs are reached by at least one tap, of `extent` output positions; `padded` is the length of the input together with
    the positions outside of it that taps reach.
    """

    def __init__(self, r: Registers, name: str, *, is_valid: bool) -> None:
        """Read the registers of a side: "row" or "col".

        Of a valid convolution, which the stride divides, outputs lie side by side; of a "same" one a stride leaves out outputs,
        which keep their places.
        """
        self.size, self.kernel = r[f"conv_input_{name}s"], r[f"conv_kernel_{name}s"]
        self.stride = maximum(r[f"conv_kernel_{name}_stride"], 1)
        self.first, self.step = (lift(0), lift(1)) if is_valid else (self.kernel // 2 % self.stride, self.stride)
        self.before = lift(0) if is_valid else self.kernel // 2 - self.first
        self.extent = r[f"conv_output_{name}s"] if is_valid else self.size
        self.count = minimum(self.extent, clamp(ceil_div(self.size - self.first, self.stride), 0, None))
        self.padded = clamp((self.count - 1) * self.stride + self.kernel, 0, None)
        self.is_inside = (self.extent > 0) & ((self.extent - 1) * self.stride + self.kernel <= self.size)  # without padding
        self.is_whole = (self.before == 0) & (self.padded <= self.size)  # every padded position is one of the input

    def holds(self, position: Expr) -> Expr:
        """Tell whether a padded position is one of the input."""
        return (position >= self.before) & (position < self.before + self.size)

    def number(self, position: Expr, k: Expr) -> Expr:
        """Return the output that an input position reaches through tap k ≡ position modulo the stride."""
        return (position + self.before - k) // self.stride

    def reaches(self, position: Expr, k: Expr) -> Expr:
        """Tell whether an input position reaches an output through tap k."""
        i = self.number(position, k)
        return (k % self.stride == position % self.stride) & (i >= 0) & (i < self.count)

    def place(self, i: Expr) -> Expr:
        """Return the output position of output number i."""
        return self.first + i * self.step


class Geometry:
    """One convolution as configured: its sides and regions, and when it ends, has a tap that reaches an output, and may be computed
    in any order, because every output has a place of its own and none lies on an activation.
    """

    def __init__(self, m: Ila, p: Revision) -> None:
        """Read the registers of `m`."""
        r = m.r
        self.p, self.r, self.is_unified = p, r, p.act_source == "spad1"
        self.rows, self.cols = rows, cols = [Side(r, name, is_valid=p.grouped_output) for name in ("row", "col")]
        self.filters, self.blocks = r.conv_filters % (1 << p.filter_bits), ceil_div(r.conv_input_channels % (1 << p.channel_bits), LANES)
        self.taps = self.blocks, rows.kernel, cols.kernel
        self.last_lane = (self.filters + LANES - 1) % LANES
        act_memory, act_base = (m.s.spad1, r.conv_act_base - p.spad1) if self.is_unified else (m.s.soc, r.conv_act_base)
        weight_base, output_base = (r.conv_weight_base - SPAD0_BASE, r.conv_output_base - p.spad1) if self.is_unified else (0, 0)
        vectors = ceil_div(self.filters, LANES) if p.grouped_output else self.filters
        self.activations = Region(act_memory, act_base, (self.blocks, rows.size, cols.size, LANES), 2)
        self.weights = Region(m.s.spad0, weight_base, (self.filters, *self.taps, LANES), p.weight_bits // 8)
        self.outputs = Region(m.s.spad1, output_base, (vectors, rows.extent, cols.extent, LANES), 2)
        self.ends = r.conv_kernel_row_stride * r.conv_kernel_col_stride > 0  # the loops over kernel positions advance by them
        self.has_work = all_of(n > 0 for n in (self.filters, *self.taps, rows.count, cols.count))
        is_apart = self.activations.is_inside & self.outputs.is_inside & self.activations.is_apart(self.outputs)
        self.is_apart = is_apart if self.is_unified else self.outputs.bytes <= p.spad_bytes

    def output(self, f: Expr, i: Expr, j: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """Return where output (i, j) of filter f lies: in a lane of its own where outputs are grouped, else in the last filter's."""
        vector, lane = (f // LANES, f % LANES) if self.p.grouped_output else (f, self.last_lane)
        return vector, self.rows.place(i), self.cols.place(j), lane
