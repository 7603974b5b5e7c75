"""The golden vectors that are kept with the tests."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from shared import SHARED

from rewrite_compiler.ila.simulation.simulator import Simulator

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


def primitives() -> dict[str, np.ndarray]:
    """Return what FlexASR's functions gave: as the shared folder holds it, else the copy."""
    given = SHARED / "golden" / "flexasr" / "primitives.npz" if SHARED else None
    if given is None or not given.exists():
        return arrays("flexasr", "primitives.npz")
    with np.load(given) as data:
        return dict(data)


def replay(sim: Simulator, commands: list[list[str]]) -> list[list[str]]:
    """Run a trace and return what its reads give, written as the golden files write it."""
    reads = []
    for kind, *rest in commands:
        if kind == "W":
            sim.write(int(rest[0], 16), int(rest[1], 16))
        elif kind == "R":
            reads.append([rest[0], f"{sim.read(int(rest[0], 16)):032x}"])
        else:
            sim.wait_for_interrupt()
    return reads
