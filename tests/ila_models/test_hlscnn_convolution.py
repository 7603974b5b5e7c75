"""HLSCNN convolutions of random sizes against the specification's own loops, and many samples against one at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hlscnn_reference import DESIGNS, Design, Layer, convolve

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila_models.hlscnn import build

READINGS = ("oracle", "arrays")
SOC = 1 << 16  # bytes of the SoC memory that the tests fill
WINDOW = 0x3200_0000


@cache
def model(revision: str) -> Ila:
    return build(revision=revision)


def registers(layer: Layer) -> dict[int, int]:
    """Return the configuration words, packed by hand as section 3.3 prints them."""
    bias = 0 if layer.bias is None else 1 << 16 | layer.bias & 0xFFFF
    return {
        18: layer.act_base & 0xFFFF_FFFF,
        19: layer.weight_base,
        20: layer.output_base,
        21: layer.channels << 20 | layer.rows << 10 | layer.cols,
        22: layer.filters << 20 | layer.out[0] << 10 | layer.out[1],
        23: layer.stride[0] << 19 | layer.stride[1] << 16 | layer.kernel[0] << 8 | layer.kernel[1],
        24: layer.filters << 19 | layer.accumulate << 18 | layer.relu << 17 | bias,
    }


def write(sim: Simulator, name: str, contents: bytes | np.ndarray[Any, Any]) -> None:
    """Put bytes at the start of a memory without commands."""
    memory = sim.memories[sim.ila.states[name].leaf]
    data = np.frombuffer(bytes(contents), np.uint8)
    memory.data[: len(data)] = data


def run(sim: Simulator, layer: Layer) -> None:
    for number, value in registers(layer).items():
        sim.write(WINDOW + 4 * number, value << 8 * (4 * number % 16))
    sim.write(WINDOW + 4 * 17, 0)
    sim.wait_for_interrupt()


def numbers(rng: np.random.Generator, size: int) -> bytes:
    """Random 16-bit words: small ones, all of them, or only extremes and ties."""
    kind = rng.integers(3)
    if kind == 0:
        values = rng.integers(-300, 300, size)
    elif kind == 1:
        values = rng.integers(-0x8000, 0x8000, size)
    else:
        values = rng.choice([-0x8000, 0x7FFF, 0, 32, -32, 1, -1, 0x4000], size)
    return values.astype("<i2").tobytes()


def random_layer(rng: np.random.Generator, d: Design) -> Layer:
    def pick(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    rows, cols, kernel, stride = pick(1, 6), pick(1, 6), (pick(1, 4), pick(1, 3)), (pick(1, 3), pick(1, 3))
    layer = Layer(
        rows, cols, pick(1, 18), pick(1, 10), kernel, stride, out=(pick(1, 6), pick(1, 6)), act_base=16 * pick(0, 9),
        bias=pick(-0x8000, 0x7FFF) if pick(0, 1) else None, relu=bool(pick(0, 1)), accumulate=bool(pick(0, 1)),
    )  # fmt: skip
    if not d.unified:
        return layer
    bases = {"act_base": d.spad1_base + 16 * pick(0, 40), "output_base": d.spad1_base + 16 * pick(0, 900) + 2 * pick(0, 1)}
    return Layer(**{**vars(layer), **bases, "weight_base": 0x4000 + 16 * pick(0, 9)})


def compare(revision: str, reading: str, layer: Layer, rng: np.random.Generator, made: tuple[Design, Ila] | None = None) -> None:
    """Run a layer on random memories; all of SPAD1 is compared."""
    d, ila = made or (DESIGNS[revision], model(revision))
    soc, spad0, spad1 = (bytearray(numbers(rng, min(n, d.spad_bytes) // 2)) for n in (SOC, 1 << 14, 1 << 15))
    sim = Simulator(ila, reading=reading)
    for name, contents in (("soc", soc), ("spad0", spad0), ("spad1", spad1)):
        write(sim, name, contents)
    run(sim, layer)
    rest = bytes(d.spad_bytes)
    spad1 += rest[len(spad1) :]
    convolve(d, layer, soc, spad0 + rest[len(spad0) :], spad1)
    assert sim.state("spad1").tobytes() == bytes(spad1), layer


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("revision", DESIGNS)
def test_random_convolutions(revision: str, reading: str) -> None:
    """Any sizes that registers can hold, outputs that no whole kernel reaches included."""
    rng = np.random.default_rng(70)
    for _ in range(10):
        compare(revision, reading, random_layer(rng, DESIGNS[revision]), rng)


EDGES = {
    "one pixel": Layer(1, 1, 1, 1, (1, 1), (1, 1), out=(1, 1)),
    "kernel larger than the input": Layer(2, 3, 9, 9, (5, 7), (1, 1), out=(2, 3), bias=-9000),
    "largest stride": Layer(9, 9, 8, 2, (3, 3), (7, 7), out=(2, 2)),
    "stride larger than the kernel": Layer(7, 8, 16, 8, (2, 1), (3, 4), out=(2, 2), relu=True),
    "no rows of output": Layer(4, 4, 8, 8, (3, 3), (1, 1), out=(0, 2)),
    "no channels": Layer(4, 4, 0, 8, (3, 3), (1, 1), out=(2, 2)),
    "no kernel": Layer(4, 4, 8, 8, (0, 3), (1, 1), out=(2, 2)),
    "more output rows than input rows": Layer(4, 4, 8, 9, (1, 1), (1, 1), out=(9, 3)),
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("revision", ["orig", "ext8", "ext16", "uni16"])
@pytest.mark.parametrize("case", EDGES)
def test_edge(case: str, revision: str, reading: str) -> None:
    d = DESIGNS[revision]
    layer = EDGES[case]
    if d.unified:
        layer = Layer(**{**vars(layer), "act_base": d.spad1_base, "output_base": d.spad1_base + 0x4000})
    compare(revision, reading, layer, np.random.default_rng(71))


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("offset", [0, 16, 48, -32, 2])
def test_outputs_on_activations(offset: int, reading: str) -> None:
    """In the unified design an output may replace an activation that later outputs read: the device's order counts."""
    base = DESIGNS["uni16"].spad1_base
    layer = Layer(3, 4, 16, 3, (2, 2), (1, 1), out=(2, 3), act_base=base + 64, output_base=base + 64 + offset)
    compare("uni16", reading, layer, np.random.default_rng(72))


@pytest.mark.parametrize("reading", READINGS)
def test_outputs_beyond_the_end_wrap(reading: str) -> None:
    """Nine filters of 3×3 pixels do not fit scratchpads of 64 vectors; addresses continue at the start."""
    d = replace(DESIGNS["orig"], spad_bytes=1024)
    ila = build(revision="orig", spad_bytes=1024)
    compare("orig", reading, Layer(3, 3, 1, 9, (1, 1), (1, 1), act_base=32), np.random.default_rng(73), (d, ila))


# -- many samples at once


def commands(sim: Simulator, layer: Layer, acts: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Write activations [vectors, samples, 16] and weights, run, and read the outputs: [vectors, samples, 16]."""
    woff = 16 * len(acts)
    sim.block("vir_mem_wr", len(weights), {"offset": woff + 16 * np.arange(len(weights)), "vector": weights})
    sim.issue("cfg_wr_soc_mem_length", length=len(weights))
    sim.issue("cfg_wr_soc_mem_base", base=woff)
    sim.issue("spad0_data_wr", offset=0)
    sim.block("vir_mem_wr", len(acts), {"offset": 16 * np.arange(len(acts)), "vector": acts}, frozenset({"vector"}))
    run(sim, layer)
    count = -(-layer.filters // 8) * layer.out[0] * layer.out[1]
    found = sim.block("spad1_data_rd", count, {"offset": 16 * np.arange(count)})
    assert found is not None
    return found


@pytest.mark.parametrize("revision", ["ext8", "ext16", "ext16_a3p8"])
def test_many_samples_are_each_what_one_is(revision: str) -> None:
    rng = np.random.default_rng(74)
    for bias, relu, accumulate in ((None, False, False), (-700, True, False), (900, False, True)):
        layer = Layer(5, 6, 11, 9, (3, 2), (2, 1), out=(2, 5), bias=bias, relu=relu, accumulate=accumulate)
        acts = np.frombuffer(numbers(rng, 2 * 30 * 3 * 8), np.uint8).reshape(60, 3, 16)
        weights = np.frombuffer(numbers(rng, 9 * 2 * 6 * 8), np.uint8).reshape(-1, 16)
        together = commands(Simulator(model(revision), samples=3), layer, acts, weights)
        for n in range(3):
            alone = commands(Simulator(model(revision), samples=1), layer, acts[:, n : n + 1], weights)
            assert np.array_equal(together[:, n : n + 1], alone)
            sim = Simulator(model(revision), reading="oracle")
            write(sim, "soc", acts[:, n].tobytes())
            write(sim, "spad0", weights.tobytes())
            run(sim, layer)
            assert np.array_equal(sim.state("spad1")[: alone.size], alone.reshape(-1))


@pytest.mark.parametrize("revision", ["ext8", "ext16"])
def test_large_layer(revision: str) -> None:
    """A layer of ResNet-20 on four samples: every output of the arrays reading against the loops at 40 places each."""
    d, rng = DESIGNS[revision], np.random.default_rng(75)
    layer = Layer(34, 34, 16, 16, (3, 3), (1, 1), out=(32, 32))
    acts = rng.integers(-600, 600, (2 * 34 * 34, 4, 8)).astype("<i2")
    weights = rng.integers(-0x8000, 0x8000, 16 * 2 * 9 * 4 * (d.weight_bits // 8)).astype("<i2").view(np.uint8).reshape(-1, 16)
    found = commands(Simulator(model(revision), samples=4), layer, acts.view(np.uint8), weights).view("<i2")
    outputs = found.reshape(2, 32, 32, 4, 8)
    for n in range(4):
        for row, col, f in rng.integers(0, (32, 32, 16), (40, 3)).tolist():
            patch = acts[:, n].reshape(2, 34, 34, 8)[:, row : row + 3, col : col + 3]
            width = len(weights.reshape(-1)) // 16
            one = Layer(3, 3, 16, 1, (3, 3), (1, 1), out=(1, 1))
            spad1 = bytearray(16)
            convolve(d, one, bytearray(patch.tobytes()), bytearray(weights.reshape(-1)[f * width : (f + 1) * width].tobytes()), spad1)
            assert outputs[f // 8, row, col, n, f % 8] == int.from_bytes(spad1[:2], "little", signed=True)
