"""Accesses by memory: what the host stores is written once, and a unit reads what its multiply-accumulates need."""

from __future__ import annotations

import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.compile.plan.plan import to_json
from rewrite_compiler.fit import Tiling
from rewrite_compiler.fit.cost import accesses
from rewrite_compiler.target import find_target

SIZES = [(1, 16, 64), (5, 33, 70), (40, 256, 300)]


@pytest.mark.parametrize(("t", "k", "n"), SIZES)
def test_flexasr_writes_what_is_stored_and_reads_a_weight_for_every_product(t: int, k: int, n: int) -> None:
    target = find_target("flexasr")
    m, sizes = target.mappings["linear_relu"], {"t": t, "k": k, "n": n}
    resources = target.resources()
    assert resources is not None
    levels, cost = m.accesses(sizes, {}), m.cost(sizes, {}, resources)
    assert levels is not None
    assert cost is not None
    assert {"x": levels["large"]["x"][1], "w": levels["weight"]["w"][1], "b": levels["input_buffer"]["b"][1],
            "y": levels["large"]["y"][0]} == {name: cost.moved[name] for name in "xwby"}  # fmt: skip
    padded = t * -(-k // 16) * 16 * -(-n // 64) * 64
    assert levels["weight"]["w"][0] == padded  # a byte a multiply-accumulate
    assert levels["input_buffer"]["x"][0] * 16 == padded  # a vector serves 16 rows
    assert levels["input_buffer"]["x"][1] == 4 * levels["large"]["x"][0]  # one read is sent to four elements


@pytest.mark.parametrize(("t", "k", "n"), SIZES)
def test_vta_reads_an_element_of_each_kind_a_step(t: int, k: int, n: int) -> None:
    target = find_target("vta")
    m, sizes = target.mappings["dense_bias_relu"], {"t": t, "k": k, "n": n}
    resources = target.resources()
    assert resources is not None
    levels, cost = m.accesses(sizes, {}), m.cost(sizes, {}, resources)
    assert levels is not None
    assert cost is not None
    assert (levels["inp"]["x"][1], levels["wgt"]["w"][1]) == (cost.moved["x"], cost.moved["w"])
    steps = t * -(-k // 16) * -(-n // 16)
    assert (levels["inp"]["x"][0], levels["wgt"]["w"][0]) == (steps * 16, steps * 256)
    assert levels["acc"]["b"][1] == cost.moved["b"]


@pytest.mark.parametrize(("target", "memories"), [("hlscnn", {"spad0", "spad1", "soc"}), ("vta", {"inp", "wgt", "acc"})])
def test_convolutions_write_what_is_stored(target: str, memories: set[str]) -> None:
    m, resources = find_target(target).mappings["conv2d"], find_target(target).resources()
    sizes = dict(zip("bncijrsuv", (1, 16, 16, 8, 8, 3, 3, 8, 8), strict=True))
    attributes = {"strides": (1, 1), "pads": (1, 1, 1, 1)}
    assert resources is not None
    levels, cost = m.accesses(sizes, attributes), m.cost(sizes, attributes, resources)
    assert levels is not None
    assert cost is not None
    assert set(levels) == memories
    stored = {t: sum(a[t][1] for a in levels.values() if t in a) for t in "xw"}
    assert stored == {t: cost.moved[t] for t in "xw"}


def test_calls_add_up() -> None:
    m = find_target("flexasr").mappings["linear"]
    whole = accesses(m, Tiling({"t": 4, "k": 32, "n": 200}, {"t": 4, "k": 32, "n": 64}), {})
    parts = [m.accesses({"t": 4, "k": 32, "n": n}, {}) for n in (64, 64, 64, 8)]
    assert whole is not None
    assert whole["weight"]["w"]["reads"] == sum(p["weight"]["w"][0] for p in parts if p is not None)


def test_a_plan_states_tiles_traffic_cycles_bytes_utilisation_and_bound() -> None:
    plan = compile_model(find_application("digits_mlp").model, ["flexasr"], Options(shapes={"image": (1, 1, 8, 8)}))
    for o in to_json(plan)["offloads"]:
        cost = o["cost"]
        assert o["tiles"] == o["shape"]
        assert set(cost["traffic"]) == {"x", "w", "b", "y", "commands"}
        assert set(cost["levels"]) == {"large", "input_buffer", "weight"}
        assert cost["cycles"] == cost["compute_cycles"] + cost["transfer_cycles"]
        assert cost["bytes"] == sum(cost["traffic"].values()) == sum(cost["links"].values())
        assert 0 < cost["utilisation"] < 1
        assert cost["bound"] in ("compute", "transfer")


@pytest.mark.parametrize("name", ["flexasr", "hlscnn", "vta"])
def test_every_shipped_mapping_counts_what_is_stored_and_read_back_by_tensor_and_memory(name: str) -> None:
    """Data of every operand are written to a memory of the design, all of the result is read from one."""
    target = find_target(name)
    resources = target.resources()
    assert resources is not None
    memories = {m.name for m in resources.memories}
    for m in target.mappings.values():
        for trial in m.trials:
            statics = {n: trial[n] for n, _ in m.statics}
            levels = m.accesses({d: n for d, n in trial.items() if d not in statics}, statics)
            assert levels is not None, m.name
            assert set(levels) <= memories, m.name
            written = {t for tensors in levels.values() for t, (_, writes) in tensors.items() if writes}
            read = {t for tensors in levels.values() for t, (reads, _) in tensors.items() if reads}
            assert {v.name for v in m.operands} - {"b", "c", "h"} <= written, m.name
            assert m.axes.result in read, m.name
            assert all(n >= 0 for tensors in levels.values() for pair in tensors.values() for n in pair), m.name
