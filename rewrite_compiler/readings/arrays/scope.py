"""Scopes of the arrays reading: what variables stand for, what has been computed under them, and who computes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...errors import SpecError
from ...lang.binders import Array, Fold, Leaf
from ...lang.expr import Expr
from .labelled_array import Affine, Axes, Axis, LabelledArray, Store


class Scope:
    """A binding of variables to numbers or axes, and a cache of the terms and arrays evaluated under it."""

    def __init__(self, parent: Scope | None, numbers: Mapping[Expr, int] | None = None, axes: Sequence[Expr] = ()) -> None:
        """Open a scope inside `parent`."""
        self.parent = parent
        self.numbers = dict(numbers or {})
        self.bound = frozenset((*self.numbers, *axes))
        self.bound_numbers: dict[Expr, int] = {**parent.bound_numbers, **self.numbers} if parent else self.numbers
        self.terms: dict[Expr, LabelledArray] = {}
        self.stores: dict[Array, Store] = {}
        self.folds: dict[tuple[Fold, bool], list[Store]] = {}
        self.readers: dict[Leaf, dict[Any, dict[Any, Any]]] = {}  # by leaf: the cached values that read it, and their caches

    def remember(self, cache: dict[Any, Any], key: Any, reads: Iterable[Leaf], value: Any) -> None:
        """Cache a value until one of the leaves that it `reads` is written."""
        cache[key] = value
        for leaf in reads:
            self.readers.setdefault(leaf, {})[key] = cache

    def invalidate(self, written_leaves: Iterable[Leaf]) -> None:
        """Invalidate the cached values that depend on the written leaves."""
        for leaf in written_leaves if self.readers else ():
            for key, cache in self.readers.pop(leaf, {}).items():
                cache.pop(key, None)


class Evaluation(Protocol):
    """The interface of an evaluator for the rules of operators: values of terms, contents of arrays, the open scope."""

    axes: Axes
    real: Any
    scope: Scope
    hoisted: dict[Expr, LabelledArray]

    def value(self, e: Expr) -> LabelledArray:
        """Return the value of a term over the axes it depends on."""

    def number(self, e: Expr) -> int:
        """Return the value of an integer term that is the same along every axis."""

    def cast(self, data: Any, e: Expr) -> Any:
        """Return data in a type in which the result of `e` is exact."""

    def store_of(self, a: Array) -> Store:
        """Return the contents of an array term."""

    def affine(self, e: Expr) -> Affine | None:
        """Return an index as an affine function of the bound axes, or None."""

    def is_axis(self, v: Expr) -> bool:
        """Tell whether a bound variable stands for an axis."""

    def batch_of(self, leaf: Leaf) -> set[Axis]:
        """Return the union of the batch axes of all regions of a leaf."""

    def element_count(self, free: Iterable[Expr], reads: Iterable[Leaf]) -> int:
        """Return the number of elements a term takes over the axes of these free variables and of the leaves it reads."""

    def inner_scope(self, numbers: Mapping[Expr, int] | None = None, axes: Sequence[tuple[Expr, int]] = ()) -> OpenScope:
        """Open a scope that binds numbers and axes."""


class OpenScope:
    """A context manager that opens a scope of an evaluator."""

    def __init__(self, evaluation: Evaluation, scope: Scope) -> None:
        self.evaluation, self.scope = evaluation, scope

    def __enter__(self) -> Scope:
        self.evaluation.scope = self.scope
        return self.scope

    def __exit__(self, *_: object) -> None:
        if self.scope.parent is None:
            raise SpecError("I102", "the outermost scope was closed")
        self.evaluation.scope = self.scope.parent
