"""Values at an end of their format are counted by their codes, which gives what their floats give."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.compile.offload import execute
from rewrite_compiler.lang.formats import AdaptivFloat, Fixed, Format, Int
from rewrite_compiler.readings.kernels.format_conversion import values_of

FORMATS = [AdaptivFloat(8, 3, 2), AdaptivFloat(8, 3, 9), Fixed(8, 5), Fixed(16, 7), Fixed(8, 3, signed=False)]


@pytest.mark.parametrize("f", FORMATS, ids=str)
def test_codes_say_how_many_values_are_at_an_end(f: Format) -> None:
    low, high = f.codes
    assert low is not None
    assert high is not None
    codes = np.concatenate([np.arange(low, high + 1), [low, high, high]]).astype(np.int32)
    values = values_of(f, codes).astype(np.float32)
    for part in (np.arange(len(codes)), np.flatnonzero(np.abs(values) < execute.largest_of(f))):
        size = float(np.abs(values[part]).max())
        expected = execute.count_saturated(values[part], f, size)
        assert execute.count_saturated(values[part], f, size, codes[part]) == expected
        assert (expected > 0) == (len(part) == len(codes))


def test_integers_of_a_model_do_not_saturate() -> None:
    """They are the model's own; a float format saturates at its largest values, and nowhere below."""
    codes = np.array([-128.0, 127.0, 3.0])
    assert execute.saturated_count(codes, Int(8)) == 0
    assert execute.saturated_count(codes, Fixed(8, 0, "half_even")) == 2
    assert execute.saturated_count(codes - 1, Fixed(8, 0, "half_even")) == 1
    assert execute.saturated_count(codes / 2, Fixed(8, 0, "half_even")) == 0
