"""Terms of loop variables and control over whole grids at once: an array for each variable, numbers for registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...lang.binders import Comprehension, Leaf
from ...lang.expr import INTEGER, Expr
from ...readings.arrays.labelled_array import Data
from ..instructions.copies import NoCopy, Parts

ARRAYS: Mapping[str, Any] = {
    "min": np.minimum, "max": np.maximum, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


class Grid:
    """Values of terms where loop variables are arrays that broadcast and registers are numbers."""

    def __init__(self, numbers: Mapping[Expr, Any], control: Mapping[str, int]) -> None:
        """Take the values of variables and registers."""
        self.control, self.known = control, dict(numbers)

    def of(self, e: Expr) -> Any:
        """Return a term: a number where it has one value over the grid, else an array.

        Raises:
            NoCopy: it depends on data.
        """
        if e not in self.known:
            with np.errstate(all="ignore"):
                self.known[e] = one_value(self._value(e))
        return self.known[e]

    def _value(self, e: Expr) -> Any:
        if e.value is not None:
            return int(e.value)
        if e.op == "load":
            return self._load(e)
        if e.op == "select":
            condition = self.of(e.args[0])
            if isinstance(condition, int):
                return self.of(e.args[1 if condition else 2])
            return np.where(condition, self.of(e.args[1]), self.of(e.args[2]))
        operands = [self.of(a) for a in e.args]
        if e.op in INTEGER and not e.op.startswith("t"):
            return self._binary(e.op, *operands)
        if e.op in ("not", "neg"):
            return 1 - operands[0] if e.op == "not" else -operands[0]
        if e.op == "extract":
            return operands[0] >> e.data[0] & (1 << e.data[1]) - 1
        if e.op == "wrap":
            low = -(1 << e.data[0] - 1) if e.data[1] else 0
            return (operands[0] - low) % (1 << e.data[0]) + low
        raise NoCopy

    def _binary(self, op: str, x: Any, y: Any) -> Any:
        if op in ("div", "mod") and isinstance(y, int) and not y:
            raise NoCopy
        if isinstance(x, int) and isinstance(y, int):
            return INTEGER[op](x, y)
        return ARRAYS[op](x, y) * 1 if op in ARRAYS else INTEGER[op](x, y)

    def _load(self, e: Expr) -> Any:
        if isinstance(e.data, Leaf) and not e.args and e.data.name in self.control:
            return self.control[e.data.name]
        if isinstance(e.data, Comprehension):
            index = dict(zip(e.data.variables, map(self.of, e.args), strict=True))
            return Grid({**self.known, **index}, self.control).of(e.data.body)
        raise NoCopy


def one_value(x: Any) -> Any:
    """Return the number that all of an array is, or the array."""
    if not isinstance(x, np.ndarray):
        return int(x)
    return int(x.flat[0]) if x.size and bool((x == x.flat[0]).all()) else x


def copied_over(control: Mapping[str, int]) -> Parts:
    """Return what gives the parts of copies over a grid."""
    return Parts(lambda e, numbers: Grid(numbers, control).of(e))


def axes_of(extents: Mapping[Expr, int]) -> dict[Expr, Data]:
    """Return an array for each variable, all of which together broadcast to their grid."""
    count = len(extents)
    return {v: np.arange(n).reshape(tuple(-1 if k == at else 1 for k in range(count))) for at, (v, n) in enumerate(extents.items())}
