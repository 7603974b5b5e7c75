"""Float32 exactness analysis: which 64-bit floats of straight-line code float32 holds exactly, so that machine code may use it.

An operator is exact in both where its result is a float32 for all operands: codes of few bits times a power of two, extrema,
floats that are loaded or rounded. A product that overflows float32 is infinite there; a clamp that follows gives both the
same limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .code import REAL, Code, Op

LARGEST, LEAST, BITS = (
    float(np.finfo(np.float32).max),
    -149,
    24,
)  # the largest float32, the exponent of the least subnormal, bits of the significand
LIMITS = ("min", "max")
NARROW = frozenset(("i1", "i2", "u1", "u2"))


@dataclass(frozen=True)
class _Reach:
    """The range of a value, and the exponent of a power of two that divides it."""

    low: float
    high: float
    exponent: float

    @property
    def is_finite(self) -> bool:
        return max(abs(self.low), abs(self.high)) <= LARGEST


def single_precision_operators(code: Code, kinds: Sequence[str], tables: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the operators that float32 computes exactly; `kinds` and `tables` are the numpy types of what is read."""
    users: list[list[int]] = [[] for _ in code]
    for n, op in enumerate(code):
        for a in op.args:
            users[a].append(n)
    rejected: set[int] = set()
    while True:
        reach = _reaches(code, kinds, tables, users, rejected)
        unbounded = {n for n, r in reach.items() if not r.is_finite and not all(code[u].name in LIMITS and u in reach for u in users[n])}
        if not unbounded:
            return frozenset(reach)
        rejected |= unbounded


def _reaches(
    code: Code, kinds: Sequence[str], tables: Sequence[str], users: Sequence[Sequence[int]], rejected: set[int]
) -> dict[int, _Reach]:  # fmt: skip
    reaches: dict[int, _Reach] = {}
    for n, op in enumerate(code):
        r = None if n in rejected else _reach(op, code, kinds, tables, reaches)
        if r is None and op.name in ("add", "sub") and op.width == REAL and n not in rejected:
            r = _sum(op, reaches) if users[n] and all(code[u].name == "single" for u in users[n]) else None
        if r is not None:
            reaches[n] = r
    return reaches


def _reach(op: Op, code: Code, kinds: Sequence[str], tables: Sequence[str], reaches: dict[int, _Reach]) -> _Reach | None:
    """Return the reach of an operator that is exact in float32; None where it may not be."""
    operands = [reaches.get(a) for a in op.args]
    if op.name == "array":
        return _Reach(-LARGEST, LARGEST, LEAST) if op.bits == REAL and kinds[op.data[0]][1:] == "f4" else None
    if op.name == "table":
        return _Reach(-LARGEST, LARGEST, LEAST) if op.bits == REAL and tables[op.data][1:] == "f4" else None
    if op.name == "const" and op.bits == REAL:
        return _Reach(op.data, op.data, _exponent(op.data)) if float(np.float32(op.data)) == op.data else None
    if op.name == "single":
        return operands[0] or _Reach(-LARGEST, LARGEST, LEAST)
    if op.name == "real":
        return _integer(code[op.args[0]], kinds)
    operands = operands[1:] if op.name == "select" else operands
    if op.width != REAL or None in operands:
        return None
    operand_reaches = [r for r in operands if r is not None]
    return _REACH[op.name](op, code, operand_reaches) if op.name in _REACH else None


def _exponent(number: float) -> float:
    """Return the exponent of the largest power of two that a number is a multiple of."""
    top, bottom = number.as_integer_ratio()
    return (top & -top).bit_length() - bottom.bit_length() if top else math.inf


def _integer(op: Op, kinds: Sequence[str]) -> _Reach | None:
    """Return the reach of an integer that is read, or wrapped to a few bits."""
    if op.name == "array" and kinds[op.data[0]][1:] in NARROW:
        ends = np.iinfo(np.dtype(kinds[op.data[0]]))
        return _Reach(float(ends.min), float(ends.max), 0)
    if op.name == "wrap" and op.data[0] <= BITS:
        return _Reach(-float(1 << op.data[0]), float(1 << op.data[0]), 0)
    return None


def _product(op: Op, code: Code, operands: Sequence[_Reach]) -> _Reach | None:
    """Return the reach of a value times a power of two."""
    constants = [n for n, a in enumerate(op.args) if code[a].name == "const"]
    if len(constants) != 1:
        return None
    number, x = float(code[op.args[constants[0]]].data), operands[1 - constants[0]]
    mantissa, power = math.frexp(number)
    if mantissa != 0.5 or x.exponent + power - 1 < LEAST:
        return None
    return _Reach(x.low * number, x.high * number, x.exponent + power - 1)


def _limit(op: Op, code: Code, operands: Sequence[_Reach]) -> _Reach:
    a, b = operands
    choose = min if op.name == "min" else max
    return _Reach(choose(a.low, b.low), choose(a.high, b.high), min(a.exponent, b.exponent))


def _choice(op: Op, code: Code, operands: Sequence[_Reach]) -> _Reach:
    a, b = operands
    return _Reach(min(a.low, b.low), max(a.high, b.high), min(a.exponent, b.exponent))


def _sum(op: Op, reaches: dict[int, _Reach]) -> _Reach | None:
    """Return the reach of a sum that is rounded at once: rounding to 64 bits before changes nothing."""
    return _Reach(-LARGEST, LARGEST, LEAST) if all(a in reaches for a in op.args) else None


_REACH = {
    "mul": _product,
    "min": _limit,
    "max": _limit,
    "neg": lambda op, code, operands: _Reach(-operands[0].high, -operands[0].low, operands[0].exponent),
    "select": _choice,
}
