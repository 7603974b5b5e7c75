"""What the analyses of loops ask of the interpreter that is about to run them."""

from __future__ import annotations

from typing import Protocol

from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.step import Update
from ..arrays.evaluator import Evaluator
from ..arrays.labelled_array import Axes, Store
from ..arrays.scope import Opened
from .dependence_cache import Recall


class Execution(Protocol):
    """Memories with their contents now, the evaluator of terms on them, and the scope of loop variables that is open."""

    memories: dict[Leaf, Store]
    evaluator: Evaluator
    axes: Axes
    recall: Recall | None

    def bind(self, leaf: Leaf, store: Store) -> None:
        """Give a leaf its contents."""

    def forget(self, written: frozenset[Leaf]) -> None:
        """Drop values that depend on the written leaves."""

    def along(self, variable: Expr) -> Opened:
        """Open a scope in which `variable` stands for its axis."""

    def grid(self, u: Update) -> Opened:
        """Open a scope over the variables of an update."""
