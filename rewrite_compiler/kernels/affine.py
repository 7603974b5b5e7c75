"""Affine index expressions, from which addresses are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..lang.expr import Expr


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · variable + constant."""

    coefficients: Mapping[Expr, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """Return the sum with a multiple of another affine expression."""
        parts = dict(self.coefficients)
        for v, c in other.coefficients.items():
            parts[v] = parts.get(v, 0) + times * c
        return Affine({v: c for v, c in parts.items() if c}, self.constant + times * other.constant)

    def is_divisible(self, by: int, except_for: Expr | None) -> bool:
        """Tell whether the constant and all coefficients, except that of the variable `but`, are multiples of `by`."""
        return not self.constant % by and all(v is except_for or not c % by for v, c in self.coefficients.items())


def affine_of(e: Expr) -> Affine | None:
    """Return an index as an affine expression; None where it is not affine in its variables."""
    if e.op == "const":
        return Affine({}, int(e.data))
    if e.op == "var":
        return Affine({e: 1})
    if e.op not in ("add", "sub", "mul"):
        return None
    x, y = (affine_of(a) for a in e.args)
    if x is None or y is None:
        return None
    if e.op != "mul":
        return x.plus(y, 1 if e.op == "add" else -1)
    x, y = (y, x) if x.coefficients else (x, y)
    return None if x.coefficients else Affine().plus(y, x.constant)
