"""Evaluation of array terms by numpy, with blocked folds as exact products by BLAS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...lang.binders import Array, Leaf
from ..arrays.evaluator import Evaluator
from ..arrays.labelled_array import Axes, Data, Store
from .exact_float_folds import evaluate_fold_in_floats


def evaluator_of(memories: Mapping[Leaf, Store], axes: Axes | None = None, real: Any = np.float64) -> Evaluator:
    """Return an evaluator on these memories, blocked folds by BLAS; reals are computed in the type `real` unless an operand is wider."""
    return Evaluator(memories, axes, real, evaluate_fold_in_floats)


def evaluate(array: Array, operands: Mapping[Leaf, Data], real: Any = np.float64) -> Data:
    """Evaluate an array term on numpy operands of the shapes of their leaves."""
    evaluator = evaluator_of({leaf: Store(np.asarray(x)) for leaf, x in operands.items()}, real=real)
    with np.errstate(all="ignore"):
        data = evaluator.store_of(array).data
    return data if not array.real or np.issubdtype(data.dtype, np.floating) else data.astype(real)
