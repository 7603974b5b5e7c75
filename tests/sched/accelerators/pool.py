"""A max-pool unit: eight channels side by side, a window register that keeps the largest of what is pushed."""

import math
from pathlib import Path

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, maximum, reduce_max, select, signed, update, wrap
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Target

LANES, WINDOWS = 8, 32


def build():
    """Return the model."""
    m = Ila("pool", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=LANES)
    window = m.memory("window", (WINDOWS, LANES), 8, signed=True)
    m.config("mode", bus.write(0x0000), bit_fields("0 first"))

    @m.instruction("push", bus.write_range(0x1000, WINDOWS, LANES), lanes="v")
    def push(index, v):
        """A vector enters a window: its first one is kept, of any other one what is larger."""

        def largest(j):
            x = signed(v[j], 8)
            return (index[()], j), select(m.r.first, x, maximum(window[index[()], j], x))

        return update(window, LANES, largest)

    m.instruction("get", bus.read_range(0x2000, WINDOWS, LANES))(lambda index: array(lambda j: wrap(window[index[()], j], 8, False), LANES))
    return m


target = Target("pool", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


TRIALS = [
    {"b": 1, "c": 8, "i": 4, "j": 4, "u": 2, "v": 2, "kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0)},
    {"b": 2, "c": 11, "i": 7, "j": 5, "u": 3, "v": 2, "kernel": (3, 2), "strides": (2, 3), "pads": (0, 0, 0, 0)},
]


@target.accelerates(axes="x: b c i j; y: b c u v", formats={"x": fixed8}, derived={"y": lambda x: x}, whole="i j u v", trials=TRIALS)
def max_pool(x: Tensor, kernel: Ints, strides: Ints, pads: Ints):
    """The largest element of each window."""
    pool = o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0)
    return pool, Where(x.rank == 4, pads == (0, 0, 0, 0))


@max_pool.numerics
def codes(x, kernel, strides, pads):
    rows, cols = ((x.shape[2 + n] - kernel[n]) // strides[n] + 1 for n in range(2))
    return array(
        lambda b, c, u, v: reduce_max(lambda r, s: x[b, c, u * strides[0] + r, v * strides[1] + s], kernel),
        (x.shape[0], x.shape[1], rows, cols),
    )
