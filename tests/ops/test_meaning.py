"""Meanings of operators, run on arrays, against numpy written down independently."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.ir.evaluate import run_op
from rewrite_compiler.ops import OPS
from rewrite_compiler.ops.recurrent import GATES

Array = np.ndarray[Any, Any]
R = np.random.default_rng(1)
FEW = settings(max_examples=60)


def normal(*shape: int) -> Array:
    """Float64 normal elements."""
    return R.standard_normal(shape)


def apply(name: str, *operands: Array, **attributes: Any) -> Array:
    """Return the first output of an operator."""
    return run_op(OPS[name], operands, attributes)[0]


UNARY: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "reciprocal": lambda x: 1 / x,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_each_element(name: str) -> None:
    x = normal(3, 4)
    np.testing.assert_allclose(apply(name, x), UNARY[name](x), rtol=1e-12)


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_elements(name: str) -> None:
    x, y = normal(2, 1, 3), normal(4, 1)
    np.testing.assert_allclose(apply(name, x, y), BINARY[name](x, y), rtol=1e-12)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "max", "min"])
def test_integers_are_exact(name: str) -> None:
    x, y = R.integers(-100, 100, (3, 4)), R.integers(-100, 100, (4,))
    found = apply(name, x, y)
    assert found.dtype == np.int64
    assert np.array_equal(found, BINARY[name](x, y))


def test_dense_and_matmul() -> None:
    x, w = normal(2, 3, 5), normal(4, 5)
    np.testing.assert_allclose(apply("dense", x, w), x @ w.T, rtol=1e-12)
    a, b = normal(2, 1, 3, 4), normal(5, 4, 2)
    np.testing.assert_allclose(apply("matmul", a, b), a @ b, rtol=1e-12)


def plain_conv(x: Array, w: Array, strides: Any, pads: Any, dilations: Any, group: int) -> Array:
    """Convolution by its definition, in loops."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    extents = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *extents))
    for o, place in itertools.product(range(w.shape[0]), itertools.product(*map(range, extents))):
        first = o // (w.shape[0] // group) * w.shape[1]
        window = (slice(p * s, p * s + r, d) for p, s, r, d in zip(place, strides, reach, dilations, strict=True))
        taps = x[(slice(None), slice(first, first + w.shape[1]), *window)]
        y[(slice(None), o, *place)] = (taps * w[o]).sum(axis=tuple(range(1, rank + 2)))
    return y


@FEW
@given(st.data(), st.integers(1, 2), st.integers(1, 2))
def test_convolution(data: st.DataObject, rank: int, group: int) -> None:
    def several(low: int, high: int, count: int = rank) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    spatial, kernel = several(4, 6), several(1, 3)
    attributes = {
        "strides": tuple(several(1, 3)),
        "pads": tuple(several(0, 2, 2 * rank)),
        "dilations": tuple(several(1, 2)),
        "group": group,
    }
    reach = [d * (k - 1) for d, k in zip(attributes["dilations"], kernel, strict=True)]
    if any(r >= n for r, n in zip(reach, spatial, strict=True)):
        return
    x, w = normal(2, 2 * group, *spatial), normal(2 * group, 2, *kernel)
    np.testing.assert_allclose(apply("conv", x, w, **attributes), plain_conv(x, w, **attributes), rtol=1e-9, atol=1e-12)
    if group == 1:
        del attributes["group"]
        rows = apply("im2col", x, kernel=tuple(kernel), **attributes)
        product = rows @ w.reshape(len(w), -1).T
        expected = np.moveaxis(plain_conv(x, w, **attributes, group=1), 1, -1).reshape(product.shape)
        np.testing.assert_allclose(product, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 0, 1)])
def test_pooling(pads: tuple[int, ...]) -> None:
    x = normal(1, 2, 5, 6)
    attributes: dict[str, Any] = {"kernel": (2, 3), "strides": (2, 1), "pads": pads, "dilations": (1, 1), "ceil": 0}
    framed = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    low, ones = np.pad(x, framed, constant_values=-np.inf), np.pad(np.ones_like(x), framed)
    windows = [(h, v) for h in range(0, low.shape[2] - 1, 2) for v in range(low.shape[3] - 2)]
    shape = apply("max_pool", x, **attributes).shape
    top = np.stack([low[:, :, h : h + 2, v : v + 3].max(axis=(2, 3)) for h, v in windows], -1).reshape(shape)
    total = np.stack([np.pad(x, framed)[:, :, h : h + 2, v : v + 3].sum(axis=(2, 3)) for h, v in windows], -1).reshape(shape)
    count = np.stack([ones[:, :, h : h + 2, v : v + 3].sum(axis=(2, 3)) for h, v in windows], -1).reshape(shape)
    np.testing.assert_allclose(apply("max_pool", x, **attributes), top)
    np.testing.assert_allclose(apply("average_pool", x, **attributes, count_include_pad=0), total / count)
    np.testing.assert_allclose(apply("average_pool", x, **attributes, count_include_pad=1), total / 6)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(), (0,), (1, 2), (0, 1, 2)])
def test_reductions(axes: tuple[int, ...], keepdims: int) -> None:
    x = normal(2, 3, 4)
    for name, function in (("reduce_sum", np.sum), ("reduce_mean", np.mean), ("reduce_max", np.max)):
        np.testing.assert_allclose(apply(name, x, axes=axes, keepdims=keepdims), function(x, axis=axes, keepdims=bool(keepdims)))


def test_normalisations() -> None:
    x, g, b = normal(2, 3, 4), normal(4), normal(4)
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-3) * g + b
    np.testing.assert_allclose(apply("layer_norm", x, g, b, axis=2, epsilon=1e-3), expected, rtol=1e-9)
    s, t, m, v = normal(3), normal(3), normal(3), normal(3) ** 2
    columns = [a[:, None] for a in (s, t, m, v)]
    expected = (x - columns[2]) / np.sqrt(columns[3] + 1e-3) * columns[0] + columns[1]
    np.testing.assert_allclose(apply("batch_norm", x, s, t, m, v, epsilon=1e-3), expected, rtol=1e-9)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(apply("softmax", x, axis=1), e / e.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(apply("log_softmax", x, axis=1), np.log(e / e.sum(1, keepdims=True)), rtol=1e-9)
    huge = np.asarray([[1e4, 0.0]])
    np.testing.assert_allclose(apply("softmax", huge, axis=1), [[1.0, 0.0]])


@FEW
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_reshapes_of_any_factoring(data: st.DataObject, shape: list[int]) -> None:
    x = np.arange(math.prod(shape)).reshape(shape)
    rest, wanted = math.prod(shape), []
    while rest > 1 and len(wanted) < 5:
        wanted.append(data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0])))
        rest //= wanted[-1]
    wanted.append(rest)
    assert np.array_equal(apply("reshape", x, shape=tuple(wanted)), x.reshape(wanted))


@FEW
@given(st.permutations(range(4)))
def test_transposes(perm: list[int]) -> None:
    x = np.arange(120).reshape(2, 3, 4, 5)
    assert np.array_equal(apply("transpose", x, perm=tuple(perm)), x.transpose(perm))


@FEW
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4))
def test_slices(a: int, b: int, step: int) -> None:
    x = np.arange(27).reshape(3, 9)
    start, stop = sorted((a, b))
    assert np.array_equal(apply("slice", x, axis=1, start=start, stop=stop, step=step), x[:, start:stop:step])


def test_other_movement() -> None:
    x, y = np.arange(6).reshape(2, 3), np.arange(4).reshape(2, 2)
    empty = np.zeros((2, 0), np.int64)
    assert np.array_equal(apply("concat", x, empty, y, x, axis=1), np.concatenate([x, y, x], axis=1))
    assert np.array_equal(apply("pad", x, pads=(1, 0, 0, 2), value=7.0), np.pad(x, [(1, 0), (0, 2)], constant_values=7))
    assert np.array_equal(apply("expand", x[:, :1], shape=(3, 2, 4)), np.broadcast_to(x[:, :1], (3, 2, 4)))
    assert np.array_equal(apply("gather", x, np.asarray([[2, -1], [0, -3]]), axis=1), np.take(x, [[2, 2], [0, 0]], axis=1))
    assert np.array_equal(apply("reverse", x, axis=1), x[:, ::-1])
    assert apply("full", shape=(2, 2), value=0.75).tolist() == [[0.75, 0.75]] * 2
    assert apply("clip", normal(9), low=-0.1, high=0.1).max() <= 0.1
    assert np.array_equal(apply("clip", x, low=1.0, high=float("inf")), np.maximum(x, 1))


def test_bias_and_scale_along_an_axis() -> None:
    x, v = normal(2, 3, 4), normal(3)
    np.testing.assert_allclose(apply("bias_add", x, v, axis=1), x + v[:, None])
    np.testing.assert_allclose(apply("scale", x, v, axis=1), x * v[:, None])


def sigmoid(x: Array) -> Array:
    """1 / (1 + e⁻ˣ)."""
    return 1 / (1 + np.exp(-x))


def test_lstm_by_its_equations() -> None:
    x, w, r, b, h, c = normal(4, 2, 3), normal(20, 3), normal(20, 5), normal(40), normal(2, 5), normal(2, 5)
    found = run_op(OPS["lstm"], [x, w, r, b, h, c], {})
    history = []
    for t in x:
        i, o, f, g = np.split(t @ w.T + h @ r.T + b[:20] + b[20:], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        history.append(h)
    for a, expected in zip(found, (np.stack(history), h, c), strict=True):
        np.testing.assert_allclose(a, expected, rtol=1e-9)


def test_gate_sum_by_its_equation() -> None:
    x, h, w, r, a, b = normal(2, 3), normal(2, 5), normal(4, 3), normal(4, 5), normal(4), normal(4)
    (found,) = run_op(OPS["gate_sum"], [x, h, w, r, a, b], {})
    np.testing.assert_allclose(found, x @ w.T + h @ r.T + a + b, rtol=1e-9)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_no_steps_leave_the_state(name: str) -> None:
    gates = GATES[name]
    states = [normal(2, 5)] * (2 if name == "lstm" else 1)
    attributes = {"gru": {"linear_before_reset": 1}, "rnn": {"activation": "tanh"}, "lstm": {}}[name]
    every, *last = run_op(
        OPS[name], [np.zeros((0, 2, 3)), normal(gates * 5, 3), normal(gates * 5, 5), normal(2 * gates * 5), *states], attributes
    )
    assert every.shape == (0, 2, 5)
    for found, state in zip(last, states, strict=True):
        assert np.array_equal(found, state)


@pytest.mark.parametrize("flag", [0, 1])
def test_gru_by_its_equations(flag: int) -> None:
    x, w, r, b, h = normal(4, 2, 3), normal(15, 3), normal(15, 5), normal(30), normal(2, 5)
    found = run_op(OPS["gru"], [x, w, r, b, h], {"linear_before_reset": flag})
    for t in x:
        xz, xr, xn = np.split(t @ w.T + b[:15], 3, axis=1)
        z, reset = sigmoid(xz + h @ r[:5].T + b[15:20]), sigmoid(xr + h @ r[5:10].T + b[20:25])
        inner = reset * (h @ r[10:].T + b[25:]) if flag else (reset * h) @ r[10:].T + b[25:]
        h = (1 - z) * np.tanh(xn + inner) + z * h
    np.testing.assert_allclose(found[1], h, rtol=1e-9)
    np.testing.assert_allclose(found[0][-1], h, rtol=1e-9)


NOTHING, COLUMNS = np.zeros((0, 2)), np.zeros((3, 2))
# operator → operands with nothing in them, or that leave nothing; its attributes
EMPTY: dict[str, tuple[list[Array], dict[str, Any]]] = {
    **{name: ([NOTHING], {}) for name in (*UNARY, "log", "sqrt")},
    **{name: ([NOTHING, NOTHING], {}) for name in (*BINARY, "pow")},
    "clip": ([NOTHING], {"low": 0.0, "high": 1.0}),
    "bias_add": ([NOTHING, np.zeros(2)], {"axis": 1}),
    "concat": ([NOTHING, NOTHING], {"axis": 1}),
    "slice": ([COLUMNS], {"axis": 0, "start": 2, "stop": 2, "step": 1}),
    "reshape": ([NOTHING], {"shape": (4, 0)}),
    "reverse": ([NOTHING], {"axis": 1}),
    "transpose": ([NOTHING], {"perm": (1, 0)}),
    "gather": ([COLUMNS, np.zeros(0, np.int64)], {"axis": 0}),
    "dense": ([NOTHING, COLUMNS], {}),
    "matmul": ([NOTHING, COLUMNS.T], {}),
    "softmax": ([NOTHING], {"axis": 1}),
    "reduce_sum": ([NOTHING], {"axes": (1,), "keepdims": 0}),
    "expand": ([NOTHING[:, :1]], {"shape": (0, 4)}),
    "full": ([], {"shape": (0, 3), "value": 1.0}),
    "conv": ([np.zeros((0, 1, 3)), np.zeros((1, 1, 3))], {"strides": (1,), "pads": (0, 0), "dilations": (1,), "group": 1}),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_comes_of_nothing(name: str) -> None:
    operands, attributes = EMPTY[name]
    (found,) = run_op(OPS[name], operands, attributes)
    assert found.size == 0
    assert found.shape == OPS[name].shapes([x.shape for x in operands], attributes)[0]
