"""HLSCNN against what its designs computed: every trace in both readings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from vectors import arrays, traces

from rewrite_compiler.errors import FlexmatchError, SpecError
from rewrite_compiler.ila import Ila, Instruction
from rewrite_compiler.ila.simulation.simulator import DeviceHang, Simulator
from rewrite_compiler.ila_models.hlscnn import build
from rewrite_compiler.lang import Step
from rewrite_compiler.lang.step import NOTHING, assign
from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.target import find_target

TRACES = traces("hlscnn")
RESULTS = arrays("hlscnn", "results.npz")
READINGS = ("oracle", "arrays")
ORIG_SPAD1, EXT_SPAD1 = 0x2_4000, 0x80_0000


@cache
def model(revision: str) -> Ila:
    return build(revision=revision)


def simulator(revision: str, reading: str = "arrays", *, strict: bool = False) -> Simulator:
    return Simulator(model(revision), reading=reading, strict=strict)


def replay(sim: Simulator, trace: list[list[Any]]) -> dict[int, list[int]]:
    """Run a trace; return the eight words that each read gave, by address."""
    reads = {}
    for mode, address, data, virtual in trace:
        if mode == "W":
            sim.write(int(address, 16), int(data, 16), virtual=virtual)
        else:
            reads[int(address, 16)] = words(sim.read(int(address, 16), virtual=virtual))
    return reads


def words(vector: int) -> list[int]:
    return np.frombuffer(vector.to_bytes(16, "little"), "<i2").tolist()  # type: ignore[no-any-return]


# -- golden vectors


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", TRACES)
def test_trace(name: str, reading: str) -> None:
    """Every 16-bit word of SPAD1 after the trace, and every word that the host reads."""
    trace, want = TRACES[name], RESULTS[f"{name}.spad1_after"]
    sim = simulator(trace["design"], reading)
    reads = replay(sim, trace["trace"])
    found = sim.state("spad1").view("<i2").reshape(-1, 8)
    assert np.array_equal(found[: len(want)], want)
    assert not found[len(want) :].any()
    assert reads == {a: found[(a - trace["spad1_base"]) // 16].tolist() for a in reads}
    assert reads


# -- commands


def test_register_value_lies_at_the_offset_of_the_address() -> None:
    """Register 5 is carried in bits 63:32 of the bus; from offset 12 on a value is the last four bytes."""
    sim = simulator("ext8")
    for address, low in ((0x3200_0014, 32), (0x14, 32), (0x3200_0016, 48), (0x14 + 120, 96), (0x17 + 120, 96)):
        sim.write(address, 0x8765_4321 << low | 0x11 << low - 8)
        assert sim.state("soc_mem_length") == 0x8765_4321, hex(address)
        sim.write(0x3200_0014, 0)


def test_identical_commands_execute_each_time() -> None:
    """Two triggers with accumulation on: the second adds to the result of the first."""
    sim = simulator("ext8")
    for _ in range(2):
        replay(sim, TRACES["ext8__k1s2"]["trace"][:-16])
    once = RESULTS["ext8__k1s2.spad1_after"]
    assert np.array_equal(sim.state("spad1").view("<i2").reshape(-1, 8)[: len(once)], once)
    sim.issue("cfg_wr_conv_channels", filters=TRACES["ext8__k1s2"]["convs"][0]["filters"], accumulate=1)
    sim.issue("accel_conv_trigger")
    twice = np.clip(2 * once.astype(int), -(1 << 15), (1 << 15) - 1)
    assert np.array_equal(sim.state("spad1").view("<i2").reshape(-1, 8)[: len(once)], twice)


def test_fill_copies_vectors_and_read_keeps_words() -> None:
    sim = simulator("ext8")
    payload = [int.from_bytes(bytes(range(16 * n, 16 * n + 16)), "little") for n in range(3)]
    for n, data in enumerate(payload):
        sim.write(0x123_4560 + 16 * n, data, virtual=True)
    sim.write(0x3200_0010, 0x123_4560)
    sim.write(0x3200_0014, 3 << 32)
    sim.write(EXT_SPAD1 + 0x40, 0xDEAD)
    assert [sim.read(EXT_SPAD1 + 0x40 + 16 * n) for n in range(4)] == [*payload, 0]
    sim.read(EXT_SPAD1 + 0x50)
    assert sim.state("virtual_output")[EXT_SPAD1 + 0x50 : EXT_SPAD1 + 0x60 : 2].tolist() == words(payload[1])
    assert sim.read(0x3200_0014) == 0
    assert sim.read(EXT_SPAD1 + 0x40, virtual=True) == 0


@pytest.mark.parametrize("reading", READINGS)
def test_a_block_of_reads_does_what_the_reads_do(reading: str) -> None:
    one, many = simulator("ext8", reading), simulator("ext8", reading)
    for sim in (one, many):
        sim.memories[sim.ila.states["spad1"].leaf].data[:64] = np.arange(64)
    offsets = np.arange(0, 48, 16)
    given = many.block("spad1_data_rd", 3, {"offset": offsets})
    assert given is not None
    for n, offset in enumerate(offsets):
        assert sum(int(b) << 8 * i for i, b in enumerate(given[n].reshape(-1))) == one.issue("spad1_data_rd", offset=int(offset))
    assert many.state("virtual_output").any()
    assert np.array_equal(many.state("virtual_output"), one.state("virtual_output"))


def test_both_directions_or_none_is_no_command() -> None:
    sim = simulator("ext8")
    sim.command({"wr": 1, "rd": 1, "addr": 0x3200_0014, "data": 5 << 32})
    sim.command({"wr": 0, "rd": 0, "addr": 0x3200_0014, "data": 5 << 32})
    sim.write(0x3200_0079, 5)
    assert sim.state("soc_mem_length") == 0
    assert sim.executed == 0


def test_every_command_assembles_to_itself() -> None:
    """What the assembler makes of an instruction is decoded as that instruction, with the same operands."""
    for revision in ("orig", "ext8"):
        for name, instruction in model(revision).instructions.items():
            sim = simulator(revision)
            scalars = {k: min(3, o.leaf.interval[1] or 0) for k, o in instruction.operands.items() if not o.leaf.shape}
            lanes = {k: 0x0F0E_0D0C for k, o in instruction.operands.items() if o.leaf.shape}
            if name.endswith("_data_wr"):
                sim.issue("cfg_wr_soc_mem_length", length=1)
            before = sim.executed
            sim.issue(name, **scalars, **lanes)
            assert sim.executed == before + 1, name
            if name.startswith("cfg_wr_"):
                values = {k: int(v) for k, v in ((s, sim.state(s)) for s in sim.ila.states if s not in MEMORIES) if v}
                assert sorted(values.values()) == sorted(scalars.values()), name


MEMORIES = ("soc", "spad0", "spad1", "virtual_output")

# -- refusals


PARAMETERS = {
    "revision": (
        {"revision": "ext32"},
        'parameter revision of hlscnn must be one of orig, ext8, ext16, uni16, ext16_a3p16, ext16_a3p8, not "ext32"',
    ),
    "name": ({"weigth_bits": 8}, 'hlscnn has no parameter "weigth_bits"'),
    "choice": ({"weight_bits": 4}, "parameter weight_bits of hlscnn must be one of 8, 16, not 4"),
    "range": ({"act_int_bits": 16}, "parameter act_int_bits of hlscnn must be an integer in 1…15, not 16"),
    "kind": ({"act_int_bits": "3"}, "parameter act_int_bits of hlscnn must be an integer in 1…15, not 3"),
    "truth": ({"act_int_bits": True}, "parameter act_int_bits of hlscnn must be an integer in 1…15, not True"),
    "fractions": (
        {"psum_int_bits": 26, "act_int_bits": 9},
        "partial sums must have more fraction bits than activations, not 6 against 7",
    ),
    "multiple": ({"spad_bytes": 100}, "parameter spad_bytes of hlscnn must be a multiple of 16, not 100"),
    "room": (
        {"spad1_base": 0xF0_0000},
        "both scratchpads of 0x7fc000 bytes must lie between 0x4000 and 0x1000000, not SPAD1 at 0xf00000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameter_is_refused(case: str) -> None:
    parameters, sentence = PARAMETERS[case]
    with pytest.raises(FlexmatchError) as refusal:
        build(**parameters)
    assert refusal.value.problem.sentence == sentence


def configured(sim: Simulator, **changes: int) -> None:
    """Configure a 1×1 convolution of 8 channels and one filter on 2×2 pixels, with changes."""
    values = {"row_stride": 1, "col_stride": 1, "kernel_rows": 1, "kernel_cols": 1, "rows": 2, "cols": 2, "channels": 8}
    values |= {"out_rows": 2, "out_cols": 2, "filters": 1, "act": 0, **changes}
    v = values
    sim.issue("cfg_wr_conv_act_base", base=v["act"])
    sim.issue("cfg_wr_conv_input_size", channels=v["channels"], rows=v["rows"], cols=v["cols"])
    sim.issue("cfg_wr_conv_output_size", channels=v["filters"], rows=v["out_rows"], cols=v["out_cols"])
    sizes = {k: v[f"kernel_{k}"] for k in ("rows", "cols")}
    sim.issue("cfg_wr_conv_kernel_size", row_stride=v["row_stride"], col_stride=v["col_stride"], **sizes)
    sim.issue("cfg_wr_conv_channels", filters=v["filters"])


VALID = "rows and columns in ConvOutputSize must be 1…(input − kernel) / stride + 1: the device does not pad"
REFUSED = {
    "stride": ({"row_stride": 0}, "both strides in ConvKernelSize must be 1…7, not 0"),
    "kernel": ({"kernel_cols": 0}, "both kernel sizes in ConvKernelSize must be 1…255, not 0"),
    "input": ({"rows": 0}, "rows and columns in ConvInputSize must be 1…1023, not 0"),
    "channels": ({"channels": 2048}, "channels in ConvInputSize must be 1…2047"),
    "no channels": ({"channels": 0}, "channels in ConvInputSize must be 1…2047"),
    "filters": ({"filters": 0}, "filters in ConvChannelCfg must be 1…2047"),
    "padding": ({"kernel_rows": 2}, VALID),
    "strided": ({"col_stride": 2}, VALID),
    "weights": (
        {"channels": 2047, "filters": 2047, "kernel_rows": 2, "out_rows": 1},
        "the weights of a convolution must lie inside SPAD0",
    ),
    "activations": ({"act": (1 << 28) - 48}, "the activations of a convolution must lie inside the SoC memory"),
    "outputs": (
        {"rows": 1023, "cols": 1023, "out_rows": 1023, "out_cols": 1023},
        "the outputs of a convolution must lie inside SPAD1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("case", REFUSED)
def test_strict_simulation_refuses(case: str, reading: str) -> None:
    changes, sentence = REFUSED[case]
    sim = simulator("ext8", reading, strict=True)
    configured(sim, **changes)
    with pytest.raises(SpecError) as refusal:
        sim.issue("accel_conv_trigger")
    assert refusal.value.problem.sentence == sentence


ACCESSES = {
    "fill of nothing": (0, 0, 0x4000, "a scratchpad fill must copy at least one vector, but SocMemRdWrLength is 0"),
    "end of scratchpad": (0, 2, 0x4000 + 0x7F_BFF0, "a fill of spad0 must end inside spad0"),
    "end of SoC memory": ((1 << 28) - 16, 2, 0x4000, "a fill of spad0 must read inside the SoC memory"),
}


@pytest.mark.parametrize("case", ACCESSES)
def test_strict_simulation_refuses_fill(case: str) -> None:
    base, length, address, sentence = ACCESSES[case]
    sim = simulator("ext8", strict=True)
    sim.issue("cfg_wr_soc_mem_base", base=base)
    sim.issue("cfg_wr_soc_mem_length", length=length)
    with pytest.raises(SpecError) as refusal:
        sim.write(address, 0)
    assert refusal.value.problem.sentence == sentence


def test_strict_simulation_refuses_unaligned_ends() -> None:
    sim = simulator("ext8", strict=True)
    with pytest.raises(SpecError) as refusal:
        sim.read(EXT_SPAD1 + 0x7F_BFF8)
    assert refusal.value.problem.sentence == "a read of 16 bytes must end inside spad1"
    with pytest.raises(SpecError) as refusal:
        sim.write((1 << 28) - 8, 1, virtual=True)
    assert refusal.value.problem.sentence == "a write of 16 bytes must end inside the SoC memory"
    with pytest.raises(SpecError) as refusal:
        sim.write(0x3300_0000, 1)
    assert refusal.value.problem.sentence == "no instruction of hlscnn decodes wr=0x1, addr=0x33000000, data=0x1"


# -- the interrupt


@pytest.mark.parametrize("reading", READINGS)
def test_wait_returns_once_for_each_convolution(reading: str) -> None:
    sim = simulator("ext8", reading)
    configured(sim)
    sim.issue("accel_conv_trigger")
    sim.wait_for_interrupt()
    with pytest.raises(DeviceHang) as refusal:
        sim.wait_for_interrupt()
    assert refusal.value.problem.sentence == "no interrupt can come: Convolution was not started (accel_conv_trigger)"


@pytest.mark.parametrize("reading", READINGS)
def test_convolution_without_stride_does_not_end(reading: str) -> None:
    sim = simulator("ext8", reading)
    configured(sim, col_stride=0)
    sim.issue("accel_conv_trigger")
    with pytest.raises(DeviceHang) as refusal:
        sim.wait_for_interrupt()
    assert refusal.value.problem.sentence == "no interrupt can come: Convolution does not end: a stride in ConvKernelSize is 0"


# -- the convolution in the order of the device


SMALL = {"soc_bytes": 1 << 12, "spad_bytes": 1 << 11}


def in_device_order(revision: str) -> Ila:
    """The model whose convolution goes tap by tap also where whole arrays would do."""
    m = build(revision=revision, **SMALL)
    trigger = m.instructions["accel_conv_trigger"]
    assert trigger.sequential is not None
    m.instructions[trigger.name] = replace(trigger, update=trigger.sequential)
    return m


def drawn_configuration(draw: np.random.Generator, revision: str) -> dict[str, int]:
    rows, cols, kernel_rows, kernel_cols = (int(n) for n in draw.integers(1, 5, 4))
    row_stride, col_stride = (int(n) for n in draw.integers(1, 4, 2))
    out_rows, out_cols = max((rows - kernel_rows) // row_stride, 0) + 1, max((cols - kernel_cols) // col_stride, 0) + 1
    spad1 = build(revision=revision, **SMALL).parameters["spad_bytes"] + 0x4000
    return {
        "rows": rows, "cols": cols, "kernel_rows": kernel_rows, "kernel_cols": kernel_cols, "row_stride": row_stride,
        "col_stride": col_stride, "out_rows": out_rows, "out_cols": out_cols, "channels": int(draw.integers(1, 18)),
        "filters": int(draw.integers(1, 11)), "act": spad1 + 2 * int(draw.integers(0, 300)) if revision == "uni16" else 16,
        "weights": 0x4000, "outputs": spad1 + 16 * int(draw.integers(0, 60)), "bias": int(draw.integers(-9000, 9000)),
        **{switch: int(draw.integers(2)) for switch in ("accumulate", "relu", "bias_on")},
    }  # fmt: skip


@pytest.mark.parametrize("revision", ["orig", "ext8", "uni16"])
def test_device_order_leaves_what_whole_arrays_leave(revision: str) -> None:
    """Every bias, ReLU, stride and padding; in the unified design outputs and activations may overlap, too."""
    draw, models = np.random.default_rng(6), (build(revision=revision, **SMALL), in_device_order(revision))
    changed = 0
    for _ in range(8):
        values, contents = drawn_configuration(draw, revision), {}
        left = []
        for m in models:
            sim = Simulator(m)
            configured(sim, **{k: v for k, v in values.items() if k not in ("weights", "outputs", "bias", "accumulate", "relu", "bias_on")})
            sim.issue("cfg_wr_conv_weight_base", base=values["weights"])
            sim.issue("cfg_wr_conv_output_base", base=values["outputs"])
            sim.issue("cfg_wr_conv_channels", **{k: values[k] for k in ("filters", "bias", "accumulate", "relu", "bias_on")})
            for name in ("soc", "spad0", "spad1"):
                data = sim.memories[m.states[name].leaf].data
                contents.setdefault(name, draw.integers(0, 256, data.size, dtype=np.uint8))
                data[:] = contents[name]
            sim.issue("accel_conv_trigger")
            left.append({name: sim.state(name).tolist() for name in ("soc", "spad0", "spad1", "conv_done", "conv_valid")})
        assert left[0] == left[1], values
        changed += left[0]["spad1"] != contents["spad1"].tolist()
    assert changed > 5


def test_the_driver_is_proved_in_the_order_of_the_device() -> None:
    """The court says of both forms of the convolution that they are what the numerics say: all codes of a size, every depth."""
    target = find_target("hlscnn")

    def verdict(update: Callable[[Ila, Instruction], Step]) -> tuple[str, str]:
        m = build(revision="ext8")  # not the one that the target has for all who ask
        trigger = m.instructions["accel_conv_trigger"]
        m.instructions[trigger.name] = replace(trigger, update=update(m, trigger))
        proof = prove_mapping(target.mappings["conv2d"], m)
        return proof.verdict, proof.strength

    in_order = verdict(lambda _, trigger: trigger.sequential or NOTHING)
    assert in_order == verdict(lambda _, trigger: trigger.update)
    assert in_order[0] == "proved"
    assert "symbolic" in in_order[1]
    assert "every c from 24 on by induction" in in_order[1]
    assert verdict(lambda m, _: assign(m.s.conv_done, 1))[0] == "refuted"
