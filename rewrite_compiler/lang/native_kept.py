"""Compiled steps that are found again by a digest of what they are made from: nothing is lowered or printed for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ..kept import Kept, hash_of, private_folder
from .binders import Leaf
from .native import NativeFunction
from .native_jit import key_of


def kept_step(digest: str, leaves: Sequence[Leaf], make: Callable[[], NativeFunction]) -> NativeFunction:
    """Return the function that `make` would make, from what is kept where it is there.

    The digest must say everything that `make` depends on, the engine's own sources aside, and name the `leaves`, the
    memories that the step may touch, in their order.
    """
    kept = Kept(private_folder("steps"))
    key, _ = key_of(f"{_sources()} {digest}", 0)  # of this processor
    stored = kept.get(key)
    if stored is not None:
        numbers, code, level = json.loads(stored)
        found = NativeFunction.again([leaves[n] for n in numbers], (code, level))
        if found is not None:
            return found
    made = make()
    if not made.raises and not made.tables:
        numbers = [leaves.index(leaf) for leaf in made.memories]
        kept.put(key, json.dumps([numbers, *made.code]).encode())
    return made


@cache
def _sources() -> str:
    """Return the hash of what lowers and prints steps, and of what makes those of devices."""
    above = Path(__file__).parent.parent
    return hash_of([above / "lang", above / "ila"], [])
