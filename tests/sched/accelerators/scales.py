"""A weight-stationary array of 4 × 4 cells: inputs stream through, sums wait, a stage multiplies, shifts and rounds by channel."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, reduce_sum, sat, select, signed, update, wrap
from rewrite_compiler.target import Target

SIZE, ROWS = 4, 16


def build():
    """Return the model."""
    m = Ila("scales", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=8)
    cell = m.memory("cell", (SIZE, SIZE), 8, signed=True)
    total = m.memory("total", (ROWS, SIZE), 32, signed=True)
    factor = m.memory("factor", (SIZE,), 16, signed=True)
    out = m.memory("out", (ROWS, SIZE), 8, signed=True)
    m.config("shifts", bus.write(0x0000), bit_fields("4:0 shift"))
    m.instruction("load_cells", bus.write_range(0x1000, SIZE, 8), lanes="v")(
        lambda index, v: update(cell, SIZE, lambda j: ((index[()], j), signed(v[j], 8)))
    )
    m.instruction("load_factors", bus.write(0x2000), lanes="v")(
        lambda v: update(factor, SIZE, lambda j: (j, signed(v[2 * j] + (v[2 * j + 1] << 8), 16)))
    )

    def streaming(name, base, keeps):
        @m.instruction(name, bus.write_range(base, ROWS, 8), lanes="v")
        def push(index, v):
            """Send a vector of inputs through the cells; row `index` of the sums takes, or adds, what comes out."""

            def column(j):
                products = reduce_sum(lambda i: signed(v[i], 8) * cell[i, j], SIZE)
                return (index[()], j), wrap((total[index[()], j] if keeps else 0) + products, 32)

            return update(total, SIZE, column)

    streaming("push", 0x3000, False)
    streaming("push_add", 0x4000, True)

    @m.instruction("requantise", bus.write(0x5000), bit_fields("4:0 rows"))
    def requantise(rows):
        """Multiply by the factor of the channel, shift right with rounding, clamp."""

        def code(r, j):
            product = total[r % ROWS, j] * factor[j]
            return (r % ROWS, j), sat((product + ((1 << m.r.shift) >> 1)) >> m.r.shift, 8)

        return update(out, (rows[()], SIZE), code)

    m.instruction("get", bus.read_range(0x6000, ROWS, 8))(
        lambda index: array(lambda j: select(j < SIZE, wrap(out[index[()], j % SIZE], 8, False), 0), 8)
    )
    return m


target = Target("scales", build, doc=__doc__, sources=(Path(__file__),))


def fixed(bits):
    return lambda largest: Fixed(bits, bits - 1 - math.frexp(largest)[1])


TRIALS = [{"t": 2, "k": 4, "n": 3}, {"t": 5, "k": 11, "n": 9}]


@target.accelerates(
    axes="x: t k; w: n k; s: n; y: t n",
    formats={"x": fixed(8), "w": fixed(8), "s": fixed(16), "y": fixed(8)},
    whole="k",
    trials=TRIALS,
)
def dense_scaled(x: Tensor, w: Tensor, s: Tensor):
    """Rows times rows of weights, times a factor of each channel."""
    return o.mul(o.dense(x, w), s), Where(x.rank == 2, s.rank == 1, s.shape[0] == w.shape[0], IsConstant(w), IsConstant(s))


@dense_scaled.numerics
def codes(x, w, s, f):
    shift = f["x"].fraction + f["w"].fraction + f["s"].fraction - f["y"].fraction

    def code(t, n):
        total = wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 32)
        return sat((total * s[n] + ((1 << shift) >> 1)) >> shift, 8)

    return array(code, (x.shape[0], w.shape[0]))
