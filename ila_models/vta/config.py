"""VTA configuration: the sizes of one design, as powers of two; the defaults are those of every shipped configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from rewrite_compiler.errors import UsageError
from rewrite_compiler.lang import Expr, extract

UOP_BYTES = 4
UOP_BITS = 8 * UOP_BYTES
ITERATION_BITS = 14


@dataclass(frozen=True)
class Config:
    """Binary logarithms: widths in bits, batch and block in elements, buffers in bytes. Outputs are as wide as inputs."""

    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buffer: int = 15
    log_inp_buffer: int = 15
    log_wgt_buffer: int = 18
    log_acc_buffer: int = 17

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value, (low, high) = getattr(self, name), RANGES.get(name, (0, 24))
            if not isinstance(value, int) or not low <= value <= high:
                raise _refused(f"parameter {name} of vta must be an integer in {low}…{high}, not {value}")
        for sort in ("uop", "inp", "wgt", "acc"):
            name, depth = f"log_{sort}_buffer", self.log_depth(sort)
            if depth < 0:
                raise _refused(
                    f"parameter {name} of vta must be at least {getattr(self, name) - depth} (one element), not {getattr(self, name)}"
                )
        for word, bits, needed in self._words():
            if needed > bits:
                remedy = "make the buffers smaller or the block larger"
                raise UsageError("F203", f"{word} of vta must fit in {bits} bits, not {needed}", help=remedy)

    def _words(self) -> tuple[tuple[str, int, int], ...]:
        """Return the words that hold indices: name, bits, bits needed."""
        acc, inp, _ = indices = self.micro_op_widths
        return (
            ("a micro-op", UOP_BITS, sum(indices)),
            ("the first half of a GEMM", 64, 8 + 2 * self.log_depth("uop") + 1 + 2 * ITERATION_BITS),
            ("the second half of a GEMM", 64, 2 * sum(indices)),
            ("the second half of an ALU instruction", 64, 2 * (acc + inp) + 20),
        )

    @property
    def batch(self) -> int:
        """Rows of an input, accumulator or output element."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Columns of an element; a weight element is block × block, one row an output channel."""
        return 1 << self.log_block

    def width(self, sort: str) -> int:
        """Return the bits of one scalar of an element."""
        return UOP_BITS if sort == "uop" else 1 << int(getattr(self, f"log_{sort}_width"))

    def shape(self, sort: str) -> tuple[int, ...]:
        """Return the extents of one element."""
        return () if sort == "uop" else (self.block, self.block) if sort == "wgt" else (self.batch, self.block)

    def scalars(self, sort: str) -> int:
        """Return the number of scalars of one element."""
        return math.prod(self.shape(sort))

    def log_depth(self, sort: str) -> int:
        """Return log2 of the number of elements that a buffer holds."""
        element = self.scalars(sort) * self.width(sort) // 8
        return int(getattr(self, f"log_{sort}_buffer")) - (element.bit_length() - 1)

    def depth(self, sort: str) -> int:
        """Return the number of elements that a buffer holds."""
        return 1 << self.log_depth(sort)

    # -- micro-ops: destination, source and weight index, from bit 0

    @property
    def micro_op_widths(self) -> tuple[int, int, int]:
        """Bits of the three indices of a micro-op."""
        return self.log_depth("acc"), self.log_depth("inp"), self.log_depth("wgt")

    def indices(self, micro_op: Expr) -> tuple[Expr, Expr, Expr]:
        """Return the destination, source and weight index of a micro-op."""
        acc, inp, wgt = self.micro_op_widths
        return extract(micro_op, 0, acc), extract(micro_op, acc, inp), extract(micro_op, acc + inp, wgt)

    def micro_op(self, dst: int, src: int, wgt: int = 0) -> int:
        """Return the 32-bit micro-op with these indices."""
        word, low = 0, 0
        for name, value, bits in zip(("dst", "src", "wgt"), (dst, src, wgt), self.micro_op_widths, strict=True):
            if not 0 <= value < 1 << bits:
                raise _refused(f"index {name} of a micro-op must be in 0…{(1 << bits) - 1}, not {value}")
            word, low = word | value << low, low + bits
        return word


RANGES = {"log_inp_width": (3, 5), "log_wgt_width": (3, 5), "log_acc_width": (4, 5), "log_uop_buffer": (2, 15)}


def _refused(sentence: str) -> UsageError:
    return UsageError("F203", sentence)
