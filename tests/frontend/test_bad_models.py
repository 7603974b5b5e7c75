"""Models that are wrong: the whole sentence, with the node and the value."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import imported, info, model, normal_model, refusal, session, single

from rewrite_compiler.frontend.load import LoadedModel
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import Limits

X = TensorType((2, 3))
INT32, INT64_MAX = 6, (1 << 63) - 1


def node(op: str, reads: list[str], gives: list[str], **attributes: Any) -> Any:
    """A node named after its first result."""
    return helper.make_node(op, reads, gives, name=f"n_{gives[0]}", **attributes)


def changed(change: Callable[[Any], None]) -> Any:
    """The model with nothing wrong, changed."""
    proto = copy.deepcopy(normal_model())
    change(proto)
    return proto


def relu(*nodes: Any, outputs: list[Any] | None = None, **more: Any) -> Any:
    """A model with the input x."""
    return model(nodes, {"x": X}, outputs or ["y"], **more)


def test_nothing_is_wrong_with_the_model_that_is_changed_below() -> None:
    assert imported(normal_model()).program.notes == ()


def branched() -> Any:
    """A model with a branch that declares its result."""
    branches = [helper.make_graph([node("Relu", ["m"], [b])], b, [], [info(b, X)]) for b in ("one", "two")]
    nodes = [node("Neg", ["x"], ["m"]), node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    return model(nodes, {"x": X}, [info("y", X)], {"c": np.array(True)})


def untyped(read: Callable[[Any], Any], *, cleared: bool) -> Callable[[Any], None]:
    """Take the element type from a declaration."""

    def change(proto: Any) -> None:
        tensor = read(proto.graph).type.tensor_type
        tensor.ClearField("elem_type") if cleared else setattr(tensor, "elem_type", 0)

    return change


DECLARED: dict[str, Callable[[Any], Any]] = {
    'input "x"': lambda g: g.input[0],
    'input "c"': lambda g: g.input.append(info("c", TensorType((), "bool"))) or g.input[-1],  # names an initializer
    'output "y"': lambda g: g.output[0],
    'value "m"': lambda g: g.value_info.append(info("m", X)) or g.value_info[-1],
    'output "one"': lambda g: next(a for a in g.node[1].attribute if a.name == "then_branch").g.output[0],
}


@pytest.mark.parametrize("cleared", [False, True], ids=["of type 0", "of no type"])
@pytest.mark.parametrize("what", DECLARED)
def test_an_element_type_that_there_is_not_is_refused_as_onnxruntime_does(what: str, cleared: bool) -> None:
    proto = branched()
    assert session(proto) is not None
    imported(proto)
    untyped(DECLARED[what], cleared=cleared)(proto)
    with pytest.raises(Exception, match=r"(?i)type"):
        session(proto)
    assert refusal(proto).startswith(f"app.onnx: error[F133]: Element type of {what} must be one that ONNX defines (1 to 26), not 0")


def set_tensor(n: int, **fields: Any) -> Callable[[Any], None]:
    """Replace fields of an initializer."""

    def change(proto: Any) -> None:
        t = proto.graph.initializer[n]
        for name, value in fields.items():
            t.ClearField(name)
            if isinstance(value, list):
                getattr(t, name).extend(value)
            else:
                setattr(t, name, value)

    return change


def add_import(domain: str, version: int) -> Callable[[Any], None]:
    """Import one more operator set."""
    return lambda proto: proto.opset_import.add(domain=domain, version=version)  # type: ignore[no-any-return]


def set_version(version: int) -> Callable[[Any], None]:
    """Replace the operator set."""

    def change(proto: Any) -> None:
        proto.opset_import[0].version = version

    return change


def rename(place: Callable[[Any], Any], value: str) -> Callable[[Any], None]:
    """Replace a name."""
    return lambda proto: setattr(place(proto), "name", value)


def set_input(dims: list[int], dtype: int = 1) -> Callable[[Any], None]:
    """Replace the declaration of the input."""

    def change(proto: Any) -> None:
        proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", dtype, dims))

    return change


def clear(field: str) -> Callable[[Any], None]:
    """Drop a field of the model."""
    return lambda proto: proto.ClearField(field)  # type: ignore[no-any-return]


def node_input(n: int, k: int, name: str) -> Callable[[Any], None]:
    """Replace what a node reads."""

    def change(proto: Any) -> None:
        proto.graph.node[n].input[k] = name

    return change


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (clear("ir_version"), "app.onnx: error[F110]: IR version must be 1 or more, not 0"),
    (clear("opset_import"), "app.onnx: error[F111]: the model imports no operator set"),
    (
        set_version(999),
        "app.onnx: error[F111]: operator set of the model must be 1 to 26, not 999\n  help: export it with operator set 26 or older",
    ),
    (set_version(0), "app.onnx: error[F111]: the model must import a positive operator set version, not 0"),
    (add_import("ai.onnx", 17), "app.onnx: error[F112]: the model must import the operator set of ai.onnx once, not as 21 and 17"),
    (
        lambda proto: setattr(proto.graph.node[1], "domain", "mine"),
        'app.onnx:node "relu": error[F111]: Relu is of the domain "mine", whose operator set is not imported',
    ),
    (node_input(0, 0, "c"), 'app.onnx:node "conv": error[F120]: the nodes form a cycle: conv → reshape → relu → conv'),
    (node_input(1, 0, "b"), 'app.onnx:node "relu": error[F120]: the nodes form a cycle: relu → relu'),
    (
        lambda proto: proto.graph.node[1].output.__setitem__(0, "a"),
        'app.onnx:node "relu": error[F121]: value "a" is defined here and by node "conv"',
    ),
    (
        lambda proto: proto.graph.node[1].output.__setitem__(0, "w"),
        'app.onnx:node "relu": error[F121]: value "w" is defined here and by the graph\'s inputs or constants',
    ),
    (
        lambda proto: proto.graph.initializer.append(proto.graph.initializer[0]),
        'app.onnx: error[F121]: initializer "w" is defined twice',
    ),
    (lambda proto: proto.graph.input.append(proto.graph.input[0]), 'app.onnx: error[F121]: graph input "x" is defined twice'),
    (rename(lambda proto: proto.graph.input[0], ""), "app.onnx: error[F121]: every graph input must have a name"),
    (node_input(1, 0, "gone"), 'app.onnx:node "relu": error[F122]: input "gone" is not the result of any node, an input or a constant'),
    (node_input(1, 0, ""), 'app.onnx:node "relu": error[F122]: operand 0 of Relu is required and must not be empty'),
    (lambda proto: proto.graph.ClearField("output"), "app.onnx: error[F123]: the model has no outputs"),
    (rename(lambda proto: proto.graph.output[0], "ghost"), 'app.onnx: error[F123]: output "ghost" is not defined by any node'),
    (lambda proto: proto.graph.output.append(proto.graph.output[0]), 'app.onnx: error[F123]: output "y" is defined twice'),
    (lambda proto: proto.graph.node[1].ClearField("output"), 'app.onnx:node "relu": error[F123]: Relu defines no value'),
    (lambda proto: proto.graph.node[1].ClearField("op_type"), 'app.onnx:node "relu": error[F130]: a node must name its operator'),
    (
        lambda proto: rename(lambda p: p.graph.node[0].attribute[0], "stride")(proto),
        'app.onnx:node "conv": error[F130]: Conv has no attribute "stride"\n'
        "  help: its attributes are auto_pad, dilations, group, kernel_shape, pads, strides",
    ),
    (
        lambda proto: proto.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("strides", 2)),
        'app.onnx:node "conv": error[F130]: attribute "strides" of Conv must be INTS, not INT',
    ),
    (
        lambda proto: proto.graph.node[0].attribute.append(proto.graph.node[0].attribute[0]),
        'app.onnx:node "conv": error[F130]: attribute "strides" is given twice',
    ),
    (set_input([1, 3, 3, 3], INT32), 'app.onnx:node "conv": error[F131]: operand 0 of Conv must not be of type int32\n'
     "  help: it may be float16, float32, float64"),
    (
        set_input([1, 3, 3, 3], 11),
        'app.onnx:node "conv": error[F131]: operand 1 of Conv must be of type float64, as those before it, not float32',
    ),
    (
        set_input([1, 2, 3, 3]),
        'app.onnx:node "conv": error[F131]: Filters of conv must have 2 channels (2 over group 1), not 3',
    ),
    (set_input([1, 3, -3, 3]), 'app.onnx: error[F132]: Dimensions of input "x" must be zero or positive, not -3'),
    (set_input([1, 3, 3, 3], 999), 'app.onnx: error[F133]: Element type of input "x" must be one that ONNX defines (1 to 26), not 999'),
    (
        lambda proto: proto.graph.output[0].CopyFrom(info("y", TensorType((1, 4)))),
        'app.onnx: error[F134]: output "y" is declared as float32[1, 4] and the model computes float32[1, 3]',
    ),
    (
        lambda proto: proto.graph.output[0].CopyFrom(info("y", TensorType((1, 3), "int64"))),
        'app.onnx: error[F134]: output "y" is declared as int64[1, 3] and the model computes float32[1, 3]',
    ),
    (set_tensor(0, dims=[-2, 3, 2, 2]), 'app.onnx: error[F132]: Dimensions of Initializer "w" must be zero or positive, not [-2, 3, 2, 2]'),
    (
        set_tensor(0, data_type=999),
        'app.onnx: error[F133]: Element type of Initializer "w" must be one that ONNX defines (1 to 26), not 999',
    ),
    (set_tensor(0, dims=[2, 3, 2, 3]), 'app.onnx: error[F140]: Initializer "w" (float32[2, 3, 2, 3]) must have 144 bytes of data, not 96'),
    (
        set_tensor(0, raw_data=b"", dims=[1 << 40, 1 << 40]),
        f'app.onnx: error[F105]: Initializer "w" must have at most 2147483648 bytes, not {4 << 80}\n  help: raise --limits tensor_bytes=',
    ),
    (set_tensor(0, dims=[1] * 9), 'app.onnx: error[F105]: Initializer "w" must have at most 8 axes, not 9\n  help: raise --limits rank='),
    (set_tensor(0, float_data=[1.0]), 'app.onnx: error[F141]: Initializer "w" must have one payload, not float_data and raw_data'),
    (
        lambda proto: proto.graph.initializer[1].CopyFrom(TensorProto(name="shape", data_type=7, dims=[2], float_data=[1, -1])),
        'app.onnx: error[F140]: Payload of Initializer "shape" (int64) must be in int64_data, not in float_data',
    ),
    (
        lambda proto: proto.graph.initializer[1].CopyFrom(TensorProto(name="shape", data_type=7, dims=[2], int64_data=[1])),
        'app.onnx: error[F140]: Initializer "shape" (int64[2]) must have 2 elements in int64_data, not 1',
    ),
    (set_tensor(1, data_type=8), 'app.onnx: error[F140]: Initializer "shape" holds strings, which cannot be raw_data'),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), CHANGES, ids=[s.partition("error[")[2][:50] for _, s in CHANGES])
def test_one_change_one_sentence(change: Callable[[Any], None], sentence: str) -> None:
    assert refusal(changed(change)) == sentence


def ints(*values: int) -> np.ndarray[Any, Any]:
    """A constant of int64 elements."""
    return np.asarray(values, np.int64)


W = np.ones((6, 2, 3, 3), np.float32)
SHAPES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Reshape", [(2, 3), ints(-1, -1)], {}, "Extents of Reshape must be positive, 0 or one −1, not [-1, -1]"),
    ("Reshape", [(2, 3), ints(-2, 3)], {}, "Extents of Reshape must be positive, 0 or one −1, not [-2, 3]"),
    ("Reshape", [(2, 3), ints(4, 2)], {}, "Reshape must keep the 6 elements of (2, 3), not make (4, 2)"),
    ("Reshape", [(2, 3), ints(4, -1)], {}, "Reshape cannot make [4, -1] from the 6 elements of (2, 3)"),
    ("Reshape", [(2, 3), ints(1 << 40, 1 << 40)], {}, f"Reshape must keep the 6 elements of (2, 3), not make ({1 << 40}, {1 << 40})"),
    ("Reshape", [(2, 3), ints(2, 3, 0)], {}, "A 0 of Reshape copies an extent of (2, 3), which has none at that place: [2, 3, 0]"),
    ("Reshape", [(2, 3), ints(0, -1)], {"allowzero": 1}, "Reshape with allowzero takes a 0 or a −1, not both: [0, -1]"),
    ("Reshape", [(2, 3), np.ones((1, 2), np.int64)], {}, "Extents of Reshape must be a list, not a tensor of shape (1, 2)"),
    ("Conv", [(1, 4, 5, 5), W], {"group": 3}, "Group of conv must divide the 4 channels and 6 filters, not 3"),
    ("Conv", [(1, 4, 5, 5), W], {"group": 0}, "Group of conv must divide the 4 channels and 6 filters, not 0"),
    ("Conv", [(1, 2, 2, 5), W], {}, "A window of 3 does not fit in 2 elements padded by 0 and 0"),
    ("Conv", [(1, 2, 5, 5), W], {"strides": [0, 1]}, "Strides must be positive, not (0, 1)"),
    ("Conv", [(1, 2, 5, 5), W], {"dilations": [0, 1]}, "Dilations must be positive, not (0, 1)"),
    ("Conv", [(1, 2, 5, 5), W], {"pads": [-1, 0, 0, 0]}, "Pads must not be negative, not (-1, 0, 0, 0)"),
    ("Conv", [(1, 2, 5, 5), W], {"pads": [1, 1]}, "Conv over 2 axes needs 4 pads and a positive kernel, not (1, 1) and (3, 3)"),
    ("Conv", [(1, 2, 5, 5), W], {"kernel_shape": [2, 2]}, "kernel_shape of Conv must be that of its filters (3, 3), not (2, 2)"),
    (
        "Conv", [(1, 2, 5, 5), W], {"auto_pad": "SAME"}, 'auto_pad of Conv must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not "SAME"',
    ),
    ("Conv", [(2, 5, 5), W], {}, "Conv needs x[N, C, …] and w[O, C/group, …] of one rank, not (2, 5, 5) and (6, 2, 3, 3)"),
    (
        "MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]},
        "Pads of MaxPool must be smaller than its kernel (2, 2), not (2, 0, 0, 0)",
    ),
    (
        "MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [2]},
        "MaxPool over 2 axes needs as many kernel extents, strides and dilations, not (2,), (1,) and (1,)",
    ),
    ("MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [2, 2], "ceil_mode": 2}, "ceil_mode of MaxPool must be 0 or 1, not 2"),
    ("MatMul", [(2, 3), (4, 2)], {}, "Inner dimensions of matmul must agree: a has 3 and b has 4"),
    ("MatMul", [(2, 3), ()], {}, "MatMul needs operands of rank 1 or more, not (2, 3) and ()"),
    ("Gemm", [(2, 3), (4, 2)], {}, "Inner dimensions of dense must agree: x has 3 and w has 4"),
    ("Gemm", [(2, 3, 4), (4, 2)], {}, "Gemm needs matrices, not (2, 3, 4) and (4, 2)"),
    ("Gemm", [(2, 3), (3, 2), (4, 1, 2)], {}, "C of Gemm must broadcast to (2, 2), not have shape (4, 1, 2)"),
    ("Concat", [(2, 3), (2, 3)], {"axis": 2}, "Axes of Concat must be different and in -2…1, not (2,)"),
    ("Concat", [(2, 3), (3, 3)], {"axis": 1}, "concat along axis 1 needs operands that agree on the other axes, not (2, 3) and (3, 3)"),
    ("Transpose", [(2, 3)], {"perm": [0, 0]}, "Permutation of Transpose must name each of the 2 axes once, not (0, 0)"),
    ("Slice", [(2, 3), ints(0), ints(2), ints(1), ints(0)], {}, "Steps of Slice must not be 0"),
    (
        "Slice", [(2, 3), ints(0), ints(2), ints(1), ints(-(1 << 63))], {},
        "Steps of Slice must be greater than -9223372036854775808, not -9223372036854775808",
    ),
    ("Slice", [(2, 3), ints(0), ints(2, 1)], {}, "Slice needs one start, end and step an axis, not 1, 2 and 1 for 1"),
    ("Slice", [(2, 3), ints(0), ints(2), ints(2)], {}, "Axes of Slice must be different and in -2…1, not (2,)"),
    ("Gather", [(2, 3), ints(99)], {}, "Index of Gather must be in -2…1, not 99"),
    ("Gather", [ints(1, 2), ints(-3)], {}, "Index of Gather must be in -2…1, not -3"),
    ("Split", [(2, 5), ints(2, 2)], {"axis": 1, "results": 2}, "Sizes of Split must add up to the 5 elements of axis 1, not (2, 2)"),
    ("Squeeze", [(2, 1), ints(0)], {}, "Squeeze drops axes of extent 1; axis 0 of (2, 1) has 2"),
    ("Unsqueeze", [(2, 1), ints(0, 0)], {}, "Axes of Unsqueeze must be different and in -4…3, not (0, 0)"),
    ("Flatten", [(2, 3)], {"axis": 3}, "axis of Flatten must be in -2…2, not 3"),
    ("Pad", [(2, 3), ints(1, 1)], {}, "Pad over 2 axes needs 4 pads, not 2"),
    ("Pad", [(2, 3), ints(-2, 0, -1, 0)], {}, "Pads of Pad cannot take 3 elements from the 2 of axis 0"),
    ("Expand", [(3, 1), ints(2, 2)], {}, "Operands of shapes (3, 1) and (2, 2) do not broadcast: 2 against 3"),
    ("Add", [(2, 3), (2,)], {}, "Operands of shapes (2, 3) and (2,) do not broadcast: 2 against 3"),
    ("Expand", [(3, 1), ints(-1)], {}, "Extents of Expand must not be negative, not (-1,)"),
    ("Clip", [(2, 3), (2,)], {}, "Bounds of Clip must be single numbers, not a tensor of shape (2,)"),
    ("Conv", [(1, 2, 5, 5), W], {"strides": [0, 1], "auto_pad": "SAME_UPPER"}, "Strides must be positive, not (0, 1)"),
    ("GlobalMaxPool", [(2, 3)], {}, "GlobalMaxPool needs x[N, C, …], not (2, 3)"),
    ("InstanceNormalization", [(2, 3), (3,), (3,)], {}, "InstanceNormalization needs x[N, C, …], not (2, 3)"),
    ("SpaceToDepth", [(1, 2, 3, 4)], {"blocksize": 2}, "blocksize of SpaceToDepth must be positive and divide 3 and 4, not 2"),
    ("SpaceToDepth", [(2, 3, 4)], {"blocksize": 2}, "SpaceToDepth needs x[N, C, H, W], not (2, 3, 4)"),
    ("Split", [(2, 1)], {"axis": 1, "results": 2, "num_outputs": 2}, "num_outputs of Split must be 1 to the 1 elements of its axis, not 2"),
    ("GRU", [(3, 2), (1, 15, 4), (1, 15, 5)], {"hidden_size": 5}, "GRU needs X, W and R of rank 3, not (3, 2), (1, 15, 4) and (1, 15, 5)"),
    ("Softmax", [(2, 3)], {"axis": 2}, "axis of Softmax must be in -2…1, not 2"),
    ("ReduceMean", [(2, 3), ints(0, 0)], {}, "Axes of ReduceMean must be different and in -2…1, not (0, 0)"),
    ("ReduceMean", [(2, 3)], {"keepdims": 3}, "keepdims of ReduceMean must be 0 or 1, not 3"),
    ("BatchNormalization", [(2, 3, 4)] + [(3,)] * 3 + [(4,)], {}, "variance of batch_norm must have shape (3,), not (4,)"),
    ("LayerNormalization", [(2, 3), (3,)], {"axis": 5}, "axis of LayerNormalization must be in -2…1, not 5"),
    ("Clip", [(2, 3), np.zeros(2, np.float32)], {}, "Bounds of Clip must be single numbers, not a tensor of shape (2,)"),
    (
        "DepthToSpace", [(1, 6, 2, 2)], {"blocksize": 2},
        "blocksize of DepthToSpace must be positive and its square divide 6 channels, not 2",
    ),
    ("LSTM", [(3, 2, 4), (1, 20, 4), (1, 20, 4)], {"hidden_size": 5}, "Operand 2 of LSTM must have shape (1, 20, 5), not (1, 20, 4)"),
    ("GRU", [(3, 2, 4), (1, 15, 3), (1, 15, 5)], {"hidden_size": 5}, "Operand 1 of GRU must have shape (1, 15, 4), not (1, 15, 3)"),
    (
        "LSTM", [(3, 2, 4), (1, 20, 4), (1, 20, 5)], {"direction": "up"},
        'direction of LSTM must be forward, reverse or bidirectional, not "up"',
    ),
    ("QuantizeLinear", [(2, 3), np.asarray(0, np.float32)], {}, "Scale of QuantizeLinear must be positive and finite, not 0.0"),
    ("QuantizeLinear", [(2, 3), np.asarray(np.nan, np.float32)], {}, "Scale of QuantizeLinear must be positive and finite, not nan"),
    ("ConstantOfShape", [ints(-1)], {}, "Extents of ConstantOfShape must not be negative, not (-1,)"),
    (
        "GroupNormalization", [(2, 3, 4), (3,), (3,)], {"num_groups": 2},
        "num_groups of GroupNormalization must divide the channels of (2, 3, 4), not be 2",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attributes", "sentence"), SHAPES, ids=[f"{s[0]} {n}" for n, s in enumerate(SHAPES)])
def test_operands_that_do_not_fit(op: str, operands: list[Any], attributes: dict[str, Any], sentence: str) -> None:
    assert refusal(single(op, operands, **attributes)) == f'app.onnx:node "{op.lower()}": error[F131]: {sentence}'


def test_operands_of_an_opaque_node_that_do_not_fit() -> None:
    text = refusal(single("TopK", [(2, 3), ints(1)], results=2, axis=5))
    assert text.startswith('app.onnx:node "topk": error[F131]: TopK does not fit its operands: ')


def test_too_many_operands_and_results() -> None:
    place = 'app.onnx:node "relu": error[F131]: '
    assert refusal(single("Relu", [(2,), (2,)])) == f"{place}Relu has 1 operands, not 2"
    assert refusal(single("Relu", [(2,)], results=2)) == f"{place}Relu has 1 results, not 2"
    assert refusal(single("Clip", [])) == 'app.onnx:node "clip": error[F131]: Clip has 1 to 3 operands, not 0'
    assert refusal(single("Concat", [], axis=0)) == 'app.onnx:node "concat": error[F131]: Concat has at least 1 operands, not 0'


def test_a_missing_attribute() -> None:
    assert refusal(single("Concat", [(2, 3)])) == 'app.onnx:node "concat": error[F130]: Concat needs the attribute "axis"'


def test_an_operator_that_was_withdrawn() -> None:
    proto = single("Upsample", [(1, 1, 2, 2), np.ones(4, np.float32)], opset=12)
    assert refusal(proto) == 'app.onnx:node "upsample": error[F111]: Upsample is no longer part of operator set 12'


def test_an_operator_of_a_later_set() -> None:
    assert refusal(single("Gelu", [(2,)], opset=19)) == 'app.onnx:node "gelu": error[F111]: Gelu is not yet part of operator set 19'


def test_a_conversion_that_does_not_exist() -> None:
    body = helper.make_graph([node("Add", ["a", "b"], ["c"])], "body", [info("a", X), info("b", X)], [info("c", X)])
    proto = single("Scan", [None, (2, 3), (1, 2, 3)], opset=8, body=body, num_scan_inputs=1)
    assert refusal(proto) == (
        'app.onnx:node "scan": error[F111]: Scan of operator set 8 has no conversion to 21: it changed its meaning\n'
        "  help: export the model with operator set 21 or newer"
    )


def test_a_name_that_is_no_text() -> None:
    data = normal_model().SerializeToString().replace(b"reshape", b"res\xffape")
    proto = type(normal_model()).FromString(data)
    assert refusal(proto) == 'app.onnx: error[F103]: names must be UTF-8 text, not "res\\xffape"'


def test_a_huge_constant_of_shape_is_not_made() -> None:
    sentence = f'"y0" must have at most 2147483648 bytes, not the {256 << 30} of float32[{64 << 30}]'
    help_ = "raise --limits tensor_bytes= if the model really needs this tensor"
    proto = single("ConstantOfShape", [ints(64 << 30)])
    assert refusal(proto) == f'app.onnx:node "constantofshape": error[F105]: {sentence}\n  help: {help_}'


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        ("Expand", [np.ones((1,), np.float32), ints(1 << 36)], {}),
        ("Tile", [np.ones((1,), np.float32), ints(1 << 36)], {}),
        ("Pad", [np.ones((1,), np.float32), ints(0, 1 << 36)], {}),
        ("Range", [ints(0).reshape(()), ints(1 << 36).reshape(()), ints(1).reshape(())], {}),
        ("ConstantOfShape", [ints(1 << 36)], {"value": helper.make_tensor("v", 6, [1], [1])}),
    ],
)
def test_bombs_are_refused_before_they_are_made(op: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    assert "error[F105]" in refusal(single(op, operands, **attributes))


def test_limits_on_nodes_and_rank() -> None:
    chain = [node("Relu", [f"v{n}" if n else "x"], [f"v{n + 1}"]) for n in range(6)]
    sentence = "app.onnx: error[F105]: the model must have at most 5 nodes\n  help: raise --limits nodes="
    assert refusal(relu(*chain, outputs=["v6"]), limits=Limits(nodes=5)) == sentence
    wide = model([node("Relu", ["x"], ["y"])], {"x": TensorType((1,) * 9)}, ["y"])
    assert refusal(wide) == 'app.onnx: error[F105]: "x" must have at most 8 axes, not 9\n  help: raise --limits rank='


def test_nodes_in_any_order_are_sorted_with_a_note() -> None:
    proto = relu(node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"]))
    loaded = imported(proto)
    assert loaded.program.notes == ("the nodes were not in an order in which values are defined before they are read; they were sorted",)
    assert [s.op_type for s in loaded.program.sources] == ["Relu", "Neg"]
    assert [sorted(n.origins) for n in loaded.program.nodes] == [[1], [0]]


def test_equal_node_names_are_numbered_with_a_note() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="same"), helper.make_node("Neg", ["a"], ["y"], name="same")]
    loaded = imported(relu(*nodes))
    assert loaded.program.notes == ("1 nodes have the name of another; they were numbered",)
    assert [s.name for s in loaded.program.sources] == ["same", "same_1"]


def test_a_false_inner_declaration_is_ignored_with_a_note() -> None:
    loaded = imported(relu(node("Neg", ["x"], ["a"]), node("Relu", ["a"], ["y"]), value_info=[info("a", TensorType((9, 9)))]))
    assert loaded.program.notes == ('the declared type of "a" was ignored: the model computes float32[2, 3]',)


def test_a_newer_ir_version_is_noted() -> None:
    proto = normal_model()
    proto.ir_version = 999
    (note,) = imported(proto).program.notes
    assert note.startswith("IR version 999 is newer than ")
    assert note.endswith(", the newest known; what it adds was ignored")


def test_weights_that_are_no_numbers_are_noted() -> None:
    loaded = imported(single("Add", [(2, 2), np.asarray([1, np.nan], np.float32)]))
    assert loaded.program.notes == ('1 constants hold NaN or infinity: "x1"',)


def test_a_long_chain_is_imported() -> None:
    count = 5_000  # beyond every limit of recursion; tests/bad_inputs has the longest
    nodes = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(count)]
    loaded = imported(model(nodes, {"v0": X}, [f"v{count}"]))
    assert len(loaded.program.nodes) == count


def test_a_wide_sum_is_imported() -> None:
    loaded: LoadedModel = imported(model([node("Sum", ["x"] * 5_000, ["y"])], {"x": X}, ["y"]))
    assert len(loaded.program.nodes) == 4_999


@pytest.mark.parametrize("name", ["<script>", "a\x1b[31m", "x" * 100_000, "dense", ")", "a\0b", "‮abc", "v3", "y/relu"])
def test_odd_names_are_kept(name: str) -> None:
    proto = model([helper.make_node("Relu", [name], ["y"]), helper.make_node("Neg", ["y"], [f"{name}2"])], {name: X}, [f"{name}2"])
    p = imported(proto).program
    assert [p.names[v] for v in (*p.inputs, *p.outputs)] == [name, f"{name}2"]


def test_a_model_without_nodes() -> None:
    p = imported(model([], {"x": X}, ["x"])).program
    assert (p.nodes, p.outputs) == ((), p.inputs)
