"""The table of patterns: its meanings are those that one writes out, its trials have the sizes of windows, its kinds are told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila_models import hvx
from rewrite_compiler.lang import Fixed, array, lift
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.prove.calls.call_validation import CallCourt, Method
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.rewrite import Float, Int, Ints
from rewrite_compiler.target import (
    Pattern,
    Target,
    code_sum,
    element_pattern,
    find_target,
    fixed_byte,
    fixed_nearest,
    fixed_products,
    pool_pattern,
    product_pattern,
    quantized_add_pattern,
    requantise_pattern,
)

DENSE, IMAGES = "x: t k; w: n k; b: n; y: t n", "x: b c i j; w: n c r s; b: n; y: b n u v"


def dense_bias_relu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """Written out."""
    return o.relu(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


def conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """Written out."""
    return o.conv(x, w, strides, pads, (1, 1), group=1), Where(x.rank == 4, IsConstant(w))


def conv2d_bias_uint8(x: Tensor, w: Tensor, b: Tensor, x_zero: Int, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """Written out."""
    y = o.bias_add(o.integer_conv(x, w, strides, pads, (1, 1), group=1, x_zero=x_zero, w_zero=0), b, 1)
    return y, Where(x.rank == 4, HasType(x, ("uint8",)), HasType(w, ("int8",)), IsConstant(w), IsConstant(b))


def depthwise(x: Tensor, w: Tensor, strides: Ints, pads: Ints, group: Int) -> tuple[Tensor, Where]:
    """Written out."""
    y = o.conv(x, w, strides, pads, (1, 1), group=group)
    return y, Where(x.rank == 4, x.shape[1] == group, w.shape[0] == group, group > 1, IsConstant(w))


def dense_int8(x: Tensor, w: Tensor, x_zero: Int) -> tuple[Tensor, Where]:
    """Written out."""
    y = o.integer_dense(x, w, x_zero=x_zero, w_zero=0)
    return y, Where(x.rank == 2, HasType(x, ("int8",)), HasType(w, ("int8",)), IsConstant(w))


def max_pool_uint8(x: Tensor, kernel: Ints, strides: Ints, pads: Ints) -> tuple[Tensor, Where]:
    """Written out."""
    y = o.max_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=(1, 1), ceil=0)
    return y, Where(x.rank == 4, HasType(x, ("uint8",)))


def average_pool(x: Tensor, kernel: Ints, strides: Ints) -> tuple[Tensor, Where]:
    """Written out."""
    y = o.average_pool(x, kernel=kernel, strides=strides, pads=(0, 0, 0, 0), dilations=(1, 1), ceil=0, count_include_pad=0)
    return y, Where(x.rank == 4)


def add_relu_3(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
    """Written out."""
    return o.relu(o.add(x, z)), Where(x.rank == 3, x.shape == z.shape)


def clip_2(x: Tensor, low: Float, high: Float) -> tuple[Tensor, Where]:
    """Written out."""
    return o.clip(x, low=low, high=high), Where(x.rank == 2)


def relu_int32_4(x: Tensor) -> tuple[Tensor, Where]:
    """Written out."""
    return o.relu(x), Where(x.rank == 4, HasType(x, ("int32",)))


def requantise_int8_4(x: Tensor, multiplier: Ints, shift: Ints, zero: Int, low: Int, high: Int) -> tuple[Tensor, Where]:
    """Written out."""
    y = o.requantize(x, multiplier=multiplier, shift=shift, axis=1, zero=zero, low=low, high=high, to="int8")
    return y, Where(x.rank == 4, HasType(x, ("int32",)))


def quantized_add_uint8_2(
    x: Tensor, z: Tensor, multiplier: Ints, shift: Ints, zeros: Ints, zero: Int, low: Int, high: Int
) -> tuple[Tensor, Where]:  # fmt: skip
    """Written out."""
    y = o.quantized_add(x, z, multiplier=multiplier, shift=shift, zeros=zeros, zero=zero, low=low, high=high, to="uint8")
    return y, Where(x.rank == 2, HasType(x, ("uint8",)), HasType(z, ("uint8",)))


CASES: list[tuple[Pattern, Callable[..., Any], str, str]] = [
    (product_pattern("dense", bias=True, relu=True), dense_bias_relu, DENSE, "k"),
    (product_pattern("conv2d"), conv2d, IMAGES.replace("b: n; ", ""), "b c i j r s u v"),
    (product_pattern("conv2d", bias=True, codes="uint8"), conv2d_bias_uint8, IMAGES, "b c i j r s u v"),
    (product_pattern("depthwise"), depthwise, "x: b c i j; w: c o r s; y: b c u v", "o b c i j r s u v"),
    (product_pattern("dense", codes="int8"), dense_int8, DENSE.replace("b: n; ", ""), ""),
    (pool_pattern("max_pool", "uint8"), max_pool_uint8, "x: b c i j; y: b c u v", "b c i j u v"),
    (pool_pattern("average_pool"), average_pool, "x: b c i j; y: b c u v", "b c i j u v"),
    (element_pattern("add", 3, relu=True), add_relu_3, "x: a b c; z: a b c; y: a b c", "a b c"),
    (element_pattern("clip", 2), clip_2, "x: a b; y: a b", "a b"),
    (element_pattern("relu", 4, codes="int32"), relu_int32_4, "x: a b c d; y: a b c d", "a b c d"),
    (requantise_pattern("int8", 4), requantise_int8_4, "x: a b c d; y: a b c d", "a b c d"),
    (quantized_add_pattern("uint8", 2), quantized_add_uint8_2, "x: a b; z: a b; y: a b", "a b"),
]


def text(x: object) -> str:
    """Return terms as text, without the numbers and addresses that tell variables of two patterns apart."""
    return re.sub(r"\be\d+_\d+|_\d+\b|0x[0-9a-f]+", "", str(x))


@pytest.mark.parametrize(("pattern", "written", "axes", "whole"), CASES, ids=[p.name for p, *_ in CASES])
def test_a_pattern_is_what_one_writes_out(pattern: Pattern, written: Callable[..., Any], axes: str, whole: str) -> None:
    target = Target("toy", hvx.build)
    ours = target.offers(pattern)
    names = [part.partition(":")[0].strip() for part in axes.split(";")]
    theirs = target.accelerates(axes=axes, formats=dict.fromkeys(names, fixed_byte), whole=whole)(written)
    assert target.mappings[written.__name__] is theirs
    assert (ours.variant, ours.axes, ours.whole, ours.statics) == (theirs.variant, theirs.axes, theirs.whole, theirs.statics)
    assert text(ours.rule.left) == text(theirs.rule.left)
    assert sorted(map(text, ours.rule.where)) == sorted(map(text, theirs.rule.where))
    assert [(v.name, type(v)) for v in ours.operands] == [(v.name, type(v)) for v in theirs.operands]
    assert ours.rule.doc.endswith(".")


def test_a_pattern_lies_where_a_target_offers_it_under_a_name_of_its_own() -> None:
    target = Target("toy", hvx.build)
    mapping = target.offers(
        product_pattern("dense", bias=True), "linear", formats=dict.fromkeys("xwby", fixed_byte), whole="k", operation="product"
    )
    assert mapping.rule.place.rpartition(":")[0] == __file__
    assert (mapping.name, mapping.operation, mapping.whole, set(target.mappings)) == ("toy.linear", "product", ("k",), {"linear"})


def test_formats_of_a_models_own_codes_follow_from_the_pattern() -> None:
    mapping = Target("toy", hvx.build).offers(product_pattern("dense", bias=True, codes="uint8"))
    assert mapping.formats_for({}) == {"x": Integers(8, False), "w": Integers(8), "b": Integers(32), "y": Integers(32)}


def test_trials_have_the_sizes_of_windows() -> None:
    strides, pads = (2, 1), (1, 0, 0, 2)
    assert product_pattern("conv2d").trial(c=5, i=6, j=4, n=3, kernel=(3, 2), strides=strides, pads=pads) == {
        "b": 1, "c": 5, "i": 6, "j": 4, "n": 3, "r": 3, "s": 2, "u": 3, "v": 5, "strides": strides, "pads": pads,
    }  # fmt: skip
    assert product_pattern("depthwise").trial(b=2, c=5, i=6, kernel=3, pads=1) == {
        "b": 2, "c": 5, "i": 6, "j": 6, "o": 1, "r": 3, "s": 3, "u": 6, "v": 6, "strides": (1, 1), "pads": (1,) * 4, "group": 5,
    }  # fmt: skip
    assert pool_pattern("average_pool").trial(c=2, i=6, kernel=2, strides=2) == {
        "b": 1, "c": 2, "i": 6, "j": 6, "u": 3, "v": 3, "kernel": (2, 2), "strides": (2, 2),
    }  # fmt: skip
    assert product_pattern("dense").trial(t=3, k=6, n=7) == {"t": 3, "k": 6, "n": 7}
    assert element_pattern("clip", 2).element_trial(3, 17, low=0.0, high=6.0) == {"a": 3, "b": 17, "low": 0.0, "high": 6.0}


@pytest.mark.parametrize(
    ("declare", "sentence", "remedy"),
    [
        (product_pattern, 'the table of patterns has no product "gemm"', "it has dense, conv2d, depthwise"),
        (pool_pattern, 'the table of patterns has no pool "gemm"', "it has max_pool, average_pool"),
        (
            lambda kind: element_pattern(kind, 2),
            'the table of patterns has no element-wise operation "gemm"',
            "it has add, mul, relu, clip, sigmoid, tanh",
        ),
    ],
)
def test_an_unknown_kind_is_told(declare: Callable[[str], Pattern], sentence: str, remedy: str) -> None:
    with pytest.raises(SpecError) as refused:
        declare("gemm")
    assert (refused.value.problem.sentence, refused.value.problem.help) == (sentence, remedy)


def test_formats_of_bytes_have_the_finest_step() -> None:
    assert [fixed_byte(largest).fraction for largest in (0.0, 127.0, 127.5, 63.5, 1e-3)] == [7, 0, -1, 1, 16]
    assert fixed_products(Fixed(8, 3), Fixed(8, -5)) == Fixed(32, -2)
    assert [fixed_nearest(x, Fixed(8, 4)) for x in (-0.25, 0.03125, 7.95, float("inf"), float("-inf"), 1e300)] == [
        -4,
        0,
        127,
        127,
        -128,
        127,
    ]


@given(
    st.lists(st.integers(0, 255), min_size=4, max_size=4), st.lists(st.integers(1 << 23, (1 << 24) - 1), min_size=2, max_size=2),
    st.lists(st.integers(21, 50), min_size=2, max_size=2),
)  # fmt: skip
def test_a_sum_of_codes_in_two_parts_is_exact(codes: list[int], multiplier: list[int], shift: list[int]) -> None:
    (x, z, *zeros), most = codes, max(shift)
    total = sum((c - n) * m << (most - k) for c, n, m, k in zip((x, z), zeros, multiplier, shift, strict=True))
    expected = min(max(((total + (1 << most - 1)) >> most) + 7, 0), 255)
    y = code_sum(lift(x), lift(z), multiplier=multiplier, shift=shift, zeros=zeros, zero=7, low=0, high=255, part=20)
    assert evaluate(array(lambda n: y, (1,)), {}).tolist() == [expected]


@pytest.mark.parametrize("name", ["genesys", "vta"])
def test_calls_of_sums_of_codes_are_one_term_with_their_numerics(name: str) -> None:
    """A driver that multiplies in parts is proved by the term alone; the sum of whole products would be another term."""
    target = find_target(name)
    scales = {"multiplier": (11_671_530, 8_730_912), "shift": (24, 24), "zeros": (118, 111), "zero": 116, "low": 0, "high": 255}
    verdict = CallCourt(target).verdict(target.mappings["quantized_add_uint8_2"], {"a": 2, "b": 7, **scales})
    assert verdict.method in (Method.TERM, Method.BLOCKS), verdict
