"""The golden vectors that are kept with the tests."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).resolve().parent / "golden"


@cache
def traces(accelerator: str) -> dict[str, dict[str, Any]]:
    """Return the traces of an accelerator by name."""
    found = json.loads(lzma.decompress((GOLDEN / accelerator / "traces.json.xz").read_bytes()))
    return {t["name"]: t for t in found}


@cache
def arrays(accelerator: str, file: str) -> dict[str, np.ndarray]:
    """Return the arrays of one file."""
    with np.load(GOLDEN / accelerator / file) as data:
        return {k: data[k] for k in data.files}
