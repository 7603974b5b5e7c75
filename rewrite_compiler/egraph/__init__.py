"""E-graphs: saturation in a child process, exact extraction."""

from .extraction.decode import DeviceName, classes_of, extracted_program
from .extraction.extract import Extraction, extract
from .graph.graph import EClass, EGraph, ENode
from .graph.outcome import Saturation
from .graph.schema import Constructor
from .graph.unsaturated import unsaturated_graph
from .saturation.rule_text import mapping_text
from .saturation.saturate import DeviceRule, Unsaturated, saturate, saturate_regions, start_children

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
    "saturate",
    "saturate_regions",
    "start_children",
    "unsaturated_graph",
]  # fmt: skip
