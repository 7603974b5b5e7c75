"""VTA instruction words: 128 bits, fields from bit 0 of each half; one row a field."""

from rewrite_compiler.ila import Bits, layout

from .config import ENCODINGS, ITERATION_BITS, Config

LOAD, STORE, GEMM, FINISH, ALU = range(5)
UOP, WGT, INP, ACC, OUT, ACC_8BIT = range(6)
MIN, MAX, ADD, SHR, MUL = range(5)
HALF = 64
Words = dict[str, dict[str, Bits]]  # form of an instruction → its fields


def words(c: Config) -> Words:
    """Return the fields of every form of instruction of a design; `reset` of an ALU instruction is ignored."""
    memory_type, alu_opcode = ENCODINGS[c.encoding]
    uop, acc, inp, wgt = (c.log_depth(sort) for sort in ("uop", "acc", "inp", "wgt"))
    finish = layout(0, opcode=3, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
    bases = layout(7, memory_type=memory_type, sram_base=16, dram_base=32)  # bases, sizes and strides count elements
    sizes = layout(HALF, y_size=16, x_size=16, x_stride=16, y_pad_0=4, y_pad_1=4, x_pad_0=4, x_pad_1=4)
    loops = layout(7, reset=1, uop_bgn=uop, uop_end=uop + 1, iter_out=ITERATION_BITS, iter_in=ITERATION_BITS)
    factors = {"dst_factor_out": acc, "dst_factor_in": acc, "src_factor_out": inp, "src_factor_in": inp}
    return {
        "finish": finish,
        "transfer": finish | bases | sizes,
        "gemm": finish | loops | layout(HALF, **factors, wgt_factor_out=wgt, wgt_factor_in=wgt),
        "alu": finish | loops | layout(HALF, **factors, alu_opcode=alu_opcode, use_imm=1, imm=-16),
    }
