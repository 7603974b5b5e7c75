"""Choices as programs: constants are evaluated exactly and rounded once, operations keep source nodes, births and names."""

from __future__ import annotations

import numpy as np
import pytest
from in_process import extracted, saturated
from programs import constant

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.egraph.extraction.decode import DeviceName, extracted_program
from rewrite_compiler.egraph.graph.graph import EClass, EGraph, ENode
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.ir.program import Builder, Program, Source
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify

TINY = 2.0**-24  # 1 + TINY is 1 in float32


def folding(dtype: str) -> Program:
    """x + ((one + tiny) − one), the parenthesis known at compile time."""
    made = Builder("fold")
    x = made.input("x", TensorType((2,), dtype))
    one, tiny = (made.constant(np.full(2, v).astype(dtype)) for v in (1.0, TINY))
    made.sources += [Source(n, "") for n in ("add", "sub", "use")]
    (a,) = made.apply("add", [one, tiny], origins=(0,))
    (b,) = made.apply("sub", [a, one], origins=(1,))
    return made.finish(made.apply("add", [x, b], origins=(2,)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_constants_are_rounded_once(dtype: str) -> None:
    p = folding(dtype)
    back, _ = extracted(p, saturated(p))
    verify(back)
    assert [n.op for n in back.nodes] == ["add"]
    (data,) = (back.constants[v] for v in back.nodes[0].inputs if v in back.constants)
    assert data.dtype == dtype
    assert data.tolist() == [float(np.dtype(dtype).type(TINY))] * 2


def test_constants_of_rules_are_evaluated_too() -> None:
    """Two scales merge into their exact product; in float32 steps it would be another number."""

    @rule(marks=("ring",))
    def merge(x: Tensor, s: Tensor, t: Tensor) -> Law:
        """(x · s) · t = x · (s · t)"""
        return o.mul(o.mul(x, s), t), o.mul(x, o.mul(s, t)), Where(IsConstant(s), IsConstant(t))

    made = Builder("scales")
    x = made.input("x", TensorType((3,)))
    s, t = made.constant(constant(3, seed=1)), made.constant(constant(3, seed=2))
    made.sources += [Source("first", "Mul"), Source("second", "Mul")]
    (y,) = made.apply("mul", (*made.apply("mul", [x, s], origins=(0,)), t), origins=(1,))
    p = made.finish([y])
    back, e_nodes = extracted(p, saturated(p, [merge]))
    assert [(n.op, n.origins) for n in back.nodes] == [("mul", {0, 1})]
    assert e_nodes[back.nodes[0].outputs[0]].birth == 0
    (data,) = back.constants.values()
    assert data.tolist() == (p.constants[s].astype(np.float64) * p.constants[t]).astype(np.float32).tolist()
    fed = random_inputs(p)
    np.testing.assert_allclose(run(back, {back.inputs[0]: fed[x]})[back.outputs[0]], run(p, fed)[y], rtol=1e-6)


def test_integer_constants_stay_integers() -> None:
    made = Builder("gather")
    x = made.input("x", TensorType((9, 2)))
    i, j = made.constant(np.array([2, 3], np.int64)), made.constant(np.array([4, 5], np.int64))
    p = made.finish(made.apply("gather", [x, *made.apply("add", [i, j])], {"axis": 0}))
    back, _ = extracted(p, saturated(p))
    (data,) = back.constants.values()
    assert (data.dtype, data.tolist()) == (np.int64, [6, 8])


def test_device_operations_keep_their_attributes_and_names() -> None:
    made = Builder("device")
    x = made.input("x", TensorType((2, 3)))
    made.sources.append(Source("relu", "Relu"))
    (y,) = made.apply("relu", [x], origins=(0,), names=["y"])
    p = made.finish([y])
    node = ENode("m_made_clamp", (0,), (7, "slow"), 3, frozenset({0}))
    graph = EGraph({0: EClass(p.types[x], False, (ENode("Input", (), (x,), -1, frozenset()),)), 1: EClass(p.types[y], False, (node,))},
                   {x: 0, y: 1})  # fmt: skip
    choice = {c: e.nodes[0] for c, e in graph.classes.items()}
    back, e_nodes = extracted_program(p, graph, choice, {"m_made_clamp": DeviceName("made.clamp", ("limit", "mode"))})
    (found,) = back.nodes
    assert (found.op, dict(found.attributes), found.origins) == ("made.clamp", {"limit": 7, "mode": "slow"}, {0})
    assert back.names[back.outputs[0]] == "y"
    assert e_nodes == {found.outputs[0]: node}


def test_an_unused_constant_is_not_kept() -> None:
    made = Builder("drop")
    x, w = made.input("x", TensorType((2,))), made.constant(constant(2))
    (y,) = made.apply("add", [x, w])
    (z,) = made.apply("sub", [y, w])

    @rule(marks=("ring",))
    def cancel(a: Tensor, b: Tensor) -> Law:
        """(a + b) − b = a"""
        return o.sub(o.add(a, b), b), a, Where(a.shape == b.shape)

    p = made.finish([z])
    back, _ = extracted(p, saturated(p, [cancel]))
    assert (back.constants, [n.op for n in back.nodes]) == ({}, ["reshape"])  # an output is the result of a node
