"""The net below the court: a plan that differs at the edges of its model is refused, and the law that does not hold there is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, Plan, compile_model, plan_onnx
from rewrite_compiler.compile.formats.edge_data import bounds_of, edge_inputs
from rewrite_compiler.compile.plan import suspect_laws as module
from rewrite_compiler.compile.plan.suspect_laws import gap_of
from rewrite_compiler.compile.verify import PlanDiffers, check_plan
from rewrite_compiler.egraph.saturation.saturate import saturate
from rewrite_compiler.errors import AnswerNo
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.rewrite.text_file import rules_of_text

N6 = """rule n6(x: tensor, v: float) grade E {
    "true where v² = v"
    relu(min(x, full(shape=[], value=v))) = min(relu(x), mul(full(shape=[], value=v), full(shape=[], value=v)))
}
rule relu-again(x: tensor) grade E {
    "relu(relu(x)) = relu(x)"
    relu(relu(x)) = relu(x)
}
"""
SIX = 6.0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A linear layer limited by min(6) and relu, and a product."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="layer", transB=1),
        helper.make_node("Min", ["h", "six"], ["m"], name="limit"),
        helper.make_node("Relu", ["m"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="product"),
    ]
    given = [weight("w", 32, 16), weight("b", 32), weight("v", 32, 8), numpy_helper.from_array(np.float32(SIX), "six")]
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, k])] for n, k in (("x", 16), ("y", 8))]
    graph = helper.make_graph(nodes, "limited", *ports, given)
    path = tmp_path / "limited.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def compiled(model: Path, tmp_path: Path, trusted: tuple[str, ...] = ("n6",)) -> Plan:
    rules = tmp_path / "mine.rules"
    rules.write_text(N6)
    return compile_model(model, "flexasr", Options(rules=(rules,), trusted=trusted))


def test_a_users_law_that_does_not_hold_on_the_models_data_is_named(model: Path, tmp_path: Path) -> None:
    plan = compiled(model, tmp_path)
    assert any(r.rule == "n6" for o in plan.offloads for r in o.because)
    with pytest.raises(AnswerNo) as caught:
        check_plan(plan, plan_onnx(plan), model)
    problem = caught.value.problem
    assert problem.code == "R106"
    assert problem.sentence.startswith("the rule n6 does not hold here: its sides are 6 and 36 at [")
    assert problem.sentence.endswith("of the largest value of y; 1e-05 is allowed")
    assert problem.place == f"{tmp_path / 'mine.rules'}:1"
    assert problem.help == "give the rule a guard, or leave it out: --without n6"


def test_a_law_that_ships_is_a_bug_of_the_library(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compiled(model, tmp_path)
    monkeypatch.setattr(module, "shipped_rule_names", lambda: frozenset({"n6"}))
    with pytest.raises(PlanDiffers) as caught:
        check_plan(plan, plan_onnx(plan), model)
    problem = caught.value.problem
    assert problem.code == "X100"
    assert problem.sentence.startswith("the rule n6 does not hold here: its sides are 6 and 36")
    assert problem.help == "this is a bug of flexmatch; until it is mended: --without n6"


def test_a_plan_that_differs_by_no_rule_is_told_without_one(model: Path) -> None:
    plan = compile_model(model, "flexasr")
    wrong = onnx.load_from_string(plan_onnx(plan))
    for x in wrong.graph.initializer:
        if x.name == "b" or list(x.dims) == [32]:
            x.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(x) + np.float32(1), x.name))
    with pytest.raises(PlanDiffers, match=r"^(?!.*does not hold)") as caught:
        check_plan(plan, wrong.SerializeToString(), model)
    assert caught.value.problem.code == "X100"


def test_a_sound_plan_passes_at_the_edges(model: Path) -> None:
    plan = compile_model(model, "flexasr")
    assert set(bounds_of(plan.source)) == {SIX}
    data = list(edge_inputs(plan, np.random.default_rng(0)))
    assert [float(np.max(np.abs(x["x"]))) > SIX for x in data] == [False, True, True]
    assert {SIX, -SIX, 0.0, float(np.nextafter(np.float32(SIX), np.float32(np.inf)))} <= set(map(float, data[2]["x"].flat))
    found = check_plan(plan, plan_onnx(plan), model)
    assert found.relative_difference is not None
    assert found.relative_difference <= 1e-5


def test_a_model_without_bounds_has_no_edges(model: Path) -> None:
    plan = compile_model(model, "flexasr")
    nothing = replace(plan.source, nodes=tuple(n for n in plan.source.nodes if n.op not in ("min", "clip")))
    assert not list(edge_inputs(replace(plan, source=nothing, program=nothing), np.random.default_rng(0)))


def test_terms_of_the_program_that_are_made_equal_are_a_gap_too(model: Path) -> None:
    p = compile_model(model, "flexasr").source
    (wrong,) = rules_of_text("rule nothing(x: tensor) grade E {\n relu(x) = x\n}\n", "wrong.rules")
    known = module._values_of_program(p, {"x": np.full((4, 16), -1, np.float32)})
    assert gap_of(saturate(p, [], []).graph, known) is None
    assert gap_of(saturate(p, [wrong], []).graph, known) is not None


def test_both_bounds_of_a_clip_and_numbers_of_limits_are_bounds() -> None:
    """A constant of several numbers, or of integers, is none; nor is what another operator adds."""
    b = Builder("bounds")
    x = b.input("x", TensorType((2, 3)))
    (x,) = b.apply("clip", (x,), {"low": -0.75, "high": 5.0})
    for op, constant in (("min", np.full((1,), 2.5)), ("max", np.full((2, 3), -1.5)), ("min", np.arange(3.0)), ("add", np.full((1,), 9.0))):
        (x,) = b.apply(op, (x, b.constant(constant.astype(np.float32))))
    p = b.finish([x])
    assert list(bounds_of(p)) == [-0.75, 5.0, 2.5, -1.5]
