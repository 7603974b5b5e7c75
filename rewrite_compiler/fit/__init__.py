"""Fit: cost and tiling of an offload under a device's capacities, residency of tensors between calls, and mappings of loop nests.

The names of calls are imported when one is first used: mappings need no target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .call_search import tile
    from .mapping.calls import Refusal, Tiling

__all__ = ["Refusal", "Tiling", "tile"]


def __getattr__(name: str) -> Any:
    """Return a name of calls, importing it on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import call_search
    from .mapping import calls

    return {"Refusal": calls.Refusal, "Tiling": calls.Tiling, "tile": call_search.tile}[name]
