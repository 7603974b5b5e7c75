"""Random accelerators that take words, on one queue or on two with tokens: both compiled loops leave what the oracle leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila import Bits, External, Ila, Queue, assemble
from rewrite_compiler.ila.simulation import stream_device as streams
from rewrite_compiler.ila.simulation import word_stream_loop as loops
from rewrite_compiler.lang import Expr, Leaf, Step, assign, loop, minimum, reduce_sum, require, sat, seq, update, when, wrap
from rewrite_compiler.lang import intervals as iv

EXAMPLES = max(int(os.environ.get("FLEXMATCH_EXAMPLES", "150")) // 3, 10)
SIZE, LONG = 12, 42  # elements of a memory, bytes of DRAM
LAYOUT = {"op": Bits(0, 3), "pop": Bits(4, 4), "push": Bits(5, 5), "a": Bits(8, 12), "b": Bits(16, 20, signed=True), "n": Bits(24, 27)}
Fields = Mapping[str, Expr]
Kind = Callable[[Ila, External, Leaf, Leaf, Fields], Step]


def fitted(memory: Leaf, value: Expr) -> Expr:
    """Return a value in the words of a memory."""
    bits, is_signed = iv.width_of(memory.interval) or (8, False)
    return wrap(value, bits, is_signed)


def limited(f: Fields) -> Expr:
    return minimum(f["n"], SIZE)


def load(m: Ila, dram: External, x: Leaf, y: Leaf, f: Fields) -> Step:
    n, first = limited(f), f["a"]
    there = require((n == 0) | dram.holds(first, first + n - 1), "I103", "no bytes at {first}", always=True, first=first)
    return seq(there, update(x, n, lambda i: ((f["b"] + i) % SIZE, fitted(x, dram.leaf[dram.index(first + i)]))))


def store(m: Ila, dram: External, x: Leaf, y: Leaf, f: Fields) -> Step:
    n, first = limited(f), f["a"]
    there = require((n == 0) | dram.holds(first, first + n - 1), "I103", "no bytes at {first}", always=True, first=first)
    return seq(there, update(dram.leaf, n, lambda i: (dram.index(first + i), wrap(x[(i + f["b"]) % SIZE], 8, False))))


# what an instruction does with one memory, and with another that may be the same one
KINDS: dict[str, Kind] = {
    "load": load,
    "store": store,
    "rotate": lambda m, dram, x, y, f: update(x, limited(f), lambda i: ((f["a"] + i) % SIZE, fitted(x, y[(i - f["b"]) % SIZE]))),
    "scale": lambda m, dram, x, y, f: update(x, SIZE, lambda i: (i, fitted(x, y[SIZE - 1 - i] * f["b"] + x[i]))),
    "sum": lambda m, dram, x, y, f: assign(m.s.total, sat(m.s.total[()] + reduce_sum(lambda i: x[i] * y[i % 5], limited(f)), 24)),
    "in order": lambda m, dram, x, y, f: loop(limited(f), lambda k: assign(x, fitted(x, x[(k + f["a"]) % SIZE] + y[k]), k)),
    "by the register": lambda m, dram, x, y, f: when(m.s.mode[()] > 3, assign(x, 1, m.s.mode[()]), assign(m.s.mode, f["a"] % 8)),
    "done": lambda m, dram, x, y, f: assign(m.s.done, 1),
}


@st.composite
def models(draw: st.DrawFn) -> Ila:
    m = Ila("random")
    m.input("data", 8, 4)
    memories = [m.memory(f"m{n}", (SIZE,), bits, signed=s) for n, (bits, s) in enumerate(draw(st.sampled_from(PAIRS)))]
    m.memory("total", (), 24, signed=True)
    m.register("mode", 3)
    m.interrupt = m.register("done", 1)
    dram = m.external("dram", 8)
    for op in range(draw(st.integers(2, 8))):
        kind, x, y = KINDS[draw(st.sampled_from(list(KINDS)))], *(draw(st.sampled_from(memories)) for _ in "xy")
        m.encoded(f"i{op}", LAYOUT, {"op": op}, lambda f, k=kind, x=x, y=y: k(m, dram, x, y, f), doc="")  # type: ignore[misc]
    names = list(m.instructions)
    if draw(st.booleans()):
        cut = draw(st.integers(1, len(names)))
        m.queues += [Queue("q", frozenset(names[:cut]), {"pop": "rq"}, {"push": "qr"})]
        m.queues += [Queue("r", frozenset(names[cut:]), {"pop": "qr"}, {"push": "rq"})]
    return m


PAIRS = [((8, True), (8, False)), ((16, True), (8, True)), ((32, True), (16, True)), ((8, False), (32, True))]


@st.composite
def programs(draw: st.DrawFn, m: Ila) -> list[int]:
    found = []
    for _ in range(draw(st.integers(1, 24))):
        i = draw(st.sampled_from(list(m.instructions.values())))
        tokens = {name: int(draw(st.integers(0, rare)) == 0) for name, rare in (("pop", 9), ("push", 2))}
        numbers = {name: draw(st.integers(*o.leaf.interval)) for name, o in i.operands.items() if name not in tokens}
        found.append(assemble(i, **tokens, **numbers)["data"])
        if draw(st.integers(0, 15)) == 0:
            found.append(15)  # of no instruction
    return found


def left(m: Ila, reading: str, words: list[int]) -> tuple[object, ...]:
    """Return all that is left of a program in two parts."""
    image, refused = np.arange(LONG, dtype=np.uint8), ""
    sim = m.simulator(dram=image, reading=reading)
    for part in (words[: len(words) // 2], words[len(words) // 2 :]):
        try:
            sim.run(part)
        except FlexmatchError as refusal:
            refused = str(refusal)
            break
    states = {name: sim.state(name).tolist() for name in m.states if name != "dram"}
    return image.tobytes(), states, None if refused else sorted(sim.held_tokens), sim.executed, refused


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.data())
def test_both_loops_leave_what_the_oracle_leaves(data: st.DataObject) -> None:
    m = data.draw(models())
    words = data.draw(programs(m))
    expected = left(m, "oracle", words)
    assert left(m, "arrays", words) == expected
    for singles, most in ((1 << 30, 64), (0, 64), (0, 0)):  # with the last, the loop has what words that ran one by one were of
        with patch.object(streams, "PATIENCE", 1), patch.object(loops, "SINGLES", singles), patch.object(loops, "MOST", most):
            assert left(m, "native", words) == expected
