"""Instruction-level abstractions: an accelerator as architectural state and instructions with decode and update."""

from typing import TYPE_CHECKING

from ..callable_module import make_callable
from .bit_fields import Bits, Fields, bit_fields, joined, layout, pack
from .byte_region import Region
from .external_memory import External, ExternalWords
from .mmio import Bus, assemble, mmio
from .model import (
    CONTROL,
    DATA,
    SIMULATORS,
    Ila,
    Instruction,
    Match,
    Operand,
    Packets,
    Queue,
    Registers,
    Revisions,
    State,
    Wait,
    Word,
    lanes_of,
)
from .parameters import check_design, choice, demand, designed, one_of, within
from .registry import ila
from .simulation.packet_device import PacketDevice
from .simulation.simulator import DeviceHang, Simulator
from .simulation.stream_device import Stream

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
    "PacketDevice",
    "Packets",
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
    from .verification.check import check
else:

    def __getattr__(name: str) -> object:
        """Return `check`, whose solver is imported when it is first used."""
        if name != "check":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .verification.check import check  # the import binds the module here; it is called by its own name

        return check


SIMULATORS.update(commands=Simulator, packets=PacketDevice, stream=Stream)
make_callable(__name__, ila)
