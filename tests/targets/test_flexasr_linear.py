"""FlexASR's linear layer: the instruction stream gives the numerics for any shape, format and number of samples."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import AdaptivFloat
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.kernels.format_conversion import values_of
from rewrite_compiler.target import Mapping, SimulatedDevice, find_target

TARGET = find_target("flexasr")
LINEAR = TARGET.mappings["linear"]
LAYERS = ("linear", "linear_relu", "linear_sigmoid", "linear_tanh")
Codes = dict[str, np.ndarray]


@cache
def model() -> Ila:
    return TARGET.ila()


def formats(x: int, w: int, b: int, y: int) -> dict[str, AdaptivFloat]:
    return {name: AdaptivFloat(bias=bias) for name, bias in (("x", x), ("w", w), ("b", b), ("y", y))}


def numerics(m: Mapping, codes: Codes, f: dict[str, AdaptivFloat]) -> np.ndarray:
    leaves = {n: Leaf(c.shape, (0, 255), False, n) for n, c in codes.items()}
    assert m.codes is not None
    return np.asarray(evaluate(m.codes(*leaves.values(), f=f, p=model().parameters), {leaves[n]: c for n, c in codes.items()}))


def driven(m: Mapping, codes: Codes, f: dict[str, AdaptivFloat], samples: int = 0) -> np.ndarray:
    assert m.drive is not None
    return np.asarray(m.drive(SimulatedDevice(model().simulator(reading="arrays", strict=True, samples=samples)), **codes, f=f))


def random_codes(seed: int, t: int, k: int, n: int, samples: int = 0) -> Codes:
    random = np.random.default_rng(seed)
    leading = (samples,) if samples else ()
    shapes = {"x": (*leading, t, k), "w": (n, k), "b": (n,)}
    return {name: random.integers(0, 256, shape) for name, shape in shapes.items()}


biases = st.integers(0, 7)


@settings(max_examples=30)
@given(st.sampled_from(LAYERS), st.integers(1, 40), st.integers(1, 70), st.integers(1, 140), st.tuples(*[biases] * 4), st.integers(0, 99))
@example("linear", 17, 16, 64, (0, 0, 0, 0), 0)
@example("linear", 1, 17, 65, (7, 7, 7, 7), 1)
def test_the_driver_gives_the_numerics(name: str, t: int, k: int, n: int, bias: tuple[int, int, int, int], seed: int) -> None:
    codes, f = random_codes(seed, t, k, n), formats(*bias)
    np.testing.assert_array_equal(driven(TARGET.mappings[name], codes, f), numerics(TARGET.mappings[name], codes, f))


@settings(max_examples=15)
@given(st.sampled_from(LAYERS), st.integers(1, 5), st.integers(1, 20), st.integers(1, 33), st.integers(1, 66), st.integers(0, 99))
def test_samples_are_computed_side_by_side(name: str, samples: int, t: int, k: int, n: int, seed: int) -> None:
    codes, f = random_codes(seed, t, k, n, samples), formats(3, 2, 1, 5)
    found = driven(TARGET.mappings[name], codes, f, samples)
    assert found.shape == (samples, t, n)
    for sample in range(samples):
        alone = {**codes, "x": codes["x"][sample]}
        np.testing.assert_array_equal(found[sample], numerics(TARGET.mappings[name], alone, f))


def test_results_are_those_of_the_layer_within_one_rounding() -> None:
    """Operands that the formats hold exactly: the result is the exact one, rounded once."""
    f = formats(3, 3, 3, 6)
    codes = random_codes(0, 4, 32, 20)
    for name in ("x", "w"):  # small magnitudes, so that nothing saturates
        codes[name] = (codes[name] & 0x8F) | 0x40
    values = {name: values_of(f[name], c) for name, c in codes.items()}
    exact = values["x"] @ values["w"].T + values["b"]
    assert np.abs(exact).max() < 31
    found = values_of(f["y"], numerics(LINEAR, codes, f))
    assert np.abs(found - exact).max() <= np.abs(exact).max() / 32 + 2**-4


def test_sums_beyond_the_word_saturate() -> None:
    f = formats(7, 7, 7, 7)
    for sign in (0, 128):
        codes = {"x": np.full((1, 16), 0x7F), "w": np.full((1, 16), 0x7F | sign), "b": np.full(1, 0x7F | sign)}
        result = driven(LINEAR, codes, f)
        assert result.tolist() == numerics(LINEAR, codes, f).tolist()
        assert result[0, 0] & 0x80 == sign


@pytest.mark.parametrize(("largest", "bias"), [(0.0, 0), (0.1, 0), (0.25, 1), (1.0, 3), (1.5, 3), (2.0, 4), (15.5, 6), (16.0, 7), (1e9, 7)])
def test_the_format_holds_the_largest_magnitude(largest: float, bias: int) -> None:
    chosen = LINEAR.formats["x"](largest)
    assert chosen == AdaptivFloat(bias=bias)
    if 2**-3 <= largest < 32:
        most = float(values_of(chosen, np.array([127]))[0])
        assert largest <= most * 32 / 31
        assert math.floor(math.log2(most)) == math.floor(math.log2(largest))
