"""E-graphs: saturation in a child process, exact extraction."""

from .decode import DeviceName, classes_of, extracted_program
from .extract import Extraction, extract
from .graph import EClass, EGraph, ENode
from .plain import plain_graph
from .rules import mapping_text
from .saturate import DeviceRule, Unsaturated, prepare, saturate, saturate_regions
from .saturation import Saturation
from .schema import Constructor

__all__ = [
    "Constructor",
    "DeviceName",
    "DeviceRule",
    "EClass",
    "EGraph",
    "ENode",
    "Extraction",
    "Saturation",
    "Unsaturated",
    "classes_of",
    "extract",
    "extracted_program",
    "mapping_text",
    "plain_graph",
    "prepare", "saturate",
    "saturate_regions",
]  # fmt: skip
