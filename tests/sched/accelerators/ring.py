"""A 1-D convolution engine: a line buffer of three vectors through which a signal is shifted, eight taps of weights a filter."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Fixed, array, assign, reduce_sum, sat, seq, signed, update, wrap
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.target import Target

TAPS, LANES, FILTERS, RESULTS = 3, 4, 16, 64


def build():
    """Return the model."""
    m = Ila("ring", __doc__)
    bus = mmio(m, address_bits=16, data_bytes=LANES)
    line = m.memory("line", (TAPS, LANES), 8, signed=True)
    w = m.memory("w", (FILTERS, TAPS, LANES), 8, signed=True)
    out = m.memory("out", (RESULTS,), 8)
    m.config("config", bus.write(0x0000), bit_fields("4:0 shift"))
    m.register("head", 2)

    @m.instruction("shift_in", bus.write(0x0008), lanes="v")
    def shift_in(v):
        """The oldest vector of channels leaves the line buffer, this one enters it."""

        newest = update(line, LANES, lambda c: ((m.r.head % TAPS, c), signed(v[c], 8)))
        return seq(newest, assign(m.s.head, (m.r.head + 1) % TAPS))

    m.instruction("put_w", bus.write_range(0x1000, FILTERS * TAPS, LANES), lanes="v")(
        lambda index, v: update(w, LANES, lambda c: ((index[()] // TAPS, index[()] % TAPS, c), signed(v[c], 8)))
    )

    @m.instruction("tap", bus.write(0x0010), bit_fields("3:0 filter, 13:8 to"))
    def tap(filter, to):
        """One result: all taps and channels of the line buffer with those of a filter."""
        total = reduce_sum(lambda k, c: line[(m.r.head + k) % TAPS, c] * w[filter[()], k, c], (TAPS, LANES))
        return assign(out, wrap(sat((total + ((1 << m.r.shift) >> 1)) >> m.r.shift, 8), 8, False), to[()])

    m.instruction("get", bus.read_range(0x4000, RESULTS // LANES, LANES))(lambda index: array(lambda j: out[index[()] * LANES + j], LANES))
    return m


target = Target("ring", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


TRIALS = [
    {"b": 1, "c": 4, "i": 5, "n": 2, "s": 3, "v": 3, "strides": (1,), "pads": (0, 0)},
    {"b": 1, "c": 3, "i": 9, "n": 3, "s": 3, "v": 4, "strides": (2,), "pads": (0, 0)},
]


@target.accelerates(axes="x: b c i; w: n c s; y: b n v", formats=dict.fromkeys("xwy", fixed8), whole="c i s v", trials=TRIALS)
def conv(x: Tensor, w: Tensor, strides: Ints, pads: Ints):
    """A convolution along one axis."""
    guard = Where(x.rank == 3, w.rank == 3, IsConstant(w), w.shape[2] == TAPS, x.shape[1] <= LANES, pads == (0, 0))
    return o.conv(x, w, strides=strides, pads=pads, dilations=(1,), group=1), guard


@conv.numerics
def codes(x, w, f, strides, pads):
    shift = f["x"].fraction + f["w"].fraction - f["y"].fraction
    (stride,) = strides

    def code(b, n, v):
        total = reduce_sum(lambda c, k: x[b, c, v * stride + k] * w[n, c, k], (x.shape[1], TAPS))
        return sat((total + ((1 << shift) >> 1)) >> shift, 8)

    return array(code, (x.shape[0], w.shape[0], (x.shape[2] - TAPS) // stride + 1))
