"""The refusal of integer terms whose interval exceeds the one that must hold them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..errors import SpecError
from .expr import Expr
from .intervals import Interval


class OutOfRange(SpecError):
    """Integer terms may leave the interval `wanted`; a caller that can evaluate them adds values at which they do."""

    def __init__(self, sentence: str, terms: tuple[Expr, ...], required: Interval, *, place: str = "", help: str = "") -> None:
        super().__init__("I102", sentence, place=place, help=help)
        self.terms, self.required = terms, required

    def __reduce__(self) -> tuple[Callable[[], SpecError], tuple[()]]:
        p = self.problem
        return partial(SpecError, p.code, p.sentence, place=p.place, help=p.help), ()

    def at(self, place: str) -> SpecError:
        """Return the same refusal at `place`, unless it already has one."""
        p = self.problem
        return self if p.place else OutOfRange(p.sentence, self.terms, self.required, place=place, help=p.help)
