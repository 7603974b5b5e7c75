"""Implicit im2col: an operand of windows is read from the smaller array that it copies, and never materialised.

Rows of windows times a matrix then are a convolution: an axis of the operand becomes digits, each of which steps along one axis
of the smaller array, and so does the variable that runs over it, in the result, in a sum and in other operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..lang.binders import Array, Comprehension, Leaf, index_variable, reduction, static_shape
from ..lang.expr import Expr, const, node, select
from ..readings.arrays.labelled_array import Data
from .vectors import NotLowered


@dataclass(frozen=True)
class Digit:
    """A digit of an index: `extent` values, each `step` elements along an axis of the smaller array."""

    extent: int
    axis: int
    step: int


@dataclass(frozen=True)
class Windows:
    """Windows over a smaller array: element [digits of axis 0, …] is its element at first + Σ digit · step on each axis, zero outside."""

    shape: tuple[int, ...]  # of the smaller array
    origin: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]

    def extents(self, axis: int) -> tuple[int, ...]:
        """Return the extents of the digits of an axis."""
        return tuple(d.extent for d in self.digits[axis])

    def index_ranges(self) -> list[tuple[int, int]]:
        """Return the least and the largest index on each axis of the smaller array; beyond its shape lies padding."""
        limits = [(n, n) for n in self.origin]
        for d in (d for digits in self.digits for d in digits):
            low, high = limits[d.axis]
            last = d.step * (d.extent - 1)
            limits[d.axis] = low + min(last, 0), high + max(last, 0)
        return limits


class ImplicitIm2col:
    """Results over an operand of windows, rewritten to read the smaller array."""

    def __init__(self, results: Iterable[Array], operand: Leaf, windows: Windows, zero: int) -> None:
        """Rewrite `results`; elements outside of the smaller array are `zero`.

        Raises:
            NotLowered: the operand is read in another way than by one variable for each axis.
        """
        self.operand, self.windows = operand, windows
        self.source = Leaf(windows.shape, operand.interval, False, operand.name)
        self.padded = self._padded(zero)
        self.digits: dict[Expr, tuple[Expr, ...]] = {}  # of variables that run over an axis with several
        self.reshaped_operands: dict[Leaf, Leaf] = {}  # other operands, axes as digits
        self.memo: dict[Expr, Expr] = {}
        self.results = [self._result(a) for a in results]

    def operands_of(self, operands: Mapping[Leaf, Data], root: Data) -> dict[Leaf, Data]:
        """Return the operands of the rewritten results; `root` is the smaller array [samples, …]."""
        bound = {self.reshaped_operands.get(leaf, leaf): x for leaf, x in operands.items() if leaf is not self.operand}
        for original, reshaped in self.reshaped_operands.items():
            x = operands[original]
            bound[reshaped] = x.reshape(*x.shape[: x.ndim - original.rank], *reshaped.shape)
        bound[self.source] = root.reshape(len(root), *self.windows.shape)
        return bound

    def _padded(self, zero: int) -> Array:
        ends = self.windows.index_ranges()
        if all(low >= 0 and high < n for (low, high), n in zip(ends, self.windows.shape, strict=True)):
            self.start = [0] * len(ends)
            return self.source
        self.start = [min(low, 0) for low, _ in ends]
        shape = tuple(max(high + 1, n) - at for (_, high), n, at in zip(ends, self.windows.shape, self.start, strict=True))
        variables = tuple(index_variable(f"p{n}", extent) for n, extent in enumerate(shape))
        places = [v + at for v, at in zip(variables, self.start, strict=True)]
        is_inside: Expr | None = None
        for v, place, at, extent, n in zip(variables, places, self.start, shape, self.windows.shape, strict=True):
            tests = [*([v >= -at] if at else []), *([place < n] if extent + at > n else [])]
            for test in tests:
                is_inside = test if is_inside is None else is_inside & test
        assert is_inside is not None
        body = select(is_inside, self.source[tuple(places)], zero)
        return Comprehension(shape, body.interval, False, variables, body)

    def _result(self, a: Array) -> Array:
        if not isinstance(a, Comprehension):
            raise NotLowered("a result", "that is no array of elements")
        self._find(a.body)
        body = self._term(a.body)
        variables = tuple(x for v in a.variables for x in self.digits.get(v, (v,)))
        shape = tuple(n for v, m in zip(a.variables, a.shape, strict=True) for n in (self._extents(v) if v in self.digits else (m,)))
        return Comprehension(shape, a.interval, a.real, variables, body)

    def _extents(self, v: Expr) -> tuple[int, ...]:
        return tuple(int(x.interval[1] or 0) + 1 for x in self.digits[v])

    def _find(self, body: Expr) -> None:
        """Note by which digits the variables run that the operand is read by."""
        work, visited = [body], set[Expr]()
        while work:
            e = work.pop()
            if e in visited:
                continue
            visited.add(e)
            work += e.args
            if e.op == "load" and e.data is self.operand:
                for axis, index in enumerate(e.args):
                    self._note(index, axis)
            elif e.op == "load" and type(e.data) is not Leaf and self.operand in e.data.reads:
                raise NotLowered("windows", "in an array or a fold of their own")

    def _note(self, index: Expr, axis: int) -> None:
        extents = self.windows.extents(axis)
        if index.op != "var" or index.interval != (0, math.prod(extents) - 1):
            raise NotLowered("windows", "that are not read by one variable for each axis")
        digits = self.digits.setdefault(index, tuple(index_variable(f"{index.data[0]}{n}", extent) for n, extent in enumerate(extents)))
        if self._extents(index) != extents or len(digits) != len(extents):
            raise NotLowered("windows", "whose axes one variable runs over in two ways")

    def _term(self, e: Expr) -> Expr:
        rewritten = self.memo.get(e)
        if rewritten is None:
            rewritten = self.memo[e] = self._rebuilt(e)
        return rewritten

    def _rebuilt(self, e: Expr) -> Expr:
        if e.op == "var":
            return self._whole(e) if e in self.digits else e
        if e.op == "reduce":
            return self._reduction(e)
        if e.op == "load" and e.data is self.operand:
            return self._read(e)
        if e.op == "load":
            return self._load(e)
        args = [self._term(a) for a in e.args]
        return e if all(a is b for a, b in zip(args, e.args, strict=True)) else node(e.op, args, e.data, e.interval, e.real)

    def _whole(self, v: Expr) -> Expr:
        total: Expr = const(0)
        for digit, extent in zip(self.digits[v], self._extents(v), strict=True):
            total = total * extent + digit
        return total

    def _reduction(self, e: Expr) -> Expr:
        monoid, variables = e.data
        body = self._term(e.args[0])
        digit_variables, extents = list[Expr](), list[Expr]()
        for v, extent in zip(variables, e.args[1:], strict=True):
            digit_variables += self.digits.get(v, (v,))
            extents += [const(n) for n in self._extents(v)] if v in self.digits else [self._term(extent)]
        total = reduction(monoid, tuple(digit_variables), tuple(extents), body)
        return node("reduce", total.args, total.data, e.interval, e.real, total.free)

    def _read(self, e: Expr) -> Expr:
        places = [const(first - at) for first, at in zip(self.windows.origin, self.start, strict=True)]
        for index, digits in zip(e.args, self.windows.digits, strict=True):
            for variable, d in zip(self.digits[index], digits, strict=True):
                places[d.axis] = places[d.axis] + variable * d.step
        return self.padded[tuple(places)]

    def _load(self, e: Expr) -> Expr:
        a = e.data
        is_cut = [i in self.digits and len(self.digits[i]) > 1 for i in e.args]
        if type(a) is not Leaf and not self.digits.keys().isdisjoint(a.free):
            raise NotLowered("windows", "whose variables an array of its own depends on")
        if type(a) is not Leaf or not any(is_cut):
            return node("load", [self._term(i) for i in e.args], a, e.interval, e.real)
        parts = [self._extents(i) if cut else (n,) for i, n, cut in zip(e.args, static_shape(a), is_cut, strict=True)]
        shape = tuple(n for extents in parts for n in extents)
        reshaped = self.reshaped_operands.setdefault(a, Leaf(shape, a.interval, a.real, a.name))
        if reshaped.shape != shape or [math.prod(extents) for extents in parts] != list(a.shape):
            raise NotLowered("windows", "whose variables run over other operands in two ways")
        return reshaped[tuple(x for i, cut in zip(e.args, is_cut, strict=True) for x in (self.digits[i] if cut else (self._term(i),)))]
