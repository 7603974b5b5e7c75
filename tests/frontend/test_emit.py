"""Programs written as ONNX: accepted by the checker, and the same results in onnxruntime as by the operators' own meaning."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.graph.emit import FileMetadata, to_model, to_onnx
from rewrite_compiler.frontend.graph.opaque import canonical_node
from rewrite_compiler.frontend.load import load
from rewrite_compiler.hostrun import Session, reference
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.ir.program import Builder, Node, OpaqueOp, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops import OPS

WINDOW: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 2)}
# operator → shapes of its operands, its attributes; the operands after the first are constants in one of the two tests
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    *[(name, [(2, 3)], {}) for name in ("relu", "neg", "abs", "exp", "tanh", "erf", "sigmoid", "log", "sqrt", "reciprocal")],
    *[(name, [(2, 1, 3), (4, 1)], {}) for name in ("add", "sub", "mul", "div", "max", "min", "pow")],
    ("clip", [(3, 4)], {"low": -0.5, "high": float("inf")}),
    ("clip", [(3, 4)], {"low": float("-inf"), "high": 0.25}),
    ("clip", [(3, 4)], {"low": float("-inf"), "high": float("inf")}),
    ("dense", [(2, 3, 5), (4, 5)], {}),
    ("dense", [(5,), (4, 5)], {}),
    ("matmul", [(2, 1, 3, 4), (5, 4, 2)], {}),
    ("bias_add", [(2, 3, 4, 5), (3,)], {"axis": 1}),
    ("bias_add", [(2, 3), (3,)], {"axis": 1}),
    ("scale", [(2, 3, 4), (2,)], {"axis": 0}),
    ("full", [], {"shape": (2, 3), "value": 0.75}),
    ("conv", [(2, 4, 7, 8), (6, 2, 3, 2)], {**WINDOW, "group": 2}),
    ("conv", [(1, 2, 9), (3, 2, 3)], {"strides": (2,), "pads": (1, 1), "dilations": (1,), "group": 1}),
    ("im2col", [(2, 3, 7, 8)], {**WINDOW, "kernel": (3, 2)}),
    ("max_pool", [(1, 2, 7, 8)], {**WINDOW, "pads": (1, 0, 1, 1), "kernel": (3, 2), "ceil": 0}),
    ("max_pool", [(1, 2, 7, 8)], {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 1}),
    ("average_pool", [(1, 2, 7, 8)], {**WINDOW, "pads": (1, 0, 1, 1), "kernel": (3, 2), "ceil": 0, "count_include_pad": 0}),
    ("average_pool", [(1, 2, 6)], {"kernel": (3,), "strides": (2,), "pads": (1, 1), "dilations": (1,), "ceil": 0, "count_include_pad": 1}),
    ("reduce_mean", [(2, 3, 4)], {"axes": (0, 2), "keepdims": 0}),
    ("reduce_sum", [(2, 3, 4)], {"axes": (1,), "keepdims": 1}),
    ("reduce_max", [(2, 3, 4)], {"axes": (), "keepdims": 0}),
    ("reduce_max", [(2, 3, 4)], {"axes": (0, 1, 2), "keepdims": 0}),
    ("reshape", [(2, 3, 4)], {"shape": (4, 6)}),
    ("transpose", [(2, 3, 4)], {"perm": (2, 0, 1)}),
    ("slice", [(2, 9)], {"axis": 1, "start": 1, "stop": 8, "step": 3}),
    ("concat", [(2, 3), (2, 1), (2, 2)], {"axis": 1}),
    ("pad", [(2, 3)], {"pads": (0, 1, 2, 0), "value": -1.5}),
    ("expand", [(3, 1)], {"shape": (2, 3, 4)}),
    ("reverse", [(2, 3, 4)], {"axis": 1}),
    ("batch_norm", [(2, 3, 4), (3,), (3,), (3,), (3,)], {"epsilon": 1e-5}),
    ("layer_norm", [(2, 3, 4), (3, 4), (3, 4)], {"axis": 1, "epsilon": 1e-5}),
    ("softmax", [(2, 3, 4)], {"axis": 1}),
    ("log_softmax", [(2, 3)], {"axis": 1}),
    ("gate_sum", [(2, 3), (2, 4), (5, 3), (5, 4), (5,), (5,)], {}),
    ("lstm", [(5, 2, 3), (16, 3), (16, 4), (32,), (2, 4), (2, 4)], {}),
    ("gru", [(5, 2, 3), (12, 3), (12, 4), (24,), (2, 4)], {"linear_before_reset": 0}),
    ("gru", [(5, 2, 3), (12, 3), (12, 4), (24,), (2, 4)], {"linear_before_reset": 1}),
    *[("rnn", [(5, 2, 3), (4, 3), (4, 4), (8,), (2, 4)], {"activation": f}) for f in ("tanh", "sigmoid", "relu")],
]
POSITIVE = {"log", "sqrt", "reciprocal", "pow", "batch_norm"}


def one_node(name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], *, constant: bool) -> Program:
    b, random = Builder(name), np.random.default_rng(1)
    data = [random.standard_normal(s).astype(np.float32) for s in shapes]
    data = [np.abs(d) + np.float32(0.5) for d in data] if name in POSITIVE else data
    values = [b.constant(d, f"c{n}") if constant and n else b.input(f"x{n}", TensorType(d.shape)) for n, d in enumerate(data)]
    return b.finish(b.apply(name, values, attributes))


def in_onnxruntime(model: bytes, inputs: dict[str, Any]) -> list[Any]:
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def check(p: Program, **how: Any) -> None:
    inputs = {v: np.abs(x) + x.dtype.type(0.5) if p.name in POSITIVE else x for v, x in random_inputs(p, 3).items()}
    wanted = run(p, inputs, real=np.float64)
    found = in_onnxruntime(to_onnx(p, **how), {p.names[v]: x for v, x in inputs.items()})
    for v, y in zip(p.outputs, found, strict=True):
        assert y.shape == p.types[v].shape
        assert np.abs(y - wanted[v]).max() <= 1e-5 * max(1, np.abs(wanted[v]).max())


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("name", "shapes", "attributes"), CASES)
def test_operator(name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], constant: bool) -> None:
    check(one_node(name, shapes, attributes, constant=constant))


def test_every_operator_has_a_case() -> None:
    quantised = {name for name, op in OPS.items() if op.dtype}  # test_quantised.py has them
    assert {name for name, _, _ in CASES} | {"gather"} | quantised == set(OPS)


@pytest.mark.parametrize("opset", [21, 23, 26])
def test_later_opsets(opset: int) -> None:
    check(one_node("layer_norm", [(2, 3, 4), (4,), (4,)], {"axis": 2, "epsilon": 1e-5}, constant=True), opset=opset)
    check(one_node("pad", [(2, 3)], {"pads": (0, 1, 2, 0), "value": 0.0}, constant=True), opset=opset)


def test_gather_with_negative_indices() -> None:
    b = Builder("gather")
    x, i = b.input("x", TensorType((4, 3))), b.constant(np.array([[0, -1], [2, 2]]), "i")
    check(b.finish(b.apply("gather", [x, i], {"axis": 0})))


def test_integer_division_rounds_down() -> None:
    b = Builder("div")
    x, y = b.input("x", TensorType((4,), "int32")), b.constant(np.array([2, -2, 3, -3], np.int32))
    p = b.finish(b.apply("div", [x, y]))
    (found,) = in_onnxruntime(to_onnx(p), {"x": np.array([-7, 7, -6, -1], np.int32)})
    assert found.tolist() == [-4, -4, -2, 0]


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    rank = draw(st.integers(1, 2))
    small = st.tuples(*[st.integers(1, 3)] * rank)
    kernel, strides, dilations = draw(small), draw(small), draw(small)
    pads = draw(st.tuples(*[st.integers(0, 2)] * (2 * rank)))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    spatial = tuple(draw(st.integers(max(1, n - pads[a] - pads[a + rank]), n + 5)) for a, n in enumerate(reach))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *spatial)
    return shape, {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}


@settings(max_examples=60)
@given(windows())
def test_im2col_of_any_window(case: tuple[tuple[int, ...], dict[str, Any]]) -> None:
    shape, window = case
    check(one_node("im2col", [shape], window, constant=False))


# -- names, constants, outputs


def sum_of(b: Builder, *names: str) -> list[int]:
    values = [b.input(n, TensorType((2,))) for n in names]
    return [*b.apply("add", values[:2], names=["y"])]


def test_names_are_kept_and_made_unique() -> None:
    b = Builder("names")
    a, c = b.input("x", TensorType((2,))), b.input("x", TensorType((2,)))
    (h,) = b.apply("add", [a, c], names=["y"])
    (y,) = b.apply("relu", [h], names=["y"])
    model = to_model(b.finish([y]))
    assert [i.name for i in model.graph.input] == ["x", "x_1"]
    assert [o.name for o in model.graph.output] == ["y"]
    assert [n.output[0] for n in model.graph.node] == ["y_1", "y"]


def test_outputs_that_no_node_defines() -> None:
    b = Builder("through")
    x, c = b.input("x", TensorType((2,))), b.constant(np.ones(2, np.float32), "c")
    (y,) = b.apply("add", [x, c], names=["y"])
    p = b.finish([x, c, y, y])
    found = in_onnxruntime(to_onnx(p), {"x": np.array([1, 2], np.float32)})
    assert [f.tolist() for f in found] == [[1, 2], [1, 1], [2, 3], [2, 3]]


def test_transposed_weights_are_stored_once_and_alone() -> None:
    b = Builder("shared")
    x, w = b.input("x", TensorType((2, 3))), b.constant(np.arange(9, dtype=np.float32).reshape(3, 3), "w")
    (h,) = b.apply("dense", [x, w])
    p = b.finish(b.apply("dense", [h, w]))
    assert [t.name for t in to_model(p).graph.initializer] == ["w.transposed"]
    check(p)


def test_equal_programs_give_equal_bytes() -> None:
    p = one_node("conv", [(1, 2, 9), (3, 2, 3)], {"strides": (2,), "pads": (1, 1), "dilations": (1,), "group": 1}, constant=True)
    about = FileMetadata("a plan", {"b": "2", "a": "1"})
    assert to_onnx(p, about=about) == to_onnx(p, about=FileMetadata("a plan", {"a": "1", "b": "2"}))
    model = to_model(p, about=about)
    assert model.doc_string == "a plan"
    assert [(m.key, m.value) for m in model.metadata_props] == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3", "int4", "float16", "string"])
def test_constants_of_uncommon_types(dtype: str) -> None:
    import ml_dtypes

    kinds = {"bfloat16": ml_dtypes.bfloat16, "float8e4m3": ml_dtypes.float8_e4m3fn, "int4": ml_dtypes.int4, "string": object}
    b = Builder("types")
    data = np.array(["a", "ß"] if dtype == "string" else [1, 2], kinds.get(dtype, dtype))
    c = b.constant(data, "c", dtype)
    model = to_model(b.finish([c]))
    onnx.checker.check_model(model, full_check=True)
    assert onnx.numpy_helper.to_array(model.graph.initializer[0]).tolist() == data.tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8"])
def test_numbers_are_written_in_the_type_of_the_tensor(dtype: str) -> None:
    b = Builder("clip")
    (y,) = b.apply("clip", [b.input("x", TensorType((2,), dtype))], {"low": 0.5, "high": 3.0})
    model = to_model(b.finish([y]))
    onnx.checker.check_model(model, full_check=True)
    assert [float(onnx.numpy_helper.to_array(t)) for t in model.graph.initializer] == [0.0 if dtype == "int8" else 0.5, 3.0]


# -- offloads


def linear(node: Node, p: Program) -> Program:
    b = Builder("linear")
    x, w, c = (b.input(n, p.types[v]) for n, v in zip("xwb", node.inputs, strict=True))
    (y,) = b.apply("dense", [x, w])
    return b.finish(b.apply("bias_add", [y, c], {"axis": len(p.types[node.inputs[0]].shape) - 1}))


def offloaded() -> Program:
    b, random = Builder("plan"), np.random.default_rng(0)
    h = b.input("x", TensorType((2, 4)))
    for n, (rows, columns) in enumerate([(4, 4), (3, 4), (3, 3)]):
        w = b.constant(random.standard_normal((rows, columns)).astype(np.float32), f"w{n}")
        c = b.constant(random.standard_normal(rows).astype(np.float32), f"b{n}")
        y = b.value(TensorType((2, rows)), f"y{n}")
        b.node(Node("flexasr.linear", (h, w, c), (y,)))
        h = y
    (flat,) = b.apply("reshape", [h], {"shape": (1, 2, 3)})
    w, c = b.constant(np.eye(3, dtype=np.float32), "w3"), b.constant(np.ones(3, np.float32), "b3")
    y = b.value(TensorType((1, 2, 3)), "y3")
    b.node(Node("flexasr.linear", (flat, w, c), (y,)))
    z = b.value(TensorType((1, 2, 3)), "z")
    b.node(Node("vta.alu", (y,), (z,)))
    return b.finish([z])


def body_of(p: Program) -> Callable[[Node], Program]:
    def body(node: Node) -> Program:
        if node.op == "flexasr.linear":
            return linear(node, p)
        b = Builder("alu")
        x = b.input("x", p.types[node.inputs[0]])
        half = b.constant(np.array(0.5, np.float32), "half")
        return b.finish(b.apply("mul", [x, half]))

    return body


def inlined(p: Program) -> Program:
    """The same program with every offload replaced by its meaning."""
    b = Builder(p.name)
    place = {v: b.input(p.names[v], p.types[v]) for v in p.inputs}
    place |= {v: b.constant(c, p.names[v]) for v, c in p.constants.items()}
    for node in p.nodes:
        body = Program("", (), (), node.inputs, node.outputs, (node,)) if node.operator else body_of(p)(node)
        inner = {i: place[v] for i, v in zip(body.inputs, node.inputs, strict=True)}
        inner |= {v: b.constant(c) for v, c in body.constants.items()}
        for n in body.nodes:
            inner |= dict(zip(n.outputs, b.apply(n.op, [inner[v] for v in n.inputs], dict(n.attributes)), strict=True))
        place |= {v: inner[o] for v, o in zip(node.outputs, body.outputs, strict=True)}
    return b.finish([place[v] for v in p.outputs])


def test_offloads_become_local_functions() -> None:
    p = offloaded()
    model = to_model(p, body_of(p))
    assert [(f.domain, f.name) for f in model.functions] == [("flexmatch.flexasr", "linear"), ("flexmatch.vta", "alu")]
    assert [n.op_type for n in model.graph.node if n.domain == "flexmatch.flexasr"] == ["linear"] * 4
    assert {o.domain: o.version for o in model.opset_import} == {"": 21, "flexmatch.flexasr": 1, "flexmatch.vta": 1}
    assert all([(o.domain, o.version) for o in f.opset_import] == [("", 21)] for f in model.functions)
    assert model.ir_version >= 8
    inputs = random_inputs(p)
    (found,) = in_onnxruntime(model.SerializeToString(), {"x": inputs[p.inputs[0]]})
    q = inlined(p)
    wanted = run(q, dict(zip(q.inputs, inputs.values(), strict=True)))[q.outputs[0]]
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_different_bodies_are_different_functions() -> None:
    b = Builder("plan")
    x = b.input("x", TensorType((2, 4)))
    y, z = b.value(TensorType((4, 2)), "y"), b.value(TensorType((8, 1)), "z")
    b.node(Node("flexasr.flatten", (x,), (y,)))
    b.node(Node("flexasr.flatten", (y,), (z,)))
    p = b.finish([z])

    def body(node: Node) -> Program:
        inner = Builder("body")
        return inner.finish(inner.apply("reshape", [inner.input("x", p.types[node.inputs[0]])], {"shape": p.types[node.outputs[0]].shape}))

    model = to_model(p, body)
    assert [f.name for f in model.functions] == ["flatten", "flatten_1"]
    (found,) = in_onnxruntime(model.SerializeToString(), {"x": np.zeros((2, 4), np.float32)})
    assert found.shape == (8, 1)


# -- opaque operations


def with_opaque(source: Any, types: list[TensorType], result: TensorType) -> Program:
    """A program of one opaque operation, whose payload is made as the importer makes it."""
    b = Builder("opaque")
    values = [b.input(f"in{n}", t) for n, t in enumerate(types)]
    y = b.value(result, "y")
    b.opaque["k"] = OpaqueOp(source.op_type, source.domain, canonical_node(source).SerializeToString(), "not understood")
    b.node(Node("opaque", tuple(values), (y,), (("key", "k"),)))
    return b.finish([y])


def test_an_opaque_operation_is_restored() -> None:
    source = helper.make_node("Resize", ["a", "", "s"], ["b"], mode="nearest")
    p = with_opaque(source, [TensorType((1, 1, 2, 2)), TensorType((4,))], TensorType((1, 1, 4, 4)))
    model = to_model(p)
    assert [n.input for n in model.graph.node] == [["in0", "", "in1"]]
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"in0": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), "in1": np.array([1, 1, 2, 2], np.float32)})
    assert found[0, 0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


def branch(name: str, op_type: str) -> Any:
    """A subgraph that reads two outer values and has names of its own that the program uses too."""
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    inner = [helper.make_node(op_type, ["outer", "other"], ["in1"]), helper.make_node("Relu", ["in1"], ["y"])]
    return helper.make_graph(inner, name, [], [out])


def test_subgraphs_read_renamed_values() -> None:
    source = helper.make_node("If", ["c"], ["z"], then_branch=branch("yes", "Add"), else_branch=branch("no", "Mul"))
    p = with_opaque(source, [TensorType((), "bool"), TensorType((2,)), TensorType((2,))], TensorType((2,)))
    two, three = np.array([2, -9], np.float32), np.array([3, 1], np.float32)
    for condition, wanted in ((True, [5, 0]), (False, [6, 0])):
        (found,) = in_onnxruntime(to_onnx(p), {"in0": np.array(condition), "in1": two, "in2": three})
        assert found.tolist() == wanted


def test_a_domain_of_onnxruntime_is_imported() -> None:
    source = helper.make_node("Gelu", ["a"], ["b"], domain="com.microsoft")
    p = with_opaque(source, [TensorType((2,))], TensorType((2,)))
    assert {o.domain: o.version for o in to_model(p).opset_import} == {"": 21, "com.microsoft": 1}
    (found,) = in_onnxruntime(to_onnx(p), {"in0": np.array([0, 100], np.float32)})
    assert found.tolist() == [0, 100]


def test_the_opset_is_the_least_that_has_every_operator() -> None:
    t = TensorType((1, 2, 3, 4))
    attention = helper.make_node("Attention", ["q", "k", "v"], ["y"], scale=0.5)
    assert to_model(with_opaque(attention, [t] * 3, t)).opset_import[0].version == 23
    inner = helper.make_graph(
        [helper.make_node("Swish", ["x"], ["y"])], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    )
    choice = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    assert to_model(with_opaque(choice, [TensorType((), "bool"), TensorType((2,))], TensorType((2,)))).opset_import[0].version == 24
    assert to_model(one_node("relu", [(2,)], {}, constant=False)).opset_import[0].version == 21


# -- real models


REAL = [
    "trained/resnet20_ts17.onnx", "trained/resnet20_dyn18.onnx", "trained/resnet20_ts13_bn.onnx", "trained/mnist-8.onnx",
    "trained/kws_dscnn_mlperf_float.onnx", "trained/kws_dscnn_mlperf_int8qdq.onnx", "trained/mbv2_cifar10_float.onnx",
    "trained/mbv2_cifar10_int8.onnx", "wlm/wlm_h128_lstm_dyn18.onnx", "wlm/wlm_h128_unrolled_dyn18.onnx",
    "arch/hf_bert_tiny.dyn18.onnx.xz", "arch/hf_bert_tiny.ts17.onnx.xz", "arch/hf_bert_tiny_sdpa.dyn23.onnx.xz",
    "arch/lstm_unroll.tf2onnx.onnx.xz", "arch/mobilenetv2.tf2onnx.onnx.xz", "arch/mobilenetv2_cifar.ts13.nofold.onnx.xz",
    "arch/resmlp_cifar.ts17.onnx.xz", "arch/resnet20_b.ts13.nofold.onnx.xz", "arch/transformer_small.dyn18.onnx.xz",
]  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_real_models_compute_the_same_when_written_again(shared_dir: Path, tmp_path: Path, name: str) -> None:
    file = shared_dir / "models" / name
    if file.suffix == ".xz":
        file = tmp_path / file.stem
        file.write_bytes(lzma.decompress((shared_dir / "models" / name).read_bytes()))
    p = load(file).program
    source, written = reference(file), Session(to_onnx(p))
    assert [(o.name, o.dtype) for o in written.outputs] == [(o.name, o.dtype) for o in source.outputs]
    inputs = {p.names[v]: x for v, x in random_inputs(p, 1).items()}
    wanted, found = source.run(inputs), written.run(inputs)
    for output in wanted:
        largest = np.abs(wanted[output].astype(float)).max()
        assert np.abs(found[output].astype(float) - wanted[output]).max() <= 1e-5 * largest


# -- refusals


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        make()
    return str(caught.value)


def test_refusals_are_sentences() -> None:
    p = offloaded()
    add = with_opaque(helper.make_node("Add", ["a", "b"], ["c"]), [TensorType((2,))], TensorType((2,)))

    def wrong(node: Node) -> Program:
        b = Builder("wrong")
        return b.finish([b.input(f"x{v}", p.types[v]) for v in node.inputs])

    assert refusal(lambda: to_onnx(p, opset=17)) == "plan: error[F111]: Opset of a written model must be 21 to 26, not 17"
    assert refusal(lambda: to_onnx(p)) == 'node "y0": error[F161]: operator flexasr.linear has no spelling in ONNX'
    assert refusal(lambda: to_onnx(p, wrong)) == (
        "error[F131]: Body of flexasr.linear must have the results float32[2, 4], not float32[2, 4], float32[4, 4], float32[4]"
    )
    assert refusal(lambda: to_onnx(add)) == 'node "y": error[F131]: Add reads 2 values and gives 1, not 1 and 1'


def test_a_model_of_two_gigabytes_is_refused() -> None:
    b = Builder("large")
    x = b.input("x", TensorType((1,)))
    c = b.constant(np.broadcast_to(np.float32(0), (1 << 29,)), "c")
    p = b.finish(b.apply("add", [x, c]))
    assert refusal(lambda: to_onnx(p)) == (
        "large: error[F105]: Constants of a written model must take less than 2147483648 bytes, not 2147483648"
    )
