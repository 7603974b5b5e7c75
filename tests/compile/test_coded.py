"""Results that stay codes: their values, limits and codes of other formats are those that arrays of floats give."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.compile.host.data_movement import Move, PendingMove
from rewrite_compiler.compile.host.depthwise import DepthwiseConvolution, fuse_depthwise
from rewrite_compiler.compile.host.fused_elementwise import elementwise
from rewrite_compiler.compile.host.lazy_codes import Clamp, LazyCodes, Operand, RangedFloats, elements_of, keeps_codes
from rewrite_compiler.compile.host.lazy_host import FastHostProgram
from rewrite_compiler.compile.offload.execute import ends_of, saturated_count
from rewrite_compiler.compile.offload.specified import saturated_codes
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.lang.formats import AdaptivFloat, Fixed, Format, Int
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of
from rewrite_compiler.readings.kernels.selection import machine_code_refusal

SHAPE = (6, 16, 12, 8)
FIXED = st.builds(
    Fixed, st.sampled_from([8, 16]), st.integers(-3, 14), st.sampled_from(["half_even", "half_up", "floor", "zero"]), st.booleans()
)
LIMITS = st.lists(st.tuples(st.sampled_from(["max", "min"]), st.sampled_from([0.0, 6.0, -1.5, 0.1])), max_size=3)


@pytest.fixture(autouse=True)
def _machine_code() -> None:
    assert not machine_code_refusal()


def coded(f: Fixed, seed: int = 0) -> LazyCodes:
    """Return codes that lie in another order than their axes."""
    low, high = f.codes
    codes = np.random.default_rng(seed).integers(low or 0, high or 0, SHAPE, endpoint=True)
    codes = np.moveaxis(np.ascontiguousarray(np.moveaxis(codes, 1, -1)), -1, 1)
    kind = f"{'i' if f.signed else 'u'}{f.width // 8}"
    ends = values_of(f, np.array([codes.min(), codes.max()]))
    return LazyCodes(codes.astype(kind), f, (float(ends[0]), float(ends[1])))


def limited(values: np.ndarray, limits: list[Clamp]) -> np.ndarray:
    for kind, n in limits:
        values = (np.maximum if kind == "max" else np.minimum)(values, np.float32(n))
    return values


@settings(max_examples=30)  # of 9,216 elements each
@given(FIXED, FIXED, LIMITS)
def test_values_and_codes_behind_limits_are_those_of_floats(f: Fixed, other: Fixed, limits: list[Clamp]) -> None:
    limits = [(kind, float(np.float32(n))) for kind, n in limits]
    x = coded(f)
    floats = limited(values_of(f, x.codes).astype(np.float32), limits)
    found = x.clamped(*limits)
    np.testing.assert_array_equal(found.data, floats)
    assert found.ends == (floats.min(), floats.max()) == ends_of(found)
    target = np.zeros((4, *SHAPE[1:]), f"{'i' if other.signed else 'u'}{other.width // 8}")
    assert found.encode_into(other, lambda codes: codes[1:5], target, None)
    np.testing.assert_array_equal(target, codes_of(other, floats[1:5]))


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (Fixed(16, 4), True),
        (Fixed(8, 4, signed=False), True),
        (Fixed(32, 4), False),
        (Fixed(12, 4), False),
        (Int(8), False),
        (AdaptivFloat(bias=3), False),
    ],
)
def test_fixed_point_of_whole_words_stays_as_codes(f: Format, expected: bool) -> None:
    assert keeps_codes(f) is expected


def program(*nodes: tuple[str, Mapping[str, float]]) -> Program:
    """Return a chain of nodes; sums take another input each, products a number."""
    b = Builder("part")
    value = b.input("x0", TensorType(SHAPE[1:]))
    for n, (op, attributes) in enumerate(nodes, 1):
        others = [b.input(f"x{n}", TensorType(SHAPE[1:]))] if op == "add" else []
        others += [b.constant(np.array([attributes["factor"]], np.float32))] if op == "mul" else []
        (value,) = b.apply(op, [value, *others], {} if op == "mul" else attributes)
    return b.finish([value])


ADD, RELU, CLIP = ("add", {}), ("relu", {}), ("clip", {"low": 0.0, "high": 6.0})


def times(factor: float) -> tuple[str, dict[str, float]]:
    return "mul", {"factor": factor}


@pytest.mark.parametrize(
    "p",
    [
        program(ADD), program(ADD, RELU), program(ADD, CLIP, ADD), program(CLIP), program(RELU, ADD, ADD),
        program(times(0.25)), program(times(0.1), ADD, times(-3.7), RELU),
    ],
    ids=["+", "+r", "+c+", "c", "r++", "*", "*+*r"],
)  # fmt: skip
@pytest.mark.parametrize("kinds", ["".join(k) for k in itertools.product("cfe", repeat=3)])
def test_sums_and_limits_are_one_pass_with_the_bits_of_numpy(p: Program, kinds: str) -> None:
    given: dict[int, Operand] = {}
    for n, (v, kind) in enumerate(zip(p.inputs, kinds, strict=False)):
        x = coded(Fixed(16, 10 + n), n).clamped(("max", -3.0))
        given[v] = x if kind == "c" else x.data if kind == "f" else RangedFloats(np.ascontiguousarray(x.data), x.ends)
    part = FastHostProgram(p)
    expected = elements_of(part.run({v: elements_of(x) for v, x in given.items()})[p.outputs[0]])
    found = part.run_lazily(given)[p.outputs[0]]
    assert isinstance(found, LazyCodes if len(p.nodes) == 1 and p.nodes[0].op == "clip" and kinds[0] == "c" else RangedFloats)
    assert elements_of(found).tobytes() == expected.tobytes()
    assert ends_of(found) == (expected.min(), expected.max())


def test_signs_of_zeros_and_what_is_no_number_are_those_of_numpy() -> None:
    p = program(ADD, RELU)
    x, y = (np.zeros(SHAPE, np.float32) for _ in range(2))
    x[0], y[0] = -0.0, -0.0
    x[1, 3], y[2] = np.nan, np.inf
    part = FastHostProgram(p)
    part.is_used = True  # another engine may give other bits here
    expected = part.run(dict(zip(p.inputs, (x, y), strict=True)))[p.outputs[0]]
    found = part.run_lazily(dict(zip(p.inputs, (x, y), strict=True)))[p.outputs[0]]
    assert np.array_equal(elements_of(found), expected, equal_nan=True)
    assert not np.signbit(elements_of(found)[0]).any()
    assert not all(map(np.isfinite, ends_of(found)))


@pytest.mark.parametrize(("low", "high", "is_one_pass"), [(0.0, 6.0, True), (-0.0, 6.0, False), (-1.0, 0.0, False), (-1.0, 1.0, True)])
def test_limits_whose_zeros_have_signs_are_left_to_numpy(low: float, high: float, is_one_pass: bool) -> None:
    assert (elementwise(program(("clip", {"low": low, "high": high}))) is not None) is is_one_pass


def test_zeros_beside_what_is_no_number_do_not_hide_it() -> None:
    places = np.arange(1 << 13).reshape(1, -1) % 3  # two elements of a root, and zeros
    x = np.array([[1.0, 2.0], [np.nan, 3.0]], np.float32)
    assert ends_of(PendingMove(x[:1], Move(0, places, 2))) == (0.0, 2.0)
    assert not all(map(np.isfinite, ends_of(PendingMove(x, Move(0, places, 2)))))


@pytest.mark.parametrize("image", [0, 1])
def test_an_image_without_numbers_shows_in_the_ends_of_all(image: int) -> None:
    b = Builder("part")
    x = b.input("x", TensorType((2, 8, 4, 4)))
    w = b.constant(np.ones((8, 1, 3, 3), np.float32))
    attributes = {"group": 8, "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    (node,) = fuse_depthwise(b.finish(list(b.apply("conv", [x, w], attributes))))
    assert isinstance(node, DepthwiseConvolution)
    given = np.ones((3, 2, 8, 4, 4), np.float32)
    assert node(given).ends == (4, 9)
    given[1, image, 2] = np.nan
    assert not all(map(np.isfinite, node(given).ends))


@pytest.mark.parametrize("f", [Fixed(8, 4), Fixed(16, 10), Fixed(16, 0)])
def test_codes_of_values_of_the_largest_size_are_the_saturated_ones(f: Fixed) -> None:
    low, high = f.codes
    assert low is not None
    assert high is not None
    codes = np.array([low, low + 1, low + 2, 0, high - 1, high])
    assert sum(int(np.count_nonzero(codes == c)) for c in saturated_codes(f)) == saturated_count(values_of(f, codes), f) == 3
