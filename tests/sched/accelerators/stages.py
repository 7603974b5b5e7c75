"""A dot-product unit, and a vector unit that goes over its sums: bias, ReLU, shift with rounding, clamp, each a command."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, maximum, minimum, reduce_sum, sat, signed, update, wrap
from rewrite_compiler.target import Target

LANES, DEPTH, SUMS = 4, 64, 32


def build():
    """Return the model."""
    m = Ila("stages", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=LANES)
    x = m.memory("x", (DEPTH, LANES), 8, signed=True)
    w = m.memory("w", (DEPTH, LANES, LANES), 8, signed=True)
    bias = m.memory("bias", (16, LANES), 8, signed=True)
    sums = m.memory("sums", (SUMS, LANES), 24, signed=True)
    m.instruction("put_x", bus.write_range(0x1000, DEPTH, LANES), lanes="v")(
        lambda index, v: update(x, LANES, lambda j: ((index[()], j), signed(v[j], 8)))
    )
    m.instruction("put_w", bus.write_range(0x2000, DEPTH * LANES, LANES), lanes="v")(
        lambda index, v: update(w, LANES, lambda j: ((index[()] // LANES, index[()] % LANES, j), signed(v[j], 8)))
    )
    m.instruction("put_bias", bus.write_range(0x3000, 16, LANES), lanes="v")(
        lambda index, v: update(bias, LANES, lambda j: ((index[()], j), signed(v[j], 8)))
    )

    @m.instruction("multiply", bus.write(0x0000), bit_fields("5:0 a, 11:6 b, 16:12 to, 23:17 count"))
    def multiply(a, b, to, count):
        """Write the sums of so many products of a vector and four rows."""

        def total(j):
            products = reduce_sum(lambda k, i: x[(a[()] + k) % DEPTH, i] * w[(b[()] + k) % DEPTH, j, i], (count[()], LANES))
            return (to[()], j), wrap(products, 24)

        return update(sums, LANES, total)

    def going_over(name, address, fields, value):
        @m.instruction(name, bus.write(address), bit_fields("4:0 first, 10:5 rows" + fields))
        def stage(first, rows, **more):
            def at(r):
                return (first[()] + r) % SUMS

            return update(sums, (rows[()], LANES), lambda r, j: ((at(r), j), wrap(value(sums[at(r), j], r, j, **more), 24)))

    going_over("add_bias", 0x08, ", 14:11 row, 19:15 up", lambda s, r, j, row, up: s + (bias[row[()], j] << up[()]))
    going_over("relu", 0x10, "", lambda s, r, j: maximum(s, 0))
    going_over("half", 0x18, ", 15:11 places", lambda s, r, j, places: (s + ((1 << places[()]) >> 1)) >> places[()])
    going_over("clamp", 0x20, "", lambda s, r, j: maximum(minimum(s, 127), -128))
    m.instruction("get", bus.read_range(0x4000, SUMS, LANES))(lambda index: array(lambda j: wrap(sums[index[()], j], 8, False), LANES))
    return m


target = Target("stages", build, doc=__doc__, sources=(Path(__file__),))
TRIALS = [{"t": 1, "k": 4, "n": 3}, {"t": 2, "k": 10, "n": 6}]


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


@target.accelerates(axes="x: t k; w: n k; b: n; y: t n", formats=dict.fromkeys("xwby", fixed8), whole="k", trials=TRIALS)
def dense_bias_relu(x: Tensor, w: Tensor, b: Tensor):
    """Rows times rows of weights and a bias, negative ones 0."""
    return o.relu(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@dense_bias_relu.numerics
def codes(x, w, b, f):
    """Sums of 24 bits that wrap, ReLU, halves rounded up, a clamp."""
    sums = f["x"].fraction + f["w"].fraction
    shift = sums - f["y"].fraction

    def code(t, n):
        total = wrap(wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 24) + (b[n] << (sums - f["b"].fraction)), 24)
        return sat((maximum(total, 0) + ((1 << shift) >> 1)) >> shift, 8)

    return array(code, (x.shape[0], w.shape[0]))
