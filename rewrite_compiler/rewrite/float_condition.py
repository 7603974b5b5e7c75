"""Conditions of a grade: bounds of float32 operands outside of which the sides of a rule may have other bits.

`grade E if abs(x) < 2^126` claims equal bits on data within the bounds only. They are no guard: real numbers satisfy the law
everywhere, so it matches anywhere, and what a plan rests on is said when the plan is checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SpecError

Data = np.ndarray[Any, Any]
_LIMIT = r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?:\s*(?:\^|\*\*)\s*-?\d+)?"
_OPERAND = r"(?:abs\(\s*(?P<magnitude>[A-Za-z_]\w*)\s*\)|(?P<name>[A-Za-z_]\w*))"
_BOUND = re.compile(rf"\s*{_OPERAND}\s*(?P<sign><=|>=|<|>)\s*(?P<limit>{_LIMIT})\s*")


@dataclass(frozen=True)
class OperandBound:
    """Every element of an operand, or its magnitude, is less than (<), at most (<=), more than (>) or at least (>=) a number."""

    name: str
    is_magnitude: bool
    sign: str
    limit: float

    def __str__(self) -> str:
        operand = f"abs({self.name})" if self.is_magnitude else self.name
        return f"{operand} {self.sign} {_number_text(self.limit)}"

    def holds(self, x: Any) -> Any:
        """Tell of each number whether it is within the bound; not-a-number never is."""
        size = np.abs(x) if self.is_magnitude else x
        return {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[self.sign](size, self.limit)


def graded(text: str) -> tuple[str, tuple[OperandBound, ...]]:
    """Return a grade and the bounds of its condition from their text, `E if abs(x) < 2^126 and y >= 0`.

    Raises:
        SpecError: the condition has another form, or a limit is no float32 number.
    """
    grade, condition_word, condition = f"{text} ".partition(" if ")
    return grade.strip(), tuple(_bound(part) for part in condition.split(" and ")) if condition_word else ()


def grade_text(grade: str, bounds: Sequence[OperandBound]) -> str:
    """Return a grade with its condition as text."""
    return f"{grade} if {' and '.join(map(str, bounds))}" if bounds else grade


def within(operands: Mapping[str, Data], bounds: Sequence[OperandBound]) -> dict[str, Data]:
    """Return operands by name with elements that are outside of a bound replaced by a number within all bounds."""
    return {name: _within(x, [b for b in bounds if b.name == name]) for name, x in operands.items()}


def _within(x: Data, bounds: Sequence[OperandBound]) -> Data:
    if not bounds:
        return x
    is_inside = np.logical_and.reduce([b.holds(x) for b in bounds])
    return np.where(is_inside, x, np.asarray(_inner_number(bounds)).astype(x.dtype))


def check_bounds(grade: str, bounds: Sequence[OperandBound], operands: Sequence[str]) -> None:
    """Check the condition of a grade: it is one of E or Z, its names are operands, and some number satisfies it.

    Raises:
        SpecError: one of these does not hold.
    """
    if bounds and grade not in ("E", "Z"):
        raise SpecError("R101", f"a condition must stand at grade E or Z, whose bits it is about, not {grade}", help="leave it out")
    for b in bounds:
        if b.name not in operands:
            raise SpecError(
                "R101", f'the condition of the grade must name operands of the rule ({", ".join(operands)}), not "{b.name}"',
                help="compare an operand, or its magnitude, with a number: abs(x) < 2^126",
            )  # fmt: skip
        same = [c for c in bounds if c.name == b.name]
        if _inner_number(same) is None:
            raise SpecError(
                "R101", f"the condition of the grade contradicts itself: no {b.name} satisfies {' and '.join(map(str, same))}",
                help="leave out one of the bounds",
            )  # fmt: skip


def _inner_number(bounds: Sequence[OperandBound]) -> float | None:
    """Return a float32 number within all bounds of one operand, the plainest of some; None where there is none."""
    limits = {0.0, 1.0, -1.0}
    for b in bounds:
        neighbours = [np.nextafter(np.float32(b.limit), np.float32(end)) for end in (-math.inf, math.inf)]
        limits |= {sign * float(n) for n in (b.limit, *neighbours) for sign in (1, -1)}
    inside = [n for n in sorted(limits, key=lambda n: (abs(n), n)) if math.isfinite(n) and all(b.holds(n) for b in bounds)]
    return inside[0] if inside else None


def _bound(text: str) -> OperandBound:
    match = _BOUND.fullmatch(text)
    if match is None:
        raise SpecError(
            "R101", f'the condition of a grade must compare operands with numbers, not be "{text.strip()}"',
            help="write it as abs(x) < 2^126, several joined by and",
        )  # fmt: skip
    base, _, exponent = match["limit"].replace("**", "^").partition("^")
    try:
        limit = float(base) ** int(exponent) if exponent else float(base)
    except (OverflowError, ZeroDivisionError):
        limit = math.inf
    with np.errstate(over="ignore"):
        is_single = math.isfinite(limit) and float(np.float32(limit)) == limit
    if not is_single:
        raise SpecError(
            "R101", f"a bound of a grade must be a float32 number, not {match['limit']}", help="take the next one, such as 2^-3"
        )
    return OperandBound(match["magnitude"] or match["name"], match["magnitude"] is not None, match["sign"], limit)


def _number_text(n: float) -> str:
    mantissa, exponent = math.frexp(n)
    if mantissa == 0.5 and not -4 <= exponent - 1 <= 10:
        return f"2^{exponent - 1}"
    return repr(int(n)) if n == int(n) and abs(n) < 1e6 else repr(n)
