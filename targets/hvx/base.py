"""HVX as a target: its resources, and programs: straight-line code on tensors that lie in memory one behind the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import hvx as model
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.target import (
    Clock,
    Cost,
    Limit,
    Link,
    Resources,
    Small,
    StreamedDevice,
    Target,
    Unit,
    fixed_byte,
    join_bytes,
    state_memory,
)

Codes = np.ndarray[Any, Any]
Parameters = Mapping[str, str]
Shape = tuple[int, ...]
WORD = 4  # bytes: of an instruction, of an accumulator, and inputs of a sum of products
LANES = VECTOR // WORD
LOW_BITS, MIDDLE_BITS = 6, 14  # of a constant of 32 bits: in the instruction, and first in its extender
PARAMETERS = {"l2_kib": ("1024", "256", "512", "2048")}  # of the memory that data lies in
BYTES: dict[str, Any] = {"formats": {"x": fixed_byte}, "derived": {"y": lambda x: x}}  # results in the format of x


def build(l2_kib: str) -> Ila:
    """Return the model, which does not depend on the size of the level-2 memory."""
    return model.build()


def resources(ila: Ila, parameters: Parameters) -> Resources:
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
        Small({}, {"b": VECTOR, "d": VECTOR, "k": 4, "n": 32}, _products(17_000, 300, 16, 500, 40, 60)),
        Small({}, {"k": VECTOR}, _products(1, 1, 8, 200, 20, 30)),
    ),
)


@dataclass(frozen=True)
class Program:
    """Straight-line code: the vectors that each tensor takes, those that are loaded or stored, instructions at most, packets.

    Where `code` bytes hold the instructions apart from the tensors, they are not in the same memory.
    """

    p: Parameters
    vectors: Mapping[str, int]
    moved: Mapping[str, int]
    instructions: int
    packets: int
    code: int = 0
    bounds: tuple[Limit, ...] = ()

    @property
    def places(self) -> dict[str, int]:
        """The first byte of each tensor, and the end."""
        ends = itertools.accumulate(self.vectors.values(), initial=0)
        return {name: n * VECTOR for name, n in zip((*self.vectors, "end"), ends, strict=True)}

    def limits(self) -> Iterator[Limit]:
        """What tensors and instructions take of memory."""
        commands = WORD * self.instructions
        if self.code:
            yield Limit("bytes of code", commands, self.code)
        yield Limit("bytes of memory", self.places["end"] + (0 if self.code else commands), int(self.p["l2_kib"]) << 10)
        yield from self.bounds

    def cost(self, resources: Resources) -> Cost:
        """Return the packets, and what crosses the port."""
        moved = {name: n * VECTOR for name, n in self.moved.items()} | {"commands": WORD * self.instructions}
        return Cost("vector", self.packets, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


class Work:
    """What a driver does for one tile, by the program that it emits."""

    @property
    def program(self) -> Program:
        """The program."""
        raise NotImplementedError

    def limits(self) -> Iterator[Limit]:
        """What the program takes of memory."""
        return self.program.limits()

    def cost(self, resources: Resources) -> Cost:
        """Return the cost of the program."""
        return self.program.cost(resources)


def place(device: StreamedDevice, m: Program, **tensors: Codes) -> None:
    """Put the bytes of tensors [(samples,) byte] where they lie."""
    device.attach("dram", m.places["end"])
    for name, data in tensors.items():
        device.place("dram", m.places[name], data)


def set_registers(device: StreamedDevice, values: Mapping[int, int]) -> None:
    """Put numbers into scalar registers."""
    for register, value in values.items():
        above, low = divmod(value % (1 << 32), 1 << LOW_BITS)
        high, middle = divmod(above, 1 << MIDDLE_BITS)
        device.issue("transfer_extended", rd=register, low=low, imm_low=middle, imm_high=high)


def results(device: StreamedDevice, m: Program, size: int = 1) -> Codes:
    """End the code with a trap, wait for it, and return the results [(samples,) word], of so many bytes each."""
    device.issue("trap0")
    device.wait()
    data = device.fetch("dram", m.places["y"], m.vectors["y"] * VECTOR)
    return join_bytes(data.reshape(*data.shape[:-1], -1, size))
