"""Targets: accelerators with the operations they offer; the public namespace for target files."""

from ..readings.kernels.format_conversion import values_of
from .array_algebra import join_bytes, low_bits, pad_axis, row_sums, split_bytes, tile, untile, widen
from .cost import Cost, Levels, levels_times
from .device import Device, SimulatedDevice, SimulatedStream, StreamedDevice, simulated_device
from .discovery import find_target, load_target, target_names
from .layers import axis_sizes, bordered, conv_sums, dense_sums, depthwise_sums, window_counts, window_maxima, windowed
from .mapping import Axes, FormatFor, Limit, Mapping
from .meaning import body_of, inlined
from .resources import Clock, Energy, Link, Memory, Resources, Unit, resource_document, state_memory
from .stay import USUAL, Room, Stay
from .target import Blocks, Small, Target

__all__ = [
    "USUAL",
    "Axes",
    "Blocks",
    "Clock",
    "Cost",
    "Device",
    "Energy",
    "FormatFor",
    "Levels",
    "Limit",
    "Link",
    "Mapping",
    "Memory",
    "Resources",
    "Room",
    "SimulatedDevice",
    "SimulatedStream",
    "Small",
    "Stay",
    "StreamedDevice",
    "Target",
    "Unit",
    "axis_sizes",
    "body_of",
    "bordered",
    "conv_sums",
    "dense_sums",
    "depthwise_sums",
    "find_target",
    "inlined",
    "join_bytes",
    "levels_times",
    "load_target",
    "low_bits",
    "pad_axis",
    "resource_document",
    "row_sums",
    "simulated_device",
    "split_bytes",
    "state_memory",
    "target_names",
    "tile",
    "untile",
    "values_of",
    "widen",
    "window_counts",
    "window_maxima",
    "windowed",
]
