"""Recycled: large arrays whose memory is used again once nobody holds them; memory that is new costs more than writing it."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .named import Data

LEAST, MOST = 1 << 16, 64  # bytes of an array; arrays that a thread keeps
UNUSED = 2  # references to an array that only its list and the question hold
_of_thread = threading.local()


def recycled(shape: Sequence[int], kind: Any) -> Data:
    """Return an array whose contents are not set."""
    kind = np.dtype(kind)
    size = math.prod(shape) * kind.itemsize
    if size < LEAST:
        return np.empty(tuple(shape), kind)
    kept: list[Data] = _of_thread.__dict__.setdefault("kept", [])
    free = next((n for n in range(len(kept)) if kept[n].nbytes == size and sys.getrefcount(kept[n]) <= UNUSED), None)
    block = np.empty(size, np.uint8) if free is None else kept.pop(free)
    kept.append(block)
    del kept[:-MOST]
    found: Data = block.view(kind).reshape(tuple(shape))
    return found
