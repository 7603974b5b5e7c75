"""Where the published ILA of FlexASR is not the hardware (specification, section 11), each difference by what it does to a vector."""

from __future__ import annotations

from functools import cache

import pytest

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation.simulator import READINGS, DeviceHang, Simulator
from rewrite_compiler.ila_models.flexasr import build
from rewrite_compiler.report.graphics.blocks import markdown
from rewrite_compiler.report.graphics.ila import ila_blocks

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
    for behaviour, count in ((HARDWARE, 5), (PUBLISHED, 3)):
        sim = device(behaviour)
        sim.write(0x3340_0010, 3)
        sim.write(0x3340_0018, 5)
        assert sim.state("gb_large_num_vector_0") == count


def test_words_are_read_back_by_the_hardware_alone() -> None:
    for behaviour, is_read in ((HARDWARE, True), (PUBLISHED, False)):
        sim = device(behaviour)
        for address in (0x3300_0000 + 0x30_0000, 0x3430_0000, 0x363A_BCD0, 0x3340_0020, 0x3540_0030, 0x3780_0030, 0x3650_0020, 0x3760_0FF0):
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
            with pytest.raises(DeviceHang, match="layer_reduce does not end: num_timestep_1 is less than 2, or its mode more than 2"):
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


# -- configuration, starts and interrupt


def test_counts_after_reset() -> None:
    for behaviour, count in ((HARDWARE, 1), (PUBLISHED, 0)):
        sim = device(behaviour)
        for name in ("gb_large_num_vector_3", "gb_control_num_timestep_1", "pe_num_manager", "act_num_inst", "gb_large_base_0"):
            assert (sim.state(name) == (0 if "base" in name else count)).all(), name


STARTS = {"control": 0x10, "layer_reduce": 0x20, "layer_norm": 0x30, "zero_padding": 0x40, "attention": 0x50}


@pytest.mark.parametrize("engine", STARTS)
def test_a_read_of_a_trigger_starts_the_engine_of_the_hardware(engine: str) -> None:
    for behaviour in (HARDWARE, PUBLISHED):
        sim = layer(behaviour, "oracle")
        words = {"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 2, **({"num_vector_2": 4} if engine == "control" else {})}
        sim.issue(f"config_gb_{engine}", **words)
        assert sim.read(0x3300_0000 + STARTS[engine]) == 0
        if behaviour == HARDWARE:
            sim.wait_for_interrupt()
        with pytest.raises(DeviceHang):
            sim.wait_for_interrupt()


@both_readings
def test_the_hardware_starts_one_element_alone(reading: str) -> None:
    """Any access to unit 0 of the element's partition starts it; the interrupt stays away."""
    for behaviour, address, is_write in ((b, a, w) for b in (HARDWARE, PUBLISHED) for a in (0x3400_0000, 0x340F_FFF0) for w in (0, 1)):
        sim = layer(behaviour, reading, (0x30, 0x20))
        (sim.write(address, 0) if is_write else sim.read(address))
        starts = behaviour == HARDWARE
        assert sim.read(ACT) == (row(0x42) if starts else 0)
        assert sim.read(ACT + 0x0100_0000) == 0
        with pytest.raises(DeviceHang):
            sim.wait_for_interrupt()


@both_readings
def test_the_interrupt_of_the_published_model_stays(reading: str) -> None:
    """After the first engine that ends, a wait for one that does not end is over at once."""
    for behaviour in (HARDWARE, PUBLISHED):
        sim = finished(layer(behaviour, reading))
        assert sim.state("interrupt") == (behaviour == PUBLISHED)
        sim.issue("config_gb_layer_reduce", is_valid=0)
        sim.write(0x3300_0020, 0)
        if behaviour == PUBLISHED:
            sim.wait_for_interrupt()
        else:
            with pytest.raises(DeviceHang, match="layer_reduce is not configured valid"):
                sim.wait_for_interrupt()


# -- engines


def pooled(behaviour: str, reading: str, steps: int, mode: int = 0) -> Simulator:
    """Reduce one vector a timestep, whose codes rise: 0x10, 0x11, …"""
    words = {"is_valid": 1, "mode": mode, "num_vector_1": 1, "num_timestep_1": steps}
    sim = device(behaviour, reading, config_gb_core_mem_mngr_large={"num_vector_0": 1}, config_gb_layer_reduce=words)
    for t in range(16):
        sim.write(LARGE + 16 * t, row(0x11 + t))
    sim.write(0x3300_0020, 0)
    return sim


@both_readings
def test_pooling_of_an_odd_number_of_timesteps(reading: str) -> None:
    """The hardware combines timesteps 4 and 5, too."""
    for behaviour, third in ((HARDWARE, 0x16), (PUBLISHED, 0x13)):
        sim = pooled(behaviour, reading, 5)
        sim.wait_for_interrupt()
        assert [sim.read(LARGE + 16 * t) for t in range(3)] == [row(0x12), row(0x14), row(third)]


@both_readings
@pytest.mark.parametrize("mode", range(3, 8))
def test_pooling_in_a_mode_above_two(mode: int, reading: str) -> None:
    """The hardware adds, the published model has no instruction for it: nothing is written and nothing ends."""
    added, stuck = pooled(HARDWARE, reading, 2, mode), pooled(PUBLISHED, reading, 2, mode)
    added.wait_for_interrupt()
    assert added.read(LARGE) == pooled(PUBLISHED, reading, 2, 2).read(LARGE) != row(0x11)
    assert stuck.read(LARGE) == row(0x11)
    with pytest.raises(DeviceHang, match="layer_reduce does not end: num_timestep_1 is less than 2, or its mode more than 2"):
        stuck.wait_for_interrupt()


@both_readings
def test_zero_padding_of_several_vectors(reading: str) -> None:
    """The published model steps through the vectors at 0, 1, 3, 6."""
    for behaviour, cleared in ((HARDWARE, {0, 1, 2, 3}), (PUBLISHED, {0, 1, 3, 6})):
        words = {"is_valid": 1, "num_vector_1": 4, "num_timestep_1": 3, "num_timestep_2": 4}
        sim = device(behaviour, reading, config_gb_core_mem_mngr_large={"num_vector_0": 4}, config_gb_zero_padding=words)
        for vector in range(8):
            sim.write(LARGE + 16 * (16 * vector + 3), row(0x21))
        sim.write(0x3300_0040, 0)
        sim.wait_for_interrupt()
        assert {v for v in range(8) if sim.read(LARGE + 16 * (16 * v + 3)) == 0} == cleared


@both_readings
def test_who_counts_the_vectors_of_a_timestep(reading: str) -> None:
    """Timestep 16 lies behind 2 vectors of 16 timesteps as the manager says, behind 1 as the engine says."""
    for behaviour, at in ((HARDWARE, 32), (PUBLISHED, 16)):
        words = {"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 16, "num_timestep_2": 17}
        sim = device(behaviour, reading, config_gb_core_mem_mngr_large={"num_vector_0": 2}, config_gb_zero_padding=words)
        for vector in (16, 32):
            sim.write(LARGE + 16 * vector, row(0x21))
        sim.write(0x3300_0040, 0)
        assert [sim.read(LARGE + 16 * v) == 0 for v in (16, 32)] == [at == 16, at == 32]


@both_readings
@pytest.mark.parametrize(("mode", "times"), [(1, {HARDWARE: (0, 0), PUBLISHED: (0, 0)}), (2, {HARDWARE: (0, 1), PUBLISHED: (3, 3)})])
def test_bidirectional_timesteps(mode: int, times: dict[str, tuple[int, int]], reading: str) -> None:
    """Of one timestep: backward, the hardware reads 0 and writes 1, the published model reads and writes 3."""
    for behaviour, (read, written) in times.items():
        sim = layer(behaviour, reading, mode=mode)
        for t in range(4):
            sim.write(LARGE + 16 * t, row(0x20 + t))
        finished(sim)
        assert bytes(sim.state("input_buffer")[0, 0]) == bytes([0x20 + read] * 16)
        assert {t for t in range(4) if sim.read(LARGE + 16 * (64 + t)) == row(0x42)} == {written}


@both_readings
def test_activation_registers_between_starts(reading: str) -> None:
    """A program that only sends R0 sends what the run before has left there."""
    for behaviour, code in ((HARDWARE, 0x42), (PUBLISHED, 0x00)):
        sim = finished(layer(behaviour, reading))
        for pe in range(4):
            sim.issue(f"pe{pe}_config_act_vector_0_15", instructions=int.from_bytes(bytes((0x40, 0x34)), "little"))
        assert finished(sim).read(LARGE + 16 * 64) == row(code)


@both_readings
def test_the_base_of_the_activation_buffer(reading: str) -> None:
    """The hardware keeps five bits of it."""
    for behaviour in (HARDWARE, PUBLISHED):
        sim = layer(behaviour, reading, (0x30, 0x20))
        word = 1 | 7 << 16 | 2 << 24 | 1 << 32 | 33 << 48
        sim.write(0x3480_0010, word)
        assert finished(sim).read(ACT + 16) == (row(0x42) if behaviour == HARDWARE else 0)


def test_where_the_scores_of_attention_wrap() -> None:
    """Vector 256 of the scores of 1,040 rows of zeros: behind the others, or in place of the first, which codes overwrite."""
    masked = (-(1 << 26)).to_bytes(4, "little", signed=True) * 4
    for behaviour in (HARDWARE, PUBLISHED):
        words = {"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 1040, "memory_index_2": 0}
        sim = device(
            behaviour, "arrays", config_gb_core_mem_mngr_large={"num_vector_0": 1}, config_gb_core_mem_mngr_small={"base_7": 8},
            config_gb_attention=words,
        )  # fmt: skip
        sim.write(0x3300_0050, 0)
        sim.wait_for_interrupt()
        assert (sim.read(SMALL + 16 * (8 + 256)) == int.from_bytes(masked, "little")) == (behaviour == PUBLISHED)
        assert sim.read(SMALL + 16 * (8 + 255)) == int.from_bytes(masked, "little")


def test_the_differences_are_on_the_page() -> None:
    page = markdown(ila_blocks(model(HARDWARE)))
    assert "## What behaviour decides" in page
    assert "| LayerReduce modes 3…7 | add | does not end |" in page
