"""Answers of saturation that are kept: by everything that was asked, the sources of the engine, and egglog.

Designs that differ in capacities, formats or costs ask the same of the e-graph. Only an answer that came to its end is kept.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...kept import Kept, hash_of, private_folder

_CACHE_DISABLED: ContextVar[bool] = ContextVar("computed", default=False)
PACKAGES = ("egraph", "ops", "ir")  # what the child process is made of


def answers() -> Kept:
    """Return the user's kept answers."""
    return Kept(None if _CACHE_DISABLED.get() else private_folder("saturation"))


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Let saturation be computed and not found, and nothing be kept, in this thread."""
    token = _CACHE_DISABLED.set(True)
    try:
        yield
    finally:
        _CACHE_DISABLED.reset(token)


def key_of(request: Mapping[str, Any]) -> str:
    """Return the key of a request, whoever asks it."""
    question = {name: part for name, part in request.items() if name != "parent"}
    return hashlib.sha256(f"{_engine_hash()}\n{json.dumps(question, sort_keys=True)}".encode()).hexdigest()


@cache
def _engine_hash() -> str:
    package_root = Path(__file__).parents[2]
    return hash_of([package_root / p for p in PACKAGES], [sys.version, f"egglog {version('egglog')}"])
