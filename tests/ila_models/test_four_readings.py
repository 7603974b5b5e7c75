"""Instruction words drawn at random: they decode to what they were assembled from, and all four readings leave the same state.

HVX's instructions run on drawn states, refused accesses among them; GeneSys's in programs of drawn layers, whose control state
says where each of them works. C, which has no device of its own, works on copies of the state before each instruction.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from genesys_programs import SMALL, operands, small, weight_bytes, words
from printed_c import Library, needs_gcc

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila, Instruction, Stream, assemble
from rewrite_compiler.ila.mmio import split_lanes
from rewrite_compiler.ila_models import hvx
from rewrite_compiler.lang import Leaf
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lowering.lower import lower_step
from rewrite_compiler.readings.arrays.labelled_array import Data, storage_dtype
from rewrite_compiler.readings.c.printer import NoC, Tables, print_c
from rewrite_compiler.targets.genesys.systolic import Layer, layer_words

READINGS = ("oracle", "arrays", "native")
BYTES = 1 << 12
REDUCTION = 32  # the reserved bits that tell a reduction loop from another
MODELS = {"hvx": hvx.build, "genesys": small}
State = dict[Leaf, Data]


class InC:
    """The instructions of a model as C functions on copies of a simulator's memories."""

    def __init__(self, instructions: Iterable[Instruction], folder: Path) -> None:
        tables, printed = Tables(), []
        self.instructions: set[str] = set()
        for i in instructions:
            try:
                printed.append(print_c(lower_step(i.update), f"f_{i.name}", tables))
            except NoC:  # more than a word holds
                continue
            self.instructions.add(i.name)
        self.library = Library(printed, tables, folder)

    def run(self, sim: Stream, i: Instruction, fields: dict[str, int]) -> State | None:
        """Return the state after an instruction; None where it is refused."""
        memories = copied(sim)
        for name, o in i.operands.items():
            memories[o.leaf] = np.full(static_shape(o.leaf), fields[name], storage_dtype(o.leaf.interval))
        function = self.library.functions[f"f_{i.name}"]
        answer = self.library.run(function.name, {m: memories[m] for m in function.memories})
        return None if answer else memories


def copied(sim: Stream) -> State:
    return {leaf: np.array(memory.data) for leaf, memory in sim.memories.items()}


def put(sim: Stream, state: State) -> None:
    for leaf, x in state.items():
        sim.memories[leaf].data[...] = x
    sim.machine.invalidate(frozenset(state))


def differing(sim: Stream, state: State | None, was_refused: bool) -> list[str]:
    """Return the states that differ from another reading's."""
    if state is None or was_refused:
        return [] if (state is None) == was_refused else ["refused"]
    return [leaf.name for leaf, memory in sim.memories.items() if not np.array_equal(memory.data, state[leaf])]


def drawn_fields(draw: np.random.Generator, i: Instruction) -> dict[str, int]:
    """Return values of the fields, their ends half of the time."""
    ranges = {name: (int(o.leaf.interval[0] or 0), int(o.leaf.interval[1] or 0)) for name, o in i.operands.items()}
    return {name: int(draw.choice(ends) if draw.random() < 0.5 else draw.integers(*ends, endpoint=True)) for name, ends in ranges.items()}


@pytest.mark.parametrize("name", MODELS)
def test_words_decode_to_what_they_were_assembled_from(name: str) -> None:
    model, draw = MODELS[name](), np.random.default_rng(30)
    sim = model.simulator()
    wrong = []
    for i in model.instructions.values():
        for _ in range(8):
            fields = drawn_fields(draw, i)
            fields |= {name: REDUCTION if i.name == "sa_reduction_loop" else 0 for name in fields if name.startswith("reserved")}
            command = assemble(i, **fields)
            found = sim.decode(command)
            decoded = {n: int(x[0]) for n, x in sim._executable(i).operands(split_lanes(model, command)).items()}
            if found is not i or decoded != fields:
                wrong.append(f"{i.name} {fields}: {found and found.name} {decoded}")
    assert wrong == []


# -- HVX: any state


def drawn_state(draw: np.random.Generator, sim: Stream) -> State:
    """Return contents of all states: vectors at their ends or any, addresses in memory or anywhere."""
    state = {}
    for s in sim.ila.states.values():
        if s.name.startswith("dram_"):
            continue
        shape, (low, high) = sim.memories[s.leaf].data.shape, s.leaf.interval
        any_word = draw.integers(low or 0, high or 0, shape, endpoint=True)
        ends = draw.choice([low or 0, high or 0, (high or 0) // 2, (high or 0) // 2 + 1], shape)
        state[s.leaf] = np.where(draw.random(shape) < draw.choice([0, 0.5, 1]), ends, any_word)
        if s.name == "r":
            state[s.leaf] = np.where(draw.random(shape) < 0.8, draw.integers(1200, BYTES - 1400, shape), state[s.leaf])
    return state


@pytest.fixture(scope="module")
def model() -> Ila:
    return hvx.build()


@pytest.mark.parametrize("part", range(4))
@needs_gcc
def test_hvx(model: Ila, part: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(part)
    chosen = list(model.instructions.values())[part::4]
    in_c, wrong = InC(chosen, tmp_path), []
    sims = [model.simulator(dram=np.zeros(BYTES, np.uint8), reading=r) for r in READINGS]
    refused = 0
    for i in chosen:
        for _ in range(3):
            fields, state = drawn_fields(draw, i), drawn_state(draw, sims[0])
            after, was_refused = [], []
            for sim in sims:
                put(sim, state)
                after.append(in_c.run(sim, i, fields) if sim is sims[0] else None)
                was_refused.append(is_refused(sim, i, fields))
            refused += was_refused[0]
            found = [differing(sims[0], after[0], was_refused[0])]
            found += [differing(s, copied(s) if not no else None, was_refused[0]) and differing(sims[0], copied(s), False)
                      for s, no in zip(sims[1:], was_refused[1:], strict=True)]  # fmt: skip
            wrong += [f"{i.name} {fields}: {x}" for x in found if x]
    assert in_c.instructions == {i.name for i in chosen}
    assert wrong == []
    assert 0 < refused < len(chosen)


def is_refused(sim: Stream, i: Instruction, fields: dict[str, int]) -> bool:
    try:
        sim.execute(i, {name: [value] for name, value in fields.items()})
    except SpecError:
        return True
    return False


# -- GeneSys: programs of layers


LAYERS = (
    Layer(SMALL, 2, 2, 4, (3, 2), (4, 4), (2, 1), tic=1, toc=2, toh=2),
    Layer(SMALL, 1, 4, 2, (3, 3), (2, 3), tic=2, toc=1, toh=1, relu=True),
)


@needs_gcc
@pytest.mark.parametrize("m", LAYERS, ids=["bias alone", "relu"])
def test_genesys(m: Layer, tmp_path: Path) -> None:
    """C does what machine code does to every word of a program, and both what the oracle does."""
    model = small()
    in_c, wrong = InC(model.instructions.values(), tmp_path), []
    x, w, bias = operands(m, LAYERS.index(m))
    sims = {r: model.simulator(reading=r) for r in READINGS}
    for sim in sims.values():
        ports = {"param": np.concatenate([bias.view(np.uint8), weight_bytes(m, w)]), "ibuf": x.reshape(-1).view(np.uint8)}
        ports |= {name: np.zeros(m.bytes["obuf"], np.uint8) for name in ("obuf", "simd")}
        for port, contents in ports.items():
            sim.give(f"dram_{port}", contents)
    sim, tried = sims["native"], set()
    for word in words(model, layer_words(m)):
        i = sim.decode({"data": word})
        assert i is not None
        fields = {n: int(v[0]) for n, v in sim._executable(i).operands(split_lanes(model, {"data": word})).items()}
        after = in_c.run(sim, i, fields) if i.name in in_c.instructions else None
        sim.execute(i, {name: [value] for name, value in fields.items()})
        if i.name in in_c.instructions:
            tried.add(i.name)
            wrong += [f"{i.name} {fields}: {name}" for name in differing(sim, after, False)]
    for reading in ("oracle", "arrays"):
        sims[reading].run(words(model, layer_words(m)))
        wrong += [f"{reading}: {name}" for name in differing(sim, copied(sims[reading]), False)]
    assert {"sync_inst", "block_end", "sa_loop_cfg"} <= tried
    assert wrong == []
