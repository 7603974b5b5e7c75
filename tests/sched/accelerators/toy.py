"""A toy accelerator: eight 8-bit multipliers and an accumulator of 20 bits that saturates."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, lanes_of, mmio
from rewrite_compiler.lang import Fixed, array, assign, fold, lift, reduce_sum, sat, signed, update, wrap
from rewrite_compiler.target import Target

LANES, INPUTS, WEIGHTS, RESULTS = 8, 64, 512, 64  # bytes of a vector, vectors of each memory


def dot_product(length, shift, x, w):
    """Exact sums of eight products, a saturating accumulator, one rounding (halves up), a saturating result."""
    most = (1 << 19) - 1
    total = fold(length, 0, lambda v, acc: sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 20), (-most - 1, most))
    return sat((total + ((lift(1) << shift) >> 1)) >> shift, 8)


def build():
    """Return the model: three memories, two registers, five instructions."""
    m = Ila("toy", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=LANES)
    x, w, y = (m.memory(name, (size, LANES), 8) for name, size in (("x", INPUTS), ("w", WEIGHTS), ("y", RESULTS)))
    m.config("config", bus.write(0x0000), bit_fields("6:0 length, 12:8 shift"))
    for name, memory, base, size in (("store_x", x, 0x1000, INPUTS), ("store_w", w, 0x2000, WEIGHTS)):
        add = m.instruction(name, bus.write_range(base, size, LANES), lanes="vector")
        add(lambda index, vector, memory=memory: update(memory, LANES, lambda j: ((index[()], j), vector[j])))
    m.instruction("load_y", bus.read_range(0x4000, RESULTS, LANES))(lambda index: lanes_of(y, index[()], lanes=LANES))

    @m.instruction("dot", bus.write(0x0010), bit_fields("8:0 first, 21:16 to"))
    def dot(first, to):
        """Multiply the input by the weights from vector `first`; store the result in lane 0 of vector `to`."""

        def weight(v, j):
            return signed(w[(first[()] + v) % WEIGHTS, j], 8)

        code = dot_product(m.s.length[()], m.s.shift[()], lambda v, j: signed(x[v % INPUTS, j], 8), weight)
        return assign(y, wrap(code, 8, False), to[()], 0)

    return m


target = Target("toy", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


trials = [{"t": 1, "k": k, "n": n} for k, n in ((8, 1), (24, 5), (64, 64), (512, 8))]


@target.accelerates(axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", fixed8), whole="k", trials=trials)
def dense(x: Tensor, w: Tensor):
    """One row times rows of weights: y[t, n] = Σ_k x[t, k] · w[n, k]."""
    return o.dense(x, w), Where(x.rank == 2, x.shape[1] % LANES == 0, IsConstant(w))


def shift_of(f):
    return f["x"].fraction + f["w"].fraction - f["y"].fraction


@dense.numerics
def codes(x, w, f):
    """What the device returns, from the specification."""

    def part(a, row):
        return lambda v, j: a[row, v * LANES + j]

    return array(lambda t, n: dot_product(x.shape[1] // LANES, shift_of(f), part(x, t), part(w, n)), (x.shape[0], w.shape[0]))
