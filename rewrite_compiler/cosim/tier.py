"""Tiers of co-simulation: how simulators compute. All give the same bits; what differs is the time."""

from __future__ import annotations

from ..lang.kernels import loaded_kernels

AUTO = "auto"
TIERS = (AUTO, "native", "arrays", "oracle")
LEAST_BATCHES = 3  # from which on compiled code and the recorded first batch pay


def chosen_tier(tier: str, samples: int, batch: int) -> str:
    """Return the tier that runs: for `auto` machine code where it can be made and there are enough batches, else numpy."""
    if tier != AUTO:
        return tier
    return "arrays" if samples < LEAST_BATCHES * batch or isinstance(loaded_kernels(), str) else "native"
