"""Scores of regression: squared and absolute errors, and the coefficient of determination."""

from __future__ import annotations

import math

import numpy as np

from ...errors import InputError
from ...ir.program import Data
from .sample_shapes import is_same_sample, order_help, shape_text
from .scores import Scores


def flattened_pair(outputs: Data, truth: Data) -> tuple[Data, Data]:
    """Return outputs and true values as [samples, values].

    Raises:
        InputError: C100, they have different numbers of values, or in another order of axes.
    """
    if not is_same_sample(outputs, truth):
        sentence = f"true values must have the shape of the outputs {shape_text(outputs)}, not {shape_text(truth)}"
        count = math.prod(outputs.shape[1:])
        raise InputError("C100", sentence, help=order_help(outputs, truth) or f"give {count} true values for each sample")
    return outputs.reshape(len(outputs), -1).astype(np.float64), truth.reshape(len(truth), -1).astype(np.float64)


def worst_if_nan(errors: Data) -> Data:
    """Return errors with NaN replaced by infinity."""
    return np.where(np.isnan(errors), np.inf, errors)


def squared_error(outputs: Data, truth: Data) -> Scores:
    """Score each sample by the sum of its squared errors; its weight is the number of values.

    Raises:
        InputError: C100, outputs and truth have different numbers of values.
    """
    actual, expected = flattened_pair(outputs, truth)
    ends = float(expected.min()), float(expected.max())
    return Scores(worst_if_nan(((actual - expected) ** 2).sum(axis=1)), np.full(len(actual), float(actual.shape[1])), ends)


def absolute_error(outputs: Data, truth: Data) -> Scores:
    """Score each sample by the sum of its absolute errors; its weight is the number of values.

    Raises:
        InputError: C100, outputs and truth have different numbers of values.
    """
    actual, expected = flattened_pair(outputs, truth)
    return Scores(worst_if_nan(np.abs(actual - expected).sum(axis=1)), np.full(len(actual), float(actual.shape[1])))


def squared_error_with_moments(outputs: Data, truth: Data) -> Scores:
    """Score each sample by the sum of its squared errors, with the sum and sum of squares of its true values as details.

    Raises:
        InputError: C100, outputs and truth have different numbers of values.
    """
    errors, (_, expected) = squared_error(outputs, truth), flattened_pair(outputs, truth)
    return Scores(errors.values, errors.weights, errors.ends, np.stack([expected.sum(axis=1), (expected**2).sum(axis=1)], axis=1))


def r_squared(scores: Scores) -> float:
    """Return R²: 1 − squared errors / squared deviations of the true values from their mean; −∞ where these are all equal."""
    assert scores.details is not None
    total, squares = scores.details.sum(axis=0)
    spread, errors = squares - total**2 / scores.weights.sum(), scores.values.sum()
    if errors == 0:
        return 1.0
    return float(1 - errors / spread) if spread > 0 else float("-inf")
