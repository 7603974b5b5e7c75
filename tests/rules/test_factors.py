"""Known factors of attention, one known matrix for each head, means over images whose channels are last: each is offloaded whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import unrolled as u
from offloaded import agree, matched, offloads

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.frontend.load import load
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import rules_at, shipped_rules
from rewrite_compiler.target import find_target

Network = tuple[dict[str, tuple[int, ...]], str]


def number(g: u.Graph, value: float) -> str:
    return g.constant(np.asarray(value, np.float32))


def attention(g: u.Graph, q: str, turned: str, scale: Callable[[str], str]) -> Network:
    """Return attention over one matrix that is both keys and values, the scores scaled."""
    return {"q": (3, 16), "e": (10, 16)}, g("MatMul", g("Softmax", scale(g("MatMul", q, turned)), axis=-1), "e")


def scaled_scores(g: u.Graph) -> Network:
    return attention(g, "q", g("Transpose", "e", perm=[1, 0]), lambda s: g("Mul", s, number(g, 0.25)))


def divided_scores(g: u.Graph) -> Network:
    return attention(g, "q", g("Transpose", "e", perm=[1, 0]), lambda s: g("Div", s, number(g, 3)))


def both_scaled(g: u.Graph) -> Network:
    c = number(g, 0.5)
    return attention(g, g("Mul", "q", c), g("Mul", g("Transpose", "e", perm=[1, 0]), c), lambda s: s)


def scaled_before_turned(g: u.Graph) -> Network:
    c = number(g, 0.5)
    return attention(g, g("Mul", "q", c), g("Transpose", g("Mul", "e", c), perm=[1, 0]), lambda s: s)


def scaled_product(g: u.Graph) -> Network:
    return {"x": (4, 20)}, g("Add", g("Mul", g("MatMul", "x", g.weight(20, 12)), number(g, 0.3)), g.weight(12))


def heads(g: u.Graph) -> Network:
    return {"x": (4, 6, 16)}, g("MatMul", "x", g.weight(4, 16, 8))


def heads_of_samples(g: u.Graph) -> Network:
    return {"x": (2, 3, 6, 16)}, g("MatMul", "x", g.weight(3, 16, 8))


def heads_of_one_sample(g: u.Graph) -> Network:
    return {"x": (2, 3, 6, 16)}, g("MatMul", "x", g.weight(1, 3, 16, 8))


def known_left(g: u.Graph) -> Network:
    return {"x": (2, 3, 6, 16)}, g("MatMul", g.weight(8, 6), "x")


def mean_of_image(g: u.Graph) -> Network:
    return {"x": (2, 8, 4, 16)}, g("ReduceMean", "x", g.ints(1, 2), keepdims=0)


FORMS = [
    (scaled_scores, "attention", 1), (divided_scores, "attention", 1), (both_scaled, "attention", 1),
    (scaled_before_turned, "attention", 1), (scaled_product, "linear", 1), (heads, "linear", 4), (heads_of_samples, "linear", 3),
    (heads_of_one_sample, "linear", 3), (known_left, "linear", 1), (mean_of_image, "mean_pool", 1),
]  # fmt: skip


@pytest.mark.parametrize(("network", "operation", "count"), FORMS, ids=[f.__name__ for f, *_ in FORMS])
def test_what_a_device_takes_is_found_behind_factors_and_heads(
    network: Callable[[u.Graph], Network], operation: str, count: int, tmp_path: Path
) -> None:
    g = u.Graph()
    shapes, y = network(g)
    source, chosen = matched(u.model_of(g, shapes, [y]), tmp_path)
    assert offloads(chosen) == {f"flexasr.{operation}": count}
    assert not {n.op for n in chosen.nodes} & {"matmul", "dense", "softmax", "reduce_mean"}
    agree(source, chosen)


def test_a_maximum_over_a_row_is_one_over_an_image(tmp_path: Path) -> None:
    """VTA takes maxima of codes over images."""
    g = u.Graph()
    scale, zero = number(g, 0.1), g.constant(np.int8(0))
    codes = g("QuantizeLinear", "x", scale, zero)
    pooled = g("MaxPool", g("DequantizeLinear", codes, scale, zero), kernel_shape=[2], strides=[2])
    y = g("DequantizeLinear", g("QuantizeLinear", pooled, scale, zero), scale, zero)
    source = load(u.saved(u.model_of(g, {"x": (1, 16, 32)}, [y]), tmp_path)).program
    chosen = match(source, shipped_rules(), list(find_target("vta").mappings.values()), DEFAULT).program
    assert [n.op for n in chosen.nodes if n.op.startswith("vta.")] == ["vta.max_pool_int8"]


@pytest.mark.parametrize("accel", ["hlscnn", "flexasr", "vta"])
def test_an_objective_that_weighs_lowerings_uses_them(accel: str, tmp_path: Path) -> None:
    g = u.Graph()
    image = g("Conv", "x", g.weight(8, 1, 3, 3), group=8)
    y = g("MatMul", g("Reshape", image, g.ints(1, 32)), g.weight(32, 16))
    path = u.saved(u.model_of(g, {"x": (1, 8, 4, 4)}, [y]), tmp_path)
    usual, fewest, least = (compile_model(path, [accel], Options(objective=name)) for name in ("offloads", "macs", "cycles"))
    depthwise, product = "Conv_0_0", "MatMul_2_0"
    assert depthwise in {h.node for h in usual.host}
    assert not {depthwise, product} & {h.node for h in fewest.host}
    assert fewest.lowered_counts[accel]
    plain = compile_model(path, [accel], Options(objective="cycles", without=tuple(r.name for r in rules_at(Path("lowering")))))
    assert least.extraction["cost"]["nanoseconds"] <= plain.extraction["cost"]["nanoseconds"]


def test_a_product_left_to_the_host_is_not_counted_with_the_offload_that_took_its_factor(tmp_path: Path) -> None:
    g = u.Graph()
    rows = g("MatMul", "x", g.weight(16, 16))
    scores = g("Mul", g("MatMul", rows, g("Transpose", "z", perm=[1, 0])), number(g, 0.25))
    plan = compile_model(u.saved(u.model_of(g, {"x": (4, 16), "z": (5, 16)}, [scores]), tmp_path), ["vta"])
    assert [o.nodes for o in plan.offloads] == [("MatMul_0_0", "Mul_3_0")]
    assert "MatMul_2_0" in {h.node for h in plan.host}
