"""Cells: elements of a driver's data whose values are known only at run time; what a driver does to them is kept as a term."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import InputError
from ..lang.binders import Leaf
from ..lang.expr import Expr, lift
from ..lang.named import Data

C_FORMS = {"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "mod": "fm_mod({}, {})", "div": "fm_div({}, {})", "neg": "(-{})"}


class Cell:
    """One element as an integer term; division is exact where drivers divide."""

    __slots__ = ("term",)

    def __init__(self, term: Expr) -> None:
        self.term = term

    def __add__(self, other: Any) -> Cell:
        return Cell(self.term + _term(other))

    def __radd__(self, other: Any) -> Cell:
        return Cell(_term(other) + self.term)

    def __sub__(self, other: Any) -> Cell:
        return Cell(self.term - _term(other))

    def __rsub__(self, other: Any) -> Cell:
        return Cell(_term(other) - self.term)

    def __mul__(self, other: Any) -> Cell:
        return Cell(self.term * _term(other))

    def __rmul__(self, other: Any) -> Cell:
        return Cell(_term(other) * self.term)

    def __mod__(self, other: Any) -> Cell:
        return Cell(self.term % _term(other))

    def __truediv__(self, other: Any) -> Cell:
        return Cell(self.term // _term(other))

    __floordiv__ = __truediv__


def _term(x: Any) -> Expr:
    return x.term if isinstance(x, Cell) else lift(int(x))


def cells_of(leaf: Leaf) -> Data:
    """Return the elements of a leaf, in its shape."""
    shape = tuple(int(str(n)) for n in leaf.shape)
    found = np.empty(shape, object)
    for index in np.ndindex(*shape):
        found[index] = Cell(leaf[index])
    return found


@dataclass
class Gather:
    """An array of cells as C: forms of text over the elements `v[0]`, `v[1]` …, and where each element of each cell lies.

    Form 0 is a constant; its place holds the value.
    """

    forms: list[str] = field(default_factory=lambda: [""])
    sources: list[Leaf] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    places: list[list[tuple[int, int]]] = field(default_factory=list)  # of each cell: (source, flat index)

    def add(self, x: Any) -> None:
        """Append a cell or a number."""
        if not isinstance(x, Cell) or x.term.value is not None:
            self.kinds.append(0)
            self.places.append([(-1, int(x.term.value if isinstance(x, Cell) else x))])  # type: ignore[arg-type]
            return
        found: list[tuple[int, int]] = []
        form = self._form(x.term, found)
        if form not in self.forms:
            self.forms.append(form)
        self.kinds.append(self.forms.index(form))
        self.places.append(found)

    def _form(self, e: Expr, found: list[tuple[int, int]]) -> str:
        if e.value is not None:
            return str(e.value)
        if e.op == "load" and isinstance(e.data, Leaf):
            place = self._source(e.data), flat_index(e)
            if place not in found:
                found.append(place)
            return f"v[{found.index(place)}]"
        if e.op not in C_FORMS:
            raise InputError("F161", f"a driver does {e.op} to its data, which has no C form")
        return C_FORMS[e.op].format(*(self._form(a, found) for a in e.args))

    def _source(self, leaf: Leaf) -> int:
        known = next((n for n, x in enumerate(self.sources) if x is leaf), None)
        if known is None:
            self.sources.append(leaf)
            return len(self.sources) - 1
        return known

    @property
    def width(self) -> int:
        """The most elements that one cell reads."""
        return max((len(p) for p in self.places), default=1)


def flat_index(e: Expr) -> int:
    """Return the row-major index of a load at constant indices."""
    at = 0
    for i, n in zip(e.args, e.data.shape, strict=True):
        at = at * int(str(n)) + int(i.value or 0)
    return at


def is_moving(x: Data) -> bool:
    """Tell whether an array has cells."""
    return x.dtype == object and any(isinstance(c, Cell) for c in x.reshape(-1))


def numbers(x: Data) -> Iterator[int]:
    """Yield the elements of an array without cells."""
    return (int(c) for c in x.reshape(-1))
