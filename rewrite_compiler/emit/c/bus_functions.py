"""The bus functions of a host program: declared for the integrator to supply, and implemented on a device model."""

from __future__ import annotations

import re

from ...ila import Ila
from .program_text import MEMORY
from .text import BOARD, BOARD_BUS, BOARD_STREAM, BOARD_WRITE, fill_template

MMIO = ("wr", "rd", "addr", "data")


def bus_declarations(target: str, ila: Ila, bus: str) -> str:
    """Return the C declarations of what the integrator supplies for one accelerator."""
    lines = [f"/* {target} */", f"int {bus}_wait(void);  /* for the interrupt */"]
    if ila.externals:
        lines.append(f"int {bus}_run(const uint8_t (*instructions)[16], size_t count);")
        return "\n".join([*lines, fill_template(MEMORY, {"bus": bus, "memory": image_of(ila)})])
    lines += [f"int {bus}_write128{flag}(uint64_t address, const uint8_t data[16]);" for flag in flags_of(ila)]
    return "\n".join([*lines, f"int {bus}_read128(uint64_t address, uint8_t data[16]);"])


def board_text(ila: Ila, name: str) -> str:
    """Return the C source of the bus functions on one device model; empty for a model without a bus or a stream."""
    if ila.externals:
        bodies = fill_template(BOARD_STREAM, {"name": name, "memory": image_of(ila)})
    elif set(MMIO) <= ila.inputs.keys():
        bodies = fill_template(BOARD_BUS, {"name": name}) + "".join(
            fill_template(BOARD_WRITE, {"name": name, "flag": f}) for f in flags_of(ila)
        )
    else:
        return ""
    declared = bus_declarations(name, ila, "mmio")
    defines = "\n".join(f"#define mmio_{n} mmio_{name}_{n}" for n in re.findall(r"^int mmio_(\w+)\(", declared, re.MULTILINE))
    return fill_template(BOARD, {"name": name, "declared": declared, "several": defines, "bodies": bodies})


def flags_of(ila: Ila) -> list[str]:
    """Return the suffixes of write functions: the empty one, and one for each further input of the bus."""
    return ["", *(f"_{n}" for n in ila.inputs if n not in MMIO)]


def image_of(ila: Ila) -> str:
    """Return the name of the external memory that programs use: the first."""
    return next(iter(ila.externals))
