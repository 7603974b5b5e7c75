"""GeneSys instruction words: 32 bits, the opcode on top; fields in the order of the assembly text, with the names of their values."""

from __future__ import annotations

from rewrite_compiler.ila import Bits, Fields
from rewrite_compiler.lang import Expr, extract, wrap

OPCODE, FUNCTION = Bits(28, 31), Bits(24, 27)
HALVES, SIMD_HALVES = {"LOW": 0, "HIGH": 1}, {"LSB": 0, "MSB": 1}
LD, ST, RD, WR = range(4)
ACCESSES = {"LD": LD, "ST": ST, "RD": RD, "WR": WR}
WBUF, IBUF, OBUF, BBUF = range(4)
BUFFERS = {"WBUF": WBUF, "IBUF": IBUF, "OBUF": OBUF, "BBUF": BBUF}
SPACES = {"OBUF": 0, "IBUF": 1, "VMEM1": 2, "VMEM2": 3, "IMM": 4}
SYSTOLIC, SIMD = 0, 1
Layout = dict[str, Bits]


IMMEDIATE = Bits(0, 15)
LOOP_CFG: Layout = {"reserved": Bits(22, 27), "loop": Bits(16, 21), "count": IMMEDIATE}
REDUCTION: Layout = {
    "reserved": Bits(22, 27), "loop": Bits(16, 21), "level": Bits(2, 15),
    "dimension": Bits(0, 1),
}  # fmt: skip
STRIDE: Layout = {
    "half": Bits(27, 27), "access": Bits(24, 26), "buffer": Bits(22, 23), "loop": Bits(16, 21),
    "immediate": IMMEDIATE,
}  # fmt: skip
MEMORIES = {"BUFFER": 0, "IMEM": 1}
BASE: Layout = {
    "half": Bits(27, 27), "memory": Bits(26, 26), "buffer": Bits(22, 25), "reserved": Bits(16, 21),
    "immediate": IMMEDIATE,
}  # fmt: skip
TRANSFER: Layout = {
    "direction": Bits(27, 27), "memory": Bits(26, 26), "buffer": Bits(22, 25),
    "loop": Bits(16, 21), "size": IMMEDIATE,
}  # fmt: skip
UNITS, PHASES, KINDS = {"SYSTOLIC_ARRAY": SYSTOLIC, "SIMD": SIMD}, {"START": 0, "END": 1}, {"EXEC": 0, "BUF": 1}
SYNC: dict[str, Layout] = {
    "current": {
        "unit": Bits(27, 27), "phase": Bits(26, 26), "kind": Bits(25, 25), "reserved": Bits(22, 24),
        "group": Bits(16, 21), "count": IMMEDIATE,
    },
    "older": {
        "unit": Bits(27, 27), "phase": Bits(26, 26), "group": Bits(18, 23), "reserved": Bits(16, 17), "count": IMMEDIATE,
        "kind": Bits(25, 25), "reserved_high": Bits(24, 24),
    },
}  # fmt: skip
BLOCK: Layout = {"last": IMMEDIATE, "reserved": Bits(16, 27)}
OPERANDS: Layout = {
    "dst_space": Bits(21, 23), "dst_index": Bits(16, 20), "src1_space": Bits(13, 15), "src1_index": Bits(8, 12),
    "src2_space": Bits(5, 7), "src2_index": Bits(0, 4),
}  # fmt: skip
TYPES = {"32FXP": 0, "16FXP": 1, "8FXP": 2, "32FP": 3, "16FP": 4}
DTYPE: Layout = {"type": Bits(24, 27), "dst": Bits(16, 23), "src1": Bits(8, 15), "src2": Bits(0, 7)}
SIMD_TRANSFER: Layout = {
    "half": Bits(23, 23), "space": Bits(21, 22), "loop": Bits(16, 20), "immediate": IMMEDIATE,
}  # fmt: skip
ITERATOR: Layout = {"space": Bits(21, 23), "index": Bits(16, 20), "immediate": IMMEDIATE}
LEVEL: Layout = {"level": Bits(21, 23), "reserved": Bits(16, 20), "immediate": IMMEDIATE}
# field → the names of its values in assembly text
VALUES: dict[str, dict[str, int]] = {
    "half": HALVES | SIMD_HALVES, "access": ACCESSES, "buffer": BUFFERS, "memory": MEMORIES, "direction": {"LD": LD, "ST": ST},
    "level": {"INNER": 0, "OUTER": 1}, "dimension": {"IC": 0, "KW": 1, "KH": 2}, "unit": UNITS, "phase": PHASES, "kind": KINDS,
    "type": TYPES, "space": SPACES, "side": {"READ": 0, "WRITE": 1}, **{f"{name}_space": SPACES for name in ("dst", "src1", "src2")},
}  # fmt: skip
PERMUTATION: Layout = {"reserved": Bits(22, 23), "side": Bits(21, 21), "loop": Bits(16, 20), "immediate": IMMEDIATE}


def fields_of(word: Expr, layout: Layout) -> Fields:
    """Return the fields of a word that a state holds."""
    return Fields({name: extract(word, bits.low, bits.width) for name, bits in layout.items()})


def with_half(old: Expr, half: Expr, immediate: Expr) -> Expr:
    """Return a signed word of 32 bits of which one half (0 the low one) is replaced."""
    unsigned = wrap(old, 32, False)
    low, high = extract(unsigned, 0, 16), extract(unsigned, 16, 16)
    return wrap((high << 16) + immediate + half * ((immediate << 16) + low - (high << 16) - immediate), 32, True)
