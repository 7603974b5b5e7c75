"""Results that nobody has looked at yet: codes as an offload left them, and limits of their values; floats whose ends are known.

Between two offloads nobody may ever need the floats: what clamps do to a value, and what the next offload encodes it as, is one
function of its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from ...ir.program import Data
from ...lang.formats import Fixed, Format
from ...readings.arrays.buffer_pool import laid_out
from ...readings.arrays.labelled_array import storage_dtype
from ...readings.kernels.format_conversion import decoder, encoder
from ...readings.kernels.layout_conversion import Conversion, is_worth_it, then
from ...readings.straightline.code import REAL, Op

Ends = tuple[float, float]
Limit = tuple[str, float]  # "max" or "min", and its number
SINGLE = np.dtype(np.float32)


def hull_of(ends: Iterable[Ends]) -> Ends:
    """Return the ends of all that lies between some."""
    low, high = np.inf, -np.inf
    for a, b in ends:
        low, high = min(low, a), max(high, b)
    return low, high


class Lazy(Protocol):
    """A value that nobody has looked at yet."""

    @property
    def data(self) -> Data:
        """Its elements [samples, …]."""


Operand = Data | Lazy


def looked_at(x: Operand) -> Data:
    """Return the elements of a value."""
    return x if isinstance(x, np.ndarray) else x.data


@dataclass(frozen=True, eq=False)
class Ended:
    """Floats whose least and largest element are known."""

    data: Data
    ends: Ends


@dataclass(frozen=True, eq=False)
class Coded:
    """Codes of a format [samples, …], the ends of their values behind the limits, and the limits."""

    codes: Data
    format: Fixed
    ends: Ends
    limits: tuple[Limit, ...] = ()

    @cached_property
    def data(self) -> Data:
        """The values, axes in the order in which they lie."""
        out = laid_out(self.codes.shape, self.codes.strides, SINGLE)
        conversion = decoded(self.format, self.limits)
        assert conversion is not None
        conversion(out, self.codes)
        return out

    def limited(self, *limits: Limit) -> Coded:
        """Return these values behind more limits."""
        low, high = self.ends
        for kind, number in limits:
            choose: Callable[..., float] = max if kind == "max" else min
            low, high = choose(low, number), choose(high, number)
        return replace(self, ends=(low, high), limits=(*self.limits, *limits))

    def encoded(self, f: Format, part: Callable[[Data], Data], target: Data, after: Conversion | None) -> bool:
        """Set an array of codes to those of a part of the values; False where the values have to be asked."""
        conversion = recoded(self.format, self.limits, f, after)
        codes = part(self.codes)
        if conversion is None or not is_worth_it(codes, target):
            return False
        conversion(target, codes)
        return True


def is_coded(f: Format) -> bool:
    """Tell whether values of a format are kept as codes: as many bits as words have, few enough for exact floats."""
    return isinstance(f, Fixed) and f.width in (8, 16) and decoded(f, ()) is not None


@lru_cache(maxsize=256)
def decoded(f: Format, limits: tuple[Limit, ...]) -> Conversion | None:
    """Return code from codes to limited values."""
    found = decoder(f)
    for limit in limits:
        found = None if found is None else then(found, SINGLE, limiting(*limit))
    return found


@lru_cache(maxsize=256)
def recoded(f: Format, limits: tuple[Limit, ...], other: Format, after: Conversion | None) -> Conversion | None:
    """Return code from codes of one format to codes of another, of values that are limited between; then `after`."""
    first, last = decoded(f, limits), encoder(other, SINGLE)
    if first is None or last is None:
        return None
    found = then(first, SINGLE, last)
    return found if after is None else then(found, storage_dtype(other.codes), after)


@lru_cache(maxsize=256)
def limiting(kind: str, number: float) -> Conversion:
    """Return code that limits a float as numpy does: what is not a number stays, of equal ones it is the limit."""
    ops: tuple[Any, ...] = (Op("array", (), (0, 0), REAL), Op("const", (), number, REAL, REAL))
    order = (0, 1) if kind == "max" else (1, 0)
    return Conversion((*ops, Op("le", order, None, 32, REAL), Op("select", (2, 1, 0), None, REAL, REAL)))
