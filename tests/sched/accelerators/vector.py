"""A vector unit with one scratchpad of 16-bit words, four lanes a step, and a counted loop."""

import math
from pathlib import Path

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, maximum, sat, signed, update
from rewrite_compiler.target import Target

LANES, WORDS, BYTES = 4, 256, 8


def build():
    """Return the model: a scratchpad, a length, transfers and two instructions that compute."""
    m = Ila("vector", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=BYTES)
    spad = m.memory("spad", (WORDS,), 16, signed=True)
    m.config("config", bus.write(0x0000), bit_fields("7:0 length, 12:8 shift"))
    write = m.instruction("write", bus.write_range(0x1000, WORDS // LANES, BYTES), lanes="vector")
    write(
        lambda index, vector: update(spad, LANES, lambda j: (index[()] * LANES + j, signed(vector[2 * j] + (vector[2 * j + 1] << 8), 16)))
    )

    @m.instruction("read", bus.read_range(0x2000, WORDS // LANES, BYTES))
    def read(index):
        """Return four words."""
        return array(lambda j: (spad[index[()] * LANES + j // 2] >> 8 * (j % 2)) % 256, BYTES)

    def computing(name, address, value):
        @m.instruction(name, bus.write(address), bit_fields("7:0 a, 15:8 b, 23:16 to"))
        def compute(a, b, to):
            def word(v, j):
                at = v * LANES + j
                return (to[()] + at) % WORDS, value(spad[(a[()] + at) % WORDS], spad[(b[()] + at) % WORDS])

            return update(spad, (m.r.length, LANES), word)

    computing("add", 0x10, lambda a, b: sat(a + b, 16))
    computing("mul", 0x18, lambda a, b: sat((a * b) >> m.r.shift, 16))
    computing("max", 0x20, maximum)
    return m


target = Target("vector", build, doc=__doc__, sources=(Path(__file__),))
TRIALS = [{"t": 2, "n": 6}, {"t": 1, "n": 60}]
AXES = "x: t n; y: t n; z: t n"


def fixed16(largest):
    return Fixed(16, 15 - math.frexp(largest)[1])


def same(x):
    return x


@target.accelerates(axes=AXES, formats={"x": fixed16}, derived={"y": same, "z": same}, trials=TRIALS)
def add(x: Tensor, y: Tensor):
    """The sum of two tensors."""
    return o.add(x, y), Where(x.rank == 2, y.rank == 2, x.shape[0] == y.shape[0], x.shape[1] == y.shape[1])


@add.numerics
def add_codes(x, y):
    return array(lambda t, n: sat(x[t, n] + y[t, n], 16), x.shape)


@target.accelerates(axes=AXES, formats=dict.fromkeys("xyz", fixed16), trials=TRIALS)
def mul(x: Tensor, y: Tensor):
    """The product of two tensors."""
    return o.mul(x, y), Where(x.rank == 2, y.rank == 2, x.shape[0] == y.shape[0], x.shape[1] == y.shape[1])


@mul.numerics
def mul_codes(x, y, f):
    return array(lambda t, n: sat((x[t, n] * y[t, n]) >> (f["x"].fraction + f["y"].fraction - f["z"].fraction), 16), x.shape)
