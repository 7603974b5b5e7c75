"""Rows 18–80: headers, graphs, names, types, bombs and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from bad_case import FLOAT, Case, changed, file, imported, ints, linear, model, node, one, proto, value
from onnx import TensorProto, helper


def set_import(version: int, domain: str = "") -> Any:
    """Return the good model that imports an operator set once more, or in another version."""

    def change(m: Any) -> None:
        if domain:
            m.opset_import.add(domain=domain, version=version)
        else:
            m.opset_import[0].version = version

    return changed(change)


def field(place: str, name: str, new: Any) -> Any:
    """Return the good model with a field of its graph's first initializer, input or second node replaced."""

    def change(m: Any) -> None:
        whole = {"initializer": m.graph.initializer[0], "input": m.graph.input[0], "node": m.graph.node[1], "model": m}[place]
        if isinstance(new, list):
            whole.ClearField(name)
            getattr(whole, name).extend(new)
        else:
            setattr(whole, name, new)

    return changed(change)


def reads(number: int, name: str) -> Any:
    """Return the good model in which a node reads something else."""
    return changed(lambda m: m.graph.node[number].input.__setitem__(0, name))


HEADER: dict[str, Case] = {
    **imported(18, ir_zero=lambda: field("model", "ir_version", 0)),
    **imported(19, ir_new=lambda: field("model", "ir_version", 999)),
    **imported(20, opset_zero=lambda: set_import(0), opset_none=lambda: changed(lambda m: m.ClearField("opset_import"))),
    **imported(21, opset_new=lambda: set_import(999)),
    **imported(22, opset_twice=lambda: set_import(17, "ai.onnx")),
    **imported(23, unknown_domain=lambda: model([node("Mine", domain="mine")], outputs=[value("y", (2, 3))], domains={"mine": 1})),
    **imported(24, unknown_operator=lambda: model([node("Frobnicate")], outputs=[value("y", (2, 3))])),
}


def chain(length: int) -> Any:
    """Return a chain of ReLUs."""
    names = ["x", *(f"h{n}" for n in range(length - 1)), "y"]
    return model([node("Relu", [names[n]], [names[n + 1]], name=f"r{n}") for n in range(length)])


def wide(fan: int) -> Any:
    """Return a sum of many constants and the input."""
    constants = {f"c{n}": np.full((2, 3), n, np.float32) for n in range(fan)}
    return model([node("Sum", ["x", *constants])], constants=constants)


def nested(depth: int) -> Any:
    """Return an If inside an If inside …"""
    body = leaf()
    for _ in range(depth):
        choice = node("If", ["c"], ["y"], then_branch=body, else_branch=leaf())
        body = helper.make_graph([choice], "level", [], [value("y", (2, 3))])
    return model(body.node, [value("x", (2, 3)), value("c", (), TensorProto.BOOL)])


def wrapped(depth: int) -> bytes:
    """Return the bytes of a model with graphs inside graphs, deeper than a protobuf library writes."""

    def field(number: int, data: bytes) -> bytes:
        size, out = len(data), bytes([number << 3 | 2])
        while size > 127:
            out, size = out + bytes([size & 127 | 128]), size >> 7
        return out + bytes([size]) + data

    inner = b""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, inner) + bytes([20 << 3 & 127 | 128, 1, 5])
        inner = field(1, field(4, b"If") + field(5, attribute))
    return bytes(model([node("Relu")]).SerializeToString()) + field(7, inner)


def leaf() -> Any:
    """Return the branch that is taken otherwise."""
    return helper.make_graph([node("Neg", ["x"], ["y"])], "leaf", [], [value("y", (2, 3))])


def recursive() -> Any:
    """Return a model whose function calls itself."""
    body = [node("Self", ["a"], ["b"], domain="mine")]
    function = helper.make_function("mine", "Self", ["a"], ["b"], body, [helper.make_opsetid("mine", 1), helper.make_opsetid("", 21)])
    return model([node("Self", domain="mine")], functions=[function], domains={"mine": 1})


def shadowed() -> Any:
    """Return a model whose initializer is an input, too."""
    w = np.ones((2, 3), np.float32)
    return model([node("Add", ["x", "w"])], [value("x", (2, 3)), value("w", (2, 3))], constants={"w": w})


RELU = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"])]
GRAPH: dict[str, Case] = {
    **imported(25, cycle=lambda: reads(0, "c")),
    **imported(26, self_loop=lambda: reads(1, "b")),
    **imported(27, unsorted=lambda: model(RELU[::-1])),
    **imported(28, defined_twice=lambda: changed(lambda m: m.graph.node[1].output.__setitem__(0, "a"))),
    **imported(29, names_twice=lambda: model([node("Relu", ["x"], ["a"], name="n"), node("Neg", ["a"], ["y"], name="n")])),
    **imported(30, dangling=lambda: reads(1, "gone")),
    **imported(31, no_outputs=lambda: changed(lambda m: m.graph.ClearField("output"))),
    **imported(32, ghost_output=lambda: changed(lambda m: setattr(m.graph.output[0], "name", "ghost"))),
    **imported(33, no_nodes=lambda: model([], outputs=["x"])),
    **imported(34, shadowed=shadowed),
    **imported(35, initializer_twice=lambda: changed(lambda m: m.graph.initializer.append(m.graph.initializer[0]))),
    **imported(36, empty_operand=lambda: reads(1, "")),
    **imported(37, recursive=recursive),
    **imported(38, long_chain=lambda: chain(20_000)),
    **imported(39, wide_sum=lambda: wide(20_000)),
    **imported(40, nested_20=lambda: nested(20)),
    "nested_100": Case(40, file("nested_100.onnx", wrapped(100))),
    "nested_1000": Case(40, file("nested_1000.onnx", wrapped(1000))),
}


def named(name: str) -> Any:
    """Return a model with a name in every place."""
    return model([node("Relu", ["x"], [name], name=name), node("Neg", [name], ["y"])])


def bad_text() -> bytes:
    """Return a model with a name that is no UTF-8."""
    return bytes(named("nnnnnnnn").SerializeToString()).replace(b"nnnnnnnn", b"\xff\xfe\xff\xfennnn")


NAMES: dict[str, Case] = {
    **imported(41, markup=lambda: named("<script>alert(1)</script>\"'`${x}")),
    **imported(42, control=lambda: named("a\x1b[31m\x07\u202eb")),
    **imported(43, long_name=lambda: named("n" * (1 << 20))),
    **imported(44, symbols=lambda: named("(dense rewrite)"), zero_byte=lambda: named("a\x00b")),
    "two_lines": Case(42, proto("two_lines", lambda: model([node("Relu", ["x"], ["y"])], outputs=["a\nb"]))),
    "no_utf8": Case(44, file("no_utf8.onnx", bad_text())),
}

W = np.ones((6, 2, 3, 3), np.float32)
X = (1, 2, 5, 5)
SHAPES: dict[str, Case] = {
    **imported(45, no_shapes=lambda: model([node("Relu")], [value("x")])),
    "no_shapes_bound": Case(45, proto("no_shapes_bound", lambda: model([node("Relu")], [value("x")])), shapes={"x": (2, 3)}),
    **imported(46, symbolic=lambda: model([node("Relu")], [value("x", ("n", 3))])),
    **imported(46, symbolic_inner=lambda: model([node("Relu")], [value("x", (2, "k"))])),
    **imported(47, negative=lambda: model([node("Relu")], [value("x", (2, -3))])),
    **imported(48, zero=lambda: model([node("Relu")], [value("x", (0, 3))])),
    **imported(49, enormous=lambda: model([node("Relu")], [value("x", (1 << 40, 1 << 40))])),
    **imported(50, reshape_overflow=lambda: one("Reshape", (2, 3), ints(1 << 40, 1 << 40))),
    **imported(51, two_unknown=lambda: one("Reshape", (2, 3), ints(-1, -1)), minus_two=lambda: one("Reshape", (2, 3), ints(-2, 3))),
    **imported(52, reshape_mismatch=lambda: one("Reshape", (2, 3), ints(4, 2))),
    **imported(53, zero_copies=lambda: one("Reshape", (2, 3), ints(0, -1))),
    **imported(53, zero_allowed=lambda: one("Reshape", (2, 3), ints(0, -1), allowzero=1)),
    **imported(54, group=lambda: one("Conv", (1, 4, 5, 5), W, group=3), group_zero=lambda: one("Conv", (1, 4, 5, 5), W, group=0)),
    **imported(54, kernel=lambda: one("Conv", (1, 2, 2, 5), W), stride=lambda: one("Conv", X, W, strides=[0, 1])),
    **imported(54, dilation=lambda: one("Conv", X, W, dilations=[0, 1]), pads=lambda: one("Conv", X, W, pads=[-1, 0, 0, 0])),
    **imported(54, huge_pads=lambda: one("Conv", X, W, pads=[1 << 40] * 4)),
    **imported(55, matmul=lambda: one("MatMul", (2, 3), (4, 2))),
    **imported(56, concat=lambda: one("Concat", (2, 3), (2, 3), axis=2)),
    **imported(57, perm=lambda: one("Transpose", (2, 3), perm=[0, 0])),
    **imported(58, step=lambda: one("Slice", (2, 3), ints(0), ints(2), ints(1), ints(0))),
    **imported(59, gather=lambda: one("Gather", (2, 3), ints(99))),
    **imported(60, output_shape=lambda: model([node("Relu")], outputs=[value("y", (2, 4))])),
    **imported(61, inner_shape=lambda: changed(lambda m: m.graph.value_info.append(value("a", (7, 7))))),
    **imported(62, types=lambda: model([node("Add", ["x", "k"])], constants={"k": ints(1)})),
    **imported(63, attribute_type=lambda: one("Concat", (2, 3), axis=0.5), attribute_unknown=lambda: one("Relu", (2, 3), mine=1)),
    **imported(63, attribute_missing=lambda: one("Concat", (2, 3))),
}


def endless() -> Any:
    """Return a loop that never ends by itself."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["again"]), node("Neg", ["v"], ["w"])], "body",
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("v", (2, 3))],
        [value("again", (), TensorProto.BOOL), value("w", (2, 3))],
    )  # fmt: skip
    return model([node("Loop", ["", "t", "x"], body=body)], outputs=[value("y", (2, 3))], constants={"t": np.asarray(True)})


def repeated(times: int) -> Any:
    """Return the same subgraph many times."""
    nodes = [node("Relu", ["x"], [f"a{n}"], name=f"r{n}") for n in range(times)]
    return model([*nodes, node("Sum", [f"a{n}" for n in range(times)])])


BOMBS: dict[str, Case] = {
    **imported(64, fill=lambda: one("ConstantOfShape", ints(1 << 18, 1 << 18)), tile=lambda: one("Tile", (2, 3), ints(1 << 30, 1 << 30))),
    **imported(64, expand=lambda: one("Expand", (2, 1), ints(2, 1 << 40)), pad=lambda: one("Pad", (2, 3), ints(0, 0, 0, 1 << 40))),
    **imported(64, count=lambda: one("Range", *(np.asarray(n, np.int64) for n in (0, 1 << 40, 1)))),
    **imported(65, endless=endless),
    **imported(66, repeated=lambda: repeated(1000)),
    **imported(68, fan=lambda: one("Split", (2, 300), results=300, num_outputs=300, axis=1)),
}


def odd(x: float) -> Any:
    """Return a linear layer with an odd weight."""
    made = linear()
    weights = np.linspace(-1, 1, 64, dtype=np.float32)
    weights[5] = x
    made.graph.initializer[0].raw_data = weights.tobytes()
    return made


def small_types(code: int) -> Any:
    """Return a cast of weights of a small type."""
    w = helper.make_tensor("w", code, [2, 3], [1, 2, 3, 4, 5, 6])
    return model([node("Cast", ["w"], ["f"], to=FLOAT), node("Add", ["x", "f"])], constants={"w": w})


def sparse() -> Any:
    """Return a model with a sparse constant."""
    made = model([node("Add", ["x", "s"])])
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            helper.make_tensor("s", FLOAT, [1], [2.0]), helper.make_tensor("s_index", TensorProto.INT64, [1], [4]), [2, 3]
        )
    )
    return made


def quantised(scale: float, zero: int = 0, dtype: Any = np.int8) -> Any:
    """Return a quantisation with a scale."""
    return one("QuantizeLinear", (2, 3), np.asarray(scale, np.float32), np.asarray(zero, dtype))


def lstm(hidden: int) -> Any:
    """Return an LSTM whose recurrent weights are for another size."""
    weights = [np.ones((1, 16, 3), np.float32), np.ones((1, 16, hidden), np.float32)]
    return one("LSTM", (5, 1, 3), *weights, hidden_size=4)


WEIGHTS: dict[str, Case] = {
    **imported(69, nan=lambda: odd(float("nan")), infinity=lambda: odd(float("inf")), denormal=lambda: odd(1e-42)),
    **imported(70, payload=lambda: field("initializer", "dims", [2, 3, 2, 3])),
    **imported(71, two_payloads=lambda: field("initializer", "float_data", [1.0])),
    **imported(72, unknown_type=lambda: field("initializer", "data_type", 999)),
    **imported(
        73, no_data=lambda: model([node("Add", ["x", "w"])], constants={"w": TensorProto(name="w", data_type=1, dims=[1 << 40] * 2)})
    ),
    **imported(74, negative_dims=lambda: field("initializer", "dims", [-2, 3, 2, 2])),
    **imported(75, float16=lambda: small_types(TensorProto.FLOAT16), bfloat16=lambda: small_types(TensorProto.BFLOAT16)),
    **imported(75, float8=lambda: small_types(TensorProto.FLOAT8E4M3FN), int4=lambda: small_types(TensorProto.INT4)),
    **imported(76, sparse=sparse),
    **imported(76, strings=lambda: model([node("Identity", ["s"])], constants={"s": np.asarray(["a", "b"])})),
    **imported(77, scale_zero=lambda: quantised(0.0), scale_nan=lambda: quantised(float("nan")), scale_negative=lambda: quantised(-1.0)),
    **imported(78, lstm=lambda: lstm(5)),
}


def large_softplus() -> Any:
    """Return a softplus of values beyond 88, where its definition by exp and log overflows."""
    made = model([node("Mul", ["x", "k"], ["a"]), node("Softplus", ["a"])], constants={"k": np.full((2, 3), 200, np.float32)})
    made.graph.output[0].CopyFrom(value("y", (2, 3)))
    return made


def reversed_bounds() -> Any:
    """Return a Clip whose lower bound is infinity: all it gives is the upper one."""
    bounds = {"low": np.float32(np.inf), "high": np.float32(2)}
    return model([node("Clip", ["x", "low", "high"])], outputs=[value("y", (2, 3))], constants=bounds)


def absent_bias() -> Any:
    """Return a LayerNormalization whose bias is written as absent: onnxruntime falls when it gets it."""
    nodes = [node("LayerNormalization", ["x", "g", ""])]
    return model(nodes, outputs=[value("y", (2, 3))], constants={"g": np.ones(3, np.float32)})


def whole(row: int, name: str, made: Any, *more: str) -> dict[str, Case]:
    """Return a case that goes through the whole compiler."""
    return {name: Case(row, proto(name, made), (f"{name}.onnx", "--accel", "flexasr", *more))}


COMPILED: dict[str, Case] = {
    **whole(19, "new_ir_compiled", lambda: field("model", "ir_version", 999)),
    **whole(24, "unknown_operator_compiled", lambda: model([node("Frobnicate")], outputs=[value("y", (2, 3))])),
    **whole(33, "no_nodes_compiled", lambda: model([], outputs=["x"])),
    **whole(65, "endless_compiled", endless, "--limits", "host_seconds=1"),
    **whole(69, "large_softplus_compiled", large_softplus),
    **whole(69, "infinity_compiled", lambda: odd(float("inf"))),
    **whole(69, "reversed_bounds_compiled", reversed_bounds),
    **whole(36, "absent_bias_compiled", absent_bias),
}
