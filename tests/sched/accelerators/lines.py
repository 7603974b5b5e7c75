"""A dot-product engine whose 16-bit results lie byte by byte, low byte first, in a result memory one byte wide."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, reduce_sum, sat, signed, update, wrap
from rewrite_compiler.target import Target

LANES, DEPTH, BYTES = 4, 64, 256


def build():
    """Return the model."""
    m = Ila("lines", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=LANES)
    x = m.memory("x", (DEPTH, LANES), 8, signed=True)
    w = m.memory("w", (DEPTH, LANES), 8, signed=True)
    y = m.memory("y", (BYTES,), 8)
    for name, memory, base in (("put_x", x, 0x1000), ("put_w", w, 0x2000)):
        add = m.instruction(name, bus.write_range(base, DEPTH, LANES), lanes="vector")
        add(lambda index, vector, memory=memory: update(memory, LANES, lambda j: ((index[()], j), signed(vector[j], 8))))

    @m.instruction("dot", bus.write(0x0008), bit_fields("5:0 a, 11:6 b, 18:12 count, 26:19 to"))
    def dot(a, b, count, to):
        """Multiply and add vectors; the sum of 16 bits saturates and is written low byte first."""
        products = reduce_sum(lambda v, j: x[(a[()] + v) % DEPTH, j] * w[(b[()] + v) % DEPTH, j], (count[()], LANES))
        code = sat(products, 16)
        return update(y, 2, lambda n: ((to[()] + n) % BYTES, wrap(code >> 8 * n, 8, False)))

    m.instruction("get", bus.read_range(0x4000, BYTES // LANES, LANES))(lambda index: array(lambda j: y[index[()] * LANES + j], LANES))
    return m


target = Target("lines", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


TRIALS = [{"t": 1, "k": 4, "n": 3}, {"t": 2, "k": 12, "n": 5}]


@target.accelerates(
    axes="x: t k; w: n k; y: t n",
    formats={"x": fixed8, "w": fixed8},
    derived={"y": lambda x, w: Fixed(16, x.fraction + w.fraction)},
    whole="k",
    trials=TRIALS,
)
def dense(x: Tensor, w: Tensor):
    """Rows times rows of weights."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@dense.numerics
def codes(x, w):
    return array(lambda t, n: sat(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 16), (x.shape[0], w.shape[0]))
