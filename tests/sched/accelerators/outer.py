"""An output-stationary unit: outer products of 4 × 4, a bias register, ReLU by a flag."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, lanes_of, mmio
from rewrite_compiler.lang import Fixed, array, maximum, reduce_sum, sat, select, signed, update, wrap
from rewrite_compiler.target import Target

SIZE, DEPTH = 4, 8


def build():
    """Return the model."""
    m = Ila("outer", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=SIZE)
    a = m.memory("a", (DEPTH, SIZE), 8, signed=True)
    b = m.memory("b", (DEPTH, SIZE), 8, signed=True)
    bias = m.memory("bias", (SIZE,), 8, signed=True)
    acc = m.memory("acc", (SIZE, SIZE), 24, signed=True)
    out = m.memory("out", (SIZE, SIZE), 8)
    m.config("config", bus.write(0x0000), bit_fields("4:0 shift, 8 relu, 13:9 scale"))
    for name, memory, base in (("put_a", a, 0x1000), ("put_b", b, 0x2000)):
        add = m.instruction(name, bus.write_range(base, DEPTH, SIZE), lanes="vector")
        add(lambda index, vector, memory=memory: update(memory, SIZE, lambda j: ((index[()], j), signed(vector[j], 8))))
    m.instruction("put_bias", bus.write(0x3000), lanes="vector")(lambda vector: update(bias, SIZE, lambda j: (j, signed(vector[j], 8))))

    @m.instruction("outer", bus.write(0x0008), bit_fields("6:0 count, 8 keep"))
    def outer(count, keep):
        """Add count outer products."""

        def cell(i, j):
            products = reduce_sum(lambda k: a[k % DEPTH, i] * b[k % DEPTH, j], count[()])
            return (i, j), wrap(select(keep[()], acc[i, j], 0) + products, 24)

        return update(acc, (SIZE, SIZE), cell)

    @m.instruction("finish", bus.write(0x0010))
    def finish():
        """Add the bias, ReLU, round."""

        def cell(i, j):
            total = acc[i, j] + (bias[j] << m.r.scale)
            rounded = sat((total + ((1 << m.r.shift) >> 1)) >> m.r.shift, 8)
            return (i, j), wrap(select(m.r.relu, maximum(rounded, 0), rounded), 8, False)

        return update(out, (SIZE, SIZE), cell)

    m.instruction("get", bus.read_range(0x4000, SIZE, SIZE))(lambda index: lanes_of(out, index[()], lanes=SIZE))
    return m


target = Target("outer", build, doc=__doc__, sources=(Path(__file__),))
TRIALS = [{"t": 1, "k": 4, "n": 3}, {"t": 5, "k": 9, "n": 3}]


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


def declare(name, relu, has_bias):
    if has_bias:

        def operation(x: Tensor, w: Tensor, b: Tensor):
            """Rows times rows of weights and a bias."""
            y = o.bias_add(o.dense(x, w), b, 1)
            return (o.relu(y) if relu else y), Where(x.rank == 2, IsConstant(w), IsConstant(b))
    else:

        def operation(x: Tensor, w: Tensor):
            """Rows times rows of weights."""
            y = o.dense(x, w)
            return (o.relu(y) if relu else y), Where(x.rank == 2, IsConstant(w))

    operation.__name__ = name
    axes = "x: t k; w: n k; b: n; y: t n" if has_bias else "x: t k; w: n k; y: t n"
    names = "xwby" if has_bias else "xwy"
    m = target.accelerates(axes=axes, formats=dict.fromkeys(names, fixed8), whole="k", trials=TRIALS)(operation)

    def numerics(x, w, f, b=None):
        shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

        def code(t, n):
            total = wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 24)
            if b is not None:
                total = total + (b[n] << (f["x"].fraction + f["w"].fraction - f["b"].fraction))
            r = sat((total + ((1 << shift) >> 1)) >> shift, 8)
            return maximum(r, 0) if relu else r

        return array(code, (x.shape[0], w.shape[0]))

    if has_bias:
        m.numerics(lambda x, w, b, f: numerics(x, w, f, b))
    else:
        m.numerics(lambda x, w, f: numerics(x, w, f))


declare("dense", False, False)
declare("dense_bias_relu", True, True)
