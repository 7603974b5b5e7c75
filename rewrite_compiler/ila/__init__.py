"""Instruction-level abstractions: an accelerator as architectural state and instructions with decode and update."""

from typing import TYPE_CHECKING

from ..callable_module import make_callable
from .bits import Bits, Fields, bit_fields, joined, layout, pack
from .design import check_design, choice, demand, designed, one_of, within
from .external import External, ExternalWords
from .mmio import Bus, assemble, mmio
from .model import (
    CONTROL,
    DATA,
    SIMULATORS,
    Ila,
    Instruction,
    Match,
    Operand,
    Queue,
    Registers,
    Revisions,
    State,
    Wait,
    Word,
    lanes_of,
)
from .region import Region
from .registry import ila
from .simulate import DeviceHang, Simulator
from .stream import Stream

__all__ = [
    "CONTROL",
    "DATA",
    "Bits",
    "Bus",
    "DeviceHang",
    "External",
    "ExternalWords",
    "Fields",
    "Ila",
    "Instruction",
    "Match",
    "Operand",
    "Queue",
    "Region",
    "Registers",
    "Revisions",
    "State",
    "Wait",
    "Word",
    "assemble",
    "bit_fields",
    "check",
    "check_design",
    "choice",
    "demand",
    "designed",
    "ila",
    "joined",
    "lanes_of",
    "layout",
    "mmio",
    "one_of",
    "pack",
    "within",
]

if TYPE_CHECKING:
    from .check import check
else:

    def __getattr__(name: str) -> object:
        """Return `check`, whose solver is imported when it is first used."""
        if name != "check":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .check import check  # the import binds the module here; it is called by its own name

        return check


SIMULATORS.update(commands=Simulator, stream=Stream)
make_callable(__name__, ila)
