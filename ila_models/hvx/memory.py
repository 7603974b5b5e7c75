"""HVX memory instructions: aligned and unaligned vectors, with an offset or a step of the address, and stores under a predicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rewrite_compiler.ila import Bits, Fields, Ila
from rewrite_compiler.lang import Expr, Step, assign, select, seq, together, update, wrap

from .encoding import declare
from .scalar import signed_parts
from .state import VECTOR

VECTOR_BITS = VECTOR.bit_length() - 1
OFFSET, STEP = {"offset_low": Bits(8, 10), "offset": Bits(13, 13, signed=True)}, {"step": Bits(8, 10, signed=True)}


@dataclass(frozen=True)
class Access:
    """A form of vector access: its syntax, the word with empty fields, and what distinguishes it."""

    name: str
    word: int
    syntax: str
    sort: str
    stores: bool = False
    aligned: bool = True
    masked: bool = False

    @property
    def steps(self) -> bool:
        """Whether the address register moves on."""
        return "++" in self.syntax

    @property
    def fields(self) -> Mapping[str, Bits]:
        """The fields of the operands."""
        mask = {"qv": Bits(11, 12)} if self.masked else {}
        return {"vs" if self.stores else "vd": Bits(0, 4), "rt": Bits(16, 20), **(STEP if self.steps else OFFSET), **mask}


ACCESSES = (
    Access("vmem_load", 0x28000000, "Vd=vmem(Rt+#s4)", "LD"),
    Access("vmem_load_step", 0x29000000, "Vd=vmem(Rt++#s3)", "LD"),
    Access("vmem_cur", 0x28000020, "Vd.cur=vmem(Rt+#s4)", "LD"),
    Access("vmem_cur_step", 0x29000020, "Vd.cur=vmem(Rt++#s3)", "LD"),
    Access("vmemu_load", 0x280000E0, "Vd=vmemu(Rt+#s4)", "LDU", aligned=False),
    Access("vmemu_load_step", 0x290000E0, "Vd=vmemu(Rt++#s3)", "LDU", aligned=False),
    Access("vmem_store", 0x28200000, "vmem(Rt+#s4)=Vs", "ST", stores=True),
    Access("vmem_store_step", 0x29200000, "vmem(Rt++#s3)=Vs", "ST", stores=True),
    Access("vmemu_store", 0x282000E0, "vmemu(Rt+#s4)=Vs", "STU", stores=True, aligned=False),
    Access("vmemu_store_step", 0x292000E0, "vmemu(Rt++#s3)=Vs", "STU", stores=True, aligned=False),
    Access("vmem_store_if", 0x28800000, "if (Qv) vmem(Rt+#s4)=Vs", "ST", stores=True, masked=True),
    Access("vmem_store_step_if", 0x29800000, "if (Qv) vmem(Rt++#s3)=Vs", "ST", stores=True, masked=True),
)
FORWARDED = ("vmem_cur", "vmem_cur_step")  # loads that members of the same packet see


def declare_memory(m: Ila) -> None:
    """Declare the vector accesses."""
    for access in ACCESSES:
        declare(m, access.name, access.word, access.fields, partial(_access, m, access), access.syntax)


def _access(m: Ila, a: Access, f: Fields) -> Step:
    base = m.s.r[f.rt]
    address = base if a.steps else wrap(base + VECTOR * signed_parts(f, OFFSET), 32, False)
    first = (address >> VECTOR_BITS) << VECTOR_BITS if a.aligned else address
    memory = m.externals["dram"]
    at = memory.index(first)
    verb = "writes" if a.stores else "reads"
    whole = memory.words(8).require(
        first, first + VECTOR - 1, f"{a.name} {verb} the bytes {{first}}…{{last}}; memory has {{start}}…{{end}}"
    )
    if a.stores:

        def stored(k: Expr) -> tuple[Expr, Expr]:
            value = m.s.v[f.vs, k]
            return at + k, select(m.s.q[f.qv, k] == 1, value, memory.leaf[at + k]) if a.masked else value

        moved = update(memory.leaf, VECTOR, stored)
    else:
        moved = update(m.s.v, VECTOR, lambda k: ((f.vd, k), memory.leaf[at + k]))
    step = [assign(m.s.r, wrap(base + VECTOR * f.step, 32, False), f.rt)] if a.steps else []
    return seq(whole, together(moved, *step))
