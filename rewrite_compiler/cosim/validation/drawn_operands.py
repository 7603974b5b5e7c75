"""Drawn operands: values of every magnitude and the ends of a format, at every element, which data of an application may never have.

Images are dark at their edges, and sums of them seldom meet a bound exactly: a wrong bound or a wrong comparison is not seen there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...compile.host.data_movement import PendingMove
from ...compile.host.lazy_codes import Operand, elements_of
from ...ir.program import Data
from ...lang.formats import Format
from ...readings.kernels.format_conversion import values_of

SHARES = (0.2, 0.4)  # of the ends and of zero with its neighbours, and of uniform codes; other codes are of any magnitude


def with_drawn_sample(x: Operand, n: int, f: Format, random: np.random.Generator) -> Operand:
    """Return an operand [samples, …] in which sample `n` is drawn; of a moved one its root is."""
    if isinstance(x, PendingMove):
        return replace(x, root=_drawn(x.root, n, f, random))
    return _drawn(elements_of(x), n, f, random)


def _drawn(data: Data, n: int, f: Format, random: np.random.Generator) -> Data:
    values = np.array(data)
    low, high = f.codes
    if data.dtype.kind != "f":  # a model's own integers, which may be indices: within the range of the sample
        values[n] = drawn_codes(int(data[n].min(initial=0)), int(data[n].max(initial=0)), data[n].shape, random)
    elif low is not None and high is not None:
        decoded = values_of(f, drawn_codes(low, high, data[n].shape, random))
        values[n] = np.where(np.isfinite(decoded), decoded, 0)
    return values


def drawn_codes(low: int, high: int, shape: tuple[int, ...], random: np.random.Generator) -> Data:
    """Return integers of low … high: the ends, 0 and their neighbours, uniform ones, and ones whose magnitude is uniform in bits."""
    ends = np.clip([low, low + 1, -1, 0, 1, high - 1, high], low, high)
    bits = max(abs(low), abs(high)).bit_length()
    sizes = np.exp2(random.uniform(0, bits, shape)).astype(np.int64)
    spread = np.clip(np.where(random.random(shape) < 0.5, sizes, -sizes), low, high)
    kind = random.random(shape)
    codes = np.where(kind < SHARES[1], random.integers(low, high, shape, endpoint=True), spread)
    return np.where(kind < SHARES[0], random.choice(ends, shape), codes)
