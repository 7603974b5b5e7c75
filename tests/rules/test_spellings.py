"""Spellings of layers that exporters write beside the usual ones: each is one offload that computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unrolled as u
from offloaded import MAPPINGS, agree, matched, offloads


def number(g: u.Graph, value: float) -> str:
    return g.constant(np.asarray(value, np.float32))


def is_one(g: u.Graph, shapes: dict[str, tuple[int, ...]], y: str, kind: str, folder: Path, left: frozenset[str] = frozenset()) -> None:
    source, chosen = matched(u.model_of(g, shapes, [y]), folder)
    assert offloads(chosen) == {f"flexasr.{kind}": 1}
    assert {n.op for n in chosen.nodes} - MAPPINGS.keys() <= {"reshape", "transpose"} | left
    agree(source, chosen)


def test_a_vector_times_a_matrix_takes_its_bias(tmp_path: Path) -> None:
    g = u.Graph()
    is_one(g, {"x": (20,)}, g("Relu", g("Add", g.weight(12), g("MatMul", "x", g.weight(20, 12)))), "linear_relu", tmp_path)


@pytest.mark.parametrize("spelled", [False, True], ids=["softmax", "exponentials"])
def test_attention_may_have_a_batch_of_one(spelled: bool, tmp_path: Path) -> None:
    g = u.Graph()
    scores = g("MatMul", "q", g("Transpose", "e", perm=[0, 2, 1]))
    powers = g("Exp", g("Sub", scores, g("ReduceMax", scores, g.ints(2)))) if spelled else ""
    shares = g("Div", powers, g("ReduceSum", powers, g.ints(2))) if spelled else g("Softmax", scores, axis=2)
    is_one(g, {"q": (1, 3, 16), "e": (1, 10, 16)}, g("MatMul", shares, "e"), "attention", tmp_path)


def test_a_norm_may_be_over_several_axes(tmp_path: Path) -> None:
    g = u.Graph()
    is_one(g, {"x": (2, 4, 32)}, g("LayerNormalization", "x", g.weight(4, 32), g.weight(4, 32), axis=1), "layer_norm", tmp_path)


def test_a_norm_may_scale_before_it_divides(tmp_path: Path) -> None:
    g = u.Graph()
    rows = g("Sub", "x", g("ReduceMean", "x", g.ints(-1)))
    spread = g("Sqrt", g("Add", g("ReduceMean", g("Mul", rows, rows), g.ints(-1)), number(g, 1e-5)))
    y = g("Add", g("Div", g("Mul", g.weight(32), rows), spread), g.weight(32))
    is_one(g, {"x": (1, 7, 32)}, y, "layer_norm_of_batch", tmp_path)


def test_a_scale_before_a_padded_convolution_folds_into_it(tmp_path: Path) -> None:
    g = u.Graph()
    scale = g.constant(np.asarray([0.5, 2, 3], np.float32).reshape(3, 1, 1))
    y = g("Conv", g("Mul", "x", scale), g.weight(4, 3, 3, 3), pads=[1, 1, 1, 1])
    is_one(g, {"x": (1, 3, 6, 6)}, y, "linear", tmp_path, frozenset({"im2col"}))


def test_rounding_up_where_nothing_is_left_is_rounding_down(tmp_path: Path) -> None:
    g = u.Graph()
    y = g("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    is_one(g, {"x": (1, 4, 8, 8)}, y, "mean_pool", tmp_path, frozenset({"im2col"}))
