"""Instruction-level abstractions: an accelerator as architectural state and instructions with decode and update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..callable_module import import_on_use
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

if TYPE_CHECKING:
    from .simulation.packet_device import PacketDevice
    from .simulation.simulator import DeviceHang, Simulator
    from .simulation.stream_device import Stream
    from .verification.check import check

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
    "Simulator",
    "State",
    "Stream",
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

# solver and simulators are imported when they are first used
DEFINED_IN = {
    "DeviceHang": "simulation.simulator",
    "PacketDevice": "simulation.packet_device",
    "Simulator": "simulation.simulator",
    "Stream": "simulation.stream_device",
    "check": "verification.check",
}

import_on_use(__name__, DEFINED_IN, principal="ila")


def _command_simulator(model: Ila, **options: Any) -> Simulator:
    from .simulation.simulator import Simulator

    return Simulator(model, **options)


def _packet_device(model: Ila, **options: Any) -> PacketDevice:
    from .simulation.packet_device import PacketDevice

    return PacketDevice(model, **options)


def _stream_device(model: Ila, **options: Any) -> Stream:
    from .simulation.stream_device import Stream

    return Stream(model, **options)


SIMULATORS.update(commands=_command_simulator, packets=_packet_device, stream=_stream_device)
