"""Residency: what stays on a device is neither stored again nor read, and every bit is as if all had moved."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.formats.calibrate import calibrated
from rewrite_compiler.compile.plan.plan import to_json
from rewrite_compiler.cosim.resident_run import inferences

RANDOM = np.random.default_rng(5)


def model(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int], out: list[int]) -> Path:
    made = [numpy_helper.from_array(x.astype(np.float32), name) for name, x in weights.items()]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", out)))
    graph = helper.make_graph(nodes, "m", [x], [y], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def random(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.3, shape)


def chain(path: Path, rows: int, sizes: tuple[int, ...]) -> Path:
    """Linear layers with biases and a ReLU between."""
    nodes, weights, last = [], {}, "x"
    for n, (k, m) in enumerate(itertools.pairwise(sizes)):
        weights |= {f"w{n}": random(m, k), f"b{n}": random(m)}
        is_last = n == len(sizes) - 2
        nodes.append(helper.make_node("Gemm", [last, f"w{n}", f"b{n}"], ["y" if is_last else f"g{n}"], transB=1))
        if not is_last:
            nodes.append(helper.make_node("Relu", [f"g{n}"], [f"r{n}"]))
            last = f"r{n}"
    return model(path, nodes, weights, [rows, sizes[0]], [rows, sizes[-1]])


def decoder(path: Path) -> Path:
    """An LSTM and the layer that reads all its outputs, split over many calls."""
    t, i, h, n = 5, 16, 64, 4200
    weights = {
        "w": random(1, 4 * h, i), "r": random(1, 4 * h, h), "b": random(1, 8 * h), "dw": random(n, h), "db": random(n),
        "flat": np.array([t, h]),
    }  # fmt: skip
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["all"], hidden_size=h),
        helper.make_node("Reshape", ["all", "flat"], ["rows"]),
        helper.make_node("Gemm", ["rows", "dw", "db"], ["y"], transB=1),
    ]
    made = model(path, nodes, weights, [t, 1, i], [t, n])
    loaded = onnx.load(made)
    flat = next(w for w in loaded.graph.initializer if w.name == "flat")
    flat.CopyFrom(numpy_helper.from_array(np.array([t, h], np.int64), "flat"))
    onnx.save(loaded, made)
    return made


def planned(path: Path, accel: str, objective: str = "bytes") -> Plan:
    plan = compile_model(path, [accel], Options(objective=objective))
    shape = plan.program.types[plan.program.inputs[0]].shape
    return calibrated(plan, {"x": RANDOM.normal(0, 1, (4, *shape)).astype(np.float32)}, "drawn")


def compared(plan: Plan, samples: int = 3) -> tuple[list[int], list[int]]:
    """Assert that all bits agree; return the commands of each inference, all moved and with residency."""
    shape = plan.program.types[plan.program.inputs[0]].shape
    inputs = {"x": RANDOM.normal(0, 1, (samples, *shape)).astype(np.float32)}
    moved, stayed = (list(inferences(plan, inputs, stays=stays)) for stays in (False, True))
    for a, b in zip(moved, stayed, strict=True):
        for name in a.outputs:
            assert np.array_equal(a.outputs[name], b.outputs[name])
    return [x.commands for x in moved], [x.commands for x in stayed]


def test_a_feed_forward_hands_its_activations_over(tmp_path: Path) -> None:
    plan = planned(chain(tmp_path / "ff.onnx", 32, (32, 128, 32)), "flexasr")
    moved, stayed = compared(plan)
    # 32 rows of 8 vectors are neither loaded nor stored; from the second inference on no weight is stored
    assert moved[0] - stayed[0] == 2 * 32 * 8
    assert stayed[0] - stayed[1] == (2 * 128 + 8 * 64)
    assert stayed[1] == stayed[2]
    first, second = to_json(plan)["offloads"]
    assert (first["resident"]["inputs"], first["resident"]["outputs"]) == ([], ["y"])
    assert (second["resident"]["inputs"], second["resident"]["outputs"]) == (["x"], [])
    assert to_json(plan)["residency"]["flexasr"]["saved"]["operands"] == 32 * 8 * 16


def test_a_layer_in_many_calls_finds_its_input_and_some_weights(tmp_path: Path) -> None:
    plan = planned(decoder(tmp_path / "wlm.onnx"), "flexasr")
    assert [o.mapping.operation for o in plan.offloads] == ["lstm", "linear"]
    assert plan.offloads[1].tiling.calls == 2
    moved, stayed = compared(plan, 2)
    assert stayed[1] < stayed[0] < moved[0]


@pytest.mark.parametrize("rows", [1, 5])
def test_weights_stay_in_the_buffer_of_vta(tmp_path: Path, rows: int) -> None:
    plan = planned(chain(tmp_path / "vta.onnx", rows, (40, 64, 48)), "vta")
    moved, stayed = compared(plan)
    assert len(plan.offloads) == 2
    assert moved == [moved[0]] * 3
    assert [a - b for a, b in zip(moved, stayed, strict=True)] == [0, 2, 2]


def branches(path: Path, filters: int = 9) -> Path:
    """Two convolutions of one image, and one of their sum."""
    n = filters
    weights = {"w0": random(n, 5, 3, 3), "w1": random(n, 5, 3, 3), "w2": random(4, n, 1, 1), "b1": random(n)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c0", "c1"], ["a"]),
        helper.make_node("Conv", ["a", "w2"], ["y"]),
    ]
    return model(path, nodes, weights, [1, 5, 6, 7], [1, 4, 6, 7])


@pytest.mark.parametrize("revision", ["ext8", "orig", "uni16"])
def test_a_shared_image_stays_on_hlscnn(tmp_path: Path, revision: str) -> None:
    plan = planned(branches(tmp_path / "branches.onnx"), f"hlscnn:revision={revision}", "offloads")
    assert [o.mapping.operation for o in plan.offloads] == ["conv2d"] * 3
    moved, stayed = compared(plan)
    is_unified = revision == "uni16"  # there activations fill SPAD1, and weights have an address
    image = 8 * 9 + 3 * is_unified  # base, length and fill
    weights = sum(n * 8 * blocks * taps // 8 + 3 for n, blocks, taps in ((9, 1, 9), (9, 1, 9), (4, 2, 1))) * is_unified
    assert [a - b for a, b in zip(moved, stayed, strict=True)] == [image, image + weights, image + weights]
    resident = [o["resident"] for o in to_json(plan)["offloads"]]
    assert [r["constants"] for r in resident] == [{"w": 1} if is_unified else {}] * 3
    assert [r["inputs"] for r in resident] == [[], ["x"], []]


@pytest.mark.parametrize("revision", ["ext8", "uni16"])
def test_a_result_stays_where_hlscnn_reads_it(tmp_path: Path, revision: str) -> None:
    weights = {"w0": random(9, 5, 3, 3), "w1": random(11, 9, 1, 1), "w2": random(4, 11, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"]),
        helper.make_node("Conv", ["c1", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    path = model(tmp_path / "chain.onnx", nodes, weights, [1, 5, 6, 7], [1, 4, 6, 7])
    plan = planned(path, f"hlscnn:revision={revision}", "offloads")
    moved, stayed = compared(plan)
    first, second, last = (o["resident"] for o in to_json(plan)["offloads"])
    if revision == "uni16":
        assert (first["outputs"], second["inputs"]) == (["y"], ["x"])
        assert moved[0] - stayed[0] == 2 * (2 * 6 * 7) + 3
        assert "(2, 6, 7)" in last["why_not"]["x"]  # zeros around an image are stored with it
    else:
        assert moved[0] == stayed[0]
        assert second["why_not"]["x"] == "conv2d_0 leaves it as (2, 6, 7) in spad1, conv2d_1 takes (2, 6, 7) in soc"


@pytest.mark.parametrize(("design", "stays"), [("vta", 3), ("vta:log_wgt_buffer=13,log_inp_buffer=11,log_acc_buffer=13", 1)])
def test_weights_of_convolutions_stay_in_the_buffer_of_vta(tmp_path: Path, design: str, stays: int) -> None:
    """In the small design the weights of 3 × 3 do not fit beside each other: while one runs, the other cannot lie there."""
    plan = planned(branches(tmp_path / "branches.onnx", filters=17), design, "offloads")
    assert [o.mapping.operation for o in plan.offloads] == ["conv2d"] * 3
    moved, stayed = compared(plan)
    assert [a - b for a, b in zip(moved, stayed, strict=True)] == [0, stays, stays]
    resident = plan.residency["vta"]
    assert resident.bytes_saved["constants"] == sum(o.price.cost.moved["w"] for o in plan.offloads if o.price and _lasts(plan, o.id))


def _lasts(plan: Plan, offload: str) -> bool:
    return any(plan.residency["vta"].lasting[offload])
