"""Fit: cost and tiling of an offload under a device's capacities, residency of tensors between calls, and mappings of loop nests.

The names of tilings are imported when one is first used: mappings need no target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tiling import Refusal, Tiling, tile

__all__ = ["Refusal", "Tiling", "tile"]


def __getattr__(name: str) -> Any:
    """Return a name of tilings, importing them on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import tiling

    return {"Refusal": tiling.Refusal, "Tiling": tiling.Tiling, "tile": tiling.tile}[name]
