"""Random attributes: what is imported gives what onnxruntime gives; what onnxruntime refuses is refused or left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx_models import agrees, session, single

from rewrite_compiler.errors import FlexmatchError

FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
Draw = st.DrawFn
PAD_MODES = ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]


def same_outcome(proto: Any) -> None:
    """Require agreement, or refusal by both; a refusal of what onnxruntime runs is a failure."""
    try:
        agrees(proto)
    except FlexmatchError:
        try:
            fed = session(proto)
            fed.run(None, {i.name: np.zeros(i.shape, np.float32) for i in fed.get_inputs()})
        except Exception:  # onnxruntime's own classes of exception
            return
        raise


@st.composite
def windows(draw: Draw, rank: int) -> dict[str, Any]:
    """Strides, dilations and pads over some axes."""
    found: dict[str, Any] = {
        "strides": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
        "dilations": draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank)),
    }
    mode = draw(st.sampled_from(PAD_MODES))
    if mode == "NOTSET":
        return found | {"pads": draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))}
    return found | {"auto_pad": mode}


@FEW
@given(st.data(), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2))
def test_convolutions(data: st.DataObject, rank: int, group: int, channels: int, filters: int) -> None:
    spatial = data.draw(st.lists(st.integers(2, 7), min_size=rank, max_size=rank))
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    attributes = data.draw(windows(rank))
    assume("auto_pad" not in attributes or set(attributes["dilations"]) == {1})  # onnxruntime pads dilated kernels in its own way
    weights = np.random.default_rng(0).standard_normal((filters * group, channels, *kernel)).astype(np.float32)
    bias = np.arange(filters * group, dtype=np.float32) if data.draw(st.booleans()) else None
    same_outcome(single("Conv", [(2, channels * group, *spatial), weights, bias], group=group, **attributes))


@FEW
@given(st.data(), st.sampled_from(["MaxPool", "AveragePool"]), st.integers(1, 2), st.integers(0, 1))
def test_poolings(data: st.DataObject, op: str, rank: int, ceil: int) -> None:
    spatial = data.draw(st.lists(st.integers(2, 8), min_size=rank, max_size=rank))
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    attributes = data.draw(windows(rank))
    if op == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    assume("auto_pad" not in attributes or (set(attributes["dilations"]) == {1} and not ceil))
    assume(
        "auto_pad" not in attributes or all(k >= s for k, s in zip(kernel, attributes["strides"], strict=True))
    )  # a fault of onnxruntime
    assume(all(d * (k - 1) < n for n, k, d in zip(spatial, kernel, attributes["dilations"], strict=True)))
    same_outcome(single(op, [(1, 2, *spatial)], kernel_shape=kernel, ceil_mode=ceil, **attributes))


@FEW
@given(st.data(), st.sampled_from(["ReduceMean", "ReduceSum", "ReduceMax"]), st.integers(1, 4), st.integers(0, 1))
def test_reductions(data: st.DataObject, op: str, rank: int, keepdims: int) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    axes = data.draw(st.lists(st.integers(-rank - 1, rank), max_size=rank, unique_by=lambda a: a % rank))
    same_outcome(single(op, [tuple(shape), np.asarray(axes, np.int64)], keepdims=keepdims))


@FEW
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.lists(st.integers(-1, 6), min_size=1, max_size=4), st.integers(0, 1))
def test_reshapes(shape: list[int], wanted: list[int], allowzero: int) -> None:
    same_outcome(single("Reshape", [tuple(shape), np.asarray(wanted, np.int64)], allowzero=allowzero))


@FEW
@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_axes_from_either_end(data: st.DataObject, shape: list[int]) -> None:
    rank = len(shape)
    axis = data.draw(st.integers(-rank - 1, rank))
    op = data.draw(st.sampled_from(["Softmax", "LogSoftmax", "Flatten", "LayerNormalization", "Gather"]))
    rest: list[Any] = []
    if op == "LayerNormalization":
        rest = [np.ones(shape[axis:] if -rank <= axis < rank else shape[-1:], np.float32)]
    if op == "Gather":
        rest = [np.asarray([0, -1])]
    same_outcome(single(op, [tuple(shape), *rest], axis=axis))


@FEW
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_pads(data: st.DataObject, shape: list[int]) -> None:
    pads = data.draw(st.lists(st.integers(-2, 3), min_size=2 * len(shape), max_size=2 * len(shape)))
    value = np.asarray(data.draw(st.sampled_from([0.0, 1.5, -2.0])), np.float32)
    same_outcome(single("Pad", [tuple(shape), np.asarray(pads, np.int64), value]))


@FEW
@given(st.data(), st.sampled_from(["Add", "Mul", "Sub", "Div", "Max"]), st.lists(st.integers(1, 3), max_size=4))
def test_broadcasts(data: st.DataObject, op: str, shape: list[int]) -> None:
    other = [data.draw(st.sampled_from([1, n])) for n in shape][data.draw(st.integers(0, len(shape))) :]
    same_outcome(single(op, [tuple(shape), tuple(other)]))


@FEW
@given(st.data(), st.lists(st.integers(1, 3), max_size=2), st.lists(st.integers(1, 3), max_size=2), st.integers(1, 3))
def test_matrix_products(data: st.DataObject, a: list[int], b: list[int], k: int) -> None:
    left = (*a, *([data.draw(st.integers(1, 3))] if data.draw(st.booleans()) else []), k)
    right = (*b, k, data.draw(st.integers(1, 3))) if data.draw(st.booleans()) else (k,)
    same_outcome(single("MatMul", [left, right]))


@FEW
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from(["", "n", "1n", "m1", "mn", "1", "()"]),
)
def test_gemms(m: int, k: int, n: int, trans_a: int, trans_b: int, c: str) -> None:
    bias = {"": None, "n": (n,), "1n": (1, n), "m1": (m, 1), "mn": (m, n), "1": (1,), "()": ()}[c]
    operands = [(k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n), bias]
    same_outcome(single("Gemm", operands, transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0))


@FEW
@given(st.data(), st.integers(1, 9), st.integers(1, 4))
def test_splits(data: st.DataObject, extent: int, parts: int) -> None:
    sizes = data.draw(st.one_of(st.none(), st.lists(st.integers(0, 4), min_size=parts, max_size=parts)))
    if sizes is None:
        assume(-(-extent // parts) * (parts - 1) < extent)  # onnxruntime has no empty last part
        same_outcome(single("Split", [(2, extent)], results=parts, axis=1, num_outputs=parts))
    else:
        same_outcome(single("Split", [(2, extent), np.asarray(sizes, np.int64)], results=parts, axis=-1))
