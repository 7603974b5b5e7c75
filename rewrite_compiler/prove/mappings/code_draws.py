"""Codes on which driver and numerics are compared: such that results do not saturate, the smallest, extreme ones, and halves.

A result that is the largest code hides what was computed. So the first codes are scaled until the numerics' own results are
seldom the largest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
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
ENUMERATED = 1 << 16  # codes of a format that are sorted by value
Numerics = Callable[[Mapping[str, Data]], tuple[Data, ...]]  # codes of the operands → codes of the results


@dataclass(frozen=True)
class CodeDraws:
    """Draws of codes for the operands of one call, given what its numerics make of them."""

    leaves: Mapping[str, Leaf]
    formats: Mapping[str, Format]
    results: tuple[str, ...]
    numerics: Numerics
    seed: int

    def draws(self) -> Iterator[tuple[str, dict[str, Data]]]:
        """Yield codes with what they are: scaled ones, then, where codes are few, the smallest, extreme ones and halves."""
        yield "", self.scaled()
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

    def scaled(self) -> dict[str, Data]:
        """Return random codes of the largest magnitude at which few results saturate and some are not 0; else the best of them."""
        best: tuple[float, dict[str, Data]] | None = None
        least = min((float(self.formats[n].largest) for n in self.leaves if _is_float(self.formats[n])), default=math.inf)
        for factor in FACTORS:
            for largest in (math.inf, least):
                codes = self._random(factor, largest)
                saturated, zero = self.shares(codes)
                if saturated < MOST_SATURATED and zero <= MOST_ZERO:
                    return codes
                if best is None or saturated + (zero > MOST_ZERO) < best[0]:
                    best = saturated + (zero > MOST_ZERO), codes
                if least == math.inf:
                    break
        assert best is not None
        return best[1]

    def _random(self, factor: float, largest: float) -> dict[str, Data]:
        random = np.random.default_rng(self.seed)
        return {n: _normal(self.formats[n], random.standard_normal(shape), factor, largest) for n, shape in self.shapes.items()}

    def shares(self, codes: Mapping[str, Data]) -> tuple[float, float]:
        """Return which share of the results is ± the largest value of its format, and which is 0."""
        saturated = zero = count = 0
        for name, result in zip(self.results, self.numerics(codes), strict=True):
            f = self.formats[name]
            values = values_of(f, np.asarray(result))
            saturated += int(np.count_nonzero(np.abs(values) >= float(f.largest)))
            zero += int(np.count_nonzero(values == 0))
            count += values.size
        return saturated / max(count, 1), zero / max(count, 1)


def _is_float(f: Format) -> bool:
    return isinstance(f, AdaptivFloat | IEEE)


def _ends(f: Format) -> tuple[int, int]:
    return int(f.codes[0] or 0), int(f.codes[1] or 0)


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
