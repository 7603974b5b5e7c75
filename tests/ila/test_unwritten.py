"""Strict simulation names the read of what nothing has written; otherwise the device gives what its memory holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import CONTROL, DATA, Bits, Ila, lanes_of, mmio
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila.simulation import read_sets
from rewrite_compiler.ila.simulation.initialisation_tracking import InitialisationMap
from rewrite_compiler.ila.simulation.simulator import READINGS, Simulator
from rewrite_compiler.ila_models import flexasr, hlscnn, hvx, vta
from rewrite_compiler.lang import assign, seq, update
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.readings.state.upward_exposed_reads import DeferredWrites, ExposedReads

FLEXASR, HLSCNN = flexasr.build(), hlscnn.build()


def refused(sim: Simulator, name: str, **operands: int) -> str:
    with pytest.raises(SpecError) as refusal:
        sim.issue(name, **operands)
    assert refusal.value.problem.code == "I104"
    return refusal.value.problem.sentence


@pytest.mark.parametrize("reading", READINGS)
def test_a_load_of_an_unwritten_vector(reading: str) -> None:
    sim = Simulator(FLEXASR, reading=reading, strict=True)
    assert refused(sim, "gb_core_load_large", index=7) == "gb_core_load_large reads vector 7 of large, which nothing has written"
    sim.issue("gb_core_store_large", index=6, vector=3)
    assert sim.issue("gb_core_load_large", index=6) == 3
    assert refused(sim, "gb_core_load_large", index=7) == "gb_core_load_large reads vector 7 of large, which nothing has written"
    sim.issue("pe1_act_store_buffer", index=2, vector=5)
    assert sim.issue("pe1_act_load_buffer", index=2) == 5
    assert refused(sim, "pe0_act_load_buffer", index=2) == "pe0_act_load_buffer reads vector 0, 2 of act_buffer, which nothing has written"
    assert Simulator(FLEXASR, reading=reading).issue("gb_core_load_large", index=7) == 0


def test_a_block_of_loads_names_the_first_unwritten_vector() -> None:
    sim = Simulator(FLEXASR, strict=True)
    sim.block("gb_core_store_large", 3, {"index": np.arange(3), "vector": np.ones((3, 16), np.uint8)})
    sim.block("gb_core_load_large", 3, {"index": np.arange(3)})
    with pytest.raises(SpecError) as refusal:
        sim.block("gb_core_load_large", 4, {"index": np.array([1, 2, 5, 9])})
    assert refusal.value.problem.sentence == "gb_core_load_large reads vector 5 of large, which nothing has written"


def test_what_an_engine_writes_counts_as_written() -> None:
    sim = Simulator(FLEXASR, strict=True)
    sim.issue("config_gb_zero_padding", is_valid=1, num_vector_1=1, num_timestep_1=1, num_timestep_2=3)
    sim.issue("config_gb_core_mem_mngr_large", num_vector_0=1)
    sim.issue("gb_zero_padding_start")
    assert sim.issue("gb_core_load_large", index=2) == 0


def test_a_read_of_a_scratchpad_that_was_never_filled() -> None:
    sim = Simulator(HLSCNN, strict=True)
    assert refused(sim, "spad1_data_rd", offset=32) == "spad1_data_rd reads vector 2 of spad1, which nothing has written"
    assert Simulator(HLSCNN).issue("spad1_data_rd", offset=32) == 0


ROWS = {"y_size": 1, "x_size": 1}


def instructions(m: Ila, *rows: tuple[str, dict[str, int]]) -> list[int]:
    return [assemble(m.instructions[name], **fields)["data"] for name, fields in rows]


# a design with an OUT buffer computes the output of a GEMM that clears, too
MADE = "which gemm made of vector 0, 0 of inp, "


@pytest.mark.parametrize(
    ("behaviour", "buffer", "wrong", "made"), [("fsim", "acc", "3, 0", ""), *((b, "out", "0, 0", MADE) for b in ("hls", "ila"))]
)
@pytest.mark.parametrize("reading", READINGS)
def test_a_store_of_an_unwritten_vector(behaviour: str, buffer: str, wrong: str, made: str, reading: str) -> None:
    m = vta.build(behaviour=behaviour)
    fill = [(name, {**ROWS, "x_size": 3}) for name in ("load_inp", "load_wgt", "load_acc")]
    fill = [*fill[:1], (fill[1][0], {**fill[1][1], "push_next": 1}), (fill[2][0], {**fill[2][1], "pop_prev": 1})]
    reset = "gemm", {"reset": 1, "uop_end": 1, "iter_out": 3, "iter_in": 1, "dst_factor_out": 1, "push_next": 1}
    store = "store", {**ROWS, "x_size": 4, "pop_prev": 1}
    with pytest.raises(SpecError) as refusal:
        m.simulator(dram=bytearray(4096), reading=reading, strict=True).run(instructions(m, reset, store))
    problem = refusal.value.problem
    assert (problem.code, problem.place) == ("I104", "instruction 1 (store)")
    assert problem.sentence == f"store reads vector {wrong} of {buffer}, {made}which nothing has written"
    right = instructions(m, *fill, reset, ("store", {**store[1], "x_size": 3}))
    m.simulator(dram=bytearray(4096), reading=reading, strict=True).run(right)
    m.simulator(dram=bytearray(4096), reading=reading).run(instructions(m, reset, store))


def test_a_check_of_a_stream_knows_what_was_written_before() -> None:
    m = vta.build()
    device = m.simulator(dram=bytearray(4096), strict=True)
    store = instructions(m, ("store", ROWS))
    with pytest.raises(SpecError, match="store reads vector 0, 0 of acc, which nothing has written"):
        device.check(store)
    device.run(instructions(m, ("load_acc", ROWS)))
    device.check(store)
    loose = m.simulator(dram=bytearray(4096))
    loose.run(instructions(m, ("load_acc", ROWS)))
    loose.check(store)


GEMM = {"uop_end": 1, "iter_out": 2, "iter_in": 1, "dst_factor_out": 1}


@pytest.mark.parametrize("behaviour", vta.BEHAVIOURS)
@pytest.mark.parametrize("reading", READINGS)
def test_a_gemm_of_what_was_never_loaded(behaviour: str, reading: str) -> None:
    m = vta.build(behaviour=behaviour)
    rows = {"inp": ("load_inp", ROWS), "wgt": ("load_wgt", ROWS), "acc": ("load_acc", {**ROWS, "x_size": 2})}
    for missing in rows:
        loads = [row for name, row in rows.items() if name != missing]
        last = [
            (name, {**fields, **({"push_next": 1} if k + 1 == sum(n != "load_acc" for n, _ in loads) else {})})
            for k, (name, fields) in enumerate(loads)
        ]
        with pytest.raises(SpecError) as refusal:
            m.simulator(dram=bytearray(4096), reading=reading, strict=True).run(instructions(m, *last, ("gemm", {**GEMM, "pop_prev": 1})))
        problem = refusal.value.problem
        assert (problem.code, problem.place) == ("I104", f"instruction {len(loads)} (gemm)")
        assert problem.sentence == f"gemm reads vector 0, 0 of {missing}, which nothing has written"
    alu = "alu_add", {"uop_end": 1, "iter_out": 2, "iter_in": 1, "dst_factor_out": 1, "use_imm": 1, "imm": 3}
    with pytest.raises(SpecError, match="alu_add reads vector 1, 0 of acc, which nothing has written"):
        m.simulator(dram=bytearray(4096), reading=reading, strict=True).run(instructions(m, ("load_acc", ROWS), alu))


def test_a_product_with_an_immediate_zero_reads_nothing() -> None:
    """The usual way to clear accumulators without a GEMM."""
    m = vta.build()
    clear = "alu_mul", {"uop_end": 1, "iter_out": 1, "iter_in": 1, "use_imm": 1, "push_next": 1}
    m.simulator(dram=bytearray(4096), strict=True).run(instructions(m, clear, ("store", {**ROWS, "pop_prev": 1})))


CONV = {
    "cfg_wr_conv_input_size": {"channels": 8, "rows": 4, "cols": 4},
    "cfg_wr_conv_output_size": {"channels": 1, "rows": 2, "cols": 2},
    "cfg_wr_conv_kernel_size": {"rows": 3, "cols": 3, "row_stride": 1, "col_stride": 1},
    "cfg_wr_soc_mem_length": {"length": 9},
}


def convolved(revision: str, *, activations: int = 16, weights: int = 9, **channels: int) -> Simulator:
    """Run a convolution of 4 × 4 vectors with one filter, of which so many vectors were written."""
    m = hlscnn.build(revision)
    sim = Simulator(m, strict=True)
    for n in range(16 + 9):
        if n < activations or 16 <= n < 16 + 9:
            sim.issue("vir_mem_wr", offset=16 * n, vector=n)
    for name, fields in {**CONV, "cfg_wr_conv_channels": {"filters": 1, **channels}, "cfg_wr_soc_mem_base": {"base": 256}}.items():
        sim.issue(name, **fields)
    if weights:
        sim.issue("cfg_wr_soc_mem_length", length=weights)
        sim.issue("spad0_data_wr", offset=0)
    sim.issue("accel_conv_trigger")
    return sim


@pytest.mark.parametrize("revision", ["orig", "ext8", "ext16"])
def test_a_convolution_of_what_was_never_written(revision: str) -> None:
    missing = {"activations": (15, "vector 15 of soc"), "weights": (0, "vector 0 of spad0"), "accumulate": (1, "vector 0 of spad1")}
    for what, (count, vector) in missing.items():
        with pytest.raises(SpecError) as refusal:
            convolved(revision, **{what: count})
        assert refusal.value.problem.code == "I104"
        assert refusal.value.problem.sentence == f"accel_conv_trigger reads {vector}, which nothing has written"
    sim = convolved(revision)
    own = 5 if revision == "orig" else 0  # of the input-sized map of the first design, the outputs inside
    sim.issue("spad1_data_rd", offset=16 * own)
    sim.issue("cfg_wr_conv_channels", filters=1, accumulate=1)
    sim.issue("accel_conv_trigger")
    sim.issue("spad1_data_rd", offset=16 * own)


def test_outputs_at_the_border_are_named_when_they_are_read() -> None:
    """The first design does not start their sums: what they held remains in them."""
    sim = convolved("orig")
    sentence = "spad1_data_rd reads vector 0 of spad1, which accel_conv_trigger made of vector 0 of spad1, which nothing has written"
    assert refused(sim, "spad1_data_rd", offset=0) == sentence


def test_a_fill_from_memory_that_was_never_written() -> None:
    sim = Simulator(HLSCNN, strict=True)
    sim.issue("cfg_wr_soc_mem_length", length=2)
    sim.issue("vir_mem_wr", offset=0, vector=1)
    assert refused(sim, "spad0_data_wr", offset=0) == "spad0_data_wr reads vector 1 of soc, which nothing has written"


def test_a_second_run_analyses_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many configurations as a large application has, one after the other, twice; what is decided by bounds takes no analysis."""
    m, calls = vta.build(), Counter[str]()
    for name in ("access_bounds", "_compute_needs", "footprint"):
        monkeypatch.setattr(read_sets, name, _counting(getattr(read_sets, name), name, calls))
    stream = instructions(m, *(("load_inp", {**ROWS, "dram_base": n}) for n in range(600)))
    for _ in range(2):
        m.simulator(dram=bytearray(1 << 16), strict=True).run(stream)
        assert calls == {"access_bounds": 600, "_compute_needs": 1}


def test_what_decides_an_address_is_followed_through_registers() -> None:
    """`pointer` is moved by `step` before its row is written: the address alone does not name `step`."""
    m = Ila("pointer")
    bus = mmio(m)
    rows = m.memory("rows", (8, 4), 8, binding=DATA)
    for name in ("pointer", "step", "ticks"):
        m.register(name, 3, binding=CONTROL)
        m.instruction(f"set_{name}", bus.write(0x10 * len(name)), {"x": Bits(0, 2)})(lambda x, name=name: assign(m.s[name], x[()]))
    row = update(rows, 4, lambda k: ((m.r.pointer, k), 1))
    moved, ticked = assign(m.s.pointer, (m.r.pointer + m.r.step) % 8), assign(m.s.ticks, (m.r.ticks + 1) % 8)
    m.instruction("move", bus.write(0x200))(lambda **_: seq(moved, row, ticked))
    m.instruction("store", bus.write(0x210))(lambda **_: seq(row, ticked))
    m.instruction("load", bus.read_range(0x300, 8))(lambda index: lanes_of(rows, index[()]))
    deciding = [{leaf.name for leaf in read_sets._deciding(m, m.instructions[name])} for name in ("move", "store")]
    assert deciding == [{"pointer", "step"}, {"pointer"}]  # not how often they ran
    sim = Simulator(m, strict=True)
    for pointer in (5, 2):
        sim.issue("set_pointer", x=pointer)
        sim.issue("store")
        sim.issue("load", index=pointer)
    assert refused(sim, "load", index=3) == "load reads vector 3 of rows, which nothing has written"


def test_a_load_from_another_address_is_not_analysed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers that address memory outside of the device decide nothing of its own memories."""
    m, calls = hvx.build(), Counter[str]()
    monkeypatch.setattr(read_sets, "access_bounds", _counting(read_sets.access_bounds, "access_bounds", calls))
    sim = m.simulator(dram=bytearray(1 << 13), strict=True)
    sim.run([assemble(m.instructions["vmem_load_step"], vd=3, rt=1, step=1)["data"]] * 40)
    assert calls["access_bounds"] == 1


def _counting(analysis: Callable[..., Any], name: str, calls: Counter[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        calls[name] += 1
        return analysis(*arguments)

    return counted


def test_what_is_made_of_a_spoilt_vector_is_spoilt() -> None:
    """Copies of a vector that nothing wrote, and copies of these, are refused when they are read; a copy of a written one mends."""
    m = vta.build(behaviour="hls")
    first, second, third = (m.states[name].leaf for name in ("inp", "acc", "out"))
    found, gemm, none = InitialisationMap(m), m.instructions["gemm"], np.zeros((0, 2), np.int64)
    row = np.array([[0, 1]])

    def copy(source: Leaf, sink: Leaf) -> None:
        found.observe(gemm, {}, ExposedReads({}, {}, {}, [DeferredWrites(sink, row, {source: row})]))

    copy(first, second)
    copy(second, third)
    for memory, source in ((second, "inp"), (third, "acc")):
        with pytest.raises(SpecError, match=f"gemm reads vector 0, 0 of {memory.name}, which gemm made of vector 0, 0 of {source}, which"):
            found.observe(gemm, {}, ExposedReads({memory: row}, {}, {}))
    found.observe(gemm, {}, ExposedReads({}, {}, {second: row}))
    copy(second, third)
    found.observe(gemm, {}, ExposedReads({third: row, second: none}, {}, {}))
