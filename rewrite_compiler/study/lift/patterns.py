"""The operations that are looked for: meaning, axes, and what an element of the result is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Leaf, array, reduce_sum
from ...lang.expr import Expr
from ...sched.driver.operation import Operation, operation_of
from ...target.mapping import Axes

SIZES = {"t": 2, "n": 12, "k": 48}  # of the nest that is matched
ROWS = "x: t n; w: t n; y: t n"


@dataclass(frozen=True)
class Pattern:
    """An operation of two operands x and w and a result y[t, n]; of a product, scales add up."""

    name: str
    axes: str
    guard: str
    element: Callable[[Leaf, Leaf, Expr, Expr], Expr]
    reference: Callable[[Any, Any], Any]
    is_product: bool = False
    is_reduced: bool = False

    @property
    def operation(self) -> Operation:
        """What it computes as a nest of loops."""
        shapes = {name: tuple(SIZES[d] for d in dims) for name, dims in Axes.parse(self.axes).of.items()}
        x, w = (Leaf(shapes[name], (-8, 7), False, name) for name in "xw")
        return operation_of(array(lambda t, n: self.element(x, w, t, n), shapes["y"]), [x, w], "y", Axes.parse(self.axes).of)


SAME = "x.rank == 2, w.rank == 2, x.shape[0] == w.shape[0], x.shape[1] == w.shape[1]"
PATTERNS = (
    Pattern(
        "dense", "x: t k; w: n k; y: t n", "x.rank == 2, x.shape[1] % {lanes} == 0, IsConstant(w)",
        lambda x, w, t, n: reduce_sum(lambda k: x[t, k] * w[n, k], SIZES["k"]), lambda x, w: x @ w.T, is_product=True, is_reduced=True,
    ),
    Pattern("add", ROWS, SAME, lambda x, w, t, n: x[t, n] + w[t, n], np.add),
    Pattern("sub", ROWS, SAME, lambda x, w, t, n: x[t, n] - w[t, n], np.subtract),
    Pattern("mul", ROWS, SAME, lambda x, w, t, n: x[t, n] * w[t, n], np.multiply, is_product=True),
    Pattern("max_", ROWS, SAME, lambda x, w, t, n: maximum(x[t, n], w[t, n]), np.maximum),
    Pattern("min_", ROWS, SAME, lambda x, w, t, n: minimum(x[t, n], w[t, n]), np.minimum),
)  # fmt: skip
