"""What reviews and campaigns found, and its kin: external data in odd places, functions, payloads, attributes, types, hosts that fall."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bad_case import FLOAT, Case, both, changed, file, good, imported, ints, model, node, one, proto, value
from bad_files import WEIGHTS, Trick, at, beside, external, linked, replaced
from bad_models import leaf, whole
from onnx import TensorProto, helper, numpy_helper

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


def elsewhere(name: str, location: str) -> Any:
    """Return a tensor of six floats whose bytes are said to be in another file."""
    tensor = TensorProto(name=name, data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def function(name: str, body: list[Any], reads: tuple[str, ...] = ("a",), domain: str = "mine", opset: int = 21) -> Any:
    """Return a function with one result, b."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_function(domain, name, list(reads), ["b"], body, imports)


def calling(*functions: Any, call: str = "F", reads: tuple[str, ...] = ("x",), gives: tuple[str, ...] = ("y",), **attributes: Any) -> Any:
    """Return a model that calls a function."""
    return model([node(call, reads, gives, domain="mine", **attributes)], functions=functions, domains={"mine": 1})


NEGATED = [node("Neg", ["a"], ["b"])]


def in_attribute(location: str) -> Any:
    """Return a model with external data in a Constant."""
    return model([helper.make_node("Constant", [], ["k"], value=elsewhere("k", location)), node("Add", ["x", "k"])])


def in_branch(location: str) -> Any:
    """Return a model with external data in a branch."""
    branch = helper.make_graph([node("Add", ["x", "w"], ["z"])], "branch", [], [value("z", (2, 3))], [elsewhere("w", location)])
    return model([node("If", ["c"], then_branch=branch, else_branch=leaf())], [value("x", (2, 3)), value("c", (), BOOL)])


def in_function(location: str) -> Any:
    """Return a model with external data in a function."""
    return calling(function("F", [helper.make_node("Constant", [], ["k"], value=elsewhere("k", location)), node("Add", ["a", "k"], ["b"])]))


def in_sparse(location: str) -> Any:
    """Return a model with external data in a sparse constant."""
    return with_sparse((2, 3), elsewhere("s", location), ints(4))


def with_sparse(shape: tuple[int, ...], values: Any, places: Any) -> Any:
    """Return a model with a sparse constant."""
    made = model([node("Add", ["x", "s"])])
    tensor = values if isinstance(values, TensorProto) else numpy_helper.from_array(np.asarray(values, np.float32), "s")
    made.graph.sparse_initializer.add(values=tensor, indices=numpy_helper.from_array(places, "places"), dims=shape)
    return made


def bind_socket(folder: Path) -> None:
    """Make a socket of that name; its path must be short."""
    here = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("weights.bin")
    os.fchdir(here)
    os.close(here)


def through_link() -> Trick:
    """Let a folder of the location be a symbolic link."""
    return lambda folder: (folder / "sub").symlink_to("/etc")


LOCATIONS: dict[str, Case] = {
    "external_slash": beside(82, at("weights.bin/")),
    "external_backslash": beside(82, at("..\\weights.bin")),
    "external_zero_byte": beside(82, at("weights.bin\0/etc/passwd")),
    "external_plus": beside(89, at("weights.bin", offset="+0")),
    "external_underscore": beside(89, at("weights.bin", offset="0_0")),
    "external_digit": beside(89, at("weights.bin", offset="\u0660")),
    "external_digits": beside(89, at("weights.bin", offset="9" * 5000)),
    "external_one_short": beside(90, at("weights.bin", length="95")),
    "external_one_beyond": beside(89, at("weights.bin", offset="1")),
    "external_long_name": beside(88, at("a" * 5000)),
    "external_folder_link": beside(84, external(("location", "sub/passwd"), trick=through_link())),
    "external_socket": beside(86, external(trick=replaced(bind_socket))),
    "external_link_inside": beside(84, external(trick=linked("external.onnx"))),
    "external_escape": beside(88, at("\u202eweights\x1b[31m")),
    **imported(83, external_attribute=lambda: in_attribute("../../etc/passwd"), external_branch=lambda: in_branch("/etc/passwd")),
    **imported(83, external_function=lambda: in_function("../secret"), external_sparse=lambda: in_sparse("../values")),
    "external_attribute_good": Case(
        81, both(proto("external_attribute_good", lambda: in_attribute("weights.bin")), file("weights.bin", WEIGHTS))
    ),
}


def doubled(depth: int) -> Any:
    """Return functions each of which calls the one before it twice: two to that power nodes when they are written out."""
    made = [function("F0", NEGATED)]
    for n in range(1, depth):
        calls = [node(f"F{n - 1}", [a], [b], domain="mine", name=f"c{a}") for a, b in (("a", "h"), ("h", "b"))]
        made.append(function(f"F{n}", calls))
    return calling(*made, call=f"F{depth - 1}")


def referring(given: Any, kind: int = FLOAT) -> Any:
    """Return a function whose LeakyRelu has the slope of the call."""
    inner = node("LeakyRelu", ["a"], ["b"])
    inner.attribute.add(name="alpha", ref_attr_name="alpha", type=kind)
    made = function("F", [inner])
    made.attribute.append("alpha")
    return calling(made, alpha=given)


def scan(sequences: int) -> Any:
    """Return a Scan that negates rows."""
    body = helper.make_graph([node("Neg", ["a"], ["b"])], "body", [value("a", (3,))], [value("b", (3,))])
    return model([node("Scan", body=body, num_scan_inputs=sequences)])


FUNCTIONS: dict[str, Case] = {
    **imported(28, function_of_onnx=lambda: model([node("Relu")], functions=[function("Relu", NEGATED, domain="")])),
    **imported(28, function_twice=lambda: calling(function("F", NEGATED), function("F", NEGATED))),
    **imported(28, function_inputs_twice=lambda: calling(function("F", NEGATED, ("a", "a")), reads=("x", "x"))),
    **imported(32, function_ghost=lambda: calling(function("F", [node("Neg", ["a"], ["q"])]))),
    **imported(30, function_dangling=lambda: calling(function("F", [node("Neg", ["x"], ["b"])]))),
    **imported(21, function_opset=lambda: calling(function("F", NEGATED, opset=999))),
    **imported(37, functions_in_a_circle=lambda: calling(function("F", [node("G", ["a"], ["b"], domain="mine")]),
                                                         function("G", [node("F", ["a"], ["b"], domain="mine")]))),
    **imported(36, function_operands=lambda: calling(function("F", NEGATED), reads=("x", "x", "x"))),
    **imported(36, function_results=lambda: calling(function("F", NEGATED), gives=("y", "z"))),
    **imported(63, function_attribute=lambda: referring("text"), function_attribute_good=lambda: referring(0.5)),
    **imported(64, functions_doubled=lambda: doubled(40)),
    **imported(63, scan_none=lambda: scan(0), scan_negative=lambda: scan(-1), scan_two=lambda: scan(2), scan_many=lambda: scan(1 << 40)),
}  # fmt: skip


def cast(tensor: Any) -> Any:
    """Return a model that adds a constant of any type."""
    return model([node("Cast", ["w"], ["f"], to=FLOAT), node("Add", ["x", "f"])], constants={"w": tensor})


def typed(dtype: int, *numbers: int) -> Any:
    """Return a model with a constant whose elements are in the field for 32-bit integers."""
    return cast(TensorProto(name="w", data_type=dtype, dims=[len(numbers)], int32_data=numbers))


def segment() -> Any:
    """Return a model with a part of a tensor."""
    part = TensorProto(name="w", data_type=FLOAT, dims=[3], float_data=[1, 2, 3])
    part.segment.end = 3
    return cast(part)


def quotient(op: str, a: int, b: int) -> Any:
    """Return a model that computes with two integers."""
    nodes = [node(op, ["a", "b"], ["q"]), node("Cast", ["q"], ["f"], to=FLOAT), node("Add", ["x", "f"])]
    return model(nodes, outputs=[value("y", (2, 3))], constants={"a": ints(a), "b": ints(b)})


def strings() -> Any:
    """Return a model of strings."""
    return model([node("StringConcat", ["s", "s"])], [value("s", (2,), TensorProto.STRING)], [value("y", (2,), TensorProto.STRING)])


def of_type(made: Any) -> Any:
    """Return a model whose input is of another kind of type."""
    result = model([node("Relu")])
    result.graph.input[0].type.CopyFrom(made)
    return result


def huge_pool() -> Any:
    """Return a pooling whose one window is two to the 80 elements of padding."""
    return one("AveragePool", (1, 1, 4, 4), kernel_shape=[1 << 40] * 2, pads=[1 << 39] * 4)


SMALLEST = -(1 << 63)
PLAIN = helper.make_tensor_type_proto(FLOAT, (2, 3))
VALUES: dict[str, Case] = {
    **imported(70, bool_two=lambda: typed(BOOL, 2, 0, 1), uint8_beyond=lambda: typed(TensorProto.UINT8, 300, 0, 1)),
    **imported(70, int8_beyond=lambda: typed(TensorProto.INT8, 1, -129, 1), float16_beyond=lambda: typed(TensorProto.FLOAT16, 0, 70000, 0)),
    **imported(70, int8_good=lambda: typed(TensorProto.INT8, -128, 127, 0), segment=segment),
    **imported(76, sparse_descending=lambda: with_sparse((2, 3), [1, 2], ints(4, 1))),
    **imported(76, sparse_range=lambda: with_sparse((2, 3), [1], ints(6))),
    **imported(76, sparse_twice=lambda: with_sparse((2, 3), [1, 2], ints(4, 4))),
    **imported(76, sparse_huge=lambda: with_sparse((1 << 40, 1 << 40), [1], ints(4))),
    **imported(50, quotient_smallest=lambda: quotient("Div", SMALLEST, -1), modulo_smallest=lambda: quotient("Mod", SMALLEST, -1)),
    **imported(50, quotient_zero=lambda: quotient("Div", 1, 0), modulo_zero=lambda: quotient("Mod", 1, 0)),
    **whole(50, "power_beyond_compiled", lambda: quotient("Pow", 1 << 40, 1 << 40)),
    **whole(76, "strings_compiled", strings),
    **whole(69, "slope_nan_compiled", lambda: one("LeakyRelu", (2, 3), alpha=float("nan"))),
    **imported(64, huge_pool=huge_pool, doubled=lambda: model(
        [node("Concat", [f"v{n}"] * 2, [f"v{n + 1}"], axis=0, name=f"c{n}") for n in range(40)], [value("v0", (2, 3))], ["v40"])),
    **imported(64, one_hot=lambda: one("OneHot", ints(1), np.asarray(1 << 40), np.asarray([0, 1], np.float32))),
    **imported(62, untyped=lambda: of_type(onnx.TypeProto()), sequence=lambda: of_type(helper.make_sequence_type_proto(PLAIN))),
    **imported(62, optional=lambda: of_type(helper.make_optional_type_proto(PLAIN))),
    **imported(49, nine_axes=lambda: model([node("Relu")], [value("x", (1,) * 9)])),
    **imported(49, largest=lambda: model([node("Relu")], [value("x", ((1 << 63) - 1, 3))])),
    **imported(32, output_twice=lambda: model([node("Relu")], outputs=["y", "y"])),
    **imported(32, output_unnamed=lambda: model([node("Relu")], outputs=["y", ""])),
    **imported(28, input_twice=lambda: model([node("Relu")], [value("x", (2, 3))] * 2)),
    **imported(28, result_twice=lambda: model([node("Split", ["x"], ["y", "y"], axis=0, num_outputs=2)])),
    **imported(63, split_count=lambda: one("Split", (2, 6), results=2, axis=1, num_outputs=3)),
    **imported(63, untyped_attribute=lambda: changed(lambda m: m.graph.node[0].attribute[0].ClearField("type"))),
    **imported(63, attribute_twice=lambda: changed(lambda m: m.graph.node[0].attribute.append(m.graph.node[0].attribute[0]))),
    **imported(56, axis_smallest=lambda: one("Concat", (2, 3), axis=SMALLEST), axis_below=lambda: one("Softmax", (2, 3), axis=-3)),
    **imported(59, gather_below=lambda: one("Gather", (2, 3), ints(-3))),
    **imported(63, slice_axes=lambda: one("Slice", (2, 3), ints(0, 0), ints(1, 1), ints(0, 0))),
    **imported(63, einsum=lambda: one("Einsum", (2, 3), equation="ab->abz")),
    **imported(63, long_perm=lambda: one("Transpose", (2, 3), perm=[0] * 100_000)),
}  # fmt: skip


BYTES: dict[str, Case] = {
    f"bytes_{name}": Case(5, file(f"bytes_{name}.onnx", bytes(good().SerializeToString()) + data))
    for name, data in {"zero_tag": b"\0\0", "group": b"\x0b", "repeated": bytes(good().SerializeToString())}.items()
}
FOUND: dict[str, Case] = {**LOCATIONS, **FUNCTIONS, **VALUES, **BYTES}
