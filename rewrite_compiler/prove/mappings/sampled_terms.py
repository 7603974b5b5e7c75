"""Array terms evaluated for several samples at once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ...lang.binders import Array, Leaf
from ...lang.expr import var
from ...readings.arrays.labelled_array import Axes, Data, Store, axis_of
from ...readings.kernels.evaluate import evaluator_of

_SAMPLE = var("sample", (0, None))


def evaluated_together(array: Array, operands: Mapping[Leaf, Data], shared: Mapping[Leaf, Data] = MappingProxyType({})) -> Data:
    """Return the elements of an array term for each sample: [samples, …].

    `operands` have the sample axis first, those that are `shared` have none.
    """
    axis, axes = axis_of(_SAMPLE), Axes()
    count = len(next(iter(operands.values())))
    axes.add(axis, count)
    contents = {leaf: Store(x, (axis,)) for leaf, x in operands.items()}
    evaluator = evaluator_of({**contents, **{leaf: Store(x) for leaf, x in shared.items()}}, axes)
    with np.errstate(all="ignore"):
        store = evaluator.store_of(array)
    if store.batch:
        return store.data
    return np.broadcast_to(store.data, (count, *store.data.shape))
