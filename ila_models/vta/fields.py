"""VTA instruction words: 128 bits, fields from bit 0 of each half; one row a field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewrite_compiler.ila import Bits

from .config import ITERATION_BITS, Config

LOAD, STORE, GEMM, FINISH, ALU = range(5)
UOP, WGT, INP, ACC, OUT, ACC_8BIT = range(6)
MIN, MAX, ADD, SHR, MUL = range(5)
HALF = 64
TOKENS = ("pop_prev", "pop_next", "push_prev", "push_next")
OPCODE = Bits(0, 2)
# encoding → bits of memory_type, bits of alu_opcode
ENCODINGS = {"current": (3, 3), "ila3": (2, 3), "old": (2, 2)}


def layout(first: int, rows: Sequence[tuple[str, int]]) -> dict[str, Bits]:
    """Return the fields of these widths, one after the other from bit `first`."""
    found = {}
    for name, width in rows:
        found[name] = Bits(first, first + width - 1, signed=name == "imm")
        first += width
    return found


@dataclass(frozen=True)
class Encoding:
    """Where the fields of the three forms of instruction lie, in one of the encodings."""

    name: str
    config: Config

    @property
    def memory_type(self) -> Bits:
        """The field that names the memory of a LOAD or STORE."""
        return Bits(7, 6 + ENCODINGS[self.name][0])

    @property
    def alu_opcode(self) -> Bits:
        """The field that names the operation of an ALU instruction."""
        return self._alu_words["alu_opcode"]

    @property
    def tokens(self) -> dict[str, Bits]:
        """The four dependency bits of every instruction."""
        return layout(3, [(name, 1) for name in TOKENS])

    @property
    def transfer(self) -> dict[str, Bits]:
        """The fields of LOAD and STORE; sizes, strides and bases count elements."""
        low = layout(self.memory_type.high + 1, [("sram_base", 16), ("dram_base", 32)])
        sizes = [("y_size", 16), ("x_size", 16), ("x_stride", 16)]
        pads = [("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4)]
        return self.tokens | low | layout(HALF, [*sizes, *pads])

    @property
    def gemm(self) -> dict[str, Bits]:
        """The fields of GEMM."""
        return self.tokens | self._loops | layout(HALF, self._factors(("dst", "acc"), ("src", "inp"), ("wgt", "wgt")))

    @property
    def alu(self) -> dict[str, Bits]:
        """The fields of ALU but its operation, which is part of the decode; `reset` is ignored."""
        words = self._alu_words
        return self.tokens | self._loops | {name: bits for name, bits in words.items() if name != "alu_opcode"}

    @property
    def _alu_words(self) -> dict[str, Bits]:
        rows = [*self._factors(("dst", "acc"), ("src", "inp")), ("alu_opcode", ENCODINGS[self.name][1]), ("use_imm", 1), ("imm", 16)]
        return layout(HALF, rows)

    @property
    def _loops(self) -> dict[str, Bits]:
        index = self.config.log_depth("uop")
        rows = [("reset", 1), ("uop_bgn", index), ("uop_end", index + 1), ("iter_out", ITERATION_BITS), ("iter_in", ITERATION_BITS)]
        return layout(7, rows)

    def _factors(self, *operands: tuple[str, str]) -> list[tuple[str, int]]:
        return [(f"{name}_factor_{loop}", self.config.log_depth(sort)) for name, sort in operands for loop in ("out", "in")]
