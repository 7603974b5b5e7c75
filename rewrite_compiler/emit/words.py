"""Assembly of an accelerator by name: text to words and back, as users call it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..ila import Ila
from ..ila.assembler import Program, assemble_text, disassemble_program
from ..ila.mnemonic import InstructionSet, instruction_set, limbs_of
from ..target.discovery import find_ila


def isa_of(accelerator: str | Ila) -> InstructionSet:
    """Return the mnemonics of an accelerator: a model, or its name or path as --accel takes it."""
    return instruction_set(accelerator if isinstance(accelerator, Ila) else find_ila(accelerator))


def assemble(text: str, accelerator: str | Ila) -> Program:
    """Return the words of an assembly text, e.g. assemble("GEMM #0,#0,…", "vta"); its iterator gives them as numbers."""
    return assemble_text(isa_of(accelerator), text)


def disassemble(words: Iterable[int], accelerator: str | Ila) -> str:
    """Return the assembly text of words, a line each."""
    isa = isa_of(accelerator)
    return disassemble_program(Program(isa, np.array([limbs_of(w, isa.limbs) for w in words], np.uint64).reshape(-1, isa.limbs)))
