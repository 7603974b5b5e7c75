"""The engines and tiers of co-simulation: what computes offloads, and how. All give the same bits in different time."""

from __future__ import annotations

from ..readings.kernels.selection import machine_code_refusal

AUTO = "auto"
TIERS = (AUTO, "native", "arrays", "oracle")
_, NUMERICS, SIMULATOR = ENGINES = (AUTO, "numerics", "simulator")
LEAST_BATCHES = 3  # from which on compiled code pays


def chosen_tier(tier: str, samples: int, batch: int) -> str:
    """Return the tier that `auto` stands for: machine code where it can be made and there are enough batches, else numpy."""
    if tier != AUTO:
        return tier
    return "arrays" if samples < LEAST_BATCHES * batch or machine_code_refusal() else "native"


def chosen_engine(engine: str, tier: str) -> str:
    """Return the engine that `auto` stands for: numerics, but simulators for the tier oracle."""
    if engine != AUTO:
        return engine
    return SIMULATOR if tier == "oracle" else NUMERICS
