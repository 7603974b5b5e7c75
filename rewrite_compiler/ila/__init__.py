"""Instruction-level abstractions: an accelerator as architectural state and instructions with decode and update."""

from ..callable_module import make_callable
from .mmio import Bus, assemble, mmio
from .model import CONTROL, DATA, Bits, External, Ila, Instruction, Match, Operand, Queue, State, Wait, lanes_of
from .registry import ila

__all__ = [
    "CONTROL",
    "DATA",
    "Bits",
    "Bus",
    "External",
    "Ila",
    "Instruction",
    "Match",
    "Operand",
    "Queue",
    "State",
    "Wait",
    "assemble",
    "ila",
    "lanes_of",
    "mmio",
]

make_callable(__name__, ila)
