"""Scalar terms, and questions on them that are not decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Side = str | float  # the name of a float attribute, or a number
Comparison = tuple[Side, str, Side]  # of kind eq, ne, lt or le
ATTRIBUTE = -1  # the place of a leaf that is a float attribute and no element of an operand


class Undecided(Exception):
    """A question that z3 does not decide, or an operator that is not interpreted; the message says which."""


class Scalar(Protocol):
    """One scalar term: an operator on others; a leaf's data are its name and place."""

    @property
    def op(self) -> str:
        """The operator."""

    @property
    def data(self) -> Any:
        """The operator's attributes."""

    @property
    def args(self) -> Sequence[Scalar]:
        """The operands."""


class Translation:
    """Translates scalars to terms of z3, each once."""

    def __init__(self) -> None:
        self.translated: dict[Scalar, Any] = {}

    def of(self, x: Scalar) -> Any:
        """Return the term of a scalar; KeyError where it is an operator without one."""
        if x not in self.translated:
            self.translated[x] = self.translate(x)
        return self.translated[x]

    def translate(self, x: Scalar) -> Any:
        """Return the term of a scalar whose operands may have been translated."""
        raise NotImplementedError
