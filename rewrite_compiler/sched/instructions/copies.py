"""Copies bit by bit: which bits of which words the element of a transition consists of, where it computes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ila.summary import Access, Transition
from ...lang import intervals as iv
from ...lang.binders import Comprehension, Leaf
from ...lang.expr import INTEGER, Expr

WIDE = 1 << 10  # bits, more than any word has


@dataclass(frozen=True)
class Part:
    """Bits low … low + width − 1 of a word go to the bits from `at` on."""

    memory: str
    index: tuple[Any, ...]  # numbers, or whatever the evaluation gives
    low: int
    width: int
    at: int


def addressed(t: Transition) -> Transition:
    """Return a transition in which a state without axes is a memory of one element."""
    write, reads = _with_axis(t.write), tuple(replace(r, access=_with_axis(r.access)) for r in t.reads)
    return (
        t
        if write is t.write and all(a.access is b.access for a, b in zip(reads, t.reads, strict=True))
        else replace(t, write=write, reads=reads)
    )


def _with_axis(a: Access) -> Access:
    return a if a.address else Access(a.memory, ({},), (None,))


class NoCopy(Exception):
    """A value is computed, not copied."""


class Parts:
    """The parts of a value; `evaluate` gives a term of loop variables and control as a number, or anything else as an index alone."""

    def __init__(self, evaluate: Callable[[Expr, Mapping[Expr, Any]], Any]) -> None:
        """Take the evaluation, which raises NoCopy where a term depends on data."""
        self.evaluate = evaluate

    def of(self, e: Expr, numbers: Mapping[Expr, Any]) -> list[Part]:
        """Return the parts of a value at values of loop variables.

        Raises:
            NoCopy: it is more than words joined, cut and shifted.
        """
        if e.value is not None:
            if e.value:
                raise NoCopy
            return []
        if e.op == "load":
            return self._load(e, numbers)
        if e.op in ("wrap", "extract"):
            low, width = e.data if e.op == "extract" else (0, e.data[0])
            return _cut(self.of(e.args[0], numbers), low, width)
        if e.op in ("add", "bitor"):
            return _joined([p for a in e.args for p in self.of(a, numbers)])
        if e.op == "select":
            return self.of(e.args[1] if self._number(e.args[0], numbers) else e.args[2], numbers)
        if e.op in ("shl", "shr", "mul", "mod", "div", "min", "max"):
            return self._scaled(e, numbers)
        raise NoCopy

    def _number(self, e: Expr, numbers: Mapping[Expr, Any]) -> int:
        x = self.evaluate(e, numbers)
        if not isinstance(x, int):
            raise NoCopy
        return x

    def _load(self, e: Expr, numbers: Mapping[Expr, Any]) -> list[Part]:
        index = [self.evaluate(a, numbers) for a in e.args]
        if isinstance(e.data, Comprehension):
            return self.of(e.data.body, {**numbers, **dict(zip(e.data.variables, index, strict=True))})
        width = iv.width_of(e.data.interval)
        if not isinstance(e.data, Leaf) or width is None:
            raise NoCopy
        return [Part(e.data.name, tuple(index) or (0,), 0, width[0], 0)]

    def _scaled(self, e: Expr, numbers: Mapping[Expr, Any]) -> list[Part]:
        by = self._number(e.args[1], numbers)
        inner = self.of(e.args[0], numbers)
        if e.op in ("min", "max"):  # a clamp that the words inside of it never reach
            bits = max((p.at + p.width for p in inner), default=0)
            if (e.op == "max" and by > 0) or (e.op == "min" and by < (1 << bits) - 1):
                raise NoCopy
            return inner
        amount = by if e.op in ("shl", "shr") else by.bit_length() - 1
        if amount < 0 or (e.op not in ("shl", "shr") and by != 1 << amount):
            raise NoCopy
        if e.op == "mod":
            return _cut(inner, 0, amount)
        if e.op in ("shr", "div"):
            return _cut(inner, amount, WIDE)
        return [Part(p.memory, p.index, p.low, p.width, p.at + amount) for p in inner]


def parts_of(e: Expr, numbers: Mapping[Expr, int], control: Mapping[str, int]) -> list[Part]:
    """Return the parts of a value at values of loop variables and control.

    Raises:
        NoCopy: it is more than words joined, cut and shifted.
    """
    return Parts(lambda x, at: number(x, at, control)).of(e, numbers)


def _cut(parts: list[Part], low: int, width: int) -> list[Part]:
    """Return bits low … low + width − 1 of a word."""
    inner_parts = []
    for p in parts:
        first, end = max(p.at, low), min(p.at + p.width, low + width)
        if first < end:
            inner_parts.append(Part(p.memory, p.index, p.low + first - p.at, end - first, first - low))
    return inner_parts


def _joined(parts: list[Part]) -> list[Part]:
    ordered = sorted(parts, key=lambda p: p.at)
    if any(a.at + a.width > b.at for a, b in itertools.pairwise(ordered)):
        raise NoCopy
    return ordered


def number(e: Expr, numbers: Mapping[Expr, int], control: Mapping[str, int]) -> int:
    """Return a term of loop variables and control as a number.

    Raises:
        NoCopy: it depends on data.
    """
    if e.value is not None:
        return int(e.value)
    if e in numbers:
        return numbers[e]
    if e.op == "load" and isinstance(e.data, Leaf) and not e.args and e.data.name in control:
        return control[e.data.name]
    if e.op == "select":
        return number(e.args[1 if number(e.args[0], numbers, control) else 2], numbers, control)
    operands: list[Any] = [number(a, numbers, control) for a in e.args] if e.op != "load" else []
    if e.op in INTEGER:
        return INTEGER[e.op](*operands)
    if e.op == "not":
        return int(not int(operands[0]))
    if e.op == "neg":
        return -int(operands[0])
    if e.op == "extract":
        return int(int(operands[0]) >> e.data[0] & (1 << e.data[1]) - 1)
    if e.op == "wrap":
        low = -(1 << e.data[0] - 1) if e.data[1] else 0
        return int((int(operands[0]) - low) % (1 << e.data[0]) + low)
    raise NoCopy


def number_or_none(e: Expr, control: Mapping[str, int]) -> int | None:
    """Return a term that values of control alone decide as a number; None where they do not."""
    try:
        return number(e, {}, control)
    except NoCopy:
        return None


def is_possible(conditions: Iterable[Expr], control: Mapping[str, int]) -> bool:
    """Tell whether no condition is false under values of control."""
    return 0 not in (number_or_none(c, control) for c in conditions)
