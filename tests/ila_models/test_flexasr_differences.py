"""Where the published ILA of FlexASR is not the hardware (specification, section 11), each difference by what it does to a vector."""

from __future__ import annotations

from functools import cache

import pytest

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulate import READINGS, DeviceHang, Simulator
from rewrite_compiler.ila_models.flexasr import build

HARDWARE, PUBLISHED = "hardware", "published_ila"
LARGE, SMALL, ACT = 0x3350_0000, 0x3360_0000, 0x3490_0000
ONES = int.from_bytes(bytes([0x31] * 16), "little")


@cache
def model(behaviour: str) -> Ila:
    return build(behaviour)


def device(behaviour: str, reading: str = "oracle", **words: dict[str, int]) -> Simulator:
    sim = Simulator(model(behaviour), reading=reading)
    for name, fields in words.items():
        sim.issue(name, **fields)
    return sim


def row(code: int) -> int:
    return int.from_bytes(bytes([code] * 16), "little")


def layer(behaviour: str, reading: str, program: tuple[int, ...] = (0x30, 0x40), **changes: int) -> Simulator:
    """Configure a layer of one output vector an element, whose weights are zero: results are biases."""
    fields = {"num_input": 1, "base_input": 0, "base_bias": 1, "buffer_addr_base": 0, "mode": 0, "index": 1, "base": 64, **changes}
    sim = device(
        behaviour,
        reading,
        config_gb_core_mem_mngr_large={
            "num_vector_0": fields["num_input"], "num_vector_1": 4, "base_1": 64, "num_vector_3": 4, "base_3": 128,
        },
        config_gb_core_mem_mngr_small={"base_1": fields["base"]},
        config_gb_control={
            "is_valid": 1, "mode": fields["mode"], "memory_index_2": fields["index"], "num_vector_1": fields["num_input"],
            "num_vector_2": 4, "num_timestep_1": 1,
        },
    )  # fmt: skip
    for pe in range(4):
        sim.issue(f"pe{pe}_config_rnn_layer_sizing", is_valid=1, is_bias=1, num_manager=1, num_output=1)
        bases = {name: fields[name] for name in ("num_input", "base_input", "base_bias")}
        sim.issue(f"pe{pe}_config_mem_mngr_first", adpfloat_bias_b=7, **bases)
        sim.issue(
            f"pe{pe}_config_act_mngr", is_valid=1, adpfloat_bias=7, num_inst=len(program), num_output=1, output_addr_base=pe,
            buffer_addr_base=fields["buffer_addr_base"],
        )  # fmt: skip
        sim.issue(f"pe{pe}_config_act_vector_0_15", instructions=int.from_bytes(bytes(program), "little"))
        sim.issue(f"pe{pe}_core_store_input_buffer", index=fields["base_bias"], vector=row(0x42))
    for t in range(fields["num_input"]):
        sim.write(LARGE + 16 * 16 * t, row(0x10 + t))  # vector t of timestep 0
        sim.write(SMALL + 16 * t, row(0x10 + t))
    return sim


def finished(sim: Simulator) -> Simulator:
    sim.write(0x3300_0010, 0)
    sim.wait_for_interrupt()
    return sim


both_readings = pytest.mark.parametrize("reading", READINGS)


def test_the_hardware_ignores_the_low_bits_of_an_address() -> None:
    for behaviour, count in ((HARDWARE, 5), (PUBLISHED, 1)):
        sim = device(behaviour)
        sim.write(0x3340_0018, 5)
        assert sim.state("gb_large_num_vector_0") == count


def test_words_are_read_back_by_the_hardware_alone() -> None:
    for behaviour, is_read in ((HARDWARE, True), (PUBLISHED, False)):
        sim = device(behaviour)
        for address in (0x3300_0000 + 0x30_0000, 0x3430_0000, 0x3340_0020, 0x3540_0030, 0x3780_0030, 0x3650_0020, 0x3760_0FF0):
            word = 0x0102_0304 if address & 0xF0_0000 == 0x30_0000 else ONES + address
            sim.write(address, word)
            assert sim.read(address) == (word if is_read else 0), hex(address)
        sim.write(ACT + 16, ONES)
        sim.write(LARGE, ONES)
        assert sim.read(ACT + 16) == sim.read(LARGE) == ONES


@both_readings
def test_pooling_of_one_timestep(reading: str) -> None:
    """The hardware reduces one pair, the published model does not end."""
    for behaviour in (HARDWARE, PUBLISHED):
        sim = device(behaviour, reading, config_gb_layer_reduce={"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 1})
        sim.write(LARGE, row(0x21))
        sim.write(LARGE + 16, row(0x35))
        sim.write(0x3300_0020, 0)
        if behaviour == HARDWARE:
            sim.wait_for_interrupt()
            assert sim.read(LARGE) == row(0x35)
        else:
            with pytest.raises(DeviceHang, match="layer_reduce does not end: num_timestep_1 is 1"):
                sim.wait_for_interrupt()


@both_readings
@pytest.mark.parametrize("op", [0x0, 0x5, 0x6, 0xE, 0xF])
def test_an_undefined_activation_instruction(op: int, reading: str) -> None:
    program = (0x30, op << 4, 0x40)
    assert finished(layer(HARDWARE, reading, program)).read(LARGE + 16 * 64) == row(0x42)
    with pytest.raises(DeviceHang, match="Control waits for PE0, which stops at an undefined activation instruction"):
        finished(layer(PUBLISHED, reading, program))
    beyond = layer(PUBLISHED, reading, (0x30, 0x40))
    beyond.issue("pe0_config_act_vector_0_15", instructions=int.from_bytes(bytes((0x30, 0x40, 0x50)), "little"))
    assert finished(beyond).read(LARGE + 16 * 64) == row(0x42)  # it lies behind the program


@both_readings
def test_where_addresses_of_the_input_buffer_wrap(reading: str) -> None:
    """Input 4 of 8 from 252 lands on the bias at 0."""
    for behaviour, code in ((HARDWARE, 0x14), (PUBLISHED, 0x42)):
        sim = finished(layer(behaviour, reading, num_input=8, base_input=252, base_bias=0))
        assert sim.read(LARGE + 16 * 64) == row(code)


@both_readings
def test_where_addresses_of_the_activation_buffer_wrap(reading: str) -> None:
    """The state of the second output, from 31 on, lands at 0."""
    for behaviour, code in ((HARDWARE, 0x42), (PUBLISHED, 0x11)):
        sim = layer(behaviour, reading, (0x30, 0x20), buffer_addr_base=31)
        for pe in range(4):
            sim.issue(f"pe{pe}_config_rnn_layer_sizing", is_valid=1, is_bias=1, num_manager=1, num_output=2)
            sim.issue(f"pe{pe}_config_act_mngr", is_valid=1, adpfloat_bias=7, num_inst=2, num_output=2, buffer_addr_base=31)
            sim.issue(f"pe{pe}_core_store_input_buffer", index=2, vector=row(0x42))
        sim.write(ACT, row(0x11))
        finished(sim)
        assert (sim.read(ACT), sim.read(ACT + 16 * 31)) == (row(code), row(0x42))


@both_readings
def test_where_addresses_of_the_small_buffer_wrap(reading: str) -> None:
    """A decoder's fourth output vector from 1021 on lands at 0."""
    for behaviour, code in ((HARDWARE, 0x42), (PUBLISHED, 0x10)):
        sim = finished(layer(behaviour, reading, mode=3, base=1021))
        assert (sim.read(SMALL), sim.read(SMALL + 16 * 1021)) == (row(code), row(0x42))


@both_readings
def test_a_memory_index_beyond_the_managers(reading: str) -> None:
    """The hardware takes two bits of it, the published model the last manager."""
    for behaviour, at in ((HARDWARE, 64), (PUBLISHED, 128)):
        assert finished(layer(behaviour, reading, index=5)).read(LARGE + 16 * at) == row(0x42)
