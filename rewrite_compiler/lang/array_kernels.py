"""Array kernels: what machine code computes for a tape, computed by numpy instead, each call on memory that may lie elsewhere.

A tape of these calls tells what computes from what only moves, as one of machine code does: moves can be left out on machines
where machine code cannot be made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .array_grid import launched
from .binders import Fold
from .kernels import Kernels, Operand, merged
from .named import Axis, Data, Store
from .straight import Op

if TYPE_CHECKING:
    from .arrays import Evaluator
    from .products import Multiplier


class ArrayKernels(Kernels):
    """The calls of numpy of an evaluator whose tape records."""

    def fold(self, ev: Evaluator, f: Fold) -> list[Store] | None:
        """Return the accumulator after the last step of a blocked fold; None when it is not one that floats hold."""
        from .float_folds import played_in_floats

        found = played_in_floats(ev, f)
        self.folds += found is not None
        return None if found is None else [found]

    def multiplier(self) -> Multiplier:
        """Return what multiplies matrices."""
        from .array_products import ArrayProducts

        return ArrayProducts()

    def launched(
        self, code: tuple[Op, ...], sides: Sequence[Operand], tables: Sequence[Data], scalars: Sequence[int], order: Sequence[Axis],
        extent: Mapping[Axis, int], monoid: str = "",
    ) -> tuple[Any, Data]:  # fmt: skip
        """Return the function of addresses that computes a grid, and the numbers that it differs in from others of its code."""
        loops = merged([(extent[a], [o.strides.get(a, 0) for o in sides]) for a in order if extent[a] > 1])
        run = launched(code, [o.data.dtype for o in sides], loops, tables, scalars, monoid)
        numbers = [n for n, _ in loops] + [s[k] for k in range(len(sides)) for _, s in loops] + list(scalars)
        return run, np.array(numbers or [0], np.int64)
