"""Layers of random sizes, modes, formats and activation programs against the specification's own loops."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from flexasr_reference import Element, Layer, Machine, Manager

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila_models.flexasr import build

MEMORIES = ("large", "small", "weight", "input_buffer", "act_buffer", "act_regs", "cluster_table")
PLAIN = (0x0, 0x1, 0x2, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF)  # all but INPE


@cache
def model() -> Ila:
    return build()


def random_element(rng: np.random.Generator, pe: int, managers: int) -> Element:
    """One whose program takes the results that its core makes: `takes` of them for every output vector."""

    def pick(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    outputs, takes = pick(1, 2), managers * pick(1, 2)
    codes = [0x30 | pick(0, 3) << 2] * takes + [int(rng.choice(PLAIN)) << 4 | pick(0, 15) for _ in range(pick(1, 12))]
    program = (*rng.permutation(codes).tolist(), 0x40)
    return Element(
        pick(0, 1), pick(0, 1), pick(0, 1), outputs * takes // managers,
        tuple(
            Manager(pick(0, 1), pick(0, 7), pick(0, 7), pick(0, 7), pick(0, 2), pick(0, 65535), pick(0, 255), pick(0, 255))
            for _ in range(managers)
        ),
        pick(0, 1), pick(0, 7), outputs, pick(0, 31), 2 * pe + pick(0, 1) * 248, program,
    )  # fmt: skip


def random_layer(rng: np.random.Generator, mode: int) -> Layer:
    def pick(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    managers = pick(1, 2)
    return Layer(
        mode, pick(0, 1) if managers == 2 else 0, pick(0, 7), pick(0, 7), pick(0, 3), pick(0, 3), pick(1, 3),
        tuple((pick(0, 255), pick(0, 65535)) for _ in range(4)), tuple(pick(0, 65535) for _ in range(8)),
        tuple(random_element(rng, pe, managers) for pe in range(4)),
    )  # fmt: skip


def packed(*fields: tuple[int, int]) -> int:
    return sum(value << low for value, low in fields)


def configure(sim: Simulator, layer: Layer) -> None:
    """Write the words of section 3, packed by hand."""
    sim.write(0x33400010, packed(*(x for k, (n, base) in enumerate(layer.large) for x in ((n, 32 * k), (base, 32 * k + 16)))))
    sim.write(0x33400020, packed(*((base, 16 * k) for k, base in enumerate(layer.small))))
    fields = ((1, 0), (layer.mode, 8), (layer.is_rnn, 16), (layer.index_1, 32), (layer.index_2, 40), (layer.vectors_1, 48))
    sim.write(0x33700010, packed(*fields, (layer.vectors_2, 56), (layer.timesteps, 64)))
    for pe, e in enumerate(layer.elements):
        at = 0x34000000 + pe * 0x01000000
        flags = ((1, 0), (e.zero_first, 8), (e.cluster, 16), (e.bias, 24))
        sim.write(at + 0x400010, packed(*flags, (len(e.managers), 32), (e.num_output, 40)))
        for m, address in zip(e.managers, (0x400020, 0x400040), strict=False):
            formats = ((m.zero_active, 0), (m.bias_w, 8), (m.bias_b, 16), (m.bias_i, 24))
            sim.write(at + address, packed(*formats, (m.num_input, 32), (m.base_weight, 48), (m.base_bias, 64), (m.base_input, 80)))
        act = ((1, 0), (e.act_zero_first, 8), (e.act_bias, 16), (len(e.program), 24), (e.act_outputs, 32))
        sim.write(at + 0x800010, packed(*act, (e.buffer_base, 48), (e.output_base, 64)))
        for half in range(2):
            sim.write(at + 0x800020 + 16 * half, packed(*((code, 8 * n) for n, code in enumerate(e.program[16 * half :][:16]))))


def compare(reading: str, layer: Layer, rng: np.random.Generator) -> None:
    """Run a layer on random memories; all of them are compared."""
    sim = Simulator(model(), reading=reading)
    leaves = {name: sim.memories[model().states[name].leaf] for name in MEMORIES}
    for name, memory in leaves.items():
        low, high = (-(1 << 19), 1 << 19) if name == "act_regs" else (0, 256)
        memory.data[...] = rng.integers(low, high, memory.data.shape)
    reference = Machine({name: np.array(memory.data).reshape(model().states[name].leaf.shape) for name, memory in leaves.items()})
    configure(sim, layer)
    sim.write(0x33000010, 0)
    sim.wait_for_interrupt()
    before = reference.m["act_regs"].copy()
    reference.control(layer)
    assert (reference.m["act_regs"] != before).any()
    for name in MEMORIES:
        found = np.asarray(sim.state(name)).reshape(reference.m[name].shape)
        assert np.array_equal(found, reference.m[name]), (name, layer)


@pytest.mark.parametrize("mode", range(4), ids=["unidirectional", "forward", "backward", "decoder"])
@pytest.mark.parametrize("reading", ["oracle", "arrays"])
def test_random_layers_and_programs(reading: str, mode: int) -> None:
    """Any activation program, clustered weights, both managers, and addresses that wrap."""
    rng = np.random.default_rng(90 + mode)
    for _ in range(1 if reading == "oracle" else 2):
        compare(reading, random_layer(rng, mode), rng)
