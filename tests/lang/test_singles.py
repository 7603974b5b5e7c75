"""Singles: what machine code computes in floats of 32 bits has the bits that 64 bits give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.readings.blocks.grid import compile_grid
from rewrite_compiler.readings.kernels import layout_conversion
from rewrite_compiler.readings.kernels.layout_conversion import Conversion
from rewrite_compiler.readings.kernels.selection import machine_code_refusal
from rewrite_compiler.readings.straightline.code import REAL, Code, Op
from rewrite_compiler.readings.straightline.float32_exactness import single_precision_operators

FLOAT, SHORT = Op("array", (), (0, 0), REAL), Op("array", (), (0, 0), 32)
SIZE = 4096


def number(x: float) -> Op:
    return Op("const", (), x, REAL, REAL)


def real(name: str, *args: int, bits: int = REAL) -> Op:
    return Op(name, args, None, bits, REAL)


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ((SHORT, real("real", 0), number(2.0**-9), real("mul", 1, 2)), "<i2", {1, 2, 3}),
        ((SHORT, real("real", 0), number(2.0**-9), real("mul", 1, 2)), "<i4", {2}),
        ((FLOAT, number(2.0**20), real("mul", 0, 1), real("rint", 2, bits=32)), "<f4", {0, 1}),
        ((FLOAT, number(8.0), real("mul", 0, 1), number(100.0), real("min", 2, 3), number(-9.0), real("max", 4, 5)), "<f4", set(range(7))),
        ((FLOAT, number(0.125), real("mul", 0, 1)), "<f4", {0, 1}),
        ((FLOAT, number(3.0), real("mul", 0, 1)), "<f4", {0, 1}),
        ((FLOAT, number(0.1), real("max", 0, 1)), "<f4", {0}),
        ((FLOAT, number(1.0), real("add", 0, 1)), "<f4", {0, 1}),
        ((FLOAT, number(1.0), real("add", 0, 1), real("single", 2)), "<f4", {0, 1, 2, 3}),
        ((FLOAT, number(1.0), real("add", 0, 1), real("single", 2), real("max", 2, 3)), "<f4", {0, 1, 3}),
        ((FLOAT, number(1.0), real("max", 0, 1)), "<f8", {1}),
    ],
    ids=[
        "a code", "a word", "too large for a word", "limits of what is too large", "too small", "no power of two", "no single",
        "a sum", "a rounded sum", "a sum that is read", "64 bits",
    ],
)  # fmt: skip
def test_operators_are_exact_in_32_bits(code: Code, kind: str, expected: set[int]) -> None:
    assert single_precision_operators(code, [kind], []) == expected


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.1, 3.0, 6.0, 2.0**-9, 2.0**-130, 2.0**40, 2.0**120, 1e30, -(2.0**20), 32767.0])


@st.composite
def codes(draw: st.DrawFn) -> tuple[str, Code]:
    kind = draw(st.sampled_from(["<f4", "<i1", "<i2", "<i4"]))
    code = [FLOAT] if kind == "<f4" else [SHORT, real("real", 0)]
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(["add", "sub", "mul", "min", "max", "neg", "single", "select"]))
        code.append(number(draw(NUMBERS)))
        last, one = len(code) - 2, len(code) - 1
        other = draw(st.sampled_from([one, *(n for n, op in enumerate(code) if op.width == REAL)]))
        if name == "select":
            code += [real("le", last, other, bits=32), real("select", one + 1, other, last)]
        else:
            code.append(real(name, last, *([] if name in ("neg", "single") else [other])))
    return kind, tuple(code)


@given(codes(), st.integers(0, 1 << 20))
def test_machine_code_has_the_bits_of_numpy_in_64_bits(made: tuple[str, Code], seed: int) -> None:
    kind, code = made
    assert not machine_code_refusal()
    random = np.random.default_rng(seed)
    source = random.integers(-(1 << 31), 1 << 31, SIZE, np.int64).astype(np.int32)
    x = source.astype(kind) if kind != "<f4" else (random.normal(size=SIZE) * 2.0 ** random.integers(-140, 120, SIZE)).astype(np.float32)
    expected, found = np.empty(SIZE, np.float32), np.empty(SIZE, np.float32)
    compile_grid(code, ["<f4", kind], [(SIZE, [1, 1])], [])(expected.ctypes.data, x.ctypes.data)
    Conversion(code)(found, x)
    assert np.array_equal(found, expected, equal_nan=True)


def test_ends_are_those_of_the_result() -> None:
    assert not machine_code_refusal()
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 64, 9, 16)).astype(np.float32)
    total = Conversion((FLOAT, Op("array", (), (1, 0), REAL), real("add", 0, 1), real("single", 2)))
    out = np.empty_like(a)
    given_b = np.moveaxis(np.ascontiguousarray(np.moveaxis(b, 1, -1)), -1, 1)  # another layout
    assert total.convert_with_range(out, a, given_b) == ((a + b).min(), (a + b).max())
    np.testing.assert_array_equal(out, a + b)
    low, high = total.convert_with_range(out, a, -a)
    assert (low, high, np.signbit(low), np.signbit(high)) == (0, 0, False, False)
    a[3, 4, 5] = np.nan
    assert not all(np.isfinite(total.convert_with_range(out, a, b)))
    assert layout_conversion.is_large_and_regular(a)
