"""HVX's scalar core: transfers, sums, products, loads and stores, and products of bytes in pairs of registers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rewrite_compiler.ila import Bits, Fields, Ila, joined
from rewrite_compiler.lang import NOTHING, Expr, Operand, Step, assign, lift, reduce_sum, seq, signed, update, wrap

from .encoding import declare
from .lanes import word

RD, RS, RT = Bits(0, 4), Bits(16, 20), Bits(8, 12)
OFFSET_WORDS = {"offset_low": Bits(5, 13), "offset": Bits(25, 26, signed=True)}
STORE_WORDS = {"offset_low": Bits(0, 7), "offset_mid": Bits(13, 13), "offset": Bits(25, 26, signed=True)}
SUM = {"imm_low": Bits(5, 13), "imm": Bits(21, 27, signed=True)}
TRANSFER = {"imm_low": Bits(5, 13), "imm_mid": Bits(16, 20), "imm": Bits(22, 23, signed=True)}
EXTENDED = {"rd": RD, "low": Bits(5, 10), "imm_low": Bits(32, 45), "imm_high": Bits(48, 59)}  # the extender lies in bits 63:32
EXTENDER = "extended by a constant"
PAIR_BYTES = {"vrmpybu": ("ub", 0xE8800020), "vrmpybsu": ("b", 0xE8C00020)}  # operation → type of the first operand, word
ACCUMULATING = 0x02000000


def signed_parts(f: Fields, parts: Mapping[str, Bits]) -> Expr:
    """Return the number whose parts are fields of an instruction, the lowest first; the last one is signed."""
    value, at = lift(0), 0
    for name, bits in parts.items():
        value, at = value + (f[name] << at), at + bits.width
    return value


def declare_scalar(m: Ila) -> None:
    """Declare the instructions of the scalar core."""
    r = m.s.r

    def value(name: str, syntax: str, base: int, fields: Mapping[str, Bits], result: object) -> None:
        def write(f: Fields) -> Step:
            return assign(r, wrap(result(f), 32, False), f.rd)  # type: ignore[operator]

        declare(m, name, base, {"rd": RD, **fields}, write, syntax)

    def product(f: Fields) -> Expr:  # of signed words: the low half is that of unsigned ones
        return signed(r[f.rs], 32) * signed(r[f.rt], 32)

    value("add", "Rd=add(Rs,Rt)", 0xF3000000, {"rs": RS, "rt": RT}, lambda f: r[f.rs] + r[f.rt])
    value("add_imm", "Rd=add(Rs,#s16)", 0xB0000000, {"rs": RS, **SUM}, lambda f: r[f.rs] + signed_parts(f, SUM))
    value("transfer_imm", "Rd=#s16", 0x78000000, TRANSFER, lambda f: signed_parts(f, TRANSFER))
    value("transfer", "Rd=Rs", 0x70600000, {"rs": RS}, lambda f: r[f.rs])
    value("mpyi", "Rd=mpyi(Rs,Rt)", 0xED000000, {"rs": RS, "rt": RT}, lambda f: product(f))
    value("mpyi_acc", "Rd+=mpyi(Rs,Rt)", 0xEF000000, {"rs": RS, "rt": RT}, lambda f: r[f.rd] + product(f))
    declare(m, "nop", 0x7F000000, {}, lambda _: NOTHING, "nop")
    _declare_extended(m)
    _declare_accesses(m)
    _declare_pairs(m)


def _declare_extended(m: Ila) -> None:
    def write(f: Fields) -> Step:
        return assign(m.s.r, (((f.imm_high << 14) + f.imm_low) << 6) + f.low, f.rd)

    # the high bits of the transfer's immediate are replaced; the extender has opcode 0, and 01 in its packet bits
    declare(m, "transfer_extended", 0x78000000, EXTENDED, write, "Rd=##u32", is_extended=True)


def _declare_accesses(m: Ila) -> None:
    memory, r = m.externals["dram"], m.s.r

    def bounded(name: str, f: Fields, parts: Mapping[str, Bits], size: int) -> tuple[Expr, Step]:
        address = wrap(r[f.rs] + size * signed_parts(f, parts), 32, False)
        verb = "writes" if "store" in name else "reads"
        sentence = f"{name} {verb} the bytes {{first}}…{{last}}; memory has {{start}}…{{end}}"
        return memory.index(address), memory.words(8).require(address, address + size - 1, sentence)

    def load(name: str, size: int, f: Fields) -> Step:
        at, whole = bounded(name, f, OFFSET_WORDS, size)
        return seq(whole, assign(r, joined(lambda k: memory.leaf[at + k], size), f.rd))

    def store(f: Fields) -> Step:
        at, whole = bounded("memw_store", f, STORE_WORDS, 4)
        return seq(whole, update(memory.leaf, 4, lambda k: (at + k, wrap(r[f.rt] >> 8 * k, 8, False))))

    loads = {"rd": RD, "rs": RS, **OFFSET_WORDS}
    declare(m, "memw_load", 0x91800000, loads, partial(load, "memw_load", 4), "Rd=memw(Rs+#s11:2)")
    declare(m, "memub_load", 0x91200000, loads, partial(load, "memub_load", 1), "Rd=memub(Rs+#s11)")
    declare(m, "memw_store", 0xA1800000, {"rs": RS, "rt": RT, **STORE_WORDS}, store, "memw(Rs+#s11:2)=Rt")


def _declare_pairs(m: Ila) -> None:
    """Declare operations on eight bytes in two registers; a pair is named by its even register."""
    r = m.s.r
    fields = {"rdd": Bits(1, 4), "rss": Bits(17, 20), "rtt": Bits(9, 12)}

    def byte(pair: Expr, n: Operand, type: str = "ub") -> Expr:
        return word(lambda _: wrap(r[2 * pair + lift(n) // 4] >> lift(n) % 4 * 8, 8, False), type)

    def add(f: Fields) -> Step:
        def total(half: Expr) -> tuple[Expr, Expr]:
            return 2 * f.rdd + half, joined(lambda k: wrap(byte(f.rss, 4 * half + k) + byte(f.rtt, 4 * half + k), 8, False), 4)

        return update(r, 2, total)

    def products(type: str, accumulates: bool, f: Fields) -> Step:
        def total(half: Expr) -> tuple[Expr, Expr]:
            dot = reduce_sum(lambda k: byte(f.rss, 4 * half + k, type) * byte(f.rtt, 4 * half + k), 4)
            return 2 * f.rdd + half, wrap(dot + r[2 * f.rdd + half] if accumulates else dot, 32, False)

        return update(r, 2, total)

    declare(m, "vaddub", 0xD3000000, fields, add, "Rdd=vaddub(Rss,Rtt)")
    for name, (lanes, base) in PAIR_BYTES.items():
        declare(m, name, base, fields, partial(products, lanes, False), f"Rdd={name}(Rss,Rtt)")
        declare(m, f"{name}_acc", base | ACCUMULATING, fields, partial(products, lanes, True), f"Rdd+={name}(Rss,Rtt)")
