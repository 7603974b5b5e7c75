"""Products of matrices of 16-bit factors modulo 2^32 by BLAS, on a factor that is read through offsets of rows and steps.

Floats hold every sum exactly: what the factors hold when the product is computed decides between float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .array_grid import at, runs
from .digits import digits_of
from .named import FLOAT32_EXACT, Data
from .tape import Ran, Span

if TYPE_CHECKING:
    from .products import Factor
    from .tape import Tape

BLOCK_BYTES = 1 << 19  # of the factor that is converted at once
INT16 = np.dtype(np.int16)
Steps = list[tuple[int, int]]  # extent and stride in bytes, outermost first


@dataclass
class ArrayProducts:
    """Products of matrices by numpy."""

    lanes: int = 1
    rows: int = 1

    def run(self, a: Factor, b: Data, out: Data, tape: Tape | None) -> None:
        """Set out[row, column] to the sum over steps of A's elements, side by side, times the packed words of B."""
        is_fixed = tape is None or not tape.owns(b)
        summing = Summing(a.rows, a.steps, a.width, _columns(b) if is_fixed else None)
        summing.bind(out, [b])([out.ctypes.data, b.ctypes.data, a.data.ctypes.data])()
        if tape is not None:
            reads = [Span(tape.steady(b), 0, b.size), Span(tape.steady(a.data), 0, _end(a))]
            call = Ran(tape.steady(out), reads, summing.bind(out, [tape.steady(b)]), None, (a.width, a.rows.tobytes(), a.steps.tobytes()))
            call.fold = summing if is_fixed else None
            tape.calls.append(call)


def _end(a: Factor) -> int:
    return int(a.rows.max()) + int(a.steps.max()) + a.width


def _columns(b: Data) -> Data:
    """Return packed words [tiles, steps, words, 1] as [columns, elements of a row of A]."""
    return np.ascontiguousarray(b[..., 0]).reshape(len(b), -1).view(np.int16)


@dataclass(frozen=True, eq=False)
class Summing:
    """A sum of products over A's elements at offsets of rows and steps, `width` side by side; B is [columns, elements of a row]."""

    rows: Data
    steps: Data
    width: int
    columns: Data | None  # None where B depends on samples
    known: dict[Any, Any] = field(default_factory=dict)

    def factors(self) -> Data:
        """Return B as [columns, elements of A]."""
        assert self.columns is not None
        return self.columns

    def over(self, out: Data, rows: Data, steps: Data, factors: Data, width: int) -> Ran:
        """Return a call of the same sum over other places of A, `width` elements a step; B is [columns, elements of A]."""
        summing = Summing(rows, steps, width, np.ascontiguousarray(factors, np.int16))
        return Ran(out, [Span(np.zeros(1, np.int16), 0, 1)], summing.bind(out, []), None, None)

    def bind(self, out: Data, packed: Sequence[Data]) -> Callable[[Sequence[int]], Callable[[], None]]:
        """Return what makes a call for the addresses of the result, of B where it is given, and of A."""
        shape, kind, strides = out.shape, out.dtype, out.strides

        def bound(places: Sequence[int]) -> Callable[[], None]:
            columns = [at(p, b.shape, b.dtype, b.strides) for p, b in zip(places[1:-1], packed, strict=True)]
            return partial(self._run, at(places[0], shape, kind, strides), places[-1], columns)

        return bound

    def _run(self, out: Data, place: int, packed: Sequence[Data]) -> None:
        columns = _columns(packed[0]) if self.columns is None else self.columns
        low, high = int(self.rows.min()) + int(self.steps.min()), int(self.rows.max()) + int(self.steps.max()) + self.width
        flat = at(place + 2 * low, (high - low,), INT16, (2,))
        largest = max(int(flat.max()), -int(flat.min()))
        reach = largest * self._sums(columns)
        kind: Any = np.float32 if reach <= FLOAT32_EXACT else np.float64
        b = self._converted(columns, kind)
        (across, along), k = self._view(), len(b)
        a = at(place + 2 * (int(self.rows[0]) + int(self.steps[0])), *_of(across + along))
        most = max(1, BLOCK_BYTES // (k * np.dtype(kind).itemsize))
        kept: Data = np.empty(min(most, len(out)) * k, kind)
        for index, first, count in runs(tuple(n for n, _ in across), most):
            block = a[index]
            rows = kept[: count * k]
            rows.reshape(block.shape)[...] = block
            found = rows.reshape(count, k) @ b
            out[first : first + count] = found if reach < 1 << 31 else found.astype(np.int64)

    def _sums(self, columns: Data) -> int:
        """Return the largest Σ|w| of a column."""
        if self.columns is None or "sums" not in self.known:
            self.known["sums"] = int(np.abs(columns.astype(np.int64)).sum(axis=1).max(initial=0))
        found: int = self.known["sums"]
        return found

    def _converted(self, columns: Data, kind: Any) -> Data:
        if self.columns is None:
            return np.ascontiguousarray(columns.T, kind)
        if kind not in self.known:
            self.known[kind] = np.ascontiguousarray(columns.T, kind)
        found: Data = self.known[kind]
        return found

    def _view(self) -> tuple[Steps, Steps]:
        """Return A's rows and the elements of one as loops."""
        if "view" not in self.known:
            self.known["view"] = _loops(self.rows), [*_loops(self.steps), (self.width, 2)]
        found: tuple[Steps, Steps] = self.known["view"]
        return found


def _of(loops: Steps) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
    return tuple(n for n, _ in loops), INT16, tuple(s for _, s in loops)


def _loops(offsets: Data) -> Steps:
    """Return offsets in elements as loops; ValueError where they are no nest of progressions."""
    places = offsets.astype(np.int64)
    digits = digits_of(places[None] - places[0])
    if digits is None:
        raise ValueError("offsets lie in no regular order")
    steps = [int(places[math.prod(digits[n + 1 :])] - places[0]) * 2 if m > 1 else 0 for n, m in enumerate(digits)]
    return list(zip(digits, steps, strict=True))
