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
VECTORS = {"VMEM1": 2, "VMEM2": 3}
SYSTOLIC, SIMD = 0, 1
Layout = dict[str, Bits]
MEMORIES, DIRECTIONS = {"BUFFER": 0, "IMEM": 1}, {"LD": LD, "ST": ST}
LEVELS, DIMENSIONS = {"INNER": 0, "OUTER": 1}, {"IC": 0, "KW": 1, "KH": 2}
UNITS, PHASES, KINDS = {"SYSTOLIC_ARRAY": SYSTOLIC, "SIMD": SIMD}, {"START": 0, "END": 1}, {"EXEC": 0, "BUF": 1}
TYPES = {"32FXP": 0, "16FXP": 1, "8FXP": 2, "32FP": 3, "16FP": 4}
SIDES = {"READ": 0, "WRITE": 1}

IMMEDIATE = Bits(0, 15)
LOOP_CFG: Layout = {"reserved": Bits(22, 27), "loop": Bits(16, 21), "count": IMMEDIATE}
REDUCTION: Layout = {
    "reserved": Bits(22, 27), "loop": Bits(16, 21), "level": Bits(2, 15, names=LEVELS),
    "dimension": Bits(0, 1, names=DIMENSIONS),
}  # fmt: skip
STRIDE: Layout = {
    "half": Bits(27, 27, names=HALVES), "access": Bits(24, 26, names=ACCESSES), "buffer": Bits(22, 23, names=BUFFERS), "loop": Bits(16, 21),
    "immediate": IMMEDIATE,
}  # fmt: skip
BASE: Layout = {
    "half": Bits(27, 27, names=HALVES), "memory": Bits(26, 26, names=MEMORIES), "buffer": Bits(22, 25, names=BUFFERS),
    "reserved": Bits(16, 21), "immediate": IMMEDIATE,
}  # fmt: skip
TRANSFER: Layout = {
    "direction": Bits(27, 27, names=DIRECTIONS), "memory": Bits(26, 26, names=MEMORIES), "buffer": Bits(22, 25, names=BUFFERS),
    "loop": Bits(16, 21), "size": IMMEDIATE,
}  # fmt: skip
SYNC: dict[str, Layout] = {
    "current": {
        "unit": Bits(27, 27, names=UNITS), "phase": Bits(26, 26, names=PHASES), "kind": Bits(25, 25, names=KINDS), "reserved": Bits(22, 24),
        "group": Bits(16, 21), "count": IMMEDIATE,
    },
    "older": {
        "unit": Bits(27, 27, names=UNITS), "phase": Bits(26, 26, names=PHASES), "group": Bits(18, 23), "reserved": Bits(16, 17),
        "count": IMMEDIATE, "kind": Bits(25, 25, names=KINDS), "reserved_high": Bits(24, 24),
    },
}  # fmt: skip
BLOCK: Layout = {"last": IMMEDIATE, "reserved": Bits(16, 27)}
OPERANDS: Layout = {
    "dst_space": Bits(21, 23, names=SPACES), "dst_index": Bits(16, 20), "src1_space": Bits(13, 15, names=SPACES), "src1_index": Bits(8, 12),
    "src2_space": Bits(5, 7, names=SPACES), "src2_index": Bits(0, 4),
}  # fmt: skip
DTYPE: Layout = {"type": Bits(24, 27, names=TYPES), "dst": Bits(16, 23), "src1": Bits(8, 15), "src2": Bits(0, 7)}
SIMD_TRANSFER: Layout = {
    "half": Bits(23, 23, names=SIMD_HALVES), "space": Bits(21, 22, names=VECTORS), "loop": Bits(16, 20), "immediate": IMMEDIATE,
}  # fmt: skip
ITERATOR: Layout = {"space": Bits(21, 23, names=SPACES), "index": Bits(16, 20), "immediate": IMMEDIATE}
LEVEL: Layout = {"level": Bits(21, 23), "reserved": Bits(16, 20), "immediate": IMMEDIATE}
PERMUTATION: Layout = {"reserved": Bits(22, 23), "side": Bits(21, 21, names=SIDES), "loop": Bits(16, 20), "immediate": IMMEDIATE}


def fields_of(word: Expr, layout: Layout) -> Fields:
    """Return the fields of a word that a state holds."""
    return Fields({name: extract(word, bits.low, bits.width) for name, bits in layout.items()})


def with_half(old: Expr, half: Expr, immediate: Expr) -> Expr:
    """Return a signed word of 32 bits of which one half (0 the low one) is replaced."""
    unsigned = wrap(old, 32, False)
    low, high = extract(unsigned, 0, 16), extract(unsigned, 16, 16)
    return wrap((high << 16) + immediate + half * ((immediate << 16) + low - (high << 16) - immediate), 32, True)
