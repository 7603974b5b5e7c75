"""Codes on which driver and numerics are compared: such that results do not saturate, the smallest, extreme ones, and halves.

A result that is the largest code hides what was computed. So the first codes are scaled until the numerics' own results are
seldom the largest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...lang.binders import Leaf
from ...lang.formats import IEEE, AdaptivFloat, Format
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.format_conversion import codes_of, values_of

MAX_EXTREME_CODES = 100_000  # codes of a size at which extreme and the smallest ones are tried, too
MOST_SATURATED = 0.1  # of the results, which may be ± the largest code
MOST_ZERO = 0.9
FACTORS = tuple(2.0**-n for n in range(2, 14))  # of an operand's own largest value, or of the smallest of these
STEP_APART = 4.0  # between factors of one operand's own, where no common one will do
ENUMERATED = 1 << 16  # codes of a format that are sorted by value
Codes = dict[str, Data]
Results = tuple[Data, ...]
Numerics = Callable[[Sequence[Codes]], Sequence[Results]]  # codes of the operands → codes of the results, for each draw


@dataclass(frozen=True)
class CodeDraws:
    """Draws of codes for the operands of one call, given what its numerics make of them."""

    leaves: Mapping[str, Leaf]
    formats: Mapping[str, Format]
    results: tuple[str, ...]
    numerics: Numerics
    seed: int

    def draws(self) -> Iterator[tuple[str, Codes, Results]]:
        """Yield codes with what they are and what the numerics make of them: scaled ones, then, where codes are few, others."""
        yield "", *self._scaled()
        others = list(self._unscaled())
        results = self.numerics([codes for _, codes in others]) if others else ()
        yield from ((name, codes, expected) for (name, codes), expected in zip(others, results, strict=True))

    def _unscaled(self) -> Iterator[tuple[str, Codes]]:
        """Yield, where codes are few, the smallest, extreme ones and halves."""
        shapes = self.shapes
        if sum(math.prod(shape) for shape in shapes.values()) > MAX_EXTREME_CODES:
            return
        random = np.random.default_rng(self.seed + 1)
        yield "smallest of ", {n: random.choice(_smallest(self.formats[n]), shape) for n, shape in shapes.items()}
        ends = {n: _ends(self.formats[n]) for n in shapes}
        yield "extremes of ", {n: random.choice(ends[n], shape) for n, shape in shapes.items()}
        for second_half in (False, True):
            codes = {n: np.full(shape, ends[n][1]) for n, shape in shapes.items()}
            first = next(iter(shapes))
            half = shapes[first][-1] // 2
            codes[first][..., slice(half, None) if second_half else slice(half)] = ends[first][0]
            yield "halves of ", codes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the operands."""
        return {n: tuple(int(s) for s in leaf.shape) for n, leaf in self.leaves.items()}  # type: ignore[arg-type]

    def scaled(self) -> Codes:
        """Return random codes of the largest magnitude at which few results saturate and some are not 0; else the best of them."""
        return self._scaled()[0]

    def _scaled(self) -> tuple[Codes, Results]:
        least = min((float(self.formats[n].largest) for n in self.leaves if _is_float(self.formats[n])), default=math.inf)
        for factor in FACTORS:
            for largest in dict.fromkeys((math.inf, least)):
                codes = self._random(dict.fromkeys(self.leaves, factor), largest)
                (results,) = self.numerics([codes])
                saturated, zero = self.shares(results)
                if saturated < MOST_SATURATED and (zero <= MOST_ZERO or (factor == FACTORS[0] and math.isinf(least))):
                    return codes, results  # of numbers with steps of one size, smaller ones than these give no fewer zeros
        return self._scaled_apart()

    def _scaled_apart(self) -> tuple[Codes, Results]:
        """Return codes for which each operand has a factor of its own: all grow in turn, for as long as few results saturate."""
        factors, growing = {n: _least_factor(self.formats[n]) for n in self.leaves}, list(self.leaves)
        codes = self._random(factors, math.inf)
        (results,) = self.numerics([codes])
        while growing:
            for n in list(growing):
                larger = {**factors, n: factors[n] * STEP_APART}
                larger_codes = self._random(larger, math.inf)
                (larger_results,) = self.numerics([larger_codes])
                if larger[n] > FACTORS[0] or self.shares(larger_results)[0] >= max(MOST_SATURATED, self.shares(results)[0]):
                    growing.remove(n)
                else:
                    factors, codes, results = larger, larger_codes, larger_results
        return codes, results

    def _random(self, factors: Mapping[str, float], largest: float) -> Codes:
        random = np.random.default_rng(self.seed)
        normal = {n: _deviations(random.standard_normal(shape)) for n, shape in self.shapes.items()}
        return {n: _normal(self.formats[n], normal[n], factors[n], largest) for n in self.shapes}

    def shares(self, results: Results) -> tuple[float, float]:
        """Return which share of results is ± the largest value of its format, and which is 0."""
        saturated = zero = count = 0
        for name, result in zip(self.results, results, strict=True):
            f = self.formats[name]
            values = values_of(f, np.asarray(result))
            saturated += int(np.count_nonzero(np.abs(values) >= float(f.largest)))
            zero += int(np.count_nonzero(values == 0))
            count += values.size
        return saturated / max(count, 1), zero / max(count, 1)


def _is_float(f: Format) -> bool:
    return isinstance(f, AdaptivFloat | IEEE)


def _least_factor(f: Format) -> float:
    """Return the smallest power of the step at which codes of a format deviate by one or more; that of floats is the smallest of all."""
    low, high = _ends(f)
    return FACTORS[0] * STEP_APART ** -(5 if _is_float(f) else int(math.log((high - low) * FACTORS[0] / 2, STEP_APART)))


def _ends(f: Format) -> tuple[int, int]:
    return int(f.codes[0] or 0), int(f.codes[1] or 0)


def _deviations(normal: Data) -> Data:
    """Return random numbers, scaled such that the largest deviates by 1 or more: one or two of them may all be near 0."""
    largest = float(np.max(np.abs(normal), initial=0.0))
    return normal if largest >= 1.0 or not largest else normal / largest


def _normal(f: Format, normal: Data, factor: float, largest: float) -> Data:
    """Return codes around the middle of a format, whose deviation is a part of its largest value."""
    low, high = _ends(f)
    if _is_float(f):
        return np.asarray(codes_of(f, normal * factor * min(float(f.largest), largest)), np.int64)
    middle = (low + high + 1) // 2
    return np.asarray(np.clip(np.rint(middle + normal * factor * (high - low) / 2), low, high), np.int64)


def _smallest(f: Format) -> Data:
    """Return the codes of 0 and of the least values of both signs."""
    low, high = _ends(f)
    if not _is_float(f) or high - low >= ENUMERATED:
        return np.array(sorted({max(low, -1), 0, min(high, 1)}))
    codes = np.arange(low, high + 1)
    sizes = np.abs(values_of(f, codes))
    return np.asarray(codes[sizes <= np.unique(sizes[np.isfinite(sizes)])[1]])
