"""On-disk cache of compiled steps, keyed by a digest of what they are compiled from: a hit lowers and prints nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ...disk_cache import DiskCache, private_cache_folder, sources_hash
from ...lang.binders import Leaf
from ...lowering.loop_ir import Raise, constant
from .jit import key_of
from .printer import NativeFunction


def cached_step(digest: str, leaves: Sequence[Leaf], make: Callable[[], NativeFunction]) -> NativeFunction:
    """Return the cached function of a digest, else the one that `make` compiles, which is then stored.

    The digest must cover everything that `make` depends on, the engine's own sources aside, and the `leaves`, the memories
    that the step may touch, in their order. Functions with tables are not stored.
    """
    cached = load_step(digest, leaves)
    if cached is not None:
        return cached
    function = make()
    if not function.tables:
        numbers = [leaves.index(leaf) for leaf in function.memories]
        raises = [(r.code, r.sentence, [name for name, _ in r.values]) for r in function.raises]
        DiskCache(private_cache_folder("steps")).put(_key(digest), json.dumps([numbers, *function.code, raises]).encode())
    return function


def load_step(digest: str, leaves: Sequence[Leaf]) -> NativeFunction | None:
    """Return the cached function of a digest; None where there is none."""
    stored = DiskCache(private_cache_folder("steps")).get(_key(digest))
    if stored is None:
        return None
    numbers, code, level, raises = json.loads(stored)
    diagnostics = [Raise(code, sentence, tuple((name, constant(0)) for name in names)) for code, sentence, names in raises]
    return NativeFunction.from_cache([leaves[n] for n in numbers], (code, level), diagnostics)


def _key(digest: str) -> str:
    """Return the key of a step on this processor."""
    return key_of(f"{_sources()} {digest}", 0)[0]


@cache
def _sources() -> str:
    """Return the hash of the sources that lower and print steps, and that make those of devices."""
    package = Path(__file__).parents[2]
    return sources_hash([package / p for p in ("lang", "lowering", "readings", "ila")], [])
