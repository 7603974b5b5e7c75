"""Functions and control flow: written out where their parts are known, else kept whole with what they read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import agrees, imported, info, model, refusal, single

from rewrite_compiler.frontend.graph.attributes import subgraphs
from rewrite_compiler.frontend.graph.opaque import captured_names, node_proto, operand_name, result_name
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import Limits

X = TensorType((2, 3))
OPSET = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]


def node(op: str, reads: list[str], gives: list[str], **attributes: Any) -> Any:
    """A node of ONNX or of the model's own domain."""
    domain = "mine" if op.islower() else ""
    return helper.make_node(op, reads, gives, domain=domain, **attributes)


def function(
    name: str, reads: list[str], gives: list[str], nodes: list[Any], attributes: list[str] | None = None, opset: Any = None
) -> Any:
    """A function of the model."""
    return helper.make_function("mine", name, reads, gives, nodes, opset or OPSET, attributes or [])


def with_functions(nodes: list[Any], functions: list[Any], **more: Any) -> Any:
    """A model of some nodes and functions with the input x and the output y."""
    return model(nodes, {"x": X}, ["y"], functions=functions, domains={"mine": 1}, **more)


def test_a_function_is_written_out_and_belongs_to_its_call() -> None:
    twice = function("twice", ["a"], ["b"], [node("Add", ["a", "a"], ["t"]), node("Relu", ["t"], ["b"])])
    loaded = agrees(with_functions([node("twice", ["x"], ["u"]), node("twice", ["u"], ["y"])], [twice]), ops=["add", "relu"] * 2)
    assert [sorted(n.origins) for n in loaded.program.nodes] == [[0], [0], [1], [1]]


def test_functions_call_functions_whatever_their_order() -> None:
    outer = function("outer", ["a"], ["b"], [node("inner", ["a"], ["t"]), node("inner", ["t"], ["b"])])
    inner = function("inner", ["a"], ["b"], [node("Neg", ["a"], ["b"])])
    agrees(with_functions([node("outer", ["x"], ["y"])], [outer, inner]), ops=["neg", "neg"])


def test_attributes_of_a_call_reach_the_body() -> None:
    inner = node("LeakyRelu", ["a"], ["b"])
    inner.attribute.add(name="alpha", type=1, ref_attr_name="slope")
    leak = function("leak", ["a"], ["b"], [inner], "slope")
    given = agrees(with_functions([node("leak", ["x"], ["y"], slope=0.5)], [leak]))
    assert 0.5 in {float(x) for x in given.program.constants.values()}
    left_out = imported(with_functions([node("leak", ["x"], ["y"])], [leak]))
    assert [float(x) for x in left_out.program.constants.values()] == pytest.approx([0.01])


def test_a_function_of_an_older_operator_set_is_converted() -> None:
    old = [helper.make_opsetid("", 12)]
    squeeze = function(
        "drop", ["a"], ["b"], [node("Unsqueeze", ["a"], ["t"], axes=[0]), node("Squeeze", ["t"], ["b"], axes=[0])], opset=old
    )
    loaded = imported(with_functions([node("drop", ["x"], ["y"])], [squeeze]))
    assert [n.op for n in loaded.program.nodes] == ["reshape", "reshape"]


def test_names_in_different_calls_do_not_meet() -> None:
    body = function("step", ["a", "b"], ["c"], [node("Sub", ["b", "a"], ["t"]), node("Mul", ["t", "a"], ["c"])])
    agrees(with_functions([node("step", ["x", "x"], ["t"]), node("step", ["t", "x"], ["y"])], [body]), ops=["sub", "mul"] * 2)


def test_a_function_that_is_left_out_of_a_call_reads_nothing() -> None:
    body = function("bound", ["a", "low"], ["b"], [node("Clip", ["a", "low"], ["b"])])
    loaded = imported(with_functions([node("bound", ["x", ""], ["y"])], [body]))
    assert dict(loaded.program.nodes[0].attributes) == {"low": float("-inf"), "high": float("inf")}


def test_functions_must_not_call_themselves() -> None:
    a = function("a", ["x"], ["y"], [node("b", ["x"], ["y"])])
    b = function("b", ["x"], ["y"], [node("a", ["x"], ["y"])])
    text = "app.onnx: error[F124]: functions must not call themselves: "
    assert refusal(with_functions([node("a", ["x"], ["y"])], [a, b])) == f"{text}a → b → a"
    own = function("own", ["x"], ["y"], [node("own", ["x"], ["y"])])
    assert refusal(with_functions([node("own", ["x"], ["y"])], [own])) == f"{text}own → own"


def test_a_function_is_defined_once() -> None:
    f = function("f", ["x"], ["y"], [node("Neg", ["x"], ["y"])])
    assert (
        refusal(with_functions([node("f", ["x"], ["y"])], [f, f]))
        == 'app.onnx: error[F121]: function "f" of domain "mine" is defined twice'
    )


def test_functions_that_multiply_are_bounded() -> None:
    functions = [function("f0", ["x"], ["y"], [node("Neg", ["x"], ["y"])])]
    for n in range(1, 30):
        body = [node(f"f{n - 1}", ["x"], ["t"]), node(f"f{n - 1}", ["t"], ["y"])]
        functions.append(function(f"f{n}", ["x"], ["y"], body))
    text = refusal(with_functions([node("f29", ["x"], ["y"])], functions), limits=Limits(nodes=1000))
    sentence = "the model must have at most 1000 nodes with its functions expanded"
    assert text.endswith(f"error[F105]: {sentence}\n  help: raise --limits nodes=")


def test_functions_nested_deeply_are_bounded() -> None:
    functions = [function("f0", ["x"], ["y"], [node("Neg", ["x"], ["y"])])]
    functions += [function(f"f{n}", ["x"], ["y"], [node(f"f{n - 1}", ["x"], ["y"])]) for n in range(1, 100)]
    text = refusal(with_functions([node("f99", ["x"], ["y"])], functions))
    assert text.endswith("error[F125]: functions and subgraphs must be nested at most 64 deep\n  help: raise --limits nesting=")


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "opset"),
    [
        ("MeanVarianceNormalization", [(2, 3, 4, 4)], {}, 21),
        ("Softsign", [(2, 3)], {}, 21),
        ("RMSNormalization", [(2, 3, 4), np.ones(4, np.float32)], {}, 23),
    ],
)
def test_an_operator_that_onnx_defines_by_known_ones_is_written_out(
    op: str, operands: list[Any], attributes: dict[str, Any], opset: int
) -> None:
    loaded = agrees(single(op, operands, opset=opset, **attributes))
    assert not loaded.program.opaque
    assert all(n.origins == {0} for n in loaded.program.nodes)


@pytest.mark.parametrize("op", ["Shrink", "ThresholdedRelu"])
def test_an_operator_whose_definition_is_not_known_stays_whole(op: str) -> None:
    loaded = agrees(single(op, [(2, 3)]), ops=["opaque"])
    assert [o.reason for o in loaded.program.opaque.values()] == ["no core operators express it"]


def test_attention_is_written_out_around_its_products() -> None:
    operands = [(1, 2, 6, 8), (1, 2, 7, 8), (1, 2, 7, 8), ("bool", (1, 1, 6, 7))]
    loaded = agrees(single("Attention", operands, opset=23), values={"x3": np.arange(42).reshape(1, 1, 6, 7) % 3 > 0})
    ops = [n.op for n in loaded.program.nodes]
    assert ops.count("matmul") == 2
    assert "softmax" in ops
    assert {o.op_type for o in loaded.program.opaque.values()} <= {"Where", "Equal"}


def branch(name: str, nodes: list[Any], output: str) -> Any:
    """A subgraph without inputs."""
    return helper.make_graph(nodes, name, [], [info(output, X)])


def choice(reads: str, then: list[Any], other: list[Any]) -> Any:
    """An If with two subgraphs whose outputs are called t and e."""
    return node("If", [reads], ["y"], then_branch=branch("then", then, "t"), else_branch=branch("else", other, "e"))


@pytest.mark.parametrize(("condition", "op"), [(True, "neg"), (False, "relu")])
def test_a_branch_that_is_known_is_taken(condition: bool, op: str) -> None:
    chosen = choice("c", [node("Neg", ["x"], ["t"])], [node("Relu", ["x"], ["e"])])
    agrees(model([chosen], {"x": X}, [info("y", X)], {"c": np.asarray(condition)}), ops=[op])


def test_branches_give_as_many_results_as_their_node() -> None:
    chosen = choice("c", [node("Neg", ["x"], ["t"])], [node("Relu", ["x"], ["e"])])
    next(a for a in chosen.attribute if a.name == "else_branch").g.ClearField("output")
    text = refusal(model([chosen], {"x": X}, [info("y", X)], {"c": np.asarray(True)}))
    assert text == 'app.onnx:node "If_0": error[F131]: Branches of If must give 1 results, not 1 and 0'


def test_a_subgraph_gives_no_value_from_outside() -> None:
    chosen = choice("c", [node("Neg", ["x"], ["t"])], [node("Relu", ["x"], ["unused"])])
    next(a for a in chosen.attribute if a.name == "else_branch").g.output[0].name = "x"
    text = refusal(model([chosen], {"x": X, "c": TensorType((), "bool")}, [info("y", X)]))
    assert text == 'app.onnx: error[F123]: output "x" is a value from outside its subgraph\n  help: put an Identity node between'


def test_a_branch_computed_at_run_time_is_kept_with_what_it_reads() -> None:
    chosen = choice("c", [node("Neg", ["a"], ["t"])], [node("Add", ["x", "a"], ["e"])])
    proto = model([node("Relu", ["x"], ["a"]), chosen], {"x": X, "c": TensorType((), "bool")}, [info("y", X)])
    loaded = agrees(proto, ops=["relu", "opaque"])
    (_, kept) = loaded.program.nodes
    assert len(kept.inputs) == 3
    assert [o.reason for o in loaded.program.opaque.values()] == ['its branches, "c", are computed at run time']


def test_a_subgraph_of_an_older_operator_set_is_converted() -> None:
    chosen = choice("c", [node("Squeeze", ["u"], ["t"], axes=[0])], [node("Neg", ["x"], ["e"])])
    nodes = [node("Unsqueeze", ["x"], ["u"], axes=[0]), chosen]
    agrees(model(nodes, {"x": X, "c": TensorType((), "bool")}, [info("y", X)], opset=12), ops=["reshape", "opaque"])


def test_a_loop_is_kept_whole() -> None:
    inputs = [info("n", TensorType((), "int64")), info("go", TensorType((), "bool")), info("s", X)]
    nodes = [node("Identity", ["go"], ["on"]), node("Add", ["s", "x"], ["more"]), node("Mul", ["more", "w"], ["more2"])]
    body = helper.make_graph(nodes, "body", inputs, [info("on", TensorType((), "bool")), info("more2", X)])
    body.initializer.append(numpy_helper.from_array(np.asarray(0.5, np.float32), "w"))
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body)
    loaded = agrees(model([loop], {"x": X}, [info("y", X)], {"trips": np.asarray(3)}), ops=["opaque"])
    (opaque,) = loaded.program.opaque.values()
    assert opaque.reason == "its steps make no products"


def test_calls_in_a_subgraph_are_written_out_in_it() -> None:
    inner = function("inner", ["a"], ["b"], [node("Mul", ["a", "a"], ["b"])])
    body = [node("inner", ["a"], ["t"]), node("Sub", ["t", "a"], ["u"]), node("inner", ["u"], ["b"])]
    outer = function("outer", ["a"], ["b"], body)
    chosen = choice("c", [node("outer", ["x"], ["m"]), node("outer", ["m"], ["t"])], [node("Relu", ["x"], ["e"])])
    more = {"functions": [outer, inner], "domains": {"mine": 1}}
    loaded = agrees(model([chosen], {"x": X, "c": TensorType((), "bool")}, [info("y", X)], **more), ops=["opaque"])
    (opaque,) = loaded.program.opaque.values()
    assert {n.domain for g in subgraphs(node_proto(opaque, ["c", "x"], ["y"])) for n in g.node} == {""}


def test_a_newer_function_in_an_older_subgraph_is_refused() -> None:
    newer = [helper.make_opsetid("", 23)]
    chosen = choice("c", [node("step", ["x"], ["t"])], [node("Relu", ["x"], ["e"])])
    step = function("step", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opset=newer)
    text = refusal(model([chosen], {"x": X, "c": TensorType((), "bool")}, [info("y", X)], functions=[step], domains={"mine": 1}))
    sentence = 'function "step" of operator set 23 is called in a subgraph of operator set 21'
    assert text == f"app.onnx: error[F111]: {sentence}\n  help: export all of the model with one operator set"


def test_an_older_function_in_a_subgraph_is_converted() -> None:
    older = [helper.make_opsetid("", 11)]
    chosen = choice("c", [node("step", ["x"], ["t"])], [node("Relu", ["x"], ["e"])])
    step = function("step", ["a"], ["b"], [node("Unsqueeze", ["a"], ["t"], axes=[0]), node("Squeeze", ["t"], ["b"], axes=[0])], opset=older)
    proto = model([chosen], {"x": X, "c": TensorType((), "bool")}, [info("y", X)], functions=[step], domains={"mine": 1})
    (opaque,) = imported(proto).program.opaque.values()
    kept = subgraphs(node_proto(opaque, ["c", "x"], ["y"]))
    assert [n.op_type for g in kept for n in g.node if n.op_type != "Relu"] == ["Constant", "Unsqueeze", "Constant", "Squeeze"]


def nested(depth: int) -> Any:
    """An If in an If in an If …"""
    inner = [node("Neg", ["x"], ["t"])]
    for n in range(depth):
        kept = node("If", ["c"], ["t"], then_branch=branch(f"g{n}", inner, "t"), else_branch=branch("e", [node("Relu", ["x"], ["e"])], "e"))
        inner = [kept]
    inner[0].output[0] = "y"
    return model(inner, {"x": X, "c": TensorType((), "bool")}, [info("y", X)])


def test_nested_subgraphs_are_kept_up_to_a_depth() -> None:
    agrees(nested(20), ops=["opaque"])
    sentence = "app.onnx: error[F125]: subgraphs must be nested at most 10 deep\n  help: raise --limits nesting="
    assert refusal(nested(20), limits=Limits(nesting=10)) == sentence


def test_a_name_read_in_a_subgraph_must_exist() -> None:
    chosen = choice("c", [node("Neg", ["gone"], ["t"])], [node("Relu", ["x"], ["e"])])
    text = refusal(model([chosen], {"x": X}, [info("y", X)], {"c": np.asarray(True)}))
    assert text == 'app.onnx:node "Neg_0": error[F122]: input "gone" is not the result of any node, an input or a constant'


def test_a_payload_names_places_and_gets_names_back() -> None:
    chosen = choice("c", [node("Neg", ["a"], ["t"])], [node("Add", ["x", "a"], ["e"])])
    proto = model([node("Relu", ["x"], ["a"]), chosen], {"x": X, "c": TensorType((), "bool")}, [info("y", X)])
    (opaque,) = imported(proto).program.opaque.values()
    kept = node_proto(opaque, ["p", "q", "r"], ["z"])
    assert (list(kept.input), list(kept.output)) == (["p"], ["z"])
    assert sorted(captured_names(kept)) == ["q", "r"]
    raw = node_proto(opaque, [operand_name(k) for k in range(3)], [result_name(0)])
    assert sorted(captured_names(raw)) == [operand_name(1), operand_name(2)]
    assert len(subgraphs(raw)) == 2


def test_equal_opaque_operations_share_a_key_and_random_ones_do_not() -> None:
    sines = model([node("Sin", ["x"], ["a"]), node("Sin", ["a"], ["y"])], {"x": X}, ["y"])
    assert len(imported(sines).program.opaque) == 1
    noises = [node("RandomNormalLike", ["x"], ["a"]), node("RandomNormalLike", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])]
    assert len(imported(model(noises, {"x": X}, ["y"])).program.opaque) == 2


def test_an_operator_of_an_unknown_domain_needs_its_shape() -> None:
    proto = with_functions([node("mystery", ["x"], ["y"])], [])
    assert refusal(proto) == (
        'app.onnx:node "mystery_0": error[F160]: the shape of "y", which mine.mystery gives, is not known\n'
        "  help: declare it in the model (value_info), or fix the dimensions it depends on with --shape"
    )
    declared = model([node("mystery", ["x"], ["y"])], {"x": X}, [info("y", TensorType((4,)))], domains={"mine": 1})
    loaded = imported(declared)
    assert loaded.program.types[loaded.program.outputs[0]] == TensorType((4,))
    assert loaded.program.notes == ("mine.mystery is not an operator that ONNX defines; whether the host can run it is not known",)


def test_inputs_that_are_no_tensors_are_refused() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", 1, [2, 3])
    proto = model([node("SequenceLength", ["s"], ["y"])], {"s": sequence}, ["y"])
    assert refusal(proto).startswith('app.onnx: error[F133]: input "s" must be a tensor, not sequence')


def test_a_softplus_overflows_nowhere() -> None:
    x = np.asarray([[-200, 0, 200]], np.float32)
    loaded = agrees(single("Softplus", [(1, 3)]), values={"x0": x})
    assert not loaded.program.opaque
