"""Traps of compiled code: why it stopped by itself, and the negative answer that says so."""

from __future__ import annotations

import enum

from ...errors import SpecError


class Trap(enum.StrEnum):
    """Why compiled code stopped by itself, as the sentence of the refusal."""

    OUTSIDE = "an index lies outside of its array"
    """An index is negative, or not less than the number of elements."""
    DIVISION = "division by zero"
    """A divisor is 0."""
    SHIFT = "a shift by a negative amount"
    """The amount of a shift is negative."""
    MEMORY = "there is no memory for a local array"
    """The allocation of a local array failed."""

    @property
    def answer(self) -> int:
        """What the code returns: −1, −2 …, in the order of the members."""
        return -1 - list(Trap).index(self)


def trap_refusal(answer: int) -> SpecError:
    """Return the refusal of a negative answer."""
    trap = list(Trap)[-1 - answer]
    return SpecError("I103" if trap is Trap.OUTSIDE else "I102", trap.value)
