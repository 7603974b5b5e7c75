"""The native reading of whole models: every golden trace of FlexASR bit for bit, and what it does not offer."""

from __future__ import annotations

import numpy as np
import pytest
from vectors import replay, traces

from rewrite_compiler.ila import Bits, Ila, mmio
from rewrite_compiler.ila.simulation import simulator
from rewrite_compiler.ila.simulation.simulator import SHORT_BLOCK, Simulator
from rewrite_compiler.ila_models.flexasr import build
from rewrite_compiler.lang import Leaf, Step, assign, loop, reduce_sum, select, wrap

TRACES = traces("flexasr")


@pytest.fixture(scope="module")
def flexasr() -> Ila:
    """One model: its instructions are compiled once."""
    return build()


@pytest.mark.parametrize("name", TRACES)
def test_flexasr_trace(name: str, flexasr: Ila) -> None:
    sim = Simulator(flexasr, reading="native")
    assert replay(sim, TRACES[name]["commands"]) == TRACES[name]["reads_hw"]
    assert sim.not_native == {}


def test_blocks_of_commands(flexasr: Ila) -> None:
    rows = np.random.default_rng(5).integers(0, 256, (7, 16))
    operands = {"index": np.arange(3, 10), "vector": rows}
    store = next(i for i in flexasr.instructions.values() if i.name == "gb_core_store_large")
    assert set(store.operands) == set(operands)
    left, right = (Simulator(flexasr, reading=r) for r in ("native", "oracle"))
    for sim in (left, right):
        sim.block("gb_core_store_large", 7, operands)
    assert (left.state("large") == right.state("large")).all()
    assert left.state("large").any()


@pytest.mark.parametrize("count", [1, SHORT_BLOCK, SHORT_BLOCK + 1])
def test_blocks_return_the_same_on_both_sides_of_the_longest_short_one(count: int, flexasr: Ila) -> None:
    """Short blocks are machine code, command by command, long ones numpy; rows that are written twice hold the last."""
    random = np.random.default_rng(7)
    places, rows = random.integers(0, 200, count), random.integers(0, 256, (count, 16))
    native, arrays, oracle = (Simulator(flexasr, reading=r) for r in ("native", "arrays", "oracle"))
    returned = []
    for sim in (native, arrays, oracle):
        sim.block("gb_core_store_large", count, {"index": places, "vector": rows})
        returned.append(np.asarray(sim.block("gb_core_load_large", count, {"index": places})).reshape(count, 16))
    assert all((x == returned[2]).all() for x in returned)
    assert (native.state("large") == oracle.state("large")).all()
    assert returned[0].any()


def test_what_words_cannot_hold_is_run_by_numpy_and_named() -> None:
    m = Ila("wide")
    bus = mmio(m)
    m.memory("a", (2,), 62, signed=True)
    m.memory("b", (), 8)
    product = m.s.a[0] * m.s.a[1]
    m.instruction("run", bus.write(0x10))(lambda: assign(m.s.b, select(product > 1 << 100, 7, 3)))
    sim = Simulator(m, reading="native")
    sim.memories[m.s.a].data[:] = (1 << 61) - 1
    sim.issue("run")
    assert sim.state("b") == 7
    assert list(sim.not_native) == ["run"]
    assert "more than a word of 64 bits holds" in sim.not_native["run"]


def test_a_call_of_many_values_is_compiled_to_the_full_level_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of few values are compiled fast; the level stays once a call of many needs it, and changes no bit."""
    monkeypatch.setattr(simulator, "LIGHT_VALUES", 100)
    m = Ila("sums")
    bus = mmio(m)
    m.memory("x", (64,), 8, signed=True)
    m.memory("total", (), 32, signed=True)

    @m.instruction("add", bus.write(0x10), {"count": Bits(0, 7)})
    def _add(count: Leaf) -> Step:
        return loop([count[()]], lambda i: assign(m.s.total, wrap(m.s.total[()] + reduce_sum(lambda k: m.s.x[k] * (i + k), 8), 32, True)))

    large, totals = [], []
    for reading in ("native", "oracle"):
        sim = Simulator(m, reading=reading)
        sim.memories[m.s.x].data[:] = np.arange(-20, 44)
        for count in (3, 12, 13, 3):
            sim.issue("add", count=count)
            totals.append(int(sim.state("total")))
            large.append(sim._executable(m.instructions["add"]).is_large)
    assert large[:4] == [False, False, True, True]
    assert totals[:4] == totals[4:]


def test_blocks_with_samples(flexasr: Ila) -> None:
    rows = np.random.default_rng(6).integers(0, 256, (7, 3, 16))
    operands = {"index": np.arange(3, 10), "vector": rows}
    native, arrays = (Simulator(flexasr, reading=r, samples=3) for r in ("native", "arrays"))
    for sim in (native, arrays):
        sim.block("gb_core_store_large", 7, operands, frozenset(("vector",)))
    assert (native.state("large") == arrays.state("large")).all()
    assert native.state("large").shape[0] == 3
