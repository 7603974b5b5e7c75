"""HVX vector instructions: from a row of the table to its update, by families of operations.

An operation gives the exact number of a result lane; its row says whether that is saturated or wrapped, added to the old
lane, and under which predicate. Results in pairs are numbered through: even lanes lie in the low register and odd ones in the
high, or the first half in the low one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rewrite_compiler.ila import Fields, Ila
from rewrite_compiler.lang import Expr, Step, lift, sat, select

from .arithmetic import ARITHMETIC
from .encoding import Row
from .lanes import TYPES, Constant, Scalar, Vector, lanes_of, write_pair, write_predicate, write_vector
from .multiply import PRODUCTS
from .permute import PAIRS, PERMUTATIONS
from .shift import SHIFTS

SEQUENTIAL = ("vunpack",)  # the first half of the lanes goes to the low register
UNTYPED = {"vsplat": "uw"}  # the lane type of a result without one; bytes for others
LANES: Mapping[str, Callable[..., Callable[[Expr], Expr]]] = {**ARITHMETIC, **PRODUCTS, **SHIFTS, **PERMUTATIONS}


@dataclass(frozen=True, eq=False)
class Operands:
    """The operands of a row: sources in order, and where the result goes."""

    m: Ila
    row: Row
    f: Fields

    @property
    def type(self) -> str:
        """The lane type of the result."""
        return self.row.type or UNTYPED.get(self.row.operation, "ub")

    @property
    def sources(self) -> tuple[Any, ...]:
        """The operands that are read."""
        return tuple(self._source(name, lanes) for name, lanes in self.row.sources)

    def _source(self, name: str, type: str) -> Vector | Scalar | Constant | Expr:
        if name == "#u3":
            return Constant(self.f.imm)
        number = self.f[name.lower()]
        if name.startswith("Q"):
            return number
        return (Scalar if name.startswith("R") else Vector)(self.m, number, type or "ub")


def update_of(m: Ila, row: Row) -> Callable[[Fields], Step]:
    """Return what an instruction does, as a function of its fields."""
    return partial(_predicates if row.result == "Qd" else _pairs if row.result in ("Vdd", "Vxx") else _vectors, m, row)


def _vectors(m: Ila, row: Row, f: Fields) -> Step:
    o = Operands(m, row, f)
    number = f[row.result.lower()]
    if row.operation == "vmux":
        predicate, a, b = o.sources
        return write_vector(m, number, "ub", lambda k: select(m.s.q[predicate, k] == 1, a.byte(k), b.byte(k)))
    lanes, old = _operation(row)(row, *o.sources), Vector(m, number, o.type)
    value = _combined(row, o.type, old.lane, lanes)
    if not row.syntax.startswith("if"):
        return write_vector(m, number, o.type, value)
    is_negated = bool(row.parts["negated"])
    return write_vector(m, number, o.type, value, lambda k: m.s.q[f.qv, k] == (0 if is_negated else 1))


def _pairs(m: Ila, row: Row, f: Fields) -> Step:
    o = Operands(m, row, f)
    pair = f[row.result.lower()]
    if row.operation in PAIRS:
        return write_pair(m, pair, "ub", PAIRS[row.operation](*o.sources))
    lanes, count = _operation(row)(row, *o.sources), lanes_of(o.type)

    def value(half: Expr, i: Expr) -> Expr:
        n = half * count + i if row.operation in SEQUENTIAL else 2 * i + half
        old = Vector(m, 2 * pair + half, o.type).lane(i)
        return _combined(row, o.type, lambda _: old, lanes)(n)

    return write_pair(m, pair, o.type, value)


def _operation(row: Row) -> Callable[..., Callable[[Expr], Expr]]:
    """Return the operation of a row; without one it copies its source."""
    return LANES[row.operation] if row.operation else lambda _, a: a.lane


def _combined(row: Row, type: str, old: Callable[[Expr], Expr], new: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Return what a lane becomes: saturated, or combined with what it was."""
    size, signed = TYPES[type]
    how: dict[str, Callable[[Expr], Expr]] = {
        "": new,
        "+": lambda n: old(n) + new(n),
        "-": lambda n: old(n) - new(n),
        "|": lambda n: old(n) | new(n),
    }
    exact = how[row.parts["with"]]
    return (lambda n: sat(exact(n), 8 * size, signed)) if "sat" in row.flags else exact


def _predicates(m: Ila, row: Row, f: Fields) -> Step:
    sources = Operands(m, row, f).sources
    q = m.s.q
    if row.operation == "and":
        return write_predicate(m, f.qd, lambda k: q[sources[0], k] & q[sources[1], k])
    if row.operation == "not":
        return write_predicate(m, f.qd, lambda k: 1 - q[sources[0], k])
    if row.operation == "vsetq":
        return write_predicate(m, f.qd, lambda k: k < sources[0].value % 128)
    a, b = sources
    if row.operation == "vcmp.gt":
        return write_predicate(m, f.qd, lambda k: a.lane(k // a.size) > b.lane(k // b.size))
    return write_predicate(m, f.qd, lambda k: lift(a.lane(k // a.size) == b.lane(k // b.size)))
