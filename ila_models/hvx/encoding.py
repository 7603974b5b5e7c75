"""HVX encodings: one row an instruction, its syntax as the manufacturer writes it, the word with empty fields, and its class.

Operands of the syntax name their fields: Vd, Vdd, Qd results; Vx, Vxx accumulators; Vu, Vv, Qs, Qt, Qv, Rt sources; #u3 an
immediate. Bits 15:14 are the packet's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from rewrite_compiler.ila import Bits, Fields, Ila
from rewrite_compiler.lang import Step

VECTOR_TABLE = """
1fa000c0 VA    Vd.b=vadd(Vu.b,Vv.b)
1f000000 VA    Vd.b=vadd(Vu.b,Vv.b):sat
1fa000e0 VA    Vd.h=vadd(Vu.h,Vv.h)
1c400060 VA    Vd.h=vadd(Vu.h,Vv.h):sat
1c400000 VA    Vd.w=vadd(Vu.w,Vv.w)
1c400080 VA    Vd.w=vadd(Vu.w,Vv.w):sat
1c400020 VA    Vd.ub=vadd(Vu.ub,Vv.ub):sat
1c400040 VA    Vd.uh=vadd(Vu.uh,Vv.uh):sat
1f600020 VA    Vd.uw=vadd(Vu.uw,Vv.uw):sat
1c4000a0 VA    Vd.b=vsub(Vu.b,Vv.b)
1f200040 VA    Vd.b=vsub(Vu.b,Vv.b):sat
1c4000c0 VA    Vd.h=vsub(Vu.h,Vv.h)
1c600040 VA    Vd.h=vsub(Vu.h,Vv.h):sat
1c4000e0 VA    Vd.w=vsub(Vu.w,Vv.w)
1c600060 VA    Vd.w=vsub(Vu.w,Vv.w):sat
1c600000 VA    Vd.ub=vsub(Vu.ub,Vv.ub):sat
1c600020 VA    Vd.uh=vsub(Vu.uh,Vv.uh):sat
1fc00080 VA    Vd.uw=vsub(Vu.uw,Vv.uw):sat
1f0000a0 VA    Vd.ub=vmax(Vu.ub,Vv.ub)
1f2000a0 VA    Vd.b=vmax(Vu.b,Vv.b)
1f0000e0 VA    Vd.h=vmax(Vu.h,Vv.h)
1f0000c0 VA    Vd.uh=vmax(Vu.uh,Vv.uh)
1f200000 VA    Vd.w=vmax(Vu.w,Vv.w)
1f000020 VA    Vd.ub=vmin(Vu.ub,Vv.ub)
1f200080 VA    Vd.b=vmin(Vu.b,Vv.b)
1f000060 VA    Vd.h=vmin(Vu.h,Vv.h)
1f000040 VA    Vd.uh=vmin(Vu.uh,Vv.uh)
1f000080 VA    Vd.w=vmin(Vu.w,Vv.w)
1c2000a0 VA    Vd=vand(Vu,Vv)
1c2000c0 VA    Vd=vor(Vu,Vv)
1c2000e0 VA    Vd=vxor(Vu,Vv)
1e000080 VA    Vd=vnot(Vu)
1e0320e0 VA    Vd=Vu
19a00020 VX    Vd=vsplat(Rt)
19c00040 VX    Vd.b=vsplat(Rt)
19c00020 VX    Vd.h=vsplat(Rt)
19000080 VX    Vd.w=vrmpy(Vu.ub,Rt.b)
190020a0 VX    Vx.w+=vrmpy(Vu.ub,Rt.b)
19000060 VX    Vd.uw=vrmpy(Vu.ub,Rt.ub)
19002080 VX    Vx.uw+=vrmpy(Vu.ub,Rt.ub)
1c000040 VX    Vd.w=vrmpy(Vu.ub,Vv.b)
1c002040 VX_DV Vx.w+=vrmpy(Vu.ub,Vv.b)
1c000020 VX    Vd.w=vrmpy(Vu.b,Vv.b)
1c002020 VX_DV Vx.w+=vrmpy(Vu.b,Vv.b)
1c000000 VX    Vd.uw=vrmpy(Vu.ub,Vv.ub)
1c002000 VX_DV Vx.uw+=vrmpy(Vu.ub,Vv.ub)
192000a0 VX_DV Vdd.h=vmpy(Vu.ub,Rt.b)
1c0000c0 VX_DV Vdd.h=vmpy(Vu.ub,Vv.b)
1c000080 VX_DV Vdd.h=vmpy(Vu.b,Vv.b)
1c0000e0 VX_DV Vdd.w=vmpy(Vu.h,Vv.h)
19400000 VX_DV Vdd.w=vmpy(Vu.h,Rt.h)
1c0020c0 VX_DV Vxx.h+=vmpy(Vu.ub,Vv.b)
1c0020e0 VX_DV Vxx.w+=vmpy(Vu.h,Vv.h)
1c200080 VX_DV Vd.h=vmpyi(Vu.h,Vv.h)
1c202080 VX_DV Vx.h+=vmpyi(Vu.h,Vv.h)
1fc00020 VX_DV Vd.w=vmpyio(Vu.w,Vv.h)
1fc00000 VX_DV Vd.w=vmpyie(Vu.w,Vv.uh)
1f600000 VX    Vd.w=vmpyieo(Vu.h,Vv.h)
1fe000a0 VX_DV Vd.w=vmpye(Vu.w,Vv.uh)
1fe000e0 VX_DV Vd.w=vmpyo(Vu.w,Vv.h):<<1:sat
1f400000 VX_DV Vd.w=vmpyo(Vu.w,Vv.h):<<1:rnd:sat
19a00000 VX    Vd.w=vmpyi(Vu.w,Rt.b)
1c200020 VX_DV Vd.h=vmpy(Vu.h,Vv.h):<<1:rnd:sat
196000a0 VS    Vd.w=vasr(Vu.w,Rt)
196000e0 VS    Vd.w=vasl(Vu.w,Rt)
19800020 VS    Vd.uw=vlsr(Vu.uw,Rt)
196000c0 VS    Vd.h=vasr(Vu.h,Rt)
19800000 VS    Vd.h=vasl(Vu.h,Rt)
1fa00000 VS    Vd.w=vasr(Vu.w,Vv.w)
1fa00080 VS    Vd.w=vasl(Vu.w,Vv.w)
196020a0 VS    Vx.w+=vasr(Vu.w,Rt)
19602040 VS    Vx.w+=vasl(Vu.w,Rt)
1b000040 VS    Vd.h=vasr(Vu.w,Vv.w,Rt)
1b000060 VS    Vd.h=vasr(Vu.w,Vv.w,Rt):sat
1b000080 VS    Vd.h=vasr(Vu.w,Vv.w,Rt):rnd:sat
1b0000a0 VS    Vd.uh=vasr(Vu.w,Vv.w,Rt):sat
1b0000c0 VS    Vd.ub=vasr(Vu.h,Vv.h,Rt):sat
1b0000e0 VS    Vd.ub=vasr(Vu.h,Vv.h,Rt):rnd:sat
18000000 VS    Vd.b=vasr(Vu.h,Vv.h,Rt):sat
1b002000 VS    Vd.b=vasr(Vu.h,Vv.h,Rt):rnd:sat
1fe00000 VP    Vd.h=vpack(Vu.w,Vv.w):sat
1fc000e0 VP    Vd.uh=vpack(Vu.w,Vv.w):sat
1fc000a0 VP    Vd.ub=vpack(Vu.h,Vv.h):sat
1fc000c0 VP    Vd.b=vpack(Vu.h,Vv.h):sat
1fc00040 VP    Vd.b=vpacke(Vu.h,Vv.h)
1fc00060 VP    Vd.h=vpacke(Vu.w,Vv.w)
1fe00020 VP    Vd.b=vpacko(Vu.h,Vv.h)
1fe00040 VP    Vd.h=vpacko(Vu.w,Vv.w)
1f600080 VS    Vd.h=vround(Vu.w,Vv.w):sat
1f6000e0 VS    Vd.ub=vround(Vu.h,Vv.h):sat
1f2000e0 VP    Vd.b=vdeale(Vu.b,Vv.b)
1e0000e0 VP    Vd.b=vdeal(Vu.b)
1e0000c0 VP    Vd.h=vdeal(Vu.h)
1e020000 VP    Vd.b=vshuff(Vu.b)
1e0100e0 VP    Vd.h=vshuff(Vu.h)
1f400020 VA    Vd.b=vshuffe(Vu.b,Vv.b)
1f400040 VA    Vd.b=vshuffo(Vu.b,Vv.b)
1f400060 VA    Vd.h=vshuffe(Vu.h,Vv.h)
1f400080 VA    Vd.h=vshuffo(Vu.h,Vv.h)
1b002060 VP_VS Vdd=vshuff(Vu,Vv,Rt)
1b002080 VP_VS Vdd=vdeal(Vu,Vv,Rt)
1f4000e0 VA_DV Vdd=vcombine(Vu,Vv)
1e010040 VP_VS Vdd.h=vunpack(Vu.b)
1e010000 VP_VS Vdd.uh=vunpack(Vu.ub)
1e010060 VP_VS Vdd.w=vunpack(Vu.h)
1e020060 VA_DV Vdd.h=vsxt(Vu.b)
1e020020 VA_DV Vdd.uh=vzxt(Vu.ub)
1e020080 VA_DV Vdd.w=vsxt(Vu.h)
1ca00040 VX_DV Vdd.h=vadd(Vu.ub,Vv.ub)
1ca00080 VX_DV Vdd.w=vadd(Vu.h,Vv.h)
1ca000a0 VX_DV Vdd.h=vsub(Vu.ub,Vv.ub)
1b000000 VP    Vd=valign(Vu,Vv,Rt)
1b000020 VP    Vd=vlalign(Vu,Vv,Rt)
1e202000 VP    Vd=valign(Vu,Vv,#u3)
19600020 VP    Vd=vror(Vu,Rt)
1cc00080 VA    Vd.ub=vavg(Vu.ub,Vv.ub)
1ce00060 VA    Vd.ub=vavg(Vu.ub,Vv.ub):rnd
1cc000c0 VA    Vd.h=vavg(Vu.h,Vv.h)
1ce000c0 VA    Vd.w=vavg(Vu.w,Vv.w):rnd
1e000040 VA    Vd.w=vabs(Vu.w)
1e000020 VA    Vd.h=vabs(Vu.h):sat
1cc00000 VX    Vd.ub=vabsdiff(Vu.ub,Vv.ub)
1b002020 VP    Vd.b=vlut32(Vu.b,Vv.b,Rt)
1b0020a0 VP_VS Vx.b|=vlut32(Vu.b,Vv.b,Rt)
1e200000 VP    Vd.b=vlut32(Vu.b,Vv.b,#u3)
1b0020c0 VP_VS Vdd.h=vlut16(Vu.b,Vv.h,Rt)
1f800010 VA    Qd=vcmp.gt(Vu.b,Vv.b)
1f800014 VA    Qd=vcmp.gt(Vu.h,Vv.h)
1f800018 VA    Qd=vcmp.gt(Vu.w,Vv.w)
1f800020 VA    Qd=vcmp.gt(Vu.ub,Vv.ub)
1f800024 VA    Qd=vcmp.gt(Vu.uh,Vv.uh)
1f800028 VA    Qd=vcmp.gt(Vu.uw,Vv.uw)
1f800000 VA    Qd=vcmp.eq(Vu.b,Vv.b)
1f800004 VA    Qd=vcmp.eq(Vu.h,Vv.h)
1f800008 VA    Qd=vcmp.eq(Vu.w,Vv.w)
19a00044 VP    Qd=vsetq(Rt)
1ee02000 VA    Vd=vmux(Qv,Vu,Vv)
1e012040 VA    if (Qv) Vx.w+=Vu.w
1e022020 VA    if (!Qv) Vx.b-=Vu.b
1e030000 VA_DV Qd=and(Qs,Qt)
1e030008 VA    Qd=not(Qs)
"""
# operand of the syntax → its field; a row with three sources has Vv and a scalar in narrower places
PLACES = {
    "Vd": Bits(0, 4), "Vx": Bits(0, 4), "Vdd": Bits(1, 4), "Vxx": Bits(1, 4), "Qd": Bits(0, 1), "Vu": Bits(8, 12), "Vv": Bits(16, 20),
    "Rt": Bits(16, 20), "Qs": Bits(8, 9), "Qt": Bits(22, 23), "#u3": Bits(5, 7),
}  # fmt: skip
THREE_SOURCES = {"Vv": Bits(19, 23), "Rt": Bits(16, 18)}
PREDICATES = {"vmux": Bits(5, 6), "if": Bits(22, 23)}  # where Qv lies
PACKET_BITS = (14, 15)
CUTS = (0, 1, 2, 3, 5, 7, 8, 10, 11, 13, 14, 16, 19, 21, 22, 23, 24, 25, 27, 32)  # where a field of any instruction begins
SYNTAX = re.compile(
    r"(?:if \((?P<negated>!?)Qv\) )?(?P<result>[VQ][a-z]+)(?:\.(?P<type>u?[bhw]))?(?P<with>[-+|]?)="
    r"(?P<operation>[a-z][\w.]*)?\(?(?P<sources>[^()]*)\)?(?P<flags>[:\w<]*)"
)


@dataclass(frozen=True)
class Row:
    """An instruction: its syntax, the bits that are not operands, and the class that says what of a packet it takes."""

    syntax: str
    word: int
    sort: str

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """The parts of the syntax by name; what is left out is empty."""
        match = SYNTAX.fullmatch(self.syntax)
        assert match is not None, self.syntax
        return {name: text or "" for name, text in match.groupdict().items()}

    @property
    def operation(self) -> str:
        """The operation's name; "" for a copy."""
        return self.parts["operation"]

    @property
    def result(self) -> str:
        """The operand that is written."""
        return self.parts["result"]

    @property
    def type(self) -> str:
        """The lane type of the result; "" where the syntax has none."""
        return self.parts["type"]

    @cached_property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """The operands that are read, each with its lane type."""
        names = (text.partition(".") for text in self.parts["sources"].split(","))
        return tuple((name, lanes) for name, _, lanes in names)

    @property
    def flags(self) -> frozenset[str]:
        """The flags: sat, rnd, <<1."""
        return frozenset(filter(None, self.parts["flags"].split(":")))

    @cached_property
    def name(self) -> str:
        """The name of the instruction: operation, lane types, what it does with the old result, flags."""
        how = {"+": "acc", "-": "dec", "|": "or", "": ""}[self.parts["with"]]
        forms = [f"{name[0].lower() if name[0] in 'RQ#' else ''}{lanes}".replace("#", "imm") for name, lanes in self.sources]
        condition = {"!": "unless", "": "if"}[self.parts["negated"]] if self.syntax.startswith("if") else ""
        shape = {"Vdd": "pair", "Vxx": "pair"}.get(self.result, "")
        flags = [flag.replace("<<", "shl") for flag in self.parts["flags"].split(":")]
        words = (self.operation.replace(".", "_") or "copy", self.type, *forms, shape, condition, how, *flags)
        return "_".join(filter(None, words))

    @cached_property
    def fields(self) -> dict[str, Bits]:
        """The fields of the operands, by their names in lower case; the immediate is `imm`."""
        names = [self.result, *(name for name, _ in self.sources), *(("Qv",) if self.syntax.startswith("if") else ())]
        is_narrow = {"Vv", "Rt"} <= {*names}
        places = {**PLACES, **(THREE_SOURCES if is_narrow else {}), "Qv": PREDICATES["if" if self.syntax.startswith("if") else "vmux"]}
        return {"imm" if name == "#u3" else name.lower(): places[name] for name in names if name}


def fixed_bits(fields: Mapping[str, Bits]) -> dict[str, Bits]:
    """Return the fields of the bits that are no operand's, cut where fields of other instructions begin."""
    taken = {n for bits in fields.values() for n in range(bits.low, bits.high + 1)} | {*PACKET_BITS}
    free = [n for n in range(32) if n not in taken]
    layout: dict[str, Bits] = {}
    first = None
    for n in free:
        first = n if first is None else first
        if n + 1 in CUTS or n + 1 not in free:
            layout[f"bits_{n}_{first}"], first = Bits(first, n), None
    return layout


def declare(
    m: Ila, name: str, word: int, fields: Mapping[str, Bits], update: Callable[[Fields], Step], doc: str, *, is_extended: bool = False
) -> None:  # fmt: skip
    """Add the instruction of a word with operands; one that is not extended has an empty extender."""
    layout = fixed_bits(fields)
    having = {key: word >> bits.low & (1 << bits.width) - 1 for key, bits in layout.items()} | {"sequence": 0}
    if is_extended:
        layout |= {"extender_opcode": Bits(60, 63), "extender_packet": Bits(46, 47)}
        having |= {"extender_opcode": 0, "extender_packet": 1}
    else:
        layout |= {"extender": Bits(32, 63)}
        having |= {"extender": 0}
    m.encoded(name, {**layout, "sequence": Bits(64, 71), **fields}, having, update, doc=doc)


def declare_row(m: Ila, row: Row, update_of: Callable[[Ila, Row], Callable[[Fields], Step]]) -> None:
    """Add the instruction of a row."""
    declare(m, row.name, row.word, row.fields, update_of(m, row), row.syntax)


def rows(table: str) -> tuple[Row, ...]:
    """Return the rows of a table."""
    lines = (line.split(maxsplit=2) for line in table.strip().splitlines())
    return tuple(Row(syntax, int(word, 16), sort) for word, sort, syntax in lines)


ROWS = rows(VECTOR_TABLE)
