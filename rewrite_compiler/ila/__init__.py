"""Instruction-level abstractions: an accelerator as architectural state and instructions with decode and update."""

from .mmio import Bus, assemble, mmio
from .model import CONTROL, DATA, Bits, External, Ila, Instruction, Match, Operand, Queue, State, Wait, lanes_of

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
    "lanes_of",
    "mmio",
]
