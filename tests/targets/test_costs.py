"""Costs: FlexASR's formulas give every measured cycle count; the words a cost counts are those the driver moves."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.target import Cost, Resources, Target, find_target
from rewrite_compiler.target.mapping import Mapping as Operation
from rewrite_compiler.targets.flexasr import cost as flexasr
from rewrite_compiler.targets.vta.base import config

# published formulas at the sizes of the hardware's own runs: case → cycles from trigger to interrupt
MEASURED = {
    "attn_nv1_T16": 45, "attn_nv2_T16": 59, "attn_nv2_T32": 113, "attn_nv4_T32": 165, "lin_128x128_T2": 158, "lin_128x64_T1": 67,
    "lin_16x64_T1": 39, "lin_256x256_T1": 159, "lin_256x64_T2": 198, "lin_64x128_T1": 59, "lin_64x64_T1": 51, "lin_64x64_T1_tanh": 52,
    "lin_64x64_T2": 102, "lin_64x64_T4": 204, "lstm_128x64_T1": 150, "lstm_64x128_T1": 230, "lstm_64x64_T1": 122, "lstm_64x64_T2": 244,
    "maxpool_nv1_T2": 4, "maxpool_nv1_T4": 7, "maxpool_nv2_T4": 13, "maxpool_nv4_T16": 97, "norm_nv1_T1": 15, "norm_nv2_T1": 28,
    "norm_nv4_T1": 54, "norm_nv4_T2": 108, "zpad_nv1_T16": 32, "zpad_nv4_T16": 80,
}  # fmt: skip


def cycles_of(case: str) -> int:
    """Return what the formulas say of a case by its name: operation, sizes, timesteps."""
    t = int(re.search(r"_T(\d+)", case)[1])  # type: ignore[index]
    sizes = re.search(r"_(\d+)x(\d+)_", case)
    vectors = re.search(r"_nv(\d+)_", case)
    count = int(vectors[1]) if vectors else 0
    kind = case.partition("_")[0]
    if sizes is not None:
        inputs, per_element = int(sizes[1]) // 16, int(sizes[2]) // 64
        if kind == "lstm":
            return flexasr.recurrent_cycles(t, inputs, 4 * per_element, per_element, 4)
        return flexasr.linear_cycles(t, inputs, per_element, int(case.endswith("_tanh")))
    formulas = {
        "attn": flexasr.attention_cycles, "maxpool": flexasr.pooling_cycles, "norm": flexasr.norm_cycles, "zpad": flexasr.padding_cycles,
    }  # fmt: skip
    return formulas[kind](t, count)


@pytest.mark.parametrize("case", MEASURED)
def test_a_measured_case(case: str) -> None:
    assert cycles_of(case) == MEASURED[case]


@pytest.mark.shared
def test_every_entry_of_the_hardware_record(shared_dir: Path) -> None:
    record = json.loads((shared_dir / "golden" / "flexasr" / "cycles_hw.json").read_text())
    assert {row["case"]: row["cycles_trigger_to_irq"] for row in record} == MEASURED
    assert all(cycles_of(row["case"]) == row["cycles_trigger_to_irq"] for row in record)


@dataclass
class Counting:
    """A device that moves nothing and counts: words by instruction, bytes of external memory."""

    words: Counter[str] = field(default_factory=Counter)
    elements: Counter[str] = field(default_factory=Counter)  # that loads and stores move

    def issue(self, instruction: str, **operands: int) -> None:
        self.words["commands"] += 1
        kind, _, sort = instruction.partition("_")
        if kind in ("load", "store"):
            self.elements[sort or "out"] += operands["y_size"] * operands["x_size"]

    def store(self, instruction: str, **operands: Any) -> None:
        kind = "commands" if "config" in instruction else "data"
        self.words[kind] += np.shape(next(iter(operands.values())))[0]

    def load(self, instruction: str, **operands: Any) -> np.ndarray:
        count = np.shape(next(iter(operands.values())))[0]
        self.words["data"] += count
        return np.zeros((count, 16), np.int64)

    def wait(self) -> None:
        pass

    def attach(self, memory: str, words: int) -> None:
        pass

    def place(self, memory: str, address: int, words: np.ndarray) -> None:
        pass

    def fetch(self, memory: str, address: int, count: int) -> np.ndarray:
        return np.zeros(count, np.int64)


def priced(target: Target, m: Operation, sizes: Mapping[str, Any]) -> tuple[Cost, Counting]:
    """Return the cost of one call, and what its driver did."""
    attributes = {name: sizes[name] for name, _ in m.statics}
    dimensions = {d: n for d, n in sizes.items() if d not in attributes}
    resources = target.resources()
    assert isinstance(resources, Resources)
    cost = m.cost(dimensions, attributes, resources)
    assert cost is not None
    device = Counting()
    operands = {v.name: np.zeros([dimensions[d] for d in m.axes.of[v.name]], np.int64) for v in m.operands}
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    m.run_driver(device, operands, formats, attributes)
    return cost, device


FLEXASR = find_target("flexasr")
RECURRENT_AND_GLOBAL = ("lstm", "gru", "rnn", "layer_norm", "layer_norm_of_batch", "max_pool", "mean_pool", "add_pool", "attention")
CALLS: list[tuple[str, dict[str, Any]]] = [
    (name, {"h": 1, "t": t, "k": k, "n": n})
    for name in ("linear", "linear_tanh", "matmul")
    for t, k, n in ((1, 64, 64), (5, 33, 150))
] + [(name, dict(sizes)) for name in RECURRENT_AND_GLOBAL
     for sizes in FLEXASR.mappings[name].trials[:3] if not {"t": 256}.items() <= sizes.items()]  # fmt: skip


@pytest.mark.parametrize(("name", "sizes"), CALLS)
def test_flexasr_moves_the_words_that_its_cost_counts(name: str, sizes: dict[str, Any]) -> None:
    cost, device = priced(FLEXASR, FLEXASR.mappings[name], sizes)
    assert cost.moved["commands"] == 16 * device.words["commands"]
    assert cost.bytes == 16 * (device.words["commands"] + device.words["data"])
    assert cost.transfer_cycles * 16 == 7 * cost.bytes
    assert cost.estimated == (name in ("gru", "rnn"))  # never measured
    assert device.words["data"] > 0


@pytest.mark.parametrize("revision", ["ext8", "ext16", "orig", "uni16"])
@pytest.mark.parametrize("name", ["conv2d", "conv2d_relu", "conv2d_bias", "conv2d_bias_relu", "matmul"])
def test_hlscnn_moves_the_words_that_its_cost_counts(revision: str, name: str) -> None:
    target = find_target(f"hlscnn:revision={revision}")
    m = target.mappings[name]
    for trial in m.trials:
        if m.exceeded_limit({d: n for d, n in trial.items() if isinstance(n, int)}, trial) is not None:
            continue  # not every design holds it
        cost, device = priced(target, m, trial)
        assert cost.bytes == 16 * sum(device.words.values())
        assert cost.moved["commands"] == 16 * device.words["commands"]
        assert cost.estimated


VTA = {name: find_target("vta").mappings[name] for name in find_target("vta").mappings}
PRODUCTS: list[dict[str, Any]] = [{"h": 1, "t": 1, "k": 16, "n": 16}, {"h": 1, "t": 5, "k": 40, "n": 50}]


@pytest.mark.parametrize("design", ["vta", "vta:log_block=5,log_batch=1", "vta:behaviour=ila"])
@pytest.mark.parametrize("name", VTA)
def test_vta_moves_the_bytes_that_its_cost_counts(name: str, design: str) -> None:
    target = find_target(design)
    c = config(target.values)
    size = {sort: c.scalars(sort) for sort in ("inp", "wgt")} | {"acc": 4 * c.scalars("acc"), "out": c.scalars("acc"), "uop": 4}
    for sizes in VTA[name].trials or PRODUCTS:
        cost, device = priced(target, target.mappings[name], sizes)
        assert cost.bytes == sum(size[sort] * n for sort, n in device.elements.items()) + 16 * device.words["commands"]
        assert cost.moved["y"] == size["out"] * device.elements["out"]
        assert cost.estimated


def test_costs_add_up() -> None:
    one = Cost("core", 5, 7, {"x": 16}, False)
    both = one.times(3).plus(Cost("core", 1, 1, {"y": 4}))
    assert (both.compute_cycles, both.transfer_cycles, both.cycles, both.bytes) == (16, 22, 38, 52)
    assert both.moved == {"x": 48, "y": 4}
    assert both.estimated
    assert not one.times(2).estimated


@pytest.mark.parametrize("target", ["flexasr", "hlscnn", "vta"])
def test_every_shipped_mapping_has_a_cost(target: str) -> None:
    found = find_target(target)
    assert not [m.name for m in found.mappings.values() if m.price is None]
