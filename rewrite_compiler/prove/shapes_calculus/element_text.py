"""Elements and places as text, for the sentence that says where a proof stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from .polynomials import REMAINDER, Poly, as_poly, key_of
from .real_elements import Real

LONGEST = 70  # characters
OPEN = "…"
DIVISIONS = {"div": "//", "quotient": "//", REMAINDER: "%"}
ATOMS: dict[str, Callable[..., str]] = {
    "extent": lambda name, axis: f"{name}.shape[{axis}]",
    "i": lambda axis, digit, *_: f"i{axis}" + "'" * digit,
    "bound": lambda _, n: f"k{n}",
    "v": lambda n: f"k{n}",
}


def element_text(x: Real) -> str:
    """Return an element as text, cut where it is long."""
    return _cut(_element(x.terms.items()))


def place_text(p: Poly) -> str:
    """Return a place or an extent as text, cut where it is long."""
    return _cut(_polynomial(p))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + OPEN


def _polynomial(p: Poly | int) -> str:
    return _sum((tuple(map(_integer, m)), Fraction(c)) for m, c in as_poly(p).terms)


def _sum(terms: Iterable[tuple[tuple[str, ...], Fraction]]) -> str:
    text = ""
    for factors, c in terms:
        size = "" if abs(c) == 1 and factors else str(abs(c))
        sign = ("−" if c < 0 else "") if not text else " − " if c < 0 else " + "
        text += sign + "·".join(filter(None, (size, *factors)))
    return text or "0"


def _integer(n: int) -> str:
    kind, *parts = key_of(n)
    if kind in DIVISIONS:
        return f"({_polynomial(parts[0])} {DIVISIONS[kind]} {_polynomial(parts[1])})"
    if kind == "attribute":
        return str(parts[0]) + "".join(f"[{part}]" for part in parts[3:] if isinstance(part, int))
    return ATOMS[kind](*parts) if kind in ATOMS else OPEN


def _element(terms: Iterable[Any]) -> str:
    parts = []
    for (conditions, atoms), c in terms:
        where = " and ".join(f"{_polynomial(p)} ≥ 0" for p in conditions)
        factors = tuple(_atom(key_of(a)) for a in atoms)
        parts.append(((*factors, f"[{where}]") if where else factors, c))
    return _sum(parts)


def _atom(key: Any) -> str:
    kind, *parts = key
    if kind == "read":
        return f"{parts[0]}[{_polynomial(parts[1])}]"
    if kind == "float":
        return str(parts[0])
    if kind == "integer":
        return f"({_polynomial(parts[0])})"
    if kind == "call":
        return f"{str(parts[0]).removeprefix('call ')}({', '.join(map(_element, parts[1:]))})"
    if kind in ("max", "min") and parts[0] == "of":
        return f"{kind}({', '.join(sorted(map(_element, parts[1])))})"
    return f"{kind}({OPEN})"
