"""The bound on a metric's loss, as users write it: `1pt` (percentage points), `5%` (of the reference), `0.02`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...errors import UsageError

FORM = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(pt|%|)")


@dataclass(frozen=True)
class Band:
    """An allowed loss: an absolute amount, or a share of the reference's value."""

    text: str
    amount: float
    is_relative: bool = False

    def allowed(self, reference: float) -> float:
        """Return the allowed loss for this value of the reference."""
        return self.amount * abs(reference) if self.is_relative else self.amount

    def holds(self, loss: float, reference: float) -> bool:
        """Tell whether a loss is within the bound, up to the rounding of the difference itself."""
        return loss <= self.allowed(reference) or math.isclose(loss, self.allowed(reference), rel_tol=1e-12)


def band_of(text: str) -> Band:
    """Parse a bound.

    Raises:
        UsageError: F203, the text is no bound.
    """
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError("F203", f'--within must be a loss such as 1pt, 5% or 0.02, not "{text}"')
    amount, unit = float(match[1]), match[2]
    return Band(text, amount / 100 if unit else amount, unit == "%")
