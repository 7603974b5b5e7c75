"""Formats: against the hardware's own encoders, exhaustively where the codes are few, and proved where they are many."""

from __future__ import annotations

import bisect
import math
import re
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vectors import primitives

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    IEEE,
    AdaptivFloat,
    Fixed,
    Format,
    Int,
    adaptivfloat_bias,
    array,
    leaf,
    rounded,
)
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of
from rewrite_compiler.readings.oracle.emit_python import evaluate as oracle
from rewrite_compiler.readings.smt.evaluator import SymbolicEvaluator, fresh_variables, interval_constraints, prove_equal

GOLDEN = cache(primitives)
BIASES = range(8)
CODES = np.arange(256)
ADAPTIV = [AdaptivFloat(bias=b) for b in BIASES]
TRUNCATED = [AdaptivFloat(bias=b, rounding="truncate") for b in BIASES]
NARROW = [AdaptivFloat(3, 1, 1, -2), AdaptivFloat(6, 2, 1, -3)]  # the first has as few bits of both kinds as there can be
SMALL = [*ADAPTIV, *TRUNCATED, *NARROW, AdaptivFloat(16, 4, 2), IEEE(8, 4), IEEE(8, 5), FLOAT16, BFLOAT16]
FIXED = [Fixed(8, 6, r, s) for r in ROUNDINGS for s in (True, False)] + [
    Fixed(16, 20),
    Fixed(16, -2),
    Fixed(1, 0),
    Int(8),
    Int(4, False),
    Int(16),
]
EXACT = st.floats(allow_nan=False, allow_infinity=False)
MODERATE = st.floats(-64, 64, allow_subnormal=False)


def codes_by(f: Format, values: np.ndarray, reading: str) -> np.ndarray:
    """Return the codes by the oracle or by numpy, from the encoder's term."""
    x = leaf("x", (len(values),), real=True)
    term = array(lambda i: f.encode(x[i]), len(values))
    if reading == "oracle":
        return np.array(oracle(term, {x: values.tolist()}, len(values)))
    return evaluate(term, {x: values})


def every_code(f: Format) -> np.ndarray:
    return np.arange(f.codes[0], f.codes[1] + 1)


def canonical(f: Format) -> np.ndarray:
    """Return every code of a finite value but the second one of zero."""
    codes = every_code(f)
    if isinstance(f, Fixed | Int):
        return codes
    size = codes % (1 << f.width - 1)
    keep = codes != 1 << f.width - 1
    return codes[keep & (size < f.infinity) if isinstance(f, IEEE) else keep]


def borders(values: np.ndarray) -> np.ndarray:
    """Return finite values, the middles between them, and the floats next to those."""
    middles = np.concatenate([values, (values[1:] + values[:-1]) / 2, values[:1] / 2])
    near = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
    return np.unique(np.concatenate([near, -near, [0.0, 1e300, -1e300, 5e-324, -5e-324]])) + 0.0


# -- against the hardware


@pytest.mark.parametrize("bias", BIASES)
def test_adaptivfloat_decodes_as_the_hardware(bias: int) -> None:
    assert (values_of(ADAPTIV[bias], CODES) == GOLDEN()["decode_float"][bias]).all()
    c = leaf("c", (256,), (0, 255))
    fixed = array(lambda i: ADAPTIV[bias].integer(c[i]) << bias, 256)
    assert (evaluate(fixed, {c: CODES}) == GOLDEN()["to_fixed_20_14"][bias]).all()


@pytest.mark.parametrize("bias", BIASES)
def test_adaptivfloat_truncates_as_the_host_encoder(bias: int) -> None:
    given_values, wanted = GOLDEN()["encode_float_in"], GOLDEN()["encode_float_out"][:, bias]
    assert (codes_of(TRUNCATED[bias], given_values) == wanted).all()
    assert (codes_of(TRUNCATED[bias], given_values.astype(np.float64)) == wanted).all()
    assert (codes_by(TRUNCATED[bias], given_values.astype(np.float64), "arrays") == wanted).all()


@pytest.mark.parametrize("bias", BIASES)
def test_what_is_rounded_first_passes_the_host_encoder_unchanged(bias: int) -> None:
    """Quantise, then truncate: the two steps of the published flow are the one encoder."""
    codes = codes_of(ADAPTIV[bias], GOLDEN()["encode_float_in"])
    assert (codes_of(TRUNCATED[bias], values_of(ADAPTIV[bias], codes)) == codes).all()


def test_products_of_codes_as_the_hardware() -> None:
    d = values_of(ADAPTIV[0], CODES) / float(ADAPTIV[0].unit)
    assert (np.multiply.outer(d, d) == GOLDEN()["mul"]).all()


# -- codes and values


@pytest.mark.parametrize("f", [*SMALL, *FIXED], ids=str)
def test_every_code_comes_back(f: Format) -> None:
    codes = canonical(f)
    assert (codes_of(f, values_of(f, codes)) == codes).all()
    assert values_of(f, codes).max() == f.largest


@pytest.mark.parametrize("f", [*SMALL, *FIXED], ids=str)
def test_the_term_of_the_decoder_is_exact(f: Format) -> None:
    codes = canonical(f)[:: max(1, f.width - 7) ** 2]
    c = leaf("c", (len(codes),), f.codes)
    found = oracle(array(lambda i: f.decode(c[i]), len(codes)), {c: codes.tolist()}, len(codes))
    assert (np.array(found) == values_of(f, codes)).all()
    if isinstance(f, AdaptivFloat):
        assert all(Fraction(v) % f.unit == 0 for v in found)


@pytest.mark.parametrize("f", [*ADAPTIV, *TRUNCATED, AdaptivFloat(6, 2, 1, -3), IEEE(8, 4), IEEE(8, 5)], ids=str)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arrays_encode_as_the_term(f: Format, kind: type) -> None:
    with np.errstate(over="ignore"):
        values = borders(np.unique(np.abs(values_of(f, canonical(f))))).astype(kind).astype(np.float64) + 0.0
    values = values[np.isfinite(values)]
    expected = codes_by(f, values, "oracle")
    assert (codes_by(f, values, "arrays") == expected).all()
    assert (codes_of(f, values.astype(kind)) == expected).all()


@pytest.mark.parametrize("f", [FLOAT16, BFLOAT16, FLOAT32], ids=str)
def test_ieee_terms_agree_with_arrays(f: IEEE) -> None:
    rng = np.random.default_rng(7)
    codes = rng.integers(0, f.infinity, 2000)
    values = borders(np.sort(values_of(f, np.unique(codes))))
    assert (codes_by(f, values, "oracle") == codes_of(f, values)).all()
    assert (codes_by(f, values, "arrays") == codes_of(f, values)).all()


def test_bfloat16_rounds_once_from_64_bits() -> None:
    above_the_middle = 1 + 2.0**-8 + 2.0**-40
    assert codes_of(BFLOAT16, np.array([above_the_middle, 1 + 2.0**-8])).tolist() == [0x3F81, 0x3F80]


@pytest.mark.parametrize("f", [FLOAT16, BFLOAT16, FLOAT32, IEEE(8, 5)], ids=str)
def test_ieee_arrays_keep_what_is_no_real_number(f: IEEE) -> None:
    given_values = np.array([np.inf, -np.inf, -0.0, 0.0, np.nan])
    codes = codes_of(f, given_values)
    sign = 1 << f.width - 1
    assert codes.tolist()[:4] == [f.infinity, f.infinity | sign, sign, 0]
    back = values_of(f, codes)
    assert (back[:4] == given_values[:4]).all()
    assert np.signbit(back[:4]).tolist() == [False, True, True, False]
    assert np.isnan(back[4])


@pytest.mark.parametrize("f", [*ADAPTIV, AdaptivFloat(6, 2, 1, -3), IEEE(8, 4)], ids=str)
def test_the_nearest_value_is_taken(f: Format) -> None:
    """Ties: away from zero for AdaptivFloat, the even code for IEEE."""
    codes = canonical(f)
    table = sorted((Fraction(v), c) for v, c in zip(values_of(f, codes).tolist(), codes.tolist(), strict=True))
    values = borders(np.unique(np.abs(values_of(f, codes))))
    values = values[np.abs(values) <= float(f.largest)]
    for x, found in zip(values.tolist(), values_of(f, codes_of(f, values)).tolist(), strict=True):
        place = bisect.bisect(table, (Fraction(x), 0))
        around = table[max(place - 1, 0) : place + 1]
        distance = min(abs(v - Fraction(x)) for v, _ in around)
        nearest = [(v, c) for v, c in around if abs(v - Fraction(x)) == distance]
        assert abs(Fraction(found) - Fraction(x)) == distance
        if len(nearest) == 2 and isinstance(f, AdaptivFloat):
            assert abs(found) == max(abs(v) for v, _ in nearest)
        if len(nearest) == 2 and isinstance(f, IEEE):
            assert found in [v for v, c in nearest if c % 2 == 0]


@pytest.mark.parametrize("f", [*SMALL, *FIXED], ids=str)
@given(st.lists(st.one_of(EXACT, MODERATE), min_size=2, max_size=40))
@settings(max_examples=25)
def test_encoding_is_monotone(f: Format, values: list[float]) -> None:
    back = values_of(f, codes_of(f, np.sort(np.array(values))))
    assert (back[1:] >= back[:-1]).all()


# -- fixed point


def by_fractions(x: Fraction, rounding: str) -> int:
    down, half = math.floor(x), Fraction(1, 2)
    rest = x - down
    up = {
        "floor": False,
        "zero": x < 0 and rest > 0,
        "half_up": rest >= half,
        "half_down": rest > half,
        "half_even": rest > half or (rest == half and down % 2 == 1),
        "half_away": rest > half or (rest == half and x > 0),
    }[rounding]
    return down + up


JUST_BELOW_HALF = math.nextafter(0.5, 0)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(st.one_of(EXACT.filter(lambda x: abs(x) < 2**62), MODERATE, st.integers(-99, 99).map(lambda n: n / 2)))
@example(JUST_BELOW_HALF)
@example(-JUST_BELOW_HALF)
@example(math.nextafter(0.5, 1))
@example(-math.nextafter(0.5, 1))
@example(2.0**52 + 1)
@example(-(2.0**51) - 0.5)
@example(-5e-324)
@settings(max_examples=300)
def test_rounding_a_real(rounding: str, value: float) -> None:
    x = leaf("x", (2,), real=True)
    term = array(lambda i: rounded(x[i], rounding), 2)
    wanted = by_fractions(Fraction(value), rounding)
    assert oracle(term, {x: [value, value]}, 2) == [wanted] * 2
    assert evaluate(term, {x: np.array([value, value])}).tolist() == [wanted] * 2
    exact = SymbolicEvaluator({x: np.array([Fraction(value)] * 2, object)})
    assert exact.array(term).tolist() == [wanted] * 2


@pytest.mark.parametrize("f", FIXED, ids=str)
@given(st.one_of(EXACT, MODERATE))
@example(JUST_BELOW_HALF / 64)
@settings(max_examples=40)
def test_fixed_point_rounds_and_saturates(f: Fixed | Int, value: float) -> None:
    fraction = f.fraction if isinstance(f, Fixed) else 0
    if 0 < abs(value) * 2.0**fraction < 1e-300:
        return
    wanted = by_fractions(Fraction(value) * Fraction(2) ** fraction, f.rounding)
    low, high = f.codes
    assert codes_of(f, np.array([value])).tolist() == [min(max(wanted, low), high)]


@pytest.mark.parametrize("f", [*ADAPTIV, *FIXED], ids=str)
def test_infinities_saturate(f: Format) -> None:
    found = values_of(f, codes_of(f, np.array([np.inf, -np.inf])))
    low = float(values_of(f, np.array([f.codes[0]]))[0]) if isinstance(f, Fixed | Int) else -float(f.largest)
    assert found.tolist() == [float(f.largest), low]


# -- proofs


@pytest.mark.parametrize("f", [*ADAPTIV, TRUNCATED[3], AdaptivFloat(16, 4, 2), *FIXED, Int(32), IEEE(8, 4), FLOAT16], ids=str)
def test_decode_then_encode_is_proved_to_be_the_identity_on_codes(f: Format) -> None:
    c = leaf("c", (), f.codes)
    code = fresh_variables("c", ())
    x = code[()]
    premises = interval_constraints(code, f.codes)
    if isinstance(f, AdaptivFloat | IEEE):
        premises.append(x != 1 << f.width - 1)
    if isinstance(f, IEEE):
        premises.append(x % (1 << f.width - 1) <= f.infinity)
    back = SymbolicEvaluator({c: code}).value(f.encode(f.decode(c[()])))
    verdict = prove_equal([(back, x)], premises, 20)
    assert verdict.outcome == "proved", verdict


@pytest.mark.parametrize("exponent", [0, 1, 2, 126, 127, 254])
def test_float32_codes_come_back_for_every_mantissa(exponent: int) -> None:
    mantissa, m = fresh_variables("m", ()), leaf("m", (), (0, (1 << 23) - 1))
    back = SymbolicEvaluator({m: mantissa}).value(FLOAT32.encode(FLOAT32.decode(m[()] + (exponent << 23))))
    verdict = prove_equal([(back, mantissa[()] + (exponent << 23))], interval_constraints(mantissa, m.interval), 20)
    assert verdict.outcome == "proved", verdict


def test_the_second_zero_is_the_one_exception() -> None:
    c = leaf("c", (), (0, 255))
    code = fresh_variables("c", ())
    back = SymbolicEvaluator({c: code}).value(ADAPTIV[4].encode(ADAPTIV[4].decode(c[()])))
    assert prove_equal([(back, code[()])], interval_constraints(code, c.interval), 20).model == {"c": 128}


# -- parameters and refusals


@pytest.mark.parametrize("bias", BIASES)
def test_the_bias_of_a_tensor_is_that_of_its_largest_value(bias: int) -> None:
    assert adaptivfloat_bias(float(ADAPTIV[bias].largest)) == bias
    assert adaptivfloat_bias(2.0 ** (bias - 3)) == bias
    assert adaptivfloat_bias(math.nextafter(2.0 ** (bias - 3), 0)) == bias - 1


def refused(sentence: str) -> object:
    return pytest.raises(SpecError, match=re.escape(sentence) + "$")


def test_refusals() -> None:
    with refused('adaptivfloat needs rounding "half_away" or "truncate", not nearest'):
        AdaptivFloat(rounding="nearest")
    with refused("adaptivfloat needs an exponent and a mantissa of at least one bit, not 4"):
        AdaptivFloat(4, 3)
    with refused("fixed needs one of the roundings floor, half_up, half_down, half_even, zero, half_away, not up"):
        Fixed(8, 0, "up")
    with refused("int needs a width of at least one bit, not 0"):
        Int(0)
    with refused("fixed has no code for a value that is not a number"):
        codes_of(Fixed(8), np.array([1.0, np.nan]))
    with refused("a code of adaptivfloat lies in 0…255, not at 256"):
        values_of(AdaptivFloat(), np.array([3, 256]))
    with refused("a code of adaptivfloat lies in 0…255, not in (0, 511)"):
        AdaptivFloat().decode(leaf("c", (), (0, 511))[()])
    with refused("the largest magnitude of a tensor must be positive and finite, not 0.0"):
        adaptivfloat_bias(0.0)


def test_parameters_name_the_format() -> None:
    assert ADAPTIV[5].name == "adaptivfloat"
    assert ADAPTIV[5].parameters == {"width": 8, "exponent_bits": 3, "bias": 5, "offset": -10, "rounding": "half_away"}
    assert AdaptivFloat(bias=5) == ADAPTIV[5] != ADAPTIV[4]
