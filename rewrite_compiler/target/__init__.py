"""Targets: accelerators with the operations they offer; the public namespace for target files."""

from .device import Device, SimulatedDevice, SimulatedStream, StreamedDevice, simulated_device
from .discovery import find_target, load_target, target_names
from .mapping import Axes, FormatFor, Limit, Mapping
from .meaning import body_of, inlined
from .target import Target

__all__ = [
    "Axes",
    "Device",
    "FormatFor",
    "Limit",
    "Mapping",
    "SimulatedDevice",
    "SimulatedStream",
    "StreamedDevice",
    "Target",
    "body_of",
    "find_target",
    "inlined",
    "load_target",
    "simulated_device",
    "target_names",
]
