"""Loads decoupled from computing by a FIFO: a host feeds vectors, each step takes the oldest one, results leave by another FIFO."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, assign, maximum, reduce_sum, sat, select, seq, signed, update, wrap
from rewrite_compiler.target import Target

LANES, DEPTH, FILTERS = 8, 4, 64


def build():
    """Return the model: a FIFO of inputs, weights, one sum, a FIFO of results."""
    m = Ila("fifo", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=LANES)
    waiting = m.memory("waiting", (DEPTH, LANES), 8, signed=True)
    weights = m.memory("weights", (FILTERS, LANES), 8, signed=True)
    total = m.memory("total", (1,), 20, signed=True)
    results = m.memory("results", (DEPTH,), 8)
    for name in ("fed", "taken", "first", "last"):
        m.register(name, 2)

    @m.instruction("feed", bus.write(0x0000), lanes="vector")
    def feed(vector):
        """Put a vector into the FIFO."""
        stored = update(waiting, LANES, lambda j: ((m.r.fed, j), signed(vector[j], 8)))
        return seq(stored, assign(m.s.fed, (m.r.fed + 1) % DEPTH))

    m.instruction("weight", bus.write_range(0x1000, FILTERS, LANES), lanes="vector")(
        lambda index, vector: update(weights, LANES, lambda j: ((index[()], j), signed(vector[j], 8)))
    )

    @m.instruction("step", bus.write(0x0008), bit_fields("5:0 row, 8 begin"))
    def step(row, begin):
        """Take the oldest vector, multiply it with a row of weights, begin or go on with the sum."""
        products = reduce_sum(lambda j: waiting[m.r.taken, j] * weights[row[()], j], LANES)
        added = assign(total, wrap(select(begin[()], 0, total[0]) + products, 20), 0)
        return seq(added, assign(m.s.taken, (m.r.taken + 1) % DEPTH))

    @m.instruction("emit", bus.write(0x0010), bit_fields("4:0 shift, 8 relu"))
    def emit(shift, relu):
        """Round the sum and put it into the FIFO of results."""
        small = sat((total[0] + ((1 << shift[()]) >> 1)) >> shift[()], 8)
        code = select(relu[()] & (small < 0), 0, small)
        return seq(assign(results, wrap(code, 8, False), m.r.last), assign(m.s.last, (m.r.last + 1) % DEPTH))

    m.readback("oldest", bus.read(0x2000), lambda j: select(j == 0, results[m.r.first], 0), lanes=LANES)
    m.instruction("pop", bus.write(0x2008))(lambda: assign(m.s.first, (m.r.first + 1) % DEPTH))
    return m


target = Target("fifo", build, doc=__doc__, sources=(Path(__file__),))
TRIALS = [{"t": 1, "k": 8, "n": 3}, {"t": 2, "k": 20, "n": 5}]


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


@target.accelerates(axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", fixed8), whole="k", trials=TRIALS)
def dense_relu(x: Tensor, w: Tensor):
    """Rows times rows of weights, negative ones 0."""
    return o.relu(o.dense(x, w)), Where(x.rank == 2, IsConstant(w))


@dense_relu.numerics
def codes(x, w, f):
    """Sums of 20 bits that wrap, halves are rounded up, then ReLU."""
    shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

    def code(t, n):
        total = wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 20)
        return maximum(sat((total + ((1 << shift) >> 1)) >> shift, 8), 0)

    return array(code, (x.shape[0], w.shape[0]))
