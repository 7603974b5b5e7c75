"""Structural hashes of terms: stable across processes; variables and leaves count by position and declaration, not identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from .binders import Array, Comprehension, Leaf
from .expr import Expr
from .step import Let, Loop, Require, Step, Update, When, children

TEXT = json.JSONEncoder(check_circular=False, default=lambda x: ["fraction", x.numerator, x.denominator])  # faster than repr()
SCALARS = (int, str, bool, Fraction, type(None))


class Undigested(Exception):
    """A term that has no structural hash, because a fold or a table is in it."""


class StructuralHash:
    """A structural hash under construction: subterms numbered in the order of their first occurrence, one line each."""

    def __init__(self) -> None:
        """Start with no terms."""
        self._lines: list[object] = []
        self._numbers: dict[Expr | Array, int] = {}

    def text(self) -> str:
        """Return the SHA-256 of everything that was added, in hexadecimal."""
        return hashlib.sha256(TEXT.encode(self._lines).encode()).hexdigest()

    def add_words(self, *words: object) -> None:
        """Add strings and numbers."""
        self._lines.append(words)

    def add(self, *terms: Expr | Array) -> None:
        """Add terms and arrays.

        Raises:
            Undigested: one of them contains a fold or a table.
        """
        self.add_words([self._number(t) for t in terms])

    def step(self, step: Step) -> None:
        """Add a step with everything in it."""
        self.add_words(type(step).__name__, len(children(step)))
        if isinstance(step, Update):
            self.add(step.memory, *step.variables, *step.extents, *step.address, step.value)
        elif isinstance(step, Loop):
            self.add(step.variable, step.extent)
        elif isinstance(step, Let):
            self.add(step.local, step.array)
        elif isinstance(step, When | Require):
            self.add(step.condition)
        if isinstance(step, Require):
            self.add_words(step.code, step.sentence, [name for name, _ in step.values], step.always)
            self.add(*(value for _, value in step.values))
        for part in children(step):
            self.step(part)

    def _number(self, t: Expr | Array) -> int:
        number = self._numbers.get(t)
        if number is None:
            line = self._array(t) if isinstance(t, Array) else self._term(t)
            number = self._numbers[t] = len(self._lines)
            self._lines.append(line)
        return number

    def _numbered(self, terms: Iterable[Expr]) -> list[int]:
        return [self._number(t) for t in terms]

    def _term(self, e: Expr) -> object:
        return e.op, [self._number(a) for a in e.args], self._data(e), e.interval, e.real

    def _array(self, a: Array) -> object:
        shape = [n if isinstance(n, int) else ("term", self._number(n)) for n in a.shape]
        if type(a) is Leaf:
            return "leaf", a.name, shape, a.interval, a.real
        if isinstance(a, Comprehension):
            return "array", self._numbered(a.variables), shape, self._number(a.body)
        raise Undigested

    def _data(self, e: Expr) -> Any:
        if e.op == "var":
            return len(self._lines)  # each variable is another one
        if e.op == "load":
            return self._number(e.data)
        if e.op == "reduce":
            return e.data[0], self._numbered(e.data[1])
        if e.data is None:
            return None
        parts = e.data if isinstance(e.data, tuple) else (e.data,)
        if not all(isinstance(x, SCALARS) for x in parts):
            raise Undigested
        return e.data
