"""Words that lie in byte memories: two loads of bytes as one load of a word, a word's bytes as one store.

A device describes a word of a byte memory by its bytes; where they lie side by side, machine code moves the word.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .expr import Expr
from .named import Axis, Data, axis_of, moving, reach, strided

if TYPE_CHECKING:
    from .arrays import Evaluator

SIZES = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
IS_LITTLE = sys.byteorder == "little"


class _Words:
    """The words at the first bytes of a view."""

    def __init__(self, view: Data, kind: str) -> None:
        self.view = view
        place = {"shape": view.shape, "typestr": kind, "data": (view.ctypes.data, False), "strides": view.strides}
        self.__array_interface__ = {**place, "version": 3}


def word_loaded(ev: Evaluator, e: Expr) -> tuple[Data, Sequence[Axis]] | None:
    """Return a 16-bit word, given as m[i] + (m[i + 1] << 8), as a view of the bytes; None where it is none."""
    loads = _bytes_of(e)
    if loads is None or not IS_LITTLE:
        return None
    store = ev.store_of(loads[0].data)
    low, high = (ev.affine(x.args[0]) for x in loads)
    if low is None or high is None or store.data.dtype != np.uint8 or len(store.own) != 1:
        return None
    if dict(low.terms) != dict(high.terms) or high.constant != low.constant + 1:
        return None
    index = moving(low)
    first, last = reach(index, ev.axes)
    if first < 0 or last + 1 >= store.own[0]:
        return None
    window, origin = store.window([first], [last + 1], ev.axes)
    view, names = strided(window, origin, [index], ev.axes)
    if view.size == 0 or view.ctypes.data % 2 or any(s % 2 for s in view.strides):
        return None
    return np.asarray(_Words(view, "<i2" if e.data[1] else "<u2")), names


def _bytes_of(e: Expr) -> tuple[Expr, Expr] | None:
    if e.op != "wrap" or e.data[0] != 16 or e.args[0].op != "add":
        return None
    low, high = e.args[0].args
    if low.op != "load" or high.op != "shl" or high.args[0].op != "load" or high.args[1].value != 8:
        return None
    return (low, high.args[0]) if low.data is high.args[0].data and len(low.args) == 1 else None


def byte_stored(ev: Evaluator, e: Expr, order: Sequence[Axis]) -> tuple[Expr, Expr, int] | None:
    """Return (word, variable, bytes) of a term (word >> 8·variable) mod 256 whose variable runs innermost over all bytes."""
    if e.op != "mod" or e.args[1].value != 256 or e.args[0].op != "shr" or not IS_LITTLE or not order:
        return None
    word, amount = e.args[0].args
    parts = amount.args if amount.op == "mul" else ()
    variable = next((p for p in parts if p.op == "var"), None)
    if variable is None or all(p.value != 8 for p in parts) or variable in word.free or not ev.is_axis(variable):
        return None
    axis = axis_of(variable)
    count, start = ev.axes.extent[axis], ev.axes.start[axis]
    return (word, variable, count) if count in SIZES and start == 0 and order[-1] == axis else None
