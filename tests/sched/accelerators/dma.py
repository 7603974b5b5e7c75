"""A multiply-accumulate unit behind a DRAM: load, compute and store queues with tokens; commands are words of eight bytes."""

import math
from pathlib import Path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila import Ila, Queue, layout
from rewrite_compiler.lang import Fixed, array, assign, maximum, reduce_sum, sat, select, seq, update, wrap
from rewrite_compiler.target import Target

LANES, DEPTH, SUMS = 4, 64, 64
HEAD = layout(0, opcode=3, take=1, give=1, take2=1, give2=1)
COPY = HEAD | layout(8, to=6, count=7, first=24)
MAC = HEAD | layout(8, a=6, b=6, count=7, sum=6, keep=1)
ROUND = HEAD | layout(8, begin=6, many=7, shift=5, relu=1)


def build():
    """Return the model."""
    m = Ila("dma", __doc__)
    m.input("data", 8, 8)
    m.interrupt = m.register("done", 1, doc="Set by the last command.")
    a, b = (m.memory(name, (DEPTH, LANES), 8, signed=True) for name in "ab")
    sums = m.memory("sums", (SUMS,), 24, signed=True)
    out = m.memory("out", (SUMS,), 8, signed=True)
    m.external("dram", 8, doc="The DRAM: bytes.")
    codes = m.externals["dram"].words(8, signed=True)
    what = "{first}…{last} of {start}…{end}"

    def loading(name, opcode, memory):
        def load(f):
            first = f.first * LANES

            def row(r, j):
                return ((f.to + r) % DEPTH, j), codes.word(first + r * LANES + j)

            return seq(codes.require(first, first + f.count * LANES - 1, f"{name} reads {what}"), update(memory, (f.count, LANES), row))

        m.encoded(name, COPY, {"opcode": opcode}, load, doc=f"Load vectors to {memory.name}.")

    loading("load_a", 1, a)
    loading("load_b", 2, b)

    def mac(f):
        products = reduce_sum(lambda r, j: a[(f.a + r) % DEPTH, j] * b[(f.b + r) % DEPTH, j], (f.count, LANES))
        return assign(sums, wrap(select(f.keep, sums[f.sum], 0) + products, 24), f.sum)

    m.encoded("mac", MAC, {"opcode": 3}, mac, doc="Add products of vectors to a sum.")

    def rounded(f):
        def code(n):
            total = sums[(f.begin + n) % SUMS]
            small = sat((total + ((1 << f.shift) >> 1)) >> f.shift, 8)
            return (f.begin + n) % SUMS, select(f.relu, maximum(small, 0), small)

        return update(out, f.many, code)

    m.encoded("round", ROUND, {"opcode": 4}, rounded, doc="Round sums to bytes.")

    def store(f):
        checked = codes.require(f.first, f.first + f.count - 1, f"store writes {what}")
        return seq(checked, codes.store(f.count, lambda n: (f.first + n, out[(f.to + n) % SUMS])))

    m.encoded("store", COPY, {"opcode": 5}, store, doc="Store bytes.")
    m.encoded("finish", HEAD, {"opcode": 6}, lambda f: assign(m.s.done, 1), doc="Raise the interrupt.")
    m.queues.extend(
        [
            Queue("load", frozenset({"load_a", "load_b"}), {"take": "c2l"}, {"give": "l2c"}, ("take2", "give2")),
            Queue("compute", frozenset({"mac", "round", "finish"}), {"take": "l2c", "take2": "s2c"}, {"give": "c2l", "give2": "c2s"}),
            Queue("store", frozenset({"store"}), {"take": "c2s"}, {"give": "s2c"}, ("take2", "give2")),
        ]
    )
    return m


target = Target("dma", build, doc=__doc__, sources=(Path(__file__),))


def fixed8(largest):
    return Fixed(8, 7 - math.frexp(largest)[1])


TRIALS = [{"t": 1, "k": 4, "n": 3}, {"t": 3, "k": 10, "n": 5}]


def declare(relu):
    def operation(x: Tensor, w: Tensor):
        """Rows times rows of weights."""
        y = o.dense(x, w)
        return (o.relu(y) if relu else y), Where(x.rank == 2, IsConstant(w))

    operation.__name__ = "dense_relu" if relu else "dense"
    dense = target.accelerates(axes="x: t k; w: n k; y: t n", formats=dict.fromkeys("xwy", fixed8), whole="k", trials=TRIALS)(operation)

    @dense.numerics
    def codes(x, w, f):
        shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

        def code(t, n):
            total = wrap(reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1]), 24)
            y = sat((total + ((1 << shift) >> 1)) >> shift, 8)
            return maximum(y, 0) if relu else y

        return array(code, (x.shape[0], w.shape[0]))


declare(False)
declare(True)
