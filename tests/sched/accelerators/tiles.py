"""A unit of 4 × 4 sums, which a command of its own sets to a bias in another memory; results are written by columns."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, clamp, reduce_sum, signed, update, wrap
from rewrite_compiler.target import Target

T, DEPTH = 4, 64


def build():
    """Return the model."""
    m = Ila("tiles", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=4)
    a = m.memory("a", (DEPTH, T), 8, signed=True)  # column k of four rows
    b = m.memory("b", (DEPTH, T), 8, signed=True)
    s = m.memory("s", (T, T), 28, signed=True)
    y = m.memory("y", (T, T), 8)  # by columns
    bias = m.memory("bias", (T,), 16, signed=True)
    m.config("mode", bus.write(0x0000), bit_fields("4:0 shift"))
    for name, memory, base in (("put_a", a, 0x1000), ("put_b", b, 0x2000)):
        add = m.instruction(name, bus.write_range(base, DEPTH, 4), lanes="vector")
        add(lambda index, vector, memory=memory: update(memory, T, lambda j: ((index[()], j), signed(vector[j], 8))))
    put = m.instruction("put_bias", bus.write_range(0x3000, 2, 4), lanes="vector")
    put(lambda index, vector: update(bias, 2, lambda j: (index[()] * 2 + j, signed(vector[2 * j] + (vector[2 * j + 1] << 8), 16))))

    @m.instruction("clear", bus.write(0x0004))
    def clear():
        """Begin sums with the bias of each column."""
        return update(s, (T, T), lambda i, j: ((i, j), bias[j]))

    @m.instruction("step", bus.write(0x0008), bit_fields("5:0 at"))
    def step(at):
        """Add one outer product."""
        return update(s, (T, T), lambda i, j: ((i, j), wrap(s[i, j] + a[at[()], i] * b[at[()], j], 28)))

    @m.instruction("finish", bus.write(0x000C))
    def finish():
        """Shift and clip all sums."""
        return update(y, (T, T), lambda i, j: ((j, i), clamp(s[i, j] >> m.r.shift, 0, 127)))

    m.instruction("get", bus.read_range(0x4000, T, 4))(lambda index: array(lambda i: y[index[()], i], T))
    return m


target = Target("tiles", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


TRIALS = [{"t": 1, "k": 4, "n": 3}, {"t": 3, "k": 10, "n": 4}]


@target.accelerates(
    axes="x: t k; w: n k; b: n; y: t n",
    formats=dict.fromkeys("xwy", fixed8),
    derived={"b": lambda x, w: Fixed(16, x.fraction + w.fraction)},
    whole="k",
    trials=TRIALS,
)
def dense_bias_relu(x: Tensor, w: Tensor, b: Tensor):
    """Rows times rows of weights, with a bias, clipped below."""
    return o.relu(o.bias_add(o.dense(x, w), b, axis=1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@dense_bias_relu.numerics
def codes(x, w, b, f):
    """Sums of 28 bits."""
    shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

    def code(t, n):
        return clamp(wrap(b[n] + reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 28) >> shift, 0, 127)

    return array(code, (x.shape[0], w.shape[0]))
