"""GeneSys designs: array sizes, widths, usable capacities in bits and port widths in bits a cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rewrite_compiler.errors import SpecError

# parameter of a published configuration → field of a design, and by how much of it a tile may use
PARAMETERS = {
    "ARRAY_N": ("rows", 1),
    "ARRAY_M": ("columns", 1),
    "WGT_DATA_WIDTH": ("weight_bits", 1),
    "ACT_DATA_WIDTH": ("input_bits", 1),
    "ACC_WIDTH": ("sum_bits", 1),
    "BIAS_WIDTH": ("bias_bits", 1),
    "WBUF_CAPACITY_BITS": ("weight_room", 2),  # of two halves, one is filled while the other is read
    "IBUF_CAPACITY_BITS": ("input_room", 2),
    "OBUF_CAPACITY_BITS": ("sum_room", 1),  # the configuration gives one half
    "BBUF_CAPACITY_BITS": ("bias_room", 2),
    "SIMD_VMEM_CAPACITY_BITS": ("vector_room", 1),
    "PARAMBUF_AXI_DATA_WIDTH": ("weight_port", 1),
    "IBUF_AXI_DATA_WIDTH": ("input_port", 1),
    "OBUF_AXI_DATA_WIDTH": ("sum_port", 1),
    "SIMD_AXI_DATA_WIDTH": ("vector_port", 1),
}


@dataclass(frozen=True)
class Design:
    """One design: the array takes `rows` input channels by `columns` output channels; rooms are what one tile may fill."""

    rows: int
    columns: int
    weight_bits: int
    input_bits: int
    sum_bits: int
    bias_bits: int
    weight_room: int
    input_room: int
    sum_room: int
    bias_room: int
    vector_room: int
    weight_port: int
    input_port: int
    sum_port: int
    vector_port: int

    @staticmethod
    def of(parameters: Mapping[str, int]) -> Design:
        """Return the design of a published configuration.

        Raises:
            SpecError: I102, a parameter is missing or not positive.
        """
        values = {}
        for name, (field, halves) in PARAMETERS.items():
            value = parameters.get(name, 0)
            if not isinstance(value, int) or value < halves:
                raise SpecError("I102", f"parameter {name} of a GeneSys design must be at least {halves}, not {value}")
            values[field] = value // halves
        design = Design(**values)
        least = design.rows * design.columns * design.weight_bits
        if design.weight_room < least:
            room = f"must hold one block of weights ({least} bits) in each half, not {design.weight_room}"
            raise SpecError("I102", f"WBUF_CAPACITY_BITS of a GeneSys design {room}")
        return design

    @property
    def weight_rate(self) -> int:
        """Bits of weights a cycle: a row of the array at most."""
        return min(self.rows * self.weight_bits, self.weight_port)
