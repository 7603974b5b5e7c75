"""A unit whose counts and strides lie in arrays of registers, which no field of its command says: its target has a macro for it."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, reduce_sum, sat, select, signed, update, wrap
from rewrite_compiler.target import MacroStep, Target

LANES, DEPTH, RESULTS = 4, 128, 64
X, W, Y = range(3)  # rows of the strides; the columns are the loops over rows, columns and vectors


def build():
    """Return the model."""
    m = Ila("strides", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=8)
    x, w = (m.memory(name, (DEPTH, LANES), 8, signed=True) for name in "xw")
    y = m.memory("y", (RESULTS,), 8, signed=True)
    count = m.register("count", 6, shape=(3,), reset=1, doc="Iterations of the loops over rows, columns and vectors.")
    stride = m.register("stride", 6, shape=(3, 3), doc="How far each loop moves inputs, weights and results.")
    m.config("scale", bus.write(0x0000), bit_fields("4:0 shift"))
    m.instruction("set_count", bus.write_range(0x0100, 3, 8), bit_fields("5:0 value"))(
        lambda index, value: update(count, 1, lambda n: (index[()] + n, value[()]))
    )
    m.instruction("set_stride", bus.write_range(0x0200, 9, 8), bit_fields("5:0 value"))(
        lambda index, value: update(stride, 1, lambda n: ((index[()] // 3, index[()] % 3 + n), value[()]))
    )
    for name, memory, base in (("put_x", x, 0x1000), ("put_w", w, 0x2000)):
        m.instruction(name, bus.write_range(base, DEPTH, 8), lanes="v")(
            lambda index, v, memory=memory: update(memory, LANES, lambda j: ((index[()], j), signed(v[j], 8)))
        )

    @m.instruction("go", bus.write(0x0008))
    def go():
        """Run the loops: a sum of products for each row and column, rounded to a byte."""
        strides = [[stride[a, n] for n in range(3)] for a in range(3)]
        return products(m, [count[n] for n in range(3)], strides)

    m.instruction("get", bus.read_range(0x3000, RESULTS, 8))(
        lambda index: array(lambda j: select(j == 0, wrap(y[index[()]], 8, False), 0), 8)
    )
    return m


def products(m, counts, strides):
    """Return the update of all results for iterations and strides."""

    def place(operand, *loops):
        return sum(n * step for n, step in zip(loops, strides[operand], strict=False))

    def code(i, j):
        def product(k, lane):
            return m.s.x[place(X, i, j, k) % DEPTH, lane] * m.s.w[place(W, i, j, k) % DEPTH, lane]

        total = wrap(reduce_sum(product, (counts[2], LANES)), 24)
        return place(Y, i, j) % RESULTS, sat((total + ((1 << m.r.shift) >> 1)) >> m.r.shift, 8)

    return update(m.s.y, (counts[0], counts[1]), code)


target = Target("strides", build, doc=__doc__, sources=(Path(__file__),))
FIELDS = ("rows", "columns", "vectors", "x_row", "x_vector", "w_column", "w_vector", "y_row", "y_column")


def multiply(m, rows, columns, vectors, x_row, x_vector, w_column, w_vector, y_row, y_column):
    """Multiply rows of inputs by rows of weights."""
    return products(m, (rows, columns, vectors), ((x_row, 0, x_vector), (0, w_column, w_vector), (y_row, y_column)))


@target.macro(reason="counts and strides lie in arrays of registers", steps={"multiply": MacroStep(multiply, dict.fromkeys(FIELDS, 6))})
def configured_loops(p, steps):
    """Set counts and strides, and run the loops."""
    for _, f in steps:
        for n, name in enumerate(("rows", "columns", "vectors")):
            yield "set_count", {"index": n, "value": f[name]}
        strides = ((f["x_row"], 0, f["x_vector"]), (0, f["w_column"], f["w_vector"]), (f["y_row"], f["y_column"], 0))
        for n, value in enumerate(step for row in strides for step in row):
            yield "set_stride", {"index": n, "value": value}
        yield "go", {}


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


@target.accelerates(
    axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", fixed8), whole="k",
    trials=[{"t": 1, "k": 4, "n": 3}, {"t": 3, "k": 10, "n": 5}],
)  # fmt: skip
def dense(x: Tensor, w: Tensor):
    """Rows times rows of weights."""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


@dense.numerics
def codes(x, w, f):
    cut = f["x"].fraction + f["w"].fraction - f["y"].fraction

    def element(t, n):
        total = wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 24)
        return sat((total + ((1 << cut) >> 1)) >> cut, 8)

    return array(element, (x.shape[0], w.shape[0]))
