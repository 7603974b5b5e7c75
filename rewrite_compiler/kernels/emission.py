"""The interface of the kernel printer for folds and operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from llvmlite import ir

from ..lang.binders import Accumulator, Table
from ..lang.expr import Expr
from .layout import Layout
from .schedule import Schedule
from .vectors import Value

Values = list[Value]


class Emission(Protocol):
    """A kernel under construction: its schedule, the current basic block, and the values of terms so far."""

    schedule: Schedule
    features: frozenset[str]
    module: ir.Module
    function: ir.Function
    b: ir.IRBuilder
    loop_counters: dict[Expr, Value]
    unit: dict[Expr, int]
    accumulators: dict[Accumulator, Values]
    memo: list[dict[Any, Any]]
    in_index: bool
    depth: int

    def evaluate(self, e: Expr, bits: int) -> Values:
        """Emit a term at each jammed position, exact where lanes of `bits` hold it, else modulo 2^bits."""

    def constant_argument(self, e: Expr, bits: int) -> Values:
        """Return an operand; a constant outside of loops is an argument."""

    def number(self, n: int | Expr, *purpose: object) -> Value:
        """Return a scalar argument of the kernel, one for each purpose."""

    def positions(self, *terms: Expr) -> int:
        """Return at how many jammed positions terms must be computed."""

    def varies(self, *terms: Expr) -> bool:
        """Tell whether lanes of terms may differ."""

    def source(self, x: Layout | Table) -> int:
        """Return the argument number of the pointer to an operand."""

    def pairs(self, e: Expr, layout: Layout, variable: Expr) -> Values:
        """Return neighbours along a variable of a sum side by side."""

    def pair_layout(self, e: Expr, variable: Expr) -> Layout | None:
        """Return the layout in which neighbours along a variable of a sum are pairs; None where they cannot be."""

    def gather(self, pointer: int, places: Value, kind: Any) -> Value:
        """Gather the elements of an operand at these element numbers, lane by lane."""

    def loop(self, count: Value, carried: Values, body: Callable[[Value, Values], Values]) -> Values:
        """Emit a loop that runs at least once."""

    def scope(self) -> AbstractContextManager[None]:
        """Discard on leaving the values of terms that are emitted inside."""

    def paired_loads(self, loads: dict[Expr, Values]) -> AbstractContextManager[None]:
        """Emit terms inside on pairs of neighbours along a variable of a sum."""
