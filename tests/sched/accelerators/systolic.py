"""A weight-stationary systolic array of 8 × 8 cells: inputs stream through, sums wait in memory, results leave by a FIFO."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, assign, reduce_sum, sat, select, signed, together, update, wrap
from rewrite_compiler.target import Target

SIZE, ROWS, DEPTH = 8, 16, 4


def build():
    """Return the model: cells, sums, a FIFO of results with two pointers."""
    m = Ila("systolic", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=SIZE)
    cell = m.memory("cell", (SIZE, SIZE), 8)
    total = m.memory("total", (ROWS, SIZE), 24, signed=True)
    fifo = m.memory("fifo", (DEPTH, SIZE), 8)
    m.config("config", bus.write(0x0000), bit_fields("4:0 shift, 12:8 row, 16 accumulate"))
    m.register("head", 2)
    m.register("tail", 2)
    load = m.instruction("load_row", bus.write_range(0x1000, SIZE, SIZE), lanes="vector")
    load(lambda index, vector: update(cell, SIZE, lambda j: ((index[()], j), vector[j])))

    @m.instruction("push", bus.write(0x2000), lanes="vector")
    def push(vector):
        """Send a vector through the cells: each column adds its products to the sum of the configured row."""

        def column(j):
            products = reduce_sum(lambda i: signed(vector[i], 8) * signed(cell[i, j], 8), SIZE)
            before = select(m.r.accumulate, total[m.r.row % ROWS, j], 0)
            return (m.r.row % ROWS, j), wrap(before + products, 24)

        return update(total, SIZE, column)

    @m.instruction("emit", bus.write(0x2008), bit_fields("3:0 from_row"))
    def emit(from_row):
        """Round a row of sums and put it into the FIFO."""

        def code(j):
            return (m.r.head, j), wrap(sat((total[from_row[()], j] + ((1 << m.r.shift) >> 1)) >> m.r.shift, 8), 8, False)

        return together(*[update(fifo, SIZE, code)], assign(m.s.head, (m.r.head + 1) % DEPTH))

    m.readback("oldest", bus.read(0x3000), lambda j: fifo[m.r.tail, j], lanes=SIZE)
    m.instruction("pop", bus.write(0x3008))(lambda: assign(m.s.tail, (m.r.tail + 1) % DEPTH))
    return m


target = Target("systolic", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


TRIALS = [{"t": 1, "k": 8, "n": 3}, {"t": 3, "k": 20, "n": 11}]


@target.accelerates(axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", fixed8), whole="k", trials=TRIALS)
def dense(x: Tensor, w: Tensor):
    """Rows times rows of weights."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@dense.numerics
def codes(x, w, f):
    """Sums of 24 bits that wrap, one rounding."""
    shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

    def code(t, n):
        total = wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 24)
        return sat((total + ((1 << shift) >> 1)) >> shift, 8)

    return array(code, (x.shape[0], w.shape[0]))
