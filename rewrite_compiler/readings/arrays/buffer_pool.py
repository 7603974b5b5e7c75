"""Recycled: large arrays whose memory is used again once nobody holds them; memory that is new costs more than writing it."""

from __future__ import annotations

import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .labelled_array import Data

LEAST, MOST = 1 << 16, 64  # bytes of an array; arrays that a thread keeps
UNUSED = 2  # references to an array that only its list and the question hold
_of_thread = threading.local()


def recycled(shape: Sequence[int], kind: Any) -> Data:
    """Return an array whose contents are not set."""
    kind = np.dtype(kind)
    size = math.prod(shape) * kind.itemsize
    if size < LEAST:
        return np.empty(tuple(shape), kind)
    kept: OrderedDict[int, list[Data]] = _of_thread.__dict__.setdefault("kept", OrderedDict())
    alike = kept.setdefault(size, [])
    kept.move_to_end(size)
    free = next((n for n in range(len(alike)) if sys.getrefcount(alike[n]) <= UNUSED), None)
    block = np.empty(size, np.uint8) if free is None else alike.pop(free)
    alike.append(block)
    if free is None and sum(map(len, kept.values())) > MOST:
        oldest = next(iter(kept.values()))
        oldest.pop(0)
        if not oldest:
            kept.popitem(last=False)
    found: Data = block.view(kind).reshape(tuple(shape))
    return found


def laid_out(shape: Sequence[int], strides: Sequence[int], kind: Any) -> Data:
    """Return an array, not set, whose axes lie in memory in the order of these strides."""
    there, back = _orders(tuple(strides))
    return recycled([shape[n] for n in there], kind).transpose(back)


@lru_cache(maxsize=1024)
def _orders(strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes in the order of strides, largest first, and where each is in it."""
    places = sorted(range(len(strides)), key=lambda n: -strides[n])
    return tuple(places), tuple(int(n) for n in np.argsort(places))
