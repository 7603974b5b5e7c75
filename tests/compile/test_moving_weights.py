"""Products of two computed tensors: with lowerings they go to a device, which writes their second factors as weights at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import ATTENTION

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.compile.matching.objective import Objective
from rewrite_compiler.compile.plan.plan import to_json
from rewrite_compiler.cosim.cosimulate import Settings, cosimulate
from rewrite_compiler.frontend.load import load
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.report.terminal import plan_lines
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, simulated_device

ASKED = Objective(runtime_weights=True)
LOWERING = Options(rules=(Path("lowering"),))
ACCELERATORS = ("vta", "flexasr", "hlscnn")
FORMS = {"": ("1, 0", 1), "3, ": ("0, 2, 1", 3), "2, 3, ": ("0, 1, 3, 2", 6)}


def attention(path: Path, lead: str) -> Path:
    onnx.save(onnx.parser.parse_model(ATTENTION.replace("HEADS", lead).replace("PERM", FORMS[lead][0])), path)
    return path


def taken(plan: Plan) -> list[tuple[str, int]]:
    return [(f"{o.target.name}.{o.mapping.operation}", o.tiling.calls) for o in plan.offloads]


@pytest.mark.parametrize("accel", ACCELERATORS)
@pytest.mark.parametrize("lead", FORMS)
def test_both_products_of_attention_go_to_the_device_if_asked(accel: str, lead: str, tmp_path: Path) -> None:
    path = attention(tmp_path / "net.onnx", lead)
    plan = compile_model(path, [accel], LOWERING)
    assert taken(plan) == [(f"{accel}.matmul", FORMS[lead][1])] * 2
    assert plan.lowered_counts == {accel: {"matmul": 2}}
    assert plan.counts == {accel: {}}
    assert not compile_model(path, [accel]).offloads


def test_windows_of_heads_are_pairs_too(tmp_path: Path) -> None:
    """Rules alone: the certificate says for which ranks a compilation uses them."""
    text = ATTENTION.replace("HEADS", "2, 2, 2, ").replace("PERM", "0, 1, 2, 4, 3")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    program = match(load(tmp_path / "net.onnx").program, every_rule(), list(find_target("vta").mappings.values()), DEFAULT, ASKED).program
    assert [n.op for n in program.nodes if n.op.startswith("vta.")] == ["vta.matmul"] * 2


@pytest.mark.parametrize("accel", ACCELERATORS)
def test_moving_weights_are_simulated_bit_by_bit(accel: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    shapes = dict.fromkeys("qkv", (2, 3, 8, 16))
    data = {name: random.uniform(-1, 1, (3, *shape)).astype(np.float32) for name, shape in shapes.items()}
    plan = compile_model(attention(tmp_path / "net.onnx", "2, 3, "), [accel], LOWERING, calibrate=data)
    simulated, specified = (cosimulate(plan, data, settings=Settings(engine=engine)) for engine in ("simulator", "numerics"))
    np.testing.assert_array_equal(simulated.accelerated["y"], specified.accelerated["y"])
    difference = np.linalg.norm(simulated.accelerated["y"] - simulated.reference["y"])
    assert 0 < difference < 0.1 * np.linalg.norm(simulated.reference["y"])


@pytest.mark.parametrize("accel", ACCELERATORS)
def test_a_constant_is_not_written_at_run_time(accel: str, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
    net (float[4, 16] x) => (float[4, 8] y) { y = MatMul(x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((16, 8), np.float32), "w"))
    onnx.save(model, tmp_path / "net.onnx")
    assert {o.mapping.operation for o in compile_model(tmp_path / "net.onnx", [accel], LOWERING).offloads} == {
        {"vta": "dense", "flexasr": "linear", "hlscnn": "conv2d"}[accel]
    }


def test_what_is_written_at_run_time_is_counted_apart(tmp_path: Path) -> None:
    plan = compile_model(attention(tmp_path / "net.onnx", "3, "), ["vta"], LOWERING)
    document = to_json(plan)
    assert [o["runtime_weights"] for o in document["offloads"]] == [["w"], ["w"]]
    bytes_written = sum(o["cost"]["traffic"]["w"] for o in document["offloads"])
    assert bytes_written == 3 * (16 * 16 + 16 * 16)  # blocks of 16 × 16, of both products of each head
    said = f"at run time 2 matmul on vta · 6,144 MACs, their weights written at run time ({bytes_written:,} bytes)"
    assert said in " ".join(" ".join(plan_lines(document)).split())


@pytest.mark.parametrize("accel", ACCELERATORS)
def test_every_sample_has_weights_of_its_own(accel: str) -> None:
    target = find_target(accel)
    m, random = target.mappings["matmul"], np.random.default_rng(5)
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    codes = {name: random.integers(0, 100, shape) for name, shape in (("x", (4, 1, 5, 20)), ("w", (4, 1, 20, 11)))}
    together = m.run_driver(simulated_device(target.ila(), samples=4), codes, formats, {})
    for n in range(4):
        alone = m.run_driver(simulated_device(target.ila()), {name: x[n] for name, x in codes.items()}, formats, {})
        np.testing.assert_array_equal(together[n], alone)
