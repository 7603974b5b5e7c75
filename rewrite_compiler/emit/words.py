"""Assembly of an accelerator by name: text to words and back, as users call it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..ila import Ila
from ..ila.assembler import Program, assemble_text, disassemble_program
from ..ila.mnemonic import LIMB, InstructionSet, instruction_set, limbs_of
from ..public_calls import NATURAL, TEXT, ArgumentKind, public
from ..target.discovery import find_ila

ACCELERATOR = ArgumentKind("the name of an accelerator, the path of its Python file, or its model", (str, Path, Ila))
WORDS = ArgumentKind("a sequence of whole numbers, the words", entry=NATURAL)


def isa_of(accelerator: str | Path | Ila) -> InstructionSet:
    """Return the mnemonics of an accelerator: a model, or its name or path as --accel takes it."""
    return instruction_set(accelerator if isinstance(accelerator, Ila) else find_ila(str(accelerator)))


@public("assemble", text=TEXT, accelerator=ACCELERATOR)
def assemble(text: str, accelerator: str | Path | Ila) -> Program:
    """Return the words of an assembly text, e.g. assemble("GEMM #0,#0,…", "vta"); its iterator gives them as numbers."""
    return assemble_text(isa_of(accelerator), text)


@public("disassemble", words=WORDS, accelerator=ACCELERATOR)
def disassemble(words: Iterable[int], accelerator: str | Path | Ila) -> str:
    """Return the assembly text of words, a line each.

    Raises:
        UsageError: F203, a word has more bits than an instruction.
    """
    isa, listed = isa_of(accelerator), list(words)
    for n, w in enumerate(listed):
        if w >> LIMB * isa.limbs:
            raise UsageError("F203", f"word {n} must have at most {LIMB * isa.limbs} bits, not {w.bit_length()}")
    return disassemble_program(Program(isa, np.array([limbs_of(w, isa.limbs) for w in listed], np.uint64).reshape(-1, isa.limbs)))
