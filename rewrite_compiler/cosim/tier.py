"""The engines and tiers of co-simulation: what computes offloads, and how. All give the same bits in different time."""

from __future__ import annotations

from collections.abc import Iterable

from ..compile.plan.plan import Offload
from ..readings.kernels.selection import machine_code_refusal

AUTO = "auto"
COMMANDS = "commands"  # the name of their bytes in a cost
TIERS = (AUTO, "native", "arrays", "oracle")
_, NUMERICS, SIMULATOR = ENGINES = (AUTO, "numerics", "simulator")
LEAST_BATCHES = 3  # from which on compiled code pays
LEAST_COMMAND_BYTES = 1 << 18  # of one sample, from which on it pays: numpy takes 0.1 to 0.4 ms an instruction


def chosen_tier(tier: str, samples: int, batch: int, command_bytes: float = 0) -> str:
    """Return the tier that `auto` stands for: machine code where it can be made and there are enough batches or commands, else numpy."""
    if tier != AUTO:
        return tier
    pays = samples >= LEAST_BATCHES * batch or command_bytes >= LEAST_COMMAND_BYTES
    return "native" if pays and not machine_code_refusal() else "arrays"


def command_bytes_of(offloads: Iterable[Offload]) -> float:
    """Return the bytes of the commands of a sample's offloads, as their targets' costs say."""
    return sum(float(o.price.cost.moved.get(COMMANDS, 0)) for o in offloads if o.price is not None)


def chosen_engine(engine: str, tier: str) -> str:
    """Return the engine that `auto` stands for: numerics, but simulators for the tier oracle."""
    if engine != AUTO:
        return engine
    return SIMULATOR if tier == "oracle" else NUMERICS
