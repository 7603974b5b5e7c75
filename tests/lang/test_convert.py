"""Conversions of whole arrays by machine code and by numpy: the bits of the terms, whatever the layout."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import AdaptivFloat, Fixed, Int
from rewrite_compiler.lang.formats import FLOAT16, Format
from rewrite_compiler.readings.kernels import format_conversion, layout_conversion
from rewrite_compiler.readings.kernels.format_conversion import codes_of, values_of
from rewrite_compiler.readings.kernels.layout_conversion import copy_layout
from rewrite_compiler.readings.kernels.selection import machine_code_refusal

FORMATS: tuple[Format, ...] = (
    Fixed(16, 7, "floor"), Fixed(8, 6, "half_even"), Fixed(12, 5, "half_up"), Fixed(32, 20), Fixed(8, 3, "zero", False),
    Int(8), AdaptivFloat(bias=5), FLOAT16,
)  # fmt: skip


@pytest.fixture(autouse=True, params=["machine code", "numpy"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not machine_code_refusal()
    if request.param == "numpy":
        for module in (layout_conversion, format_conversion):
            monkeypatch.setattr(module, "has_machine_code", lambda: False)
        monkeypatch.setattr(layout_conversion, "grid_launch", None)


def values(kind: type) -> np.ndarray:
    random = np.random.default_rng(7)
    x = random.normal(size=(3, 8, 40, 16)) * 2.0 ** random.integers(-14, 10, (3, 8, 40, 16))
    x.reshape(-1)[:8] = 0.0, -0.0, 127.5, -128.5, 1e30, -1e30, 0.5, -0.5
    return x.astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("f", FORMATS, ids=lambda f: f.name)
def test_codes_and_values_are_those_of_the_terms(f: Format, kind: type) -> None:
    x = values(kind)
    codes = codes_of(f, x)
    small = np.concatenate([codes_of(f, part) for part in x.reshape(-1, 1024)]).reshape(x.shape)  # too small for machine code
    np.testing.assert_array_equal(codes, small)
    for given in (codes, np.moveaxis(codes, 1, -1)):
        found = np.empty(given.shape, np.float32)
        format_conversion.decode_into(f, given, found)
        np.testing.assert_array_equal(found, values_of(f, given).astype(np.float32))


def test_what_is_no_number_has_no_code() -> None:
    x = values(np.float32)
    x[1, 2, 3, 4] = np.nan
    with pytest.raises(SpecError, match="has no code for a value that is not a number"):
        codes_of(Fixed(16, 7), x)


def test_infinities_saturate() -> None:
    x = values(np.float32)
    x[0, 0, 0, :2] = np.inf, -np.inf
    assert codes_of(Fixed(16, 7), x)[0, 0, 0, :2].tolist() == [32767, -32768]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64])
def test_a_layout_is_copied_element_by_element(kind: type) -> None:
    x = np.random.default_rng(3).integers(0, 100, (4, 3, 8, 20, 11)).astype(kind)
    for order in ((0, 1, 3, 4, 2), (4, 3, 2, 1, 0), (2, 0, 1, 4, 3)):
        view = x.transpose(order)
        found = np.empty(view.shape, kind)
        copy_layout(found, view)
        np.testing.assert_array_equal(found, view)
        part = np.zeros((*view.shape[:-1], view.shape[-1] + 3), kind)
        copy_layout(part[..., 1:-2], view)
        np.testing.assert_array_equal(part[..., 1:-2], view)
        assert not part[..., :1].any()
        assert not part[..., -2:].any()


def test_copies_of_runs_of_bytes_are_copies_of_words() -> None:
    """Rows of 16 bytes in banks: the same bytes, whatever the layouts; a run of 12 bytes is no whole number of words."""
    for run in (16, 12):
        source = np.arange(40 * 64 * run, dtype=np.uint32).astype(np.uint8).reshape(40, 64, run)
        target = np.zeros((64, 40, run), np.uint8)
        copy_layout(target, source.swapaxes(0, 1))
        np.testing.assert_array_equal(target, source.swapaxes(0, 1))
