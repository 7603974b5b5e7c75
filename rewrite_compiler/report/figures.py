"""Numbers as text, with as many decimals as their confidence interval supports."""

from __future__ import annotations

import math
from collections.abc import Sequence

DIGITS = 4  # of a figure that has no interval
SLACK = 1e-9  # in units of the last decimal: a round number but for its last bits stays this number


def number(x: float | None, *, signed: bool = False) -> str:
    """Return a number to four significant digits, a dash for None."""
    if x is None:
        return "–"
    return f"{x:{'+' if signed else ''}.{DIGITS}g}"


def interval_text(ends: Sequence[float]) -> str:
    """Return an interval as text, its ends rounded outwards to two digits of its width."""
    return " … ".join(round_outwards(ends, signed=True))


def round_outwards(ends: Sequence[float], *, signed: bool = False) -> tuple[str, str]:
    """Return the ends of an interval, rounded outwards to two digits of its width."""
    places = decimals(ends)
    if places is None:
        return number(ends[0], signed=signed), number(ends[1], signed=signed)
    unit, sign = 10.0**places, "+" if signed else ""
    low, high = math.floor(ends[0] * unit + SLACK) / unit, math.ceil(ends[1] * unit - SLACK) / unit
    return f"{low + 0.0:{sign}.{places}f}", f"{high + 0.0:{sign}.{places}f}"


def difference_text(difference: float, ends: Sequence[float] | None) -> str:
    """Return a difference with the decimals of its interval, to four significant digits without one; a difference of 0 is +0."""
    places = None if ends is None else decimals(ends)
    return number(difference, signed=True) if places is None or not difference else f"{difference:+.{places}f}"


def decimals(ends: Sequence[float]) -> int | None:
    """Return the number of decimals that show two digits of an interval's width; None for a width of 0 or infinity."""
    width = abs(ends[1] - ends[0])
    return max(0, 1 - math.floor(math.log10(width))) if 0 < width < math.inf else None


def rounding_text(ulp: float, share: float, ratio: float | None) -> str:
    """Return what was measured of rounding in words; the ratio is of rules of grade A or F."""
    share_text = f", {share:.2g} of what rounding can do" if ulp else ""
    ratio_text = "" if ratio is None else f", error bounds within {ratio:.3g}×"
    return f"{ulp:,.4g} ulp{share_text}{ratio_text}"
