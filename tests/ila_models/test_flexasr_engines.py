"""Engines of the global buffer on random memories and sizes, against the specification's own loops (sections 6.4 to 6.7 and 7)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from flexasr_reference import encode, fixed, mantissa, wrap

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila_models.flexasr import build

Array = np.ndarray[Any, Any]
LANES = 16
INVSQRT = ((-331, -279, -240, -210, -185, -165, -148, -134), (5789, 5458, 5178, 4938, 4728, 4543, 4378, 4229))
EXP = ((194, 230, 273, 325), (1022, 1216, 1446, 1719))
CONFIGURATION = {"reduce": 0x33800010, "norm": 0x33900010, "pad": 0x33A00010, "attention": 0x33B00010}


@cache
def model() -> Ila:
    return build()


def toward_zero(a: int, b: int) -> int:
    return -(-a // b) if a < 0 else a // b


def inverse_root(x: int) -> int:
    x %= 1 << 20
    if x == 0:
        return -1
    zeros = 20 - x.bit_length()
    e = 6 - zeros
    s = ((x << zeros) - (1 << 19) >> 4) & 0x7FFF
    o = INVSQRT[0][s >> 12] * (s & 4095) + (INVSQRT[1][s >> 12] << 12)
    if e % 2:
        o = (o * 2896 >> 12) % (1 << 24)
    shift = 10 + e // 2
    return wrap(o >> shift if shift >= 0 else o << -shift, 20)


def exponential(x: int) -> int:
    p = wrap(x * 23637 >> 14, 33)
    n, g = p >> 20, p % (1 << 20) >> 8
    o = EXP[0][g >> 10] * (g & 1023) + (EXP[1][g >> 10] << 10)
    return (o << n) % (1 << 32) if n >= 0 else o >> -n


def quotient(a: int, b: int) -> int:
    above, below = a >> 16 & 63, b >> 16 & 63
    return ((above << 8) // below & 1023 if below else 1023) << 12


class Machine:
    """Both buffers, the managers and the fields of one engine."""

    def __init__(self, large: Array, small: Array, managers: list[tuple[int, int]], bases: list[int], f: dict[str, int]) -> None:
        self.large_rows, self.small_rows, self.managers, self.bases, self.f = large, small, managers, bases, f

    def large(self, t: int, v: int) -> Array:
        count, base = self.managers[self.f["index"] % 4]
        row: Array = self.large_rows[(base + t % 16 + (t // 16 * count + v) * 16) % 65536]
        return row

    def after(self, t: int, v: int) -> Array:
        count, base = self.managers[self.f["index"] % 4]
        row: Array = self.large_rows[(base + t % 16 + (t // 16 * count + v) * 16 + 1) % 65536]
        return row

    def small(self, index: int, v: int) -> Array:
        row: Array = self.small_rows[(self.bases[index] + v) % 1024]
        return row

    def reduce(self) -> None:
        for t in range(0, max(self.f["steps"], 1), 2):
            for v in range(self.f["vectors"]):
                pairs = [(mantissa(int(a)), mantissa(int(b))) for a, b in zip(self.large(t, v), self.after(t, v), strict=True)]
                mode = min(self.f["mode"], 2)
                self.large(t // 2, v)[:] = [encode(max(a, b) if mode == 0 else a + b, 0, 15 if mode == 1 else 14) for a, b in pairs]

    def norm(self) -> None:
        for t in range(self.f["steps"]):
            rows = [[fixed(int(c), self.f["bias_1"]) for c in self.large(t, v)] for v in range(self.f["vectors"])]
            total, squares, size = 0, 0, 16 * len(rows)
            for row in rows:
                total = wrap(total + wrap(sum(row), 20), 24)
                squares = wrap(squares + wrap(sum(wrap(x * x >> 14, 20) for x in row), 20), 24)
            mean, square = wrap(toward_zero(total, size), 20), wrap(toward_zero(squares, size), 20)
            scale = inverse_root(wrap(square - wrap(mean * mean >> 14, 20), 20))
            for v, row in enumerate(rows):
                gammas, betas = self.small(5, v), self.small(6, v)
                for j, x in enumerate(row):
                    y = wrap(wrap(x - mean, 20) * scale >> 14, 20)
                    y = wrap(y * fixed(int(gammas[j]), self.f["bias_4"]) >> 14, 20)
                    self.large(t, v)[j] = encode(wrap(y + fixed(int(betas[j]), self.f["bias_3"]), 20), self.f["bias_1"])

    def pad(self) -> None:
        for v in range(self.f["vectors"]):
            for t in range(self.f["steps"], self.f["last"]):
                self.large(t, v)[:] = 0

    def attention(self) -> None:
        f, blocks = self.f, -(-self.f["steps"] // 16)
        for k in range(blocks):
            scores = []
            for r in range(LANES):
                rows = [(self.large(16 * k + r, v), self.small(f["query"], v)) for v in range(f["vectors"])]
                acc = wrap(sum(mantissa(int(a)) * mantissa(int(b)) for x, y in rows for a, b in zip(x, y, strict=True)), 32)
                by = 8 - f["bias_1"] - f["bias_2"]
                scores.append(-(1 << 26) if acc == 0 else wrap(acc >> by if by >= 0 else acc << -by, 32))
            for n in range(4):
                words = np.array(scores[4 * n : 4 * n + 4], "<i4")
                self.small(7, (4 * k + n) % 256)[:] = words.view(np.uint8)
        top = max([-(1 << 30), *(self.score(t) for t in range(16 * blocks))])
        total = wrap(sum(exponential(wrap(self.score(t) - top, 32)) for t in range(16 * blocks)), 32)
        for k in range(blocks):
            shares = [quotient(wrap(exponential(wrap(self.score(16 * k + r) - top, 32)), 32), total) for r in range(LANES)]
            self.small(7, k % 256)[:] = [encode(wrap(s, 26), f["bias_3"], 20) for s in shares]
        for v in range(f["vectors"]):  # one accumulator (section 4): a vector is written before the next one is computed
            acc = np.zeros(LANES, object)
            for k in range(blocks):
                for r in range(LANES):
                    weight = mantissa(int(self.small(7, k % 256)[r]))
                    acc = acc + [mantissa(int(c)) * weight for c in self.large(16 * k + r, v)]
            by = 8 - f["bias_1"] - f["bias_3"]
            shifted = [wrap(a, 32) >> by if by >= 0 else wrap(a, 32) << -by for a in acc]
            self.small(f["query"], v)[:] = [encode(wrap(y, 26), f["bias_4"], 20) for y in shifted]

    def score(self, t: int) -> int:
        return int(self.small(7, t // 4 % 256).astype(np.uint8).view("<i4")[t % 4])


def compare(reading: str, engine: str, rng: np.random.Generator, *, is_close: bool = False) -> None:
    """Run an engine on random memories; `is_close`: the vector that attention replaces lies on its scores."""

    def pick(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    managers, bases = [(pick(0, 8), pick(0, 65535)) for _ in range(4)], [128 * int(b) + pick(0, 40) for b in rng.permutation(8)]
    f = {"mode": pick(0, 3), "index": pick(0, 7), "query": pick(0, 4), "vectors": pick(1, 4), "steps": pick(1, 37), "last": pick(0, 60)}
    f |= {f"bias_{n}": pick(0, 7) for n in range(1, 5)}
    if is_close:
        f |= {"vectors": 4, "steps": pick(33, 48)}
        bases[f["query"]] = (bases[7] + pick(-3, 2)) % 1024
    if engine != "pad":
        managers[f["index"] % 4] = (f["vectors"], managers[f["index"] % 4][1])  # else rows of several vectors share places
    sim = Simulator(model(), reading=reading)
    memories = [sim.memories[model().states[name].leaf] for name in ("large", "small")]
    narrow = rng.integers(0, 2)  # small codes, so that moments do not wrap; or all
    for memory in memories:
        values = rng.integers(0, 256, memory.data.shape)
        memory.data[...] = values & 0x9F if narrow else values
    large, small = (np.array(m.data).astype(np.int64).reshape(n, LANES) for m, n in zip(memories, (65536, 1024), strict=True))
    sim.write(0x33400010, sum(n << 32 * k | base << 32 * k + 16 for k, (n, base) in enumerate(managers)))
    sim.write(0x33400020, sum(base << 16 * k for k, base in enumerate(bases)))
    word = 1 | f["mode"] << 8 | f["index"] << 32 | f["query"] << 40 | f["vectors"] << 48 | f["steps"] << 64 | f["last"] << 80
    sim.write(CONFIGURATION[engine], word | sum(f[f"bias_{n}"] << 88 + 8 * n for n in range(1, 5)))
    sim.write(0x33000000 + 0x10 * (2 + list(CONFIGURATION).index(engine)), 0)
    sim.wait_for_interrupt()
    machine = Machine(large, small, managers, bases, f)
    {"reduce": machine.reduce, "norm": machine.norm, "pad": machine.pad, "attention": machine.attention}[engine]()
    for name, expected in (("large", large), ("small", small)):
        assert np.array_equal(np.asarray(sim.state(name)).reshape(expected.shape), expected), (name, f, managers, bases)


@pytest.mark.parametrize("engine", CONFIGURATION)
@pytest.mark.parametrize("reading", ["oracle", "arrays"])
def test_engines_on_random_memories(reading: str, engine: str) -> None:
    rng = np.random.default_rng(40 + list(CONFIGURATION).index(engine))
    for _ in range(1 if reading == "oracle" else 3):
        compare(reading, engine, rng)


@pytest.mark.parametrize("reading", ["oracle", "arrays", "native"])
def test_attention_whose_result_lies_on_its_weights(reading: str) -> None:
    rng = np.random.default_rng(47)
    for _ in range(1 if reading == "oracle" else 6):
        compare(reading, "attention", rng, is_close=True)
