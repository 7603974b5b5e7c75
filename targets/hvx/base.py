"""HVX as a target: its resources, its number formats, and the code that its drivers have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import hvx as model
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Fixed
from rewrite_compiler.target import Clock, Link, Resources, Small, StreamedDevice, Target, Unit, state_memory

Codes = np.ndarray[Any, Any]
LOW_BITS, MIDDLE_BITS = 6, 14  # of a constant of 32 bits: in the instruction, and first in its extender
PARAMETERS = {"l2_kib": ("1024", "256", "512", "2048")}  # of the memory that data lies in


def build(l2_kib: str) -> Ila:
    """Return the model, which does not depend on the size of the level-2 memory."""
    return model.build()


def memory_bytes(p: Mapping[str, str]) -> int:
    """Return the bytes of the level-2 memory."""
    return int(p["l2_kib"]) << 10


def resources(ila: Ila, parameters: Mapping[str, str]) -> Resources:
    """Return the architecture graph: vector and scalar registers, the vector unit, and the level-2 memory behind one port."""
    return Resources(
        Clock(1_000_000_000, "assumed: one packet a cycle, and no frequency is published with the instruction set"),
        (state_memory(ila, "v", "depth lane"), state_memory(ila, "q", "depth lane")),
        (Unit("vector", ("add", "max", "dense", "conv2d", "pool"), ("int8",), {"n": VECTOR}),),
        (Link("host", "v", VECTOR, port="L2"), Link("v", "host", VECTOR, port="L2")),
        ("host: the level-2 memory; one vector a packet is loaded or stored",),
    )


_SORTS = (("add", "relu"), ("clip",), ("depthwise", "requantise"), ("dense",), ("conv2d",), ("max_pool", "average_pool"))


def _products(*counts: int) -> dict[str, int]:
    """Return how many products a drawn call has, by operation."""
    return {name: n for names, n in zip(_SORTS, counts, strict=True) for name in names}


target = Target(
    "hvx",
    build,
    PARAMETERS,
    "HVX, vectors of 128 bytes of a VLIW processor: sums, extremes, means and products of int8.",
    (*sorted(Path(__file__).parent.glob("*.py")), *sorted(Path(model.__file__).parent.glob("*.py"))),
    describe=resources,
    # its drivers know no capacity but that of memory: what is computed are vectors, one after the other
    small=(
        Small({}, {"b": VECTOR, "d": VECTOR, "k": 4, "n": 32}, _products(34_000, 300, 16, 500, 40, 60)),
        Small({}, {"k": VECTOR}, _products(1, 1, 8, 200, 20, 30)),
    ),
)


def int8(largest: float) -> Fixed:
    """Return the 8-bit format with the finest power-of-two step in which `largest` does not saturate."""
    exponent = math.ceil(math.log2(largest / 127)) if largest > 0 else -7
    return Fixed(8, -exponent)


def sums(x: Fixed, w: Fixed) -> Fixed:
    """Return the format of sums of products."""
    return Fixed(32, x.fraction + w.fraction)


def set_register(device: StreamedDevice, register: int, value: int) -> None:
    """Put an address into a scalar register."""
    above, low = divmod(value, 1 << LOW_BITS)
    high, middle = divmod(above, 1 << MIDDLE_BITS)
    device.issue("transfer_extended", rd=register, low=low, imm_low=middle, imm_high=high)


def finish(device: StreamedDevice) -> None:
    """End the code with a trap, and wait for it."""
    device.issue("trap0")
    device.wait()
