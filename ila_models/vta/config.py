"""VTA configuration: the sizes of one design, as powers of two; the defaults are those of every shipped configuration."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rewrite_compiler.errors import UsageError
from rewrite_compiler.lang import Array, Expr, extract

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
            low, high = RANGES.get(name, (0, 24))
            if not low <= getattr(self, name) <= high:
                raise UsageError("F203", f"parameter {name} of vta must be in {low}…{high}, not {getattr(self, name)}")
        for sort in ("uop", "inp", "wgt", "acc"):
            if self.log_depth(sort) < 0:
                raise UsageError("F203", f"parameter log_{sort}_buffer of vta must hold one element, not {self.log_depth(sort)} doublings of it")
        self._fits("a micro-op", UOP_BITS, sum(self.micro_op_widths))
        self._fits("the first half of a GEMM", 64, 8 + 2 * self.log_depth("uop") + 1 + 2 * ITERATION_BITS)
        self._fits("the second half of a GEMM", 64, 2 * sum(self.micro_op_widths))
        self._fits("the second half of an ALU instruction", 64, 2 * (self.log_depth("acc") + self.log_depth("inp")) + 20)

    def _fits(self, word: str, bits: int, needed: int) -> None:
        if needed > bits:
            raise UsageError("F203", f"{word} of vta must fit in {bits} bits, not {needed}", help="make the buffers smaller or the block larger")

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
        return UOP_BITS if sort == "uop" else 1 << {"inp": self.log_inp_width, "wgt": self.log_wgt_width, "acc": self.log_acc_width}[sort]

    def shape(self, sort: str) -> tuple[int, ...]:
        """Return the extents of one element."""
        return () if sort == "uop" else (self.block, self.block) if sort == "wgt" else (self.batch, self.block)

    def scalars(self, sort: str) -> int:
        """Return the number of scalars of one element."""
        count = 1
        for n in self.shape(sort):
            count *= n
        return count

    def log_depth(self, sort: str) -> int:
        """Return log2 of the number of elements that a buffer holds."""
        element = self.scalars(sort) * self.width(sort) // 8
        return {
            "uop": self.log_uop_buffer,
            "inp": self.log_inp_buffer,
            "wgt": self.log_wgt_buffer,
            "acc": self.log_acc_buffer,
        }[sort] - (element.bit_length() - 1)

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
                raise UsageError("F203", f"index {name} of a micro-op must be in 0…{(1 << bits) - 1}, not {value}")
            word, low = word | value << low, low + bits
        return word


RANGES = {"log_inp_width": (3, 5), "log_wgt_width": (3, 5), "log_acc_width": (4, 5), "log_uop_buffer": (2, 15)}


def flat(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr | int:
    """Return the row-major position of a scalar in its element."""
    place: Expr | int = 0
    for i, n in zip(index, shape, strict=True):
        place = place * n + i
    return place


__all__ = ["ITERATION_BITS", "UOP_BITS", "Array", "Config", "flat"]
