"""Programs: building, order, numbering, verification, evaluation, types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import InputError
from rewrite_compiler.ir.evaluate import random_inputs, random_tensor, run, run_op
from rewrite_compiler.ir.program import (
    Builder,
    Node,
    OpaqueOp,
    Program,
    Source,
    macs_of,
    nodes_with_types,
    renumber_values,
    topological_order,
    total_macs,
    zeros_of,
)
from rewrite_compiler.ir.types import TensorType, interval_of, result_types
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.ops import OPS, ShapeError


def two_layers() -> Program:
    """relu(x·wᵀ + b), and a node that nothing reads."""
    b = Builder("two")
    b.sources = [Source("gemm", "Gemm"), Source("relu", "Relu"), Source("gone", "Exp")]
    x = b.input("x", TensorType((2, 3)))
    w = b.constant(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    bias = b.constant(np.ones(4, np.float32), "b")
    b.constant(np.zeros(1, np.float32), "unused")
    (y,) = b.apply("dense", [x, w], origins=[0])
    (y,) = b.apply("bias_add", [y, bias], {"axis": 1}, origins=[0])
    b.apply("exp", [y], origins=[2])
    (z,) = b.apply("relu", [y], origins=[1], names=["z"])
    return b.finish([z])


def test_what_nothing_reads_is_dropped() -> None:
    p = two_layers()
    assert [n.op for n in p.nodes] == ["dense", "bias_add", "relu"]
    assert [p.names[v] for v in p.constants] == ["w", "b"]
    assert p.names[p.outputs[0]] == "z"
    assert [sorted(n.origins) for n in p.nodes] == [[0], [0], [1]]
    verify(p)


def test_producers_and_users() -> None:
    p = two_layers()
    dense, bias, relu = p.nodes
    assert p.producer()[relu.outputs[0]] is relu
    assert p.users()[dense.outputs[0]] == [bias]
    assert p.is_constant(dense.inputs[1])
    assert not p.is_constant(dense.inputs[0])
    assert bias.attribute("axis") == 1
    assert [len(types) for _, types in nodes_with_types(p)] == [2, 2, 1]


def test_numbers_follow_definition() -> None:
    p = renumber_values(two_layers())
    assert p.inputs == (0,)
    assert list(p.constants) == [1, 2]
    assert [n.outputs for n in p.nodes] == [(3,), (4,), (5,)]
    verify(p)
    assert np.array_equal(run(p, {0: np.ones((2, 3))})[5], run(two_layers(), {0: np.ones((2, 3))})[two_layers().outputs[0]])


def test_multiply_accumulates_add_up() -> None:
    p = two_layers()
    assert total_macs(p) == 2 * 4 * 3
    assert total_macs(p, p.nodes[1:]) == 0
    assert macs_of(Node("opaque", (), ()), []) == 0


def test_any_order_is_sorted_and_a_cycle_is_refused() -> None:
    a, b, c = (Node("relu", (n,), (n + 1,)) for n in range(3))
    assert topological_order([c, a, b], [0]) == [a, b, c]
    loop = [Node("relu", (1,), (2,)), Node("neg", (2,), (1,))]
    with pytest.raises(InputError, match=r"^error\[F120\]: the nodes form a cycle through (relu|neg)$"):
        topological_order(loop, [0])


def broken(change: Any) -> Program:
    """The program with its nodes changed."""
    p = two_layers()
    return replace(p, **change(p))


def swapped(p: Program) -> dict[str, Any]:
    """Put a reader before what it reads."""
    return {"nodes": (p.nodes[1], p.nodes[0], p.nodes[2])}


def doubled(p: Program) -> dict[str, Any]:
    """Define a value twice."""
    return {"nodes": (p.nodes[0], *p.nodes)}


def mistyped(p: Program) -> dict[str, Any]:
    """Give a value another shape."""
    return {"types": (*p.types[: p.outputs[0]], TensorType((9,)), *p.types[p.outputs[0] + 1 :])}


FAULTS = [
    (swapped, 'two:node "v5": error[F122]: input "v4" of bias_add is not defined before it is read'),
    (doubled, 'two:node "v4": error[F121]: value "v4" is defined twice'),
    (mistyped, 'two:node "z": error[F131]: relu gives shape (2, 4), not (9,)'),
    (lambda p: {"nodes": p.nodes[:2]}, 'two: error[F123]: output "z" is not defined by any node'),
]


@pytest.mark.parametrize(("change", "sentence"), FAULTS, ids=range(len(FAULTS)))
def test_a_program_that_is_not_well_formed(change: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        verify(broken(change))
    assert str(caught.value) == sentence


def test_a_node_that_does_not_fit_is_refused_when_it_is_built() -> None:
    b = Builder("bad")
    x = b.input("x", TensorType((2, 3)))
    with pytest.raises(ShapeError, match=r"^error\[F131\]: dense multiplies"):
        b.apply("dense", [x, b.input("w", TensorType((4, 5, 6)))])


def with_opaque() -> Program:
    """A program whose only node is sine."""
    b = Builder("opaque")
    x = b.input("x", TensorType((2,)))
    y = b.value(TensorType((2,)), "y")
    b.opaque["k"] = OpaqueOp("Sin", "", b"", "no meaning")
    b.node(Node("opaque", (x,), (y,), (("key", "k"),)))
    return b.finish([y])


def test_an_opaque_operation_needs_a_runner() -> None:
    p = with_opaque()
    with pytest.raises(InputError, match=r"^error\[F161\]: the reference evaluator does not know the operator Sin$"):
        run(p, {0: np.zeros(2)})
    found = run(p, {0: np.ones(2)}, opaque=lambda node, x: [np.sin(x[0])])
    np.testing.assert_allclose(found[1], np.sin(1.0))
    assert OpaqueOp("Op", "mine", b"", "").label == "mine.Op"


def test_values_on_the_way_can_be_kept() -> None:
    p = two_layers()
    inner = p.nodes[0].outputs[0]
    x = np.ones((2, 3), np.float32)
    found = run(p, {p.inputs[0]: x}, keep=[inner])
    assert set(found) == {inner, p.outputs[0]}
    np.testing.assert_allclose(found[inner], x @ p.constants[p.nodes[0].inputs[1]].T)


@pytest.mark.parametrize(("real", "expected"), [(np.float64, np.float64), (np.float32, np.float32), (None, np.float32)])
def test_floats_are_computed_in_the_type_that_is_asked_for(real: Any, expected: Any) -> None:
    (found,) = run_op(OPS["exp"], [np.ones(3, np.float32)], {}, real)
    assert found.dtype == expected


def test_integers_keep_their_type() -> None:
    (found,) = run_op(OPS["gather"], [np.arange(6, dtype=np.int32).reshape(2, 3), np.asarray([1])], {"axis": 1}, np.float64)
    assert (found.dtype, found.tolist()) == (np.int32, [[1], [4]])


def test_random_inputs_are_reproducible() -> None:
    p = two_layers()
    first, second = random_inputs(p, 3), random_inputs(p, 3)
    assert np.array_equal(first[0], second[0])
    random = np.random.default_rng(0)
    for dtype in ("float64", "float16", "float32", "int64", "uint8", "bool"):
        assert random_tensor(TensorType((2, 2), dtype), random).dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "nbytes", "is_float"),
    [("float32", 24, True), ("float16", 12, True), ("bfloat16", 12, True), ("int8", 6, False), ("int4", 3, False), ("bool", 6, False)],
)
def test_types_know_their_size(dtype: str, nbytes: int, is_float: bool) -> None:
    t = TensorType((2, 3), dtype)
    assert (t.size, t.nbytes, t.is_float, str(t)) == (6, nbytes, is_float, f"{dtype}[2, 3]")
    assert zeros_of(t).shape == (2, 3)


def test_integers_have_ranges() -> None:
    assert interval_of("int8") == (-128, 127)
    assert interval_of("uint4") == (0, 15)
    assert interval_of("bool") == (0, 1)
    assert interval_of("int64") == (None, None)


def test_results_have_the_type_of_the_first_operand() -> None:
    assert result_types(OPS["transpose"], [TensorType((2, 3), "int8")], {"perm": (1, 0)}) == (TensorType((3, 2), "int8"),)
    assert result_types(OPS["full"], [], {"shape": (2,), "value": 0.0}) == (TensorType((2,)),)


def test_samples_at_once_give_what_each_gives_and_constants_stay_without_samples() -> None:
    b = Builder("p")
    x, w = b.input("x", TensorType((4, 5))), b.constant(np.arange(10, dtype=np.float32).reshape(2, 5) - 3, "w")
    (rectified,) = b.apply("relu", b.apply("dense", (x, w)))
    (doubled,) = b.apply("add", (w, w))
    p = b.finish([rectified, doubled])
    samples = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    together = run(p, {x: samples}, moving=[x])
    assert together[doubled].shape == (2, 5)
    for n, sample in enumerate(samples):
        alone = run(p, {x: sample})
        np.testing.assert_allclose(together[rectified][n], alone[rectified], rtol=1e-14)
        assert alone[rectified].any()
