"""Why a node stays on the host, with the figures of that node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small_models import ATTENTION, node, weight, written

from rewrite_compiler.compile.compile import Options, compile_model
from rewrite_compiler.errors import AnswerNo

PINNED = ", and even then only --on vta=NODE puts it on vta: the objective prefers the host"


def test_each_layer_over_capacity_is_told_its_own_figure(model: Path) -> None:
    layers = [
        node("LayerNormalization", "x g b", "y"), node("Concat", "x x", "c", axis=1), node("LayerNormalization", "c h d", "z"),
    ]  # fmt: skip
    written(model, layers, (2, 8000), ["y", "z"], g=weight(8000), b=weight(8000), h=weight(16000), d=weight(16000))
    reasons = {h.node: h.why_not for h in compile_model(model, ["flexasr"]).host}
    assert reasons["LayerNormalization_y"].endswith("): vectors of a timestep 500, must be at most 255")
    assert reasons["LayerNormalization_z"].endswith("): vectors of a timestep 1,000, must be at most 255")


def test_as_written_what_reads_a_node_is_told_where_the_pattern_has_another_operator(model: Path) -> None:
    layers = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Add", "r b", "y")]
    written(model, layers, (2, 8), ["y"], w=weight(8, 4), b=weight(4))
    reasons = {h.node: h.why_not for h in compile_model(model, ["flexasr"], Options(exact=True)).host}
    assert reasons["MatMul_m"].startswith("flexasr.linear (flexasr/linear.py:43), ")
    assert reasons["MatMul_m"].endswith("): as written, relu reads the result of dense, its pattern has bias_add there")


def reasons_of(model: Path, accel: str) -> dict[str, str]:
    return {h.op: h.why_not for h in compile_model(model, [accel]).host}


def test_an_attribute_that_a_pattern_fixes_is_told_with_its_value(model: Path) -> None:
    written(model, [node("Conv", "x w", "y", group=4, pads=[1, 1, 1, 1])], (1, 8, 5, 5), ["y"], w=weight(8, 2, 3, 3))
    said = "hlscnn.conv2d_bias_relu (targets/hlscnn.py:"
    reason = reasons_of(model, "hlscnn")["Conv"]
    assert said in reason
    sentence = "): group of conv must be 1, not 4"  # once, for all mappings of which it is true
    assert reason.endswith(f"{sentence}; with --rules lowering hlscnn.conv2d may take it")


@pytest.mark.parametrize(
    ("accel", "inputs", "layer", "constants"),
    [
        ("hlscnn", (2, 8), node("MatMul", "x w", "y"), {"w": weight(8, 4)}),
        ("hlscnn", (1, 8, 5, 5), node("Conv", "x w", "y", group=4), {"w": weight(8, 2, 3, 3)}),
        ("vta", (1, 6, 5, 5), node("Conv", "x w", "y", group=6), {"w": weight(6, 1, 3, 3)}),
    ],
)
def test_the_lowerings_that_are_named_offload_the_node(
    accel: str, inputs: tuple[int, ...], layer: Any, constants: dict[str, Any], model: Path
) -> None:
    written(model, [layer], inputs, ["y"], **constants)
    (reason,) = reasons_of(model, accel).values()
    operation = {"hlscnn": "hlscnn.conv2d", "vta": "vta.conv2d"}[accel]
    assert f"; with --rules lowering {operation} may take it" in reason
    with_them = compile_model(model, [accel], Options(rules=(Path("lowering"),)))
    assert not with_them.host
    assert {o.mapping.name for o in with_them.offloads} == {operation}


@pytest.mark.parametrize(
    ("accel", "inputs", "layer", "constants"),
    [
        ("hlscnn", (2, 8), node("Relu", "x", "y"), {}),  # no law makes it another operator
        ("hlscnn", (1, 8, 5, 5), node("Conv", "x w", "y", dilations=[2, 2]), {"w": weight(8, 8, 2, 2)}),  # no groups
    ],
)
def test_lowerings_whose_conditions_fail_are_not_named(
    accel: str, inputs: tuple[int, ...], layer: Any, constants: dict[str, Any], model: Path
) -> None:
    written(model, [layer], inputs, ["y"], **constants)
    (reason,) = reasons_of(model, accel).values()
    assert "--rules" not in reason


def test_a_guard_that_fails_is_told_as_it_is_written_and_the_nearest_mapping_first(model: Path) -> None:
    written(model, [node("ReduceMax", "x", "y", axes=[1], keepdims=0)], (2, 3, 5), ["y"])
    assert "max_pool (flexasr/pooling.py:42): 65536 % x.shape[1] == 0 fails with x (2, 3, 5)" in reasons_of(model, "flexasr")["ReduceMax"]
    written(model, [node("Relu", "x", "y")], (2, 3, 5, 7), ["y"])
    reason = reasons_of(model, "vta")["Relu"]
    said = r"vta\.relu_4 \(vta/alu\.py:\d+\): the chosen program is no dearer with relu on the host; --on vta=NODE puts it on vta"
    assert re.fullmatch(said, reason)


@pytest.mark.parametrize("shape", [(8, 12), (2, 3, 8, 12)])
def test_shapes_that_must_be_one_are_told_of_the_mapping_of_as_many_axes(model: Path, shape: tuple[int, ...]) -> None:
    """The mapping of another rank is further from taking the node: two of its guards fail."""
    written(model, [node("Mul", "x c", "y")], shape, ["y"], c=np.float32(0.25))
    said = rf"vta\.mul_{len(shape)} \(vta/alu\.py:\d+\): its operands x and z must have one shape, not {re.escape(str(shape))} and \(\)"
    assert re.fullmatch(said + PINNED, reasons_of(model, "vta")["Mul"])


def test_the_number_of_axes_that_a_mapping_takes_is_told(model: Path) -> None:
    written(model, [node("Add", "x x", "y")], (2, 3, 4), ["y"])
    said = r"vta\.add_[24] \(vta/alu\.py:\d+\): its operand x must have [24] axes, not 3"
    assert re.fullmatch(said + PINNED, reasons_of(model, "vta")["Add"])


def test_what_stands_where_a_pattern_has_another_operator_is_told(model: Path) -> None:
    written(model, [node("Tanh", "x", "h"), node("Softmax", "h", "y")], (2, 3), ["y"])
    said = "the operand x of softmax must be a result of matmul, not of tanh: it takes matmul(softmax(matmul(q, transpose(e, "
    assert said in reasons_of(model, "flexasr")["Softmax"]


def test_a_convolution_over_another_number_of_axes_is_told_so(model: Path) -> None:
    written(model, [node("MaxPool", "x", "y", kernel_shape=[2], strides=[2])], (1, 4, 8), ["y"])
    assert reasons_of(model, "vta")["MaxPool"].endswith("): max_pool must be over 2 axes, not 1 axis")
    written(model, [node("Conv", "x w", "y", dilations=[2])], (1, 4, 8), ["y"], w=weight(8, 4, 3))
    assert reasons_of(model, "hlscnn")["Conv"].endswith("): dilations of conv must be 1 along every axis, not (2,)")


@pytest.mark.parametrize(("columns", "limit"), [(1100, "rows or columns 1,100, must be at most 1,023"), (64, "")])
def test_a_capacity_that_a_convolution_over_one_axis_exceeds_over_two_is_told(model: Path, columns: int, limit: str) -> None:
    """A law gives it a second axis: that one is missing would be no reason."""
    written(model, [node("Conv", "x w", "y")], (1, 4, columns), ["y"], w=weight(8, 4, 3))
    reason = reasons_of(model, "hlscnn").get("Conv", "")
    assert reason.endswith(f"): with axes of size 1 added, {limit}") if limit else not reason


def test_a_result_that_another_node_reads_is_named_as_such(model: Path) -> None:
    layers = [node("Gemm", "x w b", "h", transB=1), node("Sigmoid", "h", "s"), node("Mul", "h s", "y")]
    written(model, layers, (2, 8), ["y"], w=weight(4, 8), b=weight(4))
    said = 'another node, "Mul_y", reads the result of flexasr.linear, too, so that sigmoid cannot become part of it'
    assert reasons_of(model, "flexasr")["Sigmoid"].endswith(f"): {said}")
    written(model, layers[:2], (2, 8), ["h", "s"], w=weight(4, 8), b=weight(4))
    said = "the caller reads the result of flexasr.linear, too, so that sigmoid cannot become part of it"
    assert reasons_of(model, "flexasr")["Sigmoid"].endswith(f"): {said}")


def test_the_nearest_mapping_is_the_one_whose_pattern_met_most(model: Path) -> None:
    layers = [node("Conv", "x w b", "h", group=2), node("Relu", "h", "y")]
    written(model, layers, (1, 4, 6, 6), ["y"], w=weight(8, 2, 3, 3), b=weight(8))
    reason = reasons_of(model, "hlscnn")["Relu"]
    assert reason.startswith("hlscnn.conv2d_bias_relu (targets/hlscnn.py:")
    assert "): group of conv must be 1, not 2" in reason
    assert "--rules" not in reason  # it is the convolution that may be taken


def test_operators_without_a_meaning_are_called_unsupported(tmp_path: Path) -> None:
    """Users look for the operator's name behind these words."""
    text = """<ir_version: 10, opset_import: ["": 21]>
net (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) <float[4] scales = {1, 1, 2, 2}> {
    s = Sin(x)
    y = Resize<mode = "cubic">(s, , scales)
}"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert {h.op: h.why_not for h in compile_model(path, ["vta"]).host} == {
        "Sin": "unsupported operator: Sin (no core operators express it)",
        "Resize": 'unsupported operator: Resize (its mode is "cubic"; laws cover nearest and linear)',
    }


PRODUCTS = [("vta", "dense"), ("flexasr", "linear")]


@pytest.mark.parametrize(("accel", "operation"), PRODUCTS)
def test_products_of_two_results_say_that_weights_must_be_known(tmp_path: Path, accel: str, operation: str) -> None:
    """Neither the perm of a transpose nor a bias is what keeps them: with known keys and values they go to the device."""
    one = onnx.parser.parse_model(ATTENTION.replace("HEADS", "").replace("PERM", "1, 0"))
    heads = onnx.parser.parse_model(ATTENTION.replace("HEADS", "1, 4, ").replace("PERM", "0, 1, 3, 2"))
    said = f"both factors are computed at run time, and {accel}.{operation} takes one matrix of weights that is known at compile time"
    remedy = f"; with --rules lowering {accel}.matmul may take it, its weights written at run time"
    for model, reason in ((one, said + remedy), (heads, f"{said}, not 4{remedy}")):
        onnx.save(model, tmp_path / "net.onnx")
        assert {h.why_not for h in compile_model(tmp_path / "net.onnx", [accel]).host if h.op == "MatMul"} == {reason}
    for name in ("k", "v"):
        (declared,) = (i for i in one.graph.input if i.name == name)
        one.graph.input.remove(declared)
        one.graph.initializer.append(
            onnx.numpy_helper.from_array(np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32), name)
        )
    onnx.save(one, tmp_path / "known.onnx")
    assert compile_model(tmp_path / "known.onnx", [accel]).counts == {accel: {operation: 2}}


def test_a_folder_that_is_called_like_the_lowerings_is_no_rule_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model.parent / "lowering").mkdir()
    monkeypatch.chdir(model.parent)
    written(model, [node("MatMul", "x w", "y")], (2, 8), ["y"], w=weight(8, 4))
    assert "with --rules lowering hlscnn.conv2d may take it" in reasons_of(model, "hlscnn")["MatMul"]


def test_a_law_that_would_bring_a_node_to_a_mapping_is_named_with_what_it_asks_for(model: Path) -> None:
    """A sum of two images is none of HLSCNN's operations; that of an image and a constant vector is a bias of its convolution."""
    layers = [node("Relu", "x", "r"), node("Add", "r z", "s"), node("Conv", "s w", "y")]
    written(model, layers, (1, 4, 6, 6), ["y"], w=weight(8, 4, 3, 3), z=weight(1, 4, 6, 6))
    reason = reasons_of(model, "hlscnn")["Add"]
    assert re.match(r"hlscnn\.conv2d_bias \(targets/hlscnn\.py:\d+\): as bias_add by add-as-bias-3 \(rules/linear\.py:\d+\), ", reason)
    assert "its operand b must be a vector along axis -3, and the operand x of bias_add must be a result of conv, not of relu" in reason
    written(model, [node("Conv", "x w", "c"), node("Add", "c v", "y")], (1, 4, 6, 6), ["y"], w=weight(8, 4, 3, 3), v=weight(8, 1, 1))
    assert not reasons_of(model, "hlscnn")


def test_a_law_that_would_fold_a_node_into_the_weights_before_it_is_named(model: Path) -> None:
    layers = [node("Softmax", "x", "r"), node("Mul", "r v", "y")]
    written(model, layers, (3, 8), ["y"], v=weight(8))
    said = r"into dense by scale-rows-of-weight \(rules/linear\.py:\d+\): as scale by multiply-as-scale-1 \(rules/linear\.py:\d+\), "
    reason = reasons_of(model, "flexasr")["Mul"]
    assert re.match(said, reason) or "into layer_norm by scale-layer-norm" in reason
    assert "the operand x of scale must be a result of" in reason
    assert reason.endswith(", not of softmax")


def test_all_that_a_law_asks_for_is_told(model: Path) -> None:
    """A mean over rows needs an image for a pool, not only other axes; a scale along the columns of an image another axis."""
    mean = {"keepdims": 0, "axes": [1]}
    written(model, [node("ReduceMean", "x", "y", **mean)], (1, 4, 16), ["y"])
    reason = reasons_of(model, "hvx")["ReduceMean"]
    assert "its operand x must have 4 axes, not 3, and axes of reduce_mean must be (2, 3), not (1,)" in reason
    assert "keepdims" not in reason
    for keepdims in (0, 1):
        written(model, [node("ReduceMean", "x", "y", axes=[2, 3], keepdims=keepdims)], (1, 16, 8, 8), ["y"])
        assert compile_model(model, ["hvx"]).counts == {"hvx": {"average_pool": 1}}
    written(model, [node("Conv", "x w", "c"), node("Mul", "c v", "y")], (1, 4, 6, 6), ["y"], w=weight(8, 4, 3, 3), v=weight(4))
    reason = reasons_of(model, "hlscnn")["Mul"]
    assert reason.startswith("into conv by scale-filters (rules/convolution.py:")
    assert reason.endswith("axis of scale must be 1, not 3")


def test_the_capacity_that_a_fused_operation_exceeds_is_told(model: Path) -> None:
    """A product of long rows is split, and its parts are added on the host: the ReLU after it could only be in one call."""
    written(model, [node("MatMul", "x w", "h"), node("Relu", "h", "y")], (4, 4608), ["y"], w=weight(4608, 64))
    reason = reasons_of(model, "flexasr")["Relu"]
    assert re.match(r"flexasr\.linear_relu \(flexasr/linear\.py:\d+\): input vectors of a timestep 288, must be at most 255", reason)


def test_what_else_would_be_in_the_way_is_told_with_the_first_difference(model: Path) -> None:
    """Swish reads the bias twice, so that a product before it would not take the sigmoid along; one group of so many is too large."""
    layers = [node("Conv", "x w b", "h", group=8), node("Sigmoid", "h", "s"), node("Mul", "h s", "y")]
    written(model, layers, (1, 8, 6, 6), ["y"], w=weight(8, 1, 3, 3), b=weight(8))
    reason = reasons_of(model, "flexasr")["Sigmoid"]
    assert "the operand x of bias_add must be a result of dense, not of conv" in reason
    assert reason.endswith(', and no other node may read the result of bias_add, as "Mul_y" does')
    written(model, [node("Conv", "x w", "h", group=2)], (1, 4, 4, 1100), ["h"], w=weight(8, 2, 3, 3))
    said = ": group of conv must be 1, not 2, and then rows or columns 1,100, must be at most 1,023"
    assert said in reasons_of(model, "hlscnn")["Conv"]


def test_a_pin_that_is_named_is_kept_where_the_objective_prefers_the_host(model: Path) -> None:
    written(model, [node("Relu", "x", "y")], (2, 3, 5, 7), ["y"])
    (pin,) = re.findall(r"--on (vta=)NODE", reasons_of(model, "vta")["Relu"])
    assert compile_model(model, ["vta"], Options(on=(f"{pin}Relu_y",))).counts == {"vta": {"alu": 1}}
    written(model, [node("Relu", "x", "y")], (2, 3, 5), ["y"])
    with pytest.raises(AnswerNo, match="must have 2 axes, not 3") as refused:
        compile_model(model, ["vta"], Options(on=("vta=Relu_y",)))
    assert "--on" not in refused.value.problem.sentence  # it is what was asked for
