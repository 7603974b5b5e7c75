"""Terms of elements among which there is one of ones: a number times an element that is multiplied is a sum over its lanes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...lang import intervals as iv
from ...lang.intervals import Interval
from ...readings.arrays.labelled_array import Data
from ...readings.smt.polynomial_terms import Number, Term, Terms
from .lane_lifting import substituted

ONES = "ones"


class ElementTerms(Terms):
    """Terms of the design with one lane an element, each of which stands for an element of the one with several.

    A number in place of one factor of a product stands for an element that is this number in every lane. So the product of a number
    and of an element of an operand in `multiplied` is that number times Σ over the element's lanes: the product with an element of
    ones, whose interval is that of no lane.
    """

    def __init__(self, multiplied: Collection[str]) -> None:
        super().__init__(unbounded=True)
        self.multiplied = frozenset(multiplied)
        self.variables = set[int]()
        self.ones = Term(self, -1, "var", ONES, (), iv.EVERYTHING)

    def variable(self, name: str, interval: Interval) -> Number:
        """Return a variable with an interval."""
        t = super().variable(name, interval)
        if isinstance(t, Term) and _operand(name) in self.multiplied:
            self.variables.add(t.number)
        return t

    def product(self, a: Number, b: Number) -> Number:
        """Return a product."""
        for number, t in ((a, b), (b, a)):
            if not isinstance(number, Term) and isinstance(t, Term) and t.number in self.variables:
                return self.linear_combination([(int(number), self.over_lanes(t))])
        return super().product(a, b)

    def over_lanes(self, t: Term) -> Number:
        """Return an element's product with the element of ones; another variable unchanged."""
        return self.make("mul", None, (self.ones, t), iv.EVERYTHING) if t.number in self.variables else t


def _operand(name: str) -> str:
    """Return the name of the operand of which a variable is an element: `w_1_2` is one of w."""
    while name and name.rpartition("_")[2].isdigit():
        name = name.rpartition("_")[0]
    return name


@dataclass
class UnitDevice:
    """A streamed device on which parts hold sums over lanes: by the number of its event, the places of these parts are substituted."""

    device: Any
    terms: ElementTerms
    summed_parts: frozenset[int]
    events: int = 0

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words, those of a part of sums with the product with ones for each element."""
        if self.events in self.summed_parts:
            results = dict[int, Number]()
            substitutes = [substituted(self.terms, word, self.terms.over_lanes, results) for word in np.asarray(words, object).flat]
            words = np.array(substitutes, object).reshape(np.shape(words))
        self.events += 1
        self.device.place(memory, address, words)

    def attach(self, memory: str, words: int) -> None:
        """Attach an external memory."""
        self.events += 1
        self.device.attach(memory, words)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory."""
        self.events += 1
        return np.asarray(self.device.fetch(memory, address, count))

    def issue(self, instruction: str, **operands: int) -> None:
        """Append one instruction to the stream."""
        self.events += 1
        self.device.issue(instruction, **operands)

    def wait(self) -> None:
        """Run the stream."""
        self.events += 1
        self.device.wait()
