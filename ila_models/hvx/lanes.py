"""HVX lanes: vectors of registers as lanes of a type, scalar registers as repeated lanes, and the updates that write lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rewrite_compiler.ila import Ila, joined
from rewrite_compiler.lang import Expr, Operand, Step, lift, select, update, wrap

from .state import VECTOR

TYPES = {"b": (1, True), "ub": (1, False), "h": (2, True), "uh": (2, False), "w": (4, True), "uw": (4, False)}  # type → bytes, signed
HALVES = 2  # registers of a pair


@dataclass(frozen=True, eq=False)
class Vector:
    """A vector register of a number, seen as lanes of a type."""

    m: Ila
    number: Expr
    type: str

    @property
    def size(self) -> int:
        """Bytes of a lane."""
        return TYPES[self.type][0]

    def byte(self, k: Operand) -> Expr:
        """Return a byte as an unsigned number."""
        return self.m.s.v[self.number, k]

    def lane(self, n: Operand) -> Expr:
        """Return a lane as a number of the type."""
        return word(lambda k: self.byte(lift(n) * self.size + k), self.type)


@dataclass(frozen=True, eq=False)
class Scalar:
    """A scalar register of a number, seen as lanes of a type that repeat every four bytes."""

    m: Ila
    number: Expr
    type: str

    @property
    def value(self) -> Expr:
        """The register as an unsigned number."""
        return self.m.s.r[self.number]

    def lane(self, n: Operand) -> Expr:
        """Return a lane as a number of the type."""
        size, signed = TYPES[self.type]
        return wrap(self.value >> lift(n) % (4 // size) * (8 * size), 8 * size, signed)


@dataclass(frozen=True, eq=False)
class Constant:
    """An immediate in the place of a scalar register."""

    value: Expr


def word(byte: Callable[[int], Expr], type: str) -> Expr:
    """Return the little-endian number of a type from its bytes."""
    size, signed = TYPES[type]
    return wrap(joined(byte, size), 8 * size, signed)


def lanes_of(type: str) -> int:
    """Return the number of lanes of a vector."""
    return VECTOR // TYPES[type][0]


def either(n: Expr, first: Vector, second: Vector) -> Vector:
    """Return the second vector where `n` is 1, else the first, whose type it has."""
    return Vector(first.m, select(n, second.number, first.number), first.type)


def write_vector(m: Ila, number: Expr, type: str, value: Callable[[Expr], Expr], chosen: Callable[[Expr], Expr] | None = None) -> Step:
    """Return the update of a register's lanes, each wrapped to its type; `chosen` tells of every byte whether it is written."""
    size, _ = TYPES[type]

    def byte(i: Expr, k: Expr) -> tuple[tuple[Expr, Expr], Expr]:
        at = i * size + k
        changed = wrap(value(i) >> 8 * k, 8, False)
        return (number, at), changed if chosen is None else select(chosen(at), changed, m.s.v[number, at])

    return update(m.s.v, (lanes_of(type), size), byte)


def write_pair(m: Ila, pair: Expr, type: str, value: Callable[[Expr, Expr], Expr]) -> Step:
    """Return the update of a pair: value(half, lane), half 0 the low register."""
    size, _ = TYPES[type]

    def byte(half: Expr, i: Expr, k: Expr) -> tuple[tuple[Expr, Expr], Expr]:
        return (HALVES * pair + half, i * size + k), wrap(value(half, i) >> 8 * k, 8, False)

    return update(m.s.v, (HALVES, lanes_of(type), size), byte)


def write_predicate(m: Ila, number: Expr, value: Callable[[Expr], Expr]) -> Step:
    """Return the update of a predicate register: value(byte) is 0 or 1."""
    return update(m.s.q, VECTOR, lambda k: ((number, k), value(k)))
