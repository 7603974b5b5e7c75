"""On-disk cache of saturated e-graphs, keyed by the whole request, the sources of the engine, and the version of egglog.

Designs that differ in capacities, formats or costs make the same request. Only answers that reached saturation are stored.
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

from ...disk_cache import DiskCache, private_cache_folder, sources_hash

_CACHE_DISABLED: ContextVar[bool] = ContextVar("computed", default=False)
PACKAGES = ("egraph", "ops", "ir")  # sources that the child process runs


def answer_cache() -> DiskCache:
    """Return the user's cache of answers, an empty one within `nothing_kept`."""
    return DiskCache(None if _CACHE_DISABLED.get() else private_cache_folder("saturation"))


@contextmanager
def cache_disabled() -> Iterator[None]:
    """Disable the cache in this context: saturation is computed, and nothing is stored."""
    token = _CACHE_DISABLED.set(True)
    try:
        yield
    finally:
        _CACHE_DISABLED.reset(token)


def key_of(request: Mapping[str, Any]) -> str:
    """Return the key of a request, independent of the process that makes it."""
    question = {name: part for name, part in request.items() if name != "parent"}
    return hashlib.sha256(f"{_engine_hash()}\n{json.dumps(question, sort_keys=True)}".encode()).hexdigest()


@cache
def _engine_hash() -> str:
    package_root = Path(__file__).parents[2]
    return sources_hash([package_root / p for p in PACKAGES], [sys.version, f"egglog {version('egglog')}"])
