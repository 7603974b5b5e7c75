"""Loading a file: types of inputs, names, the record of where things came from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import FILE, agrees, imported, info, model, normal_model, refusal, single

from rewrite_compiler.errors import REFUSED, USAGE, FlexmatchError, InputError
from rewrite_compiler.frontend.load import import_model, load
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT

Extents = list[Any]


def declared(name: str, extents: Extents | None, dtype: int = 1) -> Any:
    """An input declared with numbers, symbols and unknown extents, or without a shape."""
    return helper.make_tensor_value_info(name, dtype, extents)


def summed(*inputs: Any) -> Any:
    """A model that reads every input by itself."""
    nodes = [helper.make_node("Relu", [i.name], [f"{i.name}_out"]) for i in inputs]
    return model(nodes, {i.name: i for i in inputs}, [f"{i.name}_out" for i in inputs])


def test_a_file_is_loaded_with_its_record(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(normal_model().SerializeToString())
    loaded = load(path)
    assert loaded.path == path
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (loaded.opset, dict(loaded.imports), loaded.ir_version, loaded.batch_inputs) == (21, {"": 21}, 10, ())
    assert [(s.name, s.op_type) for s in loaded.program.sources] == [
        ("conv", "Conv"),
        ("relu", "Relu"),
        ("reshape", "Reshape"),
        ("matmul", "MatMul"),
    ]
    assert [p.op for p in load(str(path)).program.nodes] == ["conv", "relu", "reshape", "matmul"]


def test_a_refusal_names_the_file_as_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / FILE
    proto = normal_model()
    proto.graph.node[1].input[0] = "gone"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.problem.place == f'{path}:node "relu"'
    assert caught.value.exit_code == REFUSED


def test_two_loads_give_equal_programs() -> None:
    a, b = imported(normal_model()).program, imported(normal_model()).program
    assert (a.types, a.names, a.nodes, a.opaque, a.absorbed) == (b.types, b.names, b.nodes, b.opaque, b.absorbed)


def test_an_unnamed_node_is_called_by_operator_and_number() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"], name="Relu_0")]
    p = imported(model(nodes, {"x": TensorType((2,))}, ["y"])).program
    assert [s.name for s in p.sources] == ["Relu_0", "Relu_0_1"]


def test_an_initializer_that_is_also_an_input_is_a_constant() -> None:
    proto = single("Add", [(2, 3), np.ones(3, np.float32)])
    proto.graph.input.append(info("x1", TensorType((3,))))
    p = agrees(proto, ops=["add"]).program
    assert [p.names[v] for v in p.inputs] == ["x0"]


def test_sparse_weights_become_dense() -> None:
    for indices in (np.asarray([1, 5]), np.asarray([[0, 1], [1, 2]])):
        proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": TensorType((2, 3))}, ["y"])
        values = helper.make_tensor("w", 1, [2], [4.0, 7.0])
        positions = helper.make_tensor("p", 7, list(indices.shape), indices.reshape(-1))
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, positions, [2, 3]))
        (dense,) = imported(proto).program.constants.values()
        assert dense.tolist() == [[0, 4, 0], [0, 0, 7]]
    proto.graph.sparse_initializer[0].indices.CopyFrom(helper.make_tensor("p", 7, [2], [1, 6]))
    sentence = 'Sparse initializer "w" must have one index inside [2, 3] for each of its 2 values'
    assert refusal(proto) == f"app.onnx: error[F140]: {sentence}"


@pytest.mark.parametrize("extents", [["batch", 3, 4], [None, 3, 4]])
def test_an_open_batch_dimension_is_bound_to_1_with_a_note(extents: Extents) -> None:
    loaded = imported(summed(declared("x", extents)))
    assert loaded.program.types[loaded.program.inputs[0]].shape == (1, 3, 4)
    assert loaded.batch_inputs == ("x",)
    assert loaded.program.notes == ('dimension 0 of input "x" is not fixed by the model and was set to 1',)


def test_a_batch_dimension_shared_by_all_inputs() -> None:
    loaded = imported(summed(declared("a", ["N", 3]), declared("b", ["N"])))
    assert loaded.batch_inputs == ("a", "b")
    assert loaded.program.notes == ('dimension 0 of input "a", "b" is not fixed by the model and was set to 1',)


OPEN: list[tuple[list[Any], str, str]] = [
    ([declared("x", ["N", 3, "H"])], 'dimension 0 ("N") of input "x" is not fixed by the model', "x=N,3,H"),
    ([declared("x", [2, "T"])], 'dimension 1 ("T") of input "x" is not fixed by the model', "x=2,T"),
    ([declared("x", [2, None])], 'dimension 1 of input "x" is not fixed by the model', "x=2,N"),
    ([declared("a", ["N"]), declared("b", ["M"])], 'dimension 0 ("N") of input "a" is not fixed by the model', "a=N"),
    ([declared("a", [None]), declared("b", [None])], 'dimension 0 of input "a" is not fixed by the model', "a=N"),
    ([declared("a", ["N"]), declared("b", [2])], 'dimension 0 ("N") of input "a" is not fixed by the model', "a=N"),
    ([declared("x", None)], 'the shape of input "x" is not declared', "x=EXTENT,EXTENT,…"),
]


@pytest.mark.parametrize(("inputs", "sentence", "shape"), OPEN, ids=range(len(OPEN)))
def test_other_open_dimensions_ask_for_a_shape(inputs: list[Any], sentence: str, shape: str) -> None:
    assert refusal(summed(*inputs)) == f"app.onnx: error[F160]: {sentence}\n  help: give it: --shape {shape}"


def test_a_shape_is_given() -> None:
    loaded = imported(summed(declared("x", ["N", 3, "H"])), {"x": (2, 3, 5)})
    assert loaded.program.types[loaded.program.inputs[0]].shape == (2, 3, 5)
    assert loaded.batch_inputs == ()
    assert imported(summed(declared("x", None)), {"x": ()}).program.types[0].shape == ()


def test_a_shape_of_one_input_binds_the_symbols_of_others() -> None:
    loaded = imported(summed(declared("a", ["N", "T"]), declared("b", ["T"])), {"a": (2, 7)})
    assert [loaded.program.types[v].shape for v in loaded.program.inputs] == [(2, 7), (7,)]


WRONG: list[tuple[dict[str, tuple[int, ...]], str]] = [
    ({"y": (1,)}, 'error[F203]: the model has no input called "y"\n  help: its inputs are "a", "b"'),
    ({"a": (2, 4)}, 'error[F134]: The shape of input "a" given by --shape must agree with the declared [N, 3], not be [2, 4]'),
    ({"a": (2,)}, 'error[F134]: The shape of input "a" given by --shape must agree with the declared [N, 3], not be [2]'),
    ({"a": (-2, 3)}, 'error[F132]: Dimensions of input "a" given by --shape must be zero or positive, not [-2, 3]'),
    ({"a": (2, 3), "b": (5,)}, 'error[F134]: Dimension "N" must have one extent, not 2 and 5'),
]


@pytest.mark.parametrize(("shapes", "sentence"), WRONG, ids=range(len(WRONG)))
def test_a_shape_that_is_not_possible_is_a_wrong_command(shapes: dict[str, tuple[int, ...]], sentence: str) -> None:
    proto = summed(declared("a", ["N", 3]), declared("b", ["N"]))
    with pytest.raises(FlexmatchError) as caught:
        import_model(proto, Path(FILE), "", shapes, DEFAULT)
    assert (caught.value.exit_code, str(caught.value)) == (USAGE, f"app.onnx: {sentence}")


def test_inputs_that_are_no_tensors() -> None:
    proto = summed(declared("x", [2]))
    proto.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1
    assert refusal(proto) == 'app.onnx: error[F133]: input "x" must be a tensor, not sequence'
    proto.graph.input[0].ClearField("type")
    assert refusal(proto) == 'app.onnx: error[F133]: input "x" must be a tensor, not untyped'


def test_outputs_keep_their_names() -> None:
    """An alias, an input, a constant, one value under two names."""
    nodes = [
        helper.make_node("Relu", ["x"], ["inner"]),
        helper.make_node("Identity", ["inner"], ["first"]),
        helper.make_node("Identity", ["inner"], ["second"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["c"], ["constant"]),
    ]
    proto = model(nodes, {"x": TensorType((2,))}, ["first", "second", "same", "constant"], {"c": np.ones(2, np.float32)})
    loaded = agrees(proto, ops=["relu", "reshape", "reshape", "reshape"])
    assert [sorted(n.origins) for n in loaded.program.nodes] == [[0], [2], [3], [4]]
    assert loaded.program.absorbed == {1: "identity"}


def test_what_nothing_reads_is_absorbed() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["z"]), helper.make_node("Sin", ["z"], ["w"])]
    loaded = imported(model(nodes, {"x": TensorType((2,))}, ["y"]))
    assert loaded.program.absorbed == {1: "nothing reads its result", 2: "nothing reads its result"}
    assert loaded.program.opaque == {}


@pytest.mark.parametrize(("op", "reason"), [("Dropout", "Dropout at inference"), ("Identity", "identity")])
def test_why_a_node_left_nothing(op: str, reason: str) -> None:
    nodes = [helper.make_node(op, ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    assert imported(model(nodes, {"x": TensorType((2,))}, ["y"])).program.absorbed == {0: reason}


@pytest.mark.parametrize("code", [1, 10, 11, 6, 7, 9, 16, 17, 19, 21, 22, 8])
def test_weights_of_every_type_are_read(code: int) -> None:
    values = [b"a", b"b"] if code == 8 else [1, 0]
    for raw in (False, True) if code != 8 else (False,):
        t = helper.make_tensor("w", code, [2], values)
        if raw:
            from onnx import numpy_helper

            t = numpy_helper.from_array(numpy_helper.to_array(t), "w")
        proto = model([helper.make_node("Identity", ["w"], ["v"])], {}, ["v"])
        proto.graph.initializer.append(t)
        p = imported(proto).program
        (data,) = p.constants.values()
        assert data.shape == (2,)
        assert [str(x) for x in data] in (["1", "0"], ["1.0", "0.0"], ["True", "False"], ["b'a'", "b'b'"], ["a", "b"])
