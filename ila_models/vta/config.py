"""VTA configuration: one design, its sizes as powers of two; the defaults are those of every shipped configuration."""

import math
from dataclasses import dataclass

from rewrite_compiler.ila import Bits, check_design, choice, demand, layout, pack, within
from rewrite_compiler.lang import Expr, extract

UOP_BYTES = 4
UOP_BITS = 8 * UOP_BYTES
ITERATION_BITS = 14
BEHAVIOURS = ("fsim", "hls", "ila")
# encoding → bits of memory_type, bits of alu_opcode
ENCODINGS = {"current": (3, 3), "ila3": (2, 3), "old": (2, 2)}


@dataclass(frozen=True)
class Config:
    """Encoding of instructions; whether functional simulator, HLS hardware or published ILA is followed where they differ; sizes.

    These are binary logarithms: widths in bits, batch and block in elements, buffers in bytes. Outputs are as wide as inputs.
    """

    encoding: str = choice(*ENCODINGS)
    behaviour: str = choice(*BEHAVIOURS)
    log_inp_width: int = within(3, 5, 3)
    log_wgt_width: int = within(3, 5, 3)
    log_acc_width: int = within(4, 5, 5)
    log_batch: int = within(0, 24, 0)
    log_block: int = within(0, 24, 4)
    log_uop_buffer: int = within(2, 15, 15)
    log_inp_buffer: int = within(0, 24, 15)
    log_wgt_buffer: int = within(0, 24, 18)
    log_acc_buffer: int = within(0, 24, 17)

    def __post_init__(self) -> None:
        check_design("vta", self)
        for sort in ("uop", "inp", "wgt", "acc"):
            name, depth = f"log_{sort}_buffer", self.log_depth(sort)
            value = vars(self)[name]
            demand(depth >= 0, f"parameter {name} of vta must be at least {value - depth} (one element), not {value}")
        acc, inp, wgt = (self.log_depth(sort) for sort in ("acc", "inp", "wgt"))
        for word, bits, needed in (
            ("a micro-op", UOP_BITS, acc + inp + wgt),
            ("the first half of a GEMM", 64, 8 + 2 * self.log_depth("uop") + 1 + 2 * ITERATION_BITS),
            ("the second half of a GEMM", 64, 2 * (acc + inp + wgt)),
            ("the second half of an ALU instruction", 64, 2 * (acc + inp) + 20),
        ):
            sentence = f"{word} of vta must fit in {bits} bits, not {needed}"
            demand(needed <= bits, sentence, help="make the buffers smaller or the block larger")

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
        return UOP_BITS if sort == "uop" else 1 << int(vars(self)[f"log_{sort.replace('out', 'inp')}_width"])

    def shape(self, sort: str) -> tuple[int, ...]:
        """Return the extents of one element."""
        return () if sort == "uop" else (self.block, self.block) if sort == "wgt" else (self.batch, self.block)

    def scalars(self, sort: str) -> int:
        """Return the number of scalars of one element."""
        return math.prod(self.shape(sort))

    def log_depth(self, sort: str) -> int:
        """Return log2 of the number of elements that a buffer holds."""
        element = self.scalars(sort) * self.width(sort) // 8
        return int(vars(self)[f"log_{sort}_buffer"]) - (element.bit_length() - 1)

    def depth(self, sort: str) -> int:
        """Return the number of elements that a buffer holds; outputs are as many as accumulators."""
        return 1 << self.log_depth(sort.replace("out", "acc"))

    @property
    def micro_op_fields(self) -> dict[str, Bits]:
        """The fields of a micro-op: destination, source and weight index."""
        return layout(0, dst=self.log_depth("acc"), src=self.log_depth("inp"), wgt=self.log_depth("wgt"))

    def indices(self, micro_op: Expr) -> tuple[Expr, ...]:
        """Return the destination, source and weight index of a micro-op."""
        return tuple(extract(micro_op, bits.low, bits.width) for bits in self.micro_op_fields.values())

    def micro_op(self, dst: int, src: int, wgt: int = 0) -> int:
        """Return the 32-bit micro-op with these indices."""
        return pack("a micro-op", self.micro_op_fields, {"dst": dst, "src": src, "wgt": wgt})
