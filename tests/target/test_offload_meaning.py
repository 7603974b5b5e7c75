"""The meaning of offloads as programs: equal to the pattern, also where it stands in a larger program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler import Tensor
from rewrite_compiler import ops as o
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.ir.program import Builder, Node, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.rewrite import Float, Int, Ints
from rewrite_compiler.target import Mapping, Target, body_of, find_target, inlined

TARGET = find_target("flexasr")
LINEAR = TARGET.mappings["linear"]
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def test_linear_is_a_product_and_a_bias() -> None:
    p = body_of(LINEAR, [TensorType((3, 4)), TensorType((5, 4)), TensorType((5,))], {})
    verify(p)
    assert [n.op for n in p.nodes] == ["dense", "bias_add"]
    assert [p.names[v] for v in p.inputs] == ["x", "w", "b"]
    fed = random_inputs(p)
    x, w, b = (np.float64(fed[v]) for v in p.inputs)
    np.testing.assert_allclose(run(p, fed)[p.outputs[0]], x @ w.T + b, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(TARGET.mappings))
def test_every_shipped_meaning_is_a_program(name: str) -> None:
    m = TARGET.mappings[name]
    sizes = {d: n for n, d in enumerate({d: 0 for dims in m.axes.of.values() for d in dims}, 2)}
    if name in GATES:  # the gates are so many times the state
        sizes |= {"g": GATES[name] * sizes["h"], "e": 2 * GATES[name] * sizes["h"]}
    attributes = {name: 1e-5 for name, kind in m.statics if kind == "float"}
    p = body_of(m, [TensorType(tuple(sizes[d] for d in m.axes.of[v.name])) for v in m.operands], attributes)
    verify(p)
    assert p.types[p.outputs[0]].shape == tuple(sizes[d] for d in m.axes.of[m.axes.result])


def made(f: object, axes: str) -> Mapping:
    return Target("made", lambda: None).accelerates(axes=axes, formats={})(f)  # type: ignore[arg-type,return-value]


def test_attributes_are_put_in_where_the_pattern_has_them() -> None:
    def clipped(x: Tensor, b: Tensor, s: Ints, axis: Int, low: Float) -> Tensor:
        """clip((reshape x) + b)ᵀ with a computed last axis"""
        y = o.clip(o.bias_add(o.reshape(x, s), b, axis=axis), low, 6.0)
        return o.reshape(o.transpose(y, (1, 0)), (s[1] * s[0],))

    m = made(clipped, "x: a; b: b; y: c")
    p = body_of(m, [TensorType((12,)), TensorType((4,))], {"s": (3, 4), "axis": 1, "low": -0.5})
    verify(p)
    assert [dict(n.attributes) for n in p.nodes] == [
        {"shape": (3, 4)}, {"axis": 1}, {"low": -0.5, "high": 6.0}, {"perm": (1, 0)}, {"shape": (12,)},
    ]  # fmt: skip
    fed = random_inputs(p)
    x, b = (np.float64(fed[v]) for v in p.inputs)
    np.testing.assert_allclose(run(p, fed)[p.outputs[0]], np.clip(x.reshape(3, 4) + b, -0.5, 6).T.reshape(-1), rtol=1e-12)


def test_a_shared_part_of_a_pattern_is_computed_once() -> None:
    def square(x: Tensor, w: Tensor) -> Tensor:
        """dense(x, w)²"""
        y = o.dense(x, w)
        return o.mul(y, y)

    p = body_of(made(square, "x: t k; w: n k; y: t n"), [TensorType((2, 3)), TensorType((4, 3))], {})
    assert [n.op for n in p.nodes] == ["dense", "mul"]


def network(layers: int, shape: tuple[int, ...], width: int) -> tuple[Program, Program]:
    """Return linear layers with relu between them, as device operations and as operators."""
    random = np.random.default_rng(layers)
    device, plain = Builder("device"), Builder("plain")
    x = device.input("x", TensorType(shape))
    y = plain.input("x", TensorType(shape))
    for n in range(layers):
        before = device.types[x].shape[-1]
        w, b = random.standard_normal((width, before)).astype(np.float32), random.standard_normal(width).astype(np.float32)
        out = device.value(TensorType((*shape[:-1], width)), f"y{n}")
        device.node(Node(LINEAR.name, (x, device.constant(w), device.constant(b)), (out,), (), frozenset({n})))
        (x,) = device.apply("relu", [out])
        (z,) = plain.apply("bias_add", [*plain.apply("dense", [y, plain.constant(w)]), plain.constant(b)], {"axis": 1})
        (y,) = plain.apply("relu", [z])
    return device.finish([x]), plain.finish([y])


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_inlining_gives_the_program_without_a_device(layers: int, rows: int, inputs: int, width: int) -> None:
    device, plain = network(layers, (rows, inputs), width)
    found = inlined(device, lambda node: body_of(LINEAR, [device.types[v] for v in node.inputs], dict(node.attributes)))
    verify(found)
    assert [n.op for n in found.nodes] == [n.op for n in plain.nodes]
    assert [n.origins for n in found.nodes if n.op != "relu"] == [frozenset({n // 2}) for n in range(2 * layers)]
    assert found.outputs == device.outputs  # values keep their numbers
    assert all(found.types[v] == t for v, t in enumerate(device.types))
    fed = random_inputs(plain)
    (expected,) = run(plain, fed).values()
    (result,) = run(found, dict(zip(found.inputs, fed.values(), strict=True))).values()
    np.testing.assert_array_equal(result, expected)
