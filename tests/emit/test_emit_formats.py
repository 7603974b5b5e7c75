"""Number formats of a C program: codes that are looked up are those of the terms, and of the co-simulator, for every float."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from board import GCC, needs_gcc

from rewrite_compiler.emit.c.formats import MANY, deciding_bits
from rewrite_compiler.emit.c.offload import Unit
from rewrite_compiler.lang import AdaptivFloat, Fixed
from rewrite_compiler.lang.formats import Format
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.c.runtime import PRELUDE, RUNTIME
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of

FORMATS = (AdaptivFloat(bias=3), AdaptivFloat(bias=7, rounding="truncate"), AdaptivFloat(width=6, exponent_bits=2, bias=1), Fixed(8, 5))


def library(f: Format, values: int, folder: Path) -> ctypes.CDLL:
    """Return functions that encode and decode arrays."""
    unit = Unit()
    encode, decode = unit.encoder(f, values), unit.decoder(f)
    kind = f"{'u' if (f.codes[0] or 0) >= 0 else ''}int{8 * np.dtype(storage_dtype(f.codes)).itemsize}_t"
    prepare = "".join(f"{name}(); " for name in unit.prepares)
    entry = (
        f"void run(const float *x, {kind} *y, float *z, int n);\n"
        f"void run(const float *x, {kind} *y, float *z, int n) {{ fm_fill_tables(); {prepare}"
        f"for (int i = 0; i < n; ++i) {{ y[i] = {encode}(x[i]); z[i] = (float){decode}(y[i]); }} }}\n"
    )
    (folder / "f.c").write_text("\n".join([PRELUDE, RUNTIME, *unit.tables.texts, unit.tables.fill_text, *unit.functions, entry]))
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([str(GCC), *flags, "f.c", "-o", "f.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "f.so"))


@needs_gcc
@pytest.mark.parametrize("f", FORMATS, ids=lambda f: f"{f.name}{f.width}")
@pytest.mark.parametrize("values", [1, MANY])
def test_codes_and_values_are_those_of_the_cosimulator(f: Format, values: int, tmp_path: Path) -> None:
    words = np.random.default_rng(7).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    edges = np.array([x for code in range(1 << f.width) for x in near(f, code)], np.float32)
    x = np.concatenate([words.view(np.float32), edges, np.array([0.0, -0.0, 1e-40, 3e38], np.float32)])
    x = np.ascontiguousarray(x[np.isfinite(x)])
    codes, decoded = np.zeros(len(x), storage_dtype(f.codes)), np.zeros(len(x), np.float32)
    library(f, values, tmp_path).run(*(ctypes.c_void_p(a.ctypes.data) for a in (x, codes, decoded)), len(x))
    expected = codes_of(f, x)
    assert np.array_equal(codes, expected)
    assert decoded.tobytes() == values_of(f, expected).astype(np.float32).tobytes()


def near(f: Format, code: int) -> list[np.float32]:
    """Return floats at a value and halfway to the next, with their neighbours."""
    value = float(values_of(f, np.array([code + (f.codes[0] or 0)]))[0])
    middle = np.float32(value * (1 + 2.0**-5))
    return [n for v in (np.float32(value), middle) for n in (np.nextafter(v, np.float32(-1e9)), v, np.nextafter(v, np.float32(1e9)))]


def test_few_values_are_not_worth_a_table() -> None:
    assert deciding_bits(FORMATS[0], MANY - 1) is None
    assert deciding_bits(FORMATS[0], MANY) == 14
    assert deciding_bits(Fixed(8, 5), MANY) is None
