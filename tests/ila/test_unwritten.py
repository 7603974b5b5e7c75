"""Strict simulation names the read of what nothing has written; otherwise the device gives what its memory holds."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila.simulate import READINGS, Simulator
from rewrite_compiler.ila_models import flexasr, hlscnn, vta

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
    assert refused(sim, "spad1_data_rd", offset=32) == "spad1_data_rd reads spad1, which nothing has written"
    assert Simulator(HLSCNN).issue("spad1_data_rd", offset=32) == 0


ROWS = {"y_size": 1, "x_size": 1}


def instructions(m: Ila, *rows: tuple[str, dict[str, int]]) -> list[int]:
    return [assemble(m.instructions[name], **fields)["data"] for name, fields in rows]


@pytest.mark.parametrize(("behaviour", "buffer"), [("fsim", "acc"), ("hls", "out"), ("ila", "out")])
@pytest.mark.parametrize("reading", READINGS)
def test_a_store_of_an_unwritten_vector(behaviour: str, buffer: str, reading: str) -> None:
    m = vta.build(behaviour=behaviour)
    reset = "gemm", {"reset": 1, "uop_end": 1, "iter_out": 3, "iter_in": 1, "dst_factor_out": 1, "push_next": 1}
    store = "store", {**ROWS, "x_size": 4, "pop_prev": 1}
    with pytest.raises(SpecError) as refusal:
        m.simulator(dram=bytearray(4096), reading=reading, strict=True).run(instructions(m, reset, store))
    problem = refusal.value.problem
    assert (problem.code, problem.place) == ("I104", "instruction 1 (store)")
    assert problem.sentence == f"store reads vector 3, 0 of {buffer}, which nothing has written"
    m.simulator(dram=bytearray(4096), reading=reading, strict=True).run(instructions(m, reset, ("store", {**store[1], "x_size": 3})))
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
