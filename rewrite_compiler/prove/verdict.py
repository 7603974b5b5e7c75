"""Verdicts on rules: proved, refuted with a counterexample, or unproved with the reason."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import Problem


class Outcome(enum.StrEnum):
    """How a judgement ends."""

    PROVED = "proved"
    """Both sides are equal wherever the certificate says: the rule or operation may be used without trust."""
    REFUTED = "refuted"
    """A counterexample, or a claim such as the grade that does not hold."""
    UNPROVED = "unproved"
    """Neither: the evidence says where the proof stops."""


PROVED, REFUTED, UNPROVED = Outcome


@dataclass(frozen=True)
class Counterexample:
    """Operands and attributes for which the sides differ, the place of the difference and both values there.

    `sides` names them: of a rule left and right, of an operation its driver and its numerics.
    """

    operands: Mapping[str, Any]
    attributes: Mapping[str, Any]
    place: tuple[int, ...] | None
    left: str
    right: str
    sides: tuple[str, str] = ("left", "right")

    def __str__(self) -> str:
        inputs = ", ".join(f"{name} = {value}" for name, value in {**self.operands, **self.attributes}.items())
        place_text = f" at {list(self.place)}" if self.place else ""
        left, right = self.sides
        return f"{left} {self.left}, {right} {self.right}{place_text}, with {inputs}"


@dataclass(frozen=True)
class RoundingMeasurement:
    """Rounding measured in one element type, over random samples.

    `ulp` is the largest difference of the sides in units in the last place, `share` the largest one as a share of the running error
    bound. `ratio` of a rule of grade A or F is how many times the error bound of one side may be that of the other: in all but 5 % of
    the samples of each kind of draw it is not more.
    """

    dtype: str
    samples: int
    ulp: float
    share: float
    ratio: float | None = None

    def __str__(self) -> str:
        ratio_text = "" if self.ratio is None else f", error bounds within {self.ratio:.3g} times each other"
        return f"{self.dtype}: {self.ulp:g} ulp, {self.share:.2g} of what rounding can do{ratio_text}, in {self.samples:,} samples"


@dataclass(frozen=True)
class Theorem:
    """What an engine proves of a rule: both sides are equal at all extents and attributes, for operands up to a rank (None: any)."""

    engine: str
    ranks: int | None
    forms: int = 0  # of ranks, permutations and cases

    def __str__(self) -> str:
        if self.ranks is None:
            return "all shapes: every extent and attribute, every rank"
        return f"all shapes: every extent and attribute, ranks 0…{self.ranks}, {self.forms} form{'s' * (self.forms != 1)}"


@dataclass(frozen=True)
class Stop:
    """Where an engine that did not prove a rule stopped, and why."""

    engine: str
    reason: str
    numbers: Mapping[str, float] | None = None  # operands and float attributes at which the sides may differ

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"


@dataclass(frozen=True)
class Proof:
    """The certificate of a rule, or why there is none."""

    name: str
    at: str
    verdict: Outcome
    strength: str
    evidence: str
    grade: str
    counterexample: Counterexample | None = None
    code: str = ""
    seconds: float = field(default=0.0, compare=False)
    suggestion: str = ""  # a condition under which a rule that is not proved would be
    ranks: int | None = None  # the largest rank of an operand that a proved rule is proved for, None: every rank
    measured: tuple[RoundingMeasurement, ...] = ()  # how the sides of a proved rule agree in floating point, by element type
    kept: str = field(default="", compare=False)  # the day on which it was judged, of a verdict from the cache
    left_out: str = ""  # the smallest instance that the suggestion leaves out of a rule that no engine decides

    @property
    def is_proved(self) -> bool:
        """Tell whether the rule may be used without trust."""
        return self.verdict == PROVED

    @property
    def problem(self) -> Problem | None:
        """The refusal to print, None when the rule is proved."""
        if self.is_proved:
            return None
        sentence = f"rule {self.name} is {'false' if self.verdict == REFUTED else 'not proved'}: {self.evidence}"
        if self.counterexample is not None:
            sentence += f"; {self.counterexample}"
        remedy = "simplify the rule or narrow its guard"
        if self.verdict == REFUTED:
            remedy = "correct the side that is wrong, or add a guard that such operands do not meet"
        if self.suggestion:
            remedy = f"it is proved under the guard {self.suggestion}{f', which leaves out {self.left_out}' if self.left_out else ''}"
        return Problem(self.code, sentence, self.at, remedy)
