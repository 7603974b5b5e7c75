"""Fit: cost and tiling of an offload under a device's capacities, and residency of tensors between calls."""

from .tiling import Refusal, Tiling, tile

__all__ = ["Refusal", "Tiling", "tile"]
