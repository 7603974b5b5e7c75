"""Ties of rounding: is a plan's output among those that its model gives when numbers between two codes fall to either side?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..ir.program import Data

RUNS = 64  # of the model with noise: a plan decides ties once, and one of 64 runs hardly ever decides all of them the same
Run = Callable[[Mapping[str, Data]], dict[str, Data]]


def undecided_by_ties(
    far: Sequence[str], expected: Mapping[str, Data], actual: Mapping[str, Data], run: Run, values: Mapping[str, Data], tolerance: float
) -> list[str]:  # fmt: skip
    """Return those outputs with an element that is farther from the expected one than any two runs of `run` are from each other.

    `run` is the model with rounding noise, `tolerance` is relative to the largest value of an output of real numbers.
    """
    numeric = [name for name in far if _is_comparable(expected[name], actual[name])]
    if len(numeric) < len(far):
        return list(far)
    allowed = {name: _absolute(expected[name], tolerance) for name in numeric}
    lowest: dict[str, Data] = {}
    highest: dict[str, Data] = {}
    unexplained = numeric
    for _ in range(RUNS):
        outputs = run(values)
        for name in numeric:
            x = outputs[name].astype(np.float64)
            lowest[name], highest[name] = np.fmin(x, lowest.get(name, x)), np.fmax(x, highest.get(name, x))
        unexplained = [n for n in unexplained if np.any(_distance(expected[n], actual[n]) > np.maximum(allowed[n], highest[n] - lowest[n]))]
        if not unexplained:
            break
    return unexplained


def _is_comparable(expected: Data, actual: Data) -> bool:
    """Tell whether two outputs are finite numbers of one shape and type."""
    numbers = (expected.shape, expected.dtype) == (actual.shape, actual.dtype) and expected.dtype.kind in "fiub"
    return numbers and bool(np.isfinite(expected).all() and np.isfinite(actual).all())


def _distance(x: Data, y: Data) -> Data:
    return np.abs(x.astype(np.float64) - y.astype(np.float64))


def _absolute(x: Data, tolerance: float) -> float:
    return tolerance * float(np.max(np.abs(x), initial=0)) if x.dtype.kind == "f" else 0.0
