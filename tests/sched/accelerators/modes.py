"""An elementwise unit: two scratchpads of 12-bit words, three lanes, a mode register."""

import math
from pathlib import Path

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, maximum, minimum, sat, select, signed, update, wrap
from rewrite_compiler.target import Target

LANES, DEPTH = 3, 96


def build():
    """Return the model."""
    m = Ila("modes", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=8)
    left = m.memory("left", (DEPTH, LANES), 12, signed=True)
    right = m.memory("right", (DEPTH, LANES), 12, signed=True)
    m.config("mode", bus.write(0x0000), bit_fields("1:0 mode"))
    m.config("steps", bus.write(0x0008), bit_fields("6:0 steps"))
    m.config("rounding", bus.write(0x0010), bit_fields("3:0 shift"))
    for name, memory, base in (("put_left", left, 0x1000), ("put_right", right, 0x2000)):
        m.instruction(name, bus.write_range(base, DEPTH, 8), lanes="v")(
            lambda index, v, memory=memory: update(memory, LANES, lambda j: ((index[()], j), signed(v[2 * j] + (v[2 * j + 1] << 8), 12)))
        )

    @m.instruction("go", bus.write(0x0018))
    def go():
        """left := left OP right, vector by vector."""

        def word(v, j):
            a, b = left[v % DEPTH, j], right[v % DEPTH, j]
            product = sat((a * b + ((1 << m.r.shift) >> 1)) >> m.r.shift, 12)
            other = select(m.r.mode == 2, product, maximum(a, b))
            return (v % DEPTH, j), wrap(select(m.r.mode == 0, sat(a + b, 12), select(m.r.mode == 1, sat(a - b, 12), other)), 12)

        return update(left, (m.r.steps, LANES), word)

    m.instruction("get", bus.read_range(0x4000, DEPTH, 8))(
        lambda index: array(lambda j: select(j < 2 * LANES, (left[index[()], minimum(j // 2, LANES - 1)] >> 8 * (j % 2)) % 256, 0), 8)
    )
    return m


target = Target("modes", build, doc=__doc__, sources=(Path(__file__),))
TRIALS = [{"t": 2, "n": 5}, {"t": 3, "n": 11}]
AXES = "x: t n; y: t n; z: t n"


def fixed12(largest):
    return Fixed(12, 11 - math.frexp(largest)[1])


def same(x):
    return x


def guard(x, y):
    return Where(x.rank == 2, y.rank == 2, x.shape[0] == y.shape[0], x.shape[1] == y.shape[1])


@target.accelerates(axes=AXES, formats={"x": fixed12}, derived={"y": same, "z": same}, trials=TRIALS)
def add(x: Tensor, y: Tensor):
    """The sum."""
    return o.add(x, y), guard(x, y)


@add.numerics
def add_codes(x, y):
    return array(lambda t, n: sat(x[t, n] + y[t, n], 12), x.shape)


@target.accelerates(axes=AXES, formats={"x": fixed12}, derived={"y": same, "z": same}, trials=TRIALS)
def sub(x: Tensor, y: Tensor):
    """The difference."""
    return o.sub(x, y), guard(x, y)


@sub.numerics
def sub_codes(x, y):
    return array(lambda t, n: sat(x[t, n] - y[t, n], 12), x.shape)


@target.accelerates(axes=AXES, formats=dict.fromkeys("xyz", fixed12), trials=TRIALS)
def mul(x: Tensor, y: Tensor):
    """The product."""
    return o.mul(x, y), guard(x, y)


@mul.numerics
def mul_codes(x, y, f):
    s = f["x"].fraction + f["y"].fraction - f["z"].fraction
    return array(lambda t, n: sat((x[t, n] * y[t, n] + ((1 << s) >> 1)) >> s, 12), x.shape)
