"""The interface of the interpreter of steps for analyses of loops."""

from __future__ import annotations

from typing import Protocol

from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.step import Update
from ..arrays.evaluator import Evaluator
from ..arrays.labelled_array import Axes, Store
from ..arrays.scope import OpenScope
from .dependence_cache import DependenceCache


class Execution(Protocol):
    """A state in execution: memories with their present contents, the evaluator of terms on them, and the open scope."""

    memories: dict[Leaf, Store]
    evaluator: Evaluator
    axes: Axes
    dependence_cache: DependenceCache | None

    def bind(self, leaf: Leaf, store: Store) -> None:
        """Set the contents of a leaf and invalidate the cached values that read it."""

    def invalidate(self, written_leaves: frozenset[Leaf]) -> None:
        """Invalidate cached values that depend on the written leaves."""

    def axis_scope(self, variable: Expr) -> OpenScope:
        """Open a scope in which `variable` stands for its axis."""

    def grid_scope(self, u: Update) -> OpenScope:
        """Open a scope over the variables of an update."""
