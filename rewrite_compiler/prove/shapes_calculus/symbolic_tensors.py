"""Tensors at symbolic shapes, and what their readers share: typing, broadcasting, windows.

A tensor is its extents and a function from an index, or from a row-major place, to the element there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .element_text import place_text
from .polynomials import Poly, as_poly, place_of, product
from .real_elements import NotProved, Real, Reals, ShapeMismatch, number

Index = Sequence[Poly]
Attributes = Mapping[str, Any]


class Typing:
    """The requirements of shape rules. This class proves them, as right sides have to; left sides assume them."""

    def __init__(self, reals: Reals) -> None:
        self.reals = reals
        self.facts = reals.facts

    def require_equal(self, a: Poly, b: Poly) -> None:
        """Require two extents to be equal.

        Raises:
            ShapeMismatch: that is not proved.
        """
        if not self.facts.equal(a, b):
            raise ShapeMismatch(f"{place_text(self.facts.norm(a))} = {place_text(self.facts.norm(b))}")

    def require_nonnegative(self, p: Poly) -> None:
        """Require a polynomial not to be negative.

        Raises:
            ShapeMismatch: that is not proved.
        """
        if not self.facts.nonnegative(p):
            raise ShapeMismatch(f"{place_text(self.facts.norm(p))} ≥ 0")

    def broadcast_extent(self, a: Poly, b: Poly) -> Poly:
        """Return the extent that two broadcast to.

        Raises:
            ShapeMismatch: it is not proved that they broadcast.
        """
        if self.facts.equal(a, b) or self.facts.norm(b).number == 1:
            return a
        if self.facts.norm(a).number == 1:
            return b
        a, b = self.facts.norm(a), self.facts.norm(b)
        for narrow, wide in ((b, a), (a, b)):
            if self.facts.may_broadcast(narrow, wide):
                return wide
        extent = self.facts.join(a, b, assumed=False)
        if extent is None:
            raise ShapeMismatch(f"{place_text(a)} and {place_text(b)} broadcast")
        return extent

    def require_broadcast(self, a: Poly, b: Poly) -> None:
        """Require an extent to broadcast to another.

        Raises:
            ShapeMismatch: that is not proved.
        """
        a, b = self.facts.norm(a), self.facts.norm(b)
        if a.number != 1 and not self.facts.may_broadcast(a, b):
            self.require_equal(a, b)


@dataclass(frozen=True)
class Tensor:
    """Extents, and the element at an index; `flat` is the element at a row-major place."""

    shape: tuple[Poly, ...]
    at: Callable[[Index], Real]
    flat: Callable[[Poly], Real]


def variable(reals: Reals, name: str, shape: Sequence[Poly]) -> Tensor:
    """Return an operand of the rule as a tensor."""
    return Tensor(tuple(shape), lambda i: reals.read(name, place_of(i, shape)), lambda p: reals.read(name, p))


def tensor_by_index(t: Typing, shape: Sequence[Poly], at: Callable[[Index], Real]) -> Tensor:
    """Return a tensor that is read by index; a row-major place is delinearised."""
    return Tensor(tuple(shape), at, lambda p: at(t.facts.digits(p, shape)))


ARITHMETIC: dict[str, Callable[..., Real]] = {
    "add": lambda r, a, b: r.add(a, b),
    "sub": lambda r, a, b: r.add(a, r.scaled(b, -1)),
    "neg": lambda r, a: r.scaled(a, -1),
    "mul": lambda r, a, b: r.multiply(a, b),
    "real": lambda r, a: a,
}


def broadcast(t: Typing, shapes: Sequence[Sequence[Poly]]) -> list[Poly]:
    """Return the shape that shapes broadcast to, aligned at their last axes."""
    rank = max(map(len, shapes))
    padded = [[as_poly(1)] * (rank - len(s)) + list(s) for s in shapes]
    shape = padded[0]
    for extents in padded[1:]:
        shape = [t.broadcast_extent(a, b) for a, b in zip(shape, extents, strict=True)]
    return shape


def broadcast_read(t: Typing, x: Tensor, i: Index, shape: Sequence[Poly]) -> Real:
    """Return the element of a tensor at an index of the shape that it broadcasts to."""
    leading_axes = len(i) - len(x.shape)
    return x.at([t.facts.broadcast_index(p, wide, n) for p, wide, n in zip(i[leading_axes:], shape[leading_axes:], x.shape, strict=True)])


def axis_of(a: Attributes, x: Tensor) -> int:
    """Return the attribute `axis`.

    Raises:
        NotProved: it is no known number.
        ShapeMismatch: x has no such axis.
    """
    axis = a["axis"].number
    if axis is None:
        raise NotProved
    if not 0 <= axis < len(x.shape):
        raise ShapeMismatch
    return int(axis)


def padded_read(t: Typing, x: Tensor, i: Index, pads: Sequence[Poly], fill: Real) -> Real:
    """Return the element of x at an index of the padded tensor, or `fill` in its padding."""
    place = [p - pads[k] for k, p in enumerate(i)]
    padded_axes = [k for k in range(len(place)) if not (pads[k].number == 0 and pads[k + len(place)].number == 0)]
    conditions = [c for k in padded_axes for c in (place[k], x.shape[k] - 1 - place[k])]
    return t.reals.choose(conditions, x.at(place), fill) if conditions else x.at(place)


def integer_element(t: Typing, p: Poly) -> Real:
    """Return an integer as a real element."""
    n = t.facts.norm(p)
    if n.number is not None:
        return number(n.number)
    divisor = math.gcd(*(c for _, c in n.terms))
    return t.reals.scaled(t.reals.atom("integer", Poly(tuple((m, c // divisor) for m, c in n.terms))), divisor)


def mean_of(t: Typing, extents: Sequence[Poly], element: Callable[..., Real]) -> Real:
    """Return the mean of element(i, …) over ranges."""
    return t.reals.apply("rdiv", t.reals.total(extents, element), integer_element(t, product(extents)))


def windows(t: Typing, spatial: Sequence[Poly], kernel: Sequence[Poly], a: Attributes) -> list[Poly]:
    """Return the number of windows along each spatial axis.

    Raises:
        ShapeMismatch: ranks differ, a stride or dilation is less than 1, a pad is negative, or a window does not fit.
    """
    strides, pads, dilations = a["strides"], a["pads"], a["dilations"]
    rank = len(spatial)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ShapeMismatch
    for p in (*(s - 1 for s in strides), *(d - 1 for d in dilations), *pads):
        t.require_nonnegative(p)
    extents = []
    for k, n in enumerate(spatial):
        room = n + pads[k] + pads[k + rank] - dilations[k] * (kernel[k] - 1) - 1
        t.require_nonnegative(room)
        extents.append(t.facts.floor_quotient(room, strides[k]) + 1)
    return extents


def all_axis_pads(x: Tensor, pads: Sequence[Poly]) -> list[Poly]:
    """Return spatial pads as pads of all axes, with none on the first two."""
    none = [as_poly(0)] * 2
    half = len(pads) // 2
    return [*none, *pads[:half], *none, *pads[half:]]
