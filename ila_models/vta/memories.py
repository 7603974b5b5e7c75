"""VTA memories: the on-chip buffers, and DRAM as one image of bytes or as the separate virtual DRAMs of the published ILA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewrite_compiler.ila import CONTROL, DATA, External, Ila
from rewrite_compiler.lang import Expr, Operand, Step, lift, require, seq, update, when, wrap

from .config import Config

BUFFERS = {
    "uop": "Micro-ops: destination, source and weight index.",
    "inp": "Inputs: elements of batch × block.",
    "wgt": "Weights: elements of block × block, one row an output channel.",
    "acc": "Accumulators: elements of batch × block.",
}
VIRTUAL = {"inp": "inp", "wgt": "wgt", "bias": "acc", "uop": "uop", "out": "inp"}  # virtual DRAM → whose scalars it holds


def declare_memories(m: Ila, c: Config) -> None:
    """Declare the buffers and both forms of DRAM; the functional simulator has no OUT buffer."""
    for sort, doc in BUFFERS.items():
        binding = CONTROL if sort == "uop" else DATA
        m.memory(sort, (c.depth(sort), *c.shape(sort)), c.width(sort), signed=sort != "uop", binding=binding, doc=doc)
    if m.parameters["behaviour"] != "fsim":
        m.memory("out", (c.depth("acc"), *c.shape("acc")), c.width("inp"), signed=True, doc="Outputs: what STORE reads.")
    m.external("dram", 8, doc="The DRAM image: bytes, little-endian.")
    for name, sort in VIRTUAL.items():
        m.external(f"dram_{name}", c.width(sort), signed=sort != "uop", doc=f"Virtual DRAM of {name}: scalars.")


@dataclass(frozen=True)
class Place:
    """Where the scalars of one kind of element lie in DRAM; they are addressed by number, whatever form DRAM has."""

    image: External
    virtual: External | None
    bits: int
    signed: bool

    @property
    def size(self) -> int:
        """Bytes of one scalar."""
        return self.bits // 8

    def access(self, what: str, first: Expr, last: Expr, step: Callable[[External], Step]) -> Step:
        """Return `step` on the form of DRAM that is attached, after the check that it has the scalars first … last."""
        low, high = first * self.size, (last + 1) * self.size - 1
        start, end = self.image.base[()], self.image.base[()] + self.image.size[()] - 1
        sentence = f"{what} the DRAM bytes {{low}}…{{high}}; the image holds {{start}}…{{end}}"
        inside = require(self.image.holds(low, high), "I103", sentence, always=True, low=low, high=high, start=start, end=end)
        return when(self.image.is_attached, seq(inside, step(self.image)), self._virtual(what, first, last, step))

    def _virtual(self, what: str, first: Expr, last: Expr, step: Callable[[External], Step]) -> Step:
        if self.virtual is None:
            return require(0, "I103", f"{what} DRAM, but no DRAM image is attached", always=True)
        sentence = f"{what} the scalars {{first}}…{{last}} of {self.virtual.leaf.name}, which has {{size}}"
        inside = self.virtual.holds(first, last)
        checked = require(inside, "I103", sentence, always=True, first=first, last=last, size=self.virtual.size[()])
        return seq(checked, step(self.virtual))

    def read(self, dram: External, number: Operand) -> Expr:
        """Return a scalar; in the image it is the little-endian word of its bytes."""
        if dram is not self.image:
            return dram.leaf[dram.index(lift(number))]
        word = lift(0)
        for byte in range(self.size):
            word = word + (dram.leaf[dram.index(lift(number) * self.size + byte)] << 8 * byte)
        return wrap(word, self.bits, self.signed)

    def write(self, dram: External, extents: Sequence[Expr | int], scalar: Callable[..., tuple[Expr, Expr]]) -> Step:
        """Return the update that stores scalar(i, …) = (number, value) for all i, …"""

        def byte(*index: Expr) -> tuple[Expr, Expr]:
            *inner, n = index
            number, value = scalar(*inner)
            return dram.index(number * self.size + n), wrap(value >> 8 * n, 8, False)

        def whole(*index: Expr) -> tuple[Expr, Expr]:
            number, value = scalar(*index)
            return dram.index(number), value if dram is not self.image else wrap(value, 8, False)

        if dram is self.image and self.size > 1:
            return update(dram.leaf, (*extents, self.size), byte)
        return update(dram.leaf, tuple(extents), whole)


def place_of(m: Ila, c: Config, sort: str, virtual: str | None) -> Place:
    """Return where the scalars of a buffer lie; `virtual` names its virtual DRAM."""
    apart = None if virtual is None else m.externals[f"dram_{virtual}"]
    return Place(m.externals["dram"], apart, c.width(sort), sort != "uop")
