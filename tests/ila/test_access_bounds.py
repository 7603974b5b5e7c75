"""Access bounds hold what exact analyses find, in random control states of all shipped accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila, ila
from rewrite_compiler.ila.model import CONTROL, Instruction
from rewrite_compiler.ila.simulation import read_sets
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.lang.binders import Leaf, static_shape
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.readings.state.access_bounds import AccessBounds
from rewrite_compiler.readings.state.footprint import footprint


def drawn(leaf: Leaf, shape: tuple[int, ...], random: np.random.Generator) -> Data:
    """Return small values of a leaf: grids of large fields take long, and most are refused."""
    low, high = (int(n or 0) for n in leaf.interval)
    return np.clip(random.integers(-2, 7, shape, endpoint=True), low, high)


def states_of(model: Ila, random: np.random.Generator) -> Simulator:
    """Return a simulator with random control state."""
    sim = model.simulator(strict=True) if not model.externals else model.simulator(dram=bytearray(1 << 16), strict=True)
    attached = {leaf for e in model.externals.values() for leaf in (e.base, e.size)}
    for s in model.states.values():
        if s.binding == CONTROL and s.leaf not in attached:
            data = sim.memories[s.leaf].data
            data[...] = drawn(s.leaf, data.shape, random).astype(data.dtype)
    return sim


def is_inside(elements: Mapping[Leaf, list[Data]], bounds: Mapping[Leaf, tuple[int, int]], sizes: Mapping[Leaf, int]) -> bool:
    """Tell whether all elements of the memories lie within bounds."""
    for memory, parts in elements.items():
        numbers = np.concatenate(parts)
        numbers = numbers[(numbers >= 0) & (numbers < sizes[memory])]
        low, high = bounds.get(memory, (1, 0))
        if ((numbers < low) | (numbers > high)).any():
            return False
    return True


def compared(sim: Simulator, i: Instruction, operands: Mapping[str, Any]) -> tuple[AccessBounds, bool] | None:
    """Return bounds of an instruction, and whether its footprint is inside; None where the model refuses the state."""
    memories = frozenset(s.leaf for s in sim.ila.states.values() if s.is_memory and s.leaf.shape and s.binding != CONTROL)
    sizes = {leaf: int(np.prod(sim.memories[leaf].element_shape)) for leaf in memories}
    bounds = read_sets.instruction_bounds(sim.ila, sim.memories, i, operands)
    sim._executable(i).bind(operands)
    try:
        exact = footprint(sim.machine, i.update, memories)
    except (SpecError, MemoryError):
        return None
    return bounds, is_inside(exact.reads, bounds.reads, sizes) and is_inside(exact.writes, bounds.writes, sizes)


@pytest.mark.parametrize("name", ["vta", "hlscnn", "flexasr"])
def test_bounds_hold_footprints(name: str) -> None:
    random, model = np.random.default_rng(3), ila(name)
    found = 0
    for _ in range(3):
        sim = states_of(model, random)
        for i in list(model.instructions.values())[:: 3 if name == "flexasr" else 1]:
            operands = {n: drawn(o.leaf, static_shape(o.leaf), random).reshape(-1).tolist() for n, o in i.operands.items()}
            result = compared(sim, i, operands)
            if result is not None and (result[0].reads or result[0].writes):
                assert result[1], (i.name, operands)
                found += 1
    assert found >= 10


def test_bounds_are_exact_where_addresses_run_on() -> None:
    model = ila("vta")
    sim = model.simulator(dram=bytearray(1 << 16), strict=True)
    i = model.instructions["load_inp"]
    fields = {"sram_base": 3, "dram_base": 7, "y_size": 2, "x_size": 4, "x_stride": 4}
    operands = {n: [fields.get(n, 0)] for n in i.operands}
    bounds = read_sets.instruction_bounds(model, sim.memories, i, operands)
    inp = model.states["inp"].leaf
    assert bounds.writes[inp] == (3 * 16, 11 * 16 - 1)
    assert [m.name for m in bounds.reads] == ["dram"]
    nothing = read_sets.instruction_bounds(model, sim.memories, i, {**operands, "y_size": [0]})
    assert (nothing.reads, nothing.writes) == ({}, {})


@pytest.mark.parametrize(("micro_ops", "outer", "inner"), [(3, 5, 7), (1, 1, 1), (0, 5, 7), (2, 0, 4)])
def test_values_are_counted_by_loops_and_addends(micro_ops: int, outer: int, inner: int) -> None:
    """A micro-op of VTA's product computes 16 sums of 16 addends, and narrows them."""
    model = ila("vta")
    sim = model.simulator(dram=bytearray(1 << 16), strict=True)
    fields = {"uop_end": micro_ops, "iter_out": outer, "iter_in": inner}
    operands = {n: [fields.get(n, 0)] for n in model.instructions["gemm"].operands}
    count = read_sets.instruction_values(model, sim.memories, model.instructions["gemm"], operands)
    passes = micro_ops * outer * inner
    assert passes * 16 * 16 <= count <= passes * (16 * 16 + 4 * 16)
