"""Fit: what an offload needs on a device, and how it is split when that is too much."""

from .tiling import Refusal, Tiling, tile

__all__ = ["Refusal", "Tiling", "tile"]
