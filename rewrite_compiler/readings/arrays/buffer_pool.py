"""A pool of large arrays per thread: a block without references is handed out again, since fresh pages cost more than writing them."""

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

MIN_BYTES, MAX_BLOCKS = 1 << 16, 64  # bytes of an array; arrays that a thread keeps
REFERENCES_OF_FREE_BLOCK = 2  # references to an array that only its list and the question hold
_of_thread = threading.local()


def pooled_array(shape: Sequence[int], kind: Any) -> Data:
    """Return an uninitialised array, from the pool of this thread where one of its size is free."""
    kind = np.dtype(kind)
    size = math.prod(shape) * kind.itemsize
    if size < MIN_BYTES:
        return np.empty(tuple(shape), kind)
    pool: OrderedDict[int, list[Data]] = _of_thread.__dict__.setdefault("pool", OrderedDict())
    blocks = pool.setdefault(size, [])
    pool.move_to_end(size)
    free = next((n for n in range(len(blocks)) if sys.getrefcount(blocks[n]) <= REFERENCES_OF_FREE_BLOCK), None)
    block = np.empty(size, np.uint8) if free is None else blocks.pop(free)
    blocks.append(block)
    if free is None and sum(map(len, pool.values())) > MAX_BLOCKS:
        oldest = next(iter(pool.values()))
        oldest.pop(0)
        if not oldest:
            pool.popitem(last=False)
    view: Data = block.view(kind).reshape(tuple(shape))
    return view


def pooled_array_with_strides(shape: Sequence[int], strides: Sequence[int], kind: Any) -> Data:
    """Return an uninitialised array, its axes in memory in the order of these strides (largest outermost)."""
    order, inverse = _orders(tuple(strides))
    return pooled_array([shape[n] for n in order], kind).transpose(inverse)


@lru_cache(maxsize=1024)
def _orders(strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes in the order of strides, largest first, and where each is in it."""
    order = sorted(range(len(strides)), key=lambda n: -strides[n])
    return tuple(order), tuple(int(n) for n in np.argsort(order))
