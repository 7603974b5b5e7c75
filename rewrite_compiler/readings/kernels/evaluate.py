"""Evaluation of array terms by numpy, with blocked folds as exact products by BLAS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ...lang.binders import Array, Leaf
from ...lang.expr import var
from ..arrays.evaluator import Evaluator
from ..arrays.labelled_array import Axes, Data, Store, axis_of
from .exact_float_folds import evaluate_fold_in_floats

_SAMPLE = var("sample", (0, None))


def evaluator_of(memories: Mapping[Leaf, Store], axes: Axes | None = None, real: Any = np.float64) -> Evaluator:
    """Return an evaluator on these memories, blocked folds by BLAS; reals are computed in the type `real` unless an operand is wider."""
    return Evaluator(memories, axes, real, evaluate_fold_in_floats)


def evaluate(array: Array, operands: Mapping[Leaf, Data], real: Any = np.float64) -> Data:
    """Evaluate an array term on numpy operands of the shapes of their leaves."""
    evaluator = evaluator_of({leaf: Store(np.asarray(x)) for leaf, x in operands.items()}, real=real)
    with np.errstate(all="ignore"):
        data = evaluator.store_of(array).data
    return data if not array.real or np.issubdtype(data.dtype, np.floating) else data.astype(real)


def evaluate_together(
    array: Array, operands: Mapping[Leaf, Data], shared: Mapping[Leaf, Data] = MappingProxyType({}), real: Any = np.float64
) -> Data:
    """Evaluate an array term for several samples at once: [samples, …].

    `operands` have the axis of samples first, those that are `shared` have none.
    """
    axis, axes = axis_of(_SAMPLE), Axes()
    count = len(next(iter(operands.values())))
    axes.add(axis, count)
    contents = {leaf: Store(np.asarray(x), (axis,)) for leaf, x in operands.items()}
    evaluator = evaluator_of({**contents, **{leaf: Store(np.asarray(x)) for leaf, x in shared.items()}}, axes, real)
    with np.errstate(all="ignore"):
        store = evaluator.store_of(array)
    data = store.data if not array.real or np.issubdtype(store.data.dtype, np.floating) else store.data.astype(real)
    return data if store.batch else np.broadcast_to(data, (count, *data.shape))
