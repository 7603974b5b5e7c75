"""Targets: accelerators with the operations they offer; the public namespace for target files."""

from ..readings.kernels.format_conversion import values_of
from .array_algebra import (
    bordered_codes,
    initial_sums,
    join_bytes,
    low_bits,
    pad_axis,
    row_sums,
    split_bytes,
    tile,
    tile_count,
    untile,
    widen,
)
from .cost import Cost, Levels, levels_times
from .device import Device, SimulatedDevice, SimulatedStream, StreamedDevice, simulated_device
from .discovery import find_target, load_target, target_names
from .layers.codes import axis_sizes, bordered, conv_sums, dense_sums, depthwise_sums, window_counts, window_maxima, windowed, word_sum
from .layers.formats import fixed_byte, fixed_nearest, fixed_products
from .layers.patterns import (
    RANKS,
    Pattern,
    element_pattern,
    pool_pattern,
    product_pattern,
    quantized_add_pattern,
    requantise_pattern,
)
from .mapping import Axes, FormatFor, Limit, Mapping
from .meaning import body_of, inlined
from .resources import Clock, Energy, Link, Memory, Resources, Unit, resource_document, state_memory
from .stay import USUAL, Room, Stay
from .target import Blocks, Small, Target

__all__ = [
    "RANKS",
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
    "Pattern",
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
    "bordered_codes",
    "conv_sums",
    "dense_sums",
    "depthwise_sums",
    "element_pattern",
    "find_target",
    "fixed_byte",
    "fixed_nearest",
    "fixed_products",
    "initial_sums",
    "inlined",
    "join_bytes",
    "levels_times",
    "load_target",
    "low_bits",
    "pad_axis",
    "pool_pattern",
    "product_pattern",
    "quantized_add_pattern",
    "requantise_pattern",
    "resource_document",
    "row_sums",
    "simulated_device",
    "split_bytes",
    "state_memory",
    "target_names",
    "tile",
    "tile_count",
    "untile",
    "values_of",
    "widen",
    "window_counts",
    "window_maxima",
    "windowed",
    "word_sum",
]
