"""Cells: symbolic elements of a driver's data, whose values are known only at run time; arithmetic on them builds terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ...errors import InputError
from ...lang.binders import Leaf
from ...lang.expr import Expr, binary, var
from ...lang.intervals import Interval
from ...lang.substitution import substitute
from ...readings.arrays.labelled_array import Data

C_FORMS = {"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "mod": "fm_mod({}, {})", "div": "fm_div({}, {})", "neg": "(-{})"}
FORMS_KEPT = 1 << 16

Place = tuple[Leaf, int]  # an element: its leaf, and its row-major index


class Cell:
    """A symbolic element: an integer term over slots (its form), and the element that each slot reads; division is exact.

    Elements that a driver treats alike share one form.
    """

    __slots__ = ("form", "places")

    def __init__(self, form: Expr, places: tuple[Place, ...]) -> None:
        self.form, self.places = form, places

    def __add__(self, other: Any) -> Cell | int:
        return _combined("add", self, other)

    def __radd__(self, other: Any) -> Cell | int:
        return _combined("add", other, self)

    def __sub__(self, other: Any) -> Cell | int:
        return _combined("sub", self, other)

    def __rsub__(self, other: Any) -> Cell | int:
        return _combined("sub", other, self)

    def __mul__(self, other: Any) -> Cell | int:
        return _combined("mul", self, other)

    def __rmul__(self, other: Any) -> Cell | int:
        return _combined("mul", other, self)

    def __mod__(self, other: Any) -> Cell | int:
        return _combined("mod", self, other)

    def __truediv__(self, other: Any) -> Cell | int:
        return _combined("div", self, other)

    __floordiv__ = __truediv__


def _combined(op: str, a: Any, b: Any) -> Cell | int:
    if not isinstance(b, Cell):
        form, places = _combined_form(op, a.form, int(b), ()), a.places
    elif not isinstance(a, Cell):
        form, places = _combined_form(op, int(a), b.form, ()), b.places
    elif a.places == b.places:
        form, places = _combined_form(op, a.form, b.form, ()), a.places
    else:
        places = a.places + tuple([p for p in b.places if p not in a.places])
        form = _combined_form(op, a.form, b.form, tuple([places.index(p) for p in b.places]))
    return Cell(form, places) if form.op != "const" else int(form.data)


@lru_cache(FORMS_KEPT)
def _combined_form(op: str, a: Expr | int, b: Expr | int, slots: tuple[int, ...]) -> Expr:
    """Return a ∘ b, where slot k of b is slot `slots[k]` of the result (k, when there are none)."""
    if isinstance(b, Expr) and slots:
        renamed = {slot_name(k): slot_name(target) for k, target in enumerate(slots)}
        b = substitute(b, {s: _slot(renamed[s.data[0]], s.interval) for s in b.free})
    return binary(op, a, b)


@cache
def _slot(name: str, interval: Interval) -> Expr:
    return var(name, interval)


def slot_name(k: int) -> str:
    """Return the C expression for the k-th slot of a form."""
    return f"v[{k}]"


def cells_of(leaf: Leaf) -> Data:
    """Return the elements of a leaf as an array of cells in its shape."""
    shape = tuple(int(str(n)) for n in leaf.shape)
    form = _slot(slot_name(0), leaf.interval)
    cells = np.empty(shape, object)
    cells.reshape(-1)[:] = [Cell(form, ((leaf, n),)) for n in range(cells.size)]
    return cells


@dataclass(frozen=True)
class Gather:
    """A row-major array of cells as C: forms over `v[0]`, `v[1]` …, and the elements that each cell gathers.

    Form 0 is a constant, whose value stands in place of an index.
    """

    forms: tuple[str, ...]
    sources: tuple[Leaf, ...]
    form_numbers: Data  # of each cell: its form
    indices: Data  # of each cell and slot: a row-major index
    source_numbers: Data  # of each cell and slot: the number of its source

    @property
    def width(self) -> int:
        """The largest number of elements that one cell reads."""
        return int(self.indices.shape[1])


def gather_of(x: Data) -> Gather:
    """Return an array of cells and integers as a gather.

    Raises:
        InputError: F161, a cell has an operator without a C form.
    """
    cells = [c if isinstance(c, Cell) else None for c in x.reshape(-1)]
    kinds: dict[Expr, int] = {}
    sources: dict[Leaf, int] = {}
    width = max((len(c.places) for c in cells if c is not None), default=1)
    form_numbers, indices, source_numbers = (
        np.zeros(len(cells), np.int32),
        np.zeros((len(cells), width), np.int32),
        np.zeros((len(cells), width), np.int32),
    )
    for n, (c, number) in enumerate(zip(cells, x.reshape(-1), strict=True)):
        if c is None:
            indices[n, 0] = int(number)
            continue
        form_numbers[n] = kinds.setdefault(c.form, len(kinds) + 1)
        for k, (leaf, index) in enumerate(c.places):
            indices[n, k], source_numbers[n, k] = index, sources.setdefault(leaf, len(sources))
    return Gather(("", *map(_text, kinds)), tuple(sources), form_numbers, indices, source_numbers)


def _text(e: Expr) -> str:
    if e.value is not None:
        return str(e.value)
    if e.op == "var":
        return str(e.data[0])
    if e.op not in C_FORMS:
        raise InputError("F161", f"a driver does {e.op} to its data, which has no C form")
    return C_FORMS[e.op].format(*map(_text, e.args))


def is_moving(x: Data) -> bool:
    """Tell whether an array contains cells."""
    return x.dtype == object and any(isinstance(c, Cell) for c in x.reshape(-1))
