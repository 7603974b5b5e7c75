"""Instruction-level abstractions: an accelerator as architectural state and instructions with decode and update."""

from typing import TYPE_CHECKING

from ..callable_module import make_callable
from .mmio import Bus, assemble, mmio
from .model import CONTROL, DATA, Bits, External, Ila, Instruction, Match, Operand, Queue, State, Wait, lanes_of
from .registry import ila
from .simulate import DeviceHang

__all__ = [
    "CONTROL",
    "DATA",
    "Bits",
    "Bus",
    "DeviceHang",
    "External",
    "Ila",
    "Instruction",
    "Match",
    "Operand",
    "Queue",
    "State",
    "Wait",
    "assemble",
    "check",
    "ila",
    "lanes_of",
    "mmio",
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


make_callable(__name__, ila)
