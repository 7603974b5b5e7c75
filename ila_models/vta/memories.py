"""VTA memories: the on-chip buffers, and DRAM as one image of bytes or as the separate virtual DRAMs of the published ILA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewrite_compiler.ila import CONTROL, DATA, External, Ila, joined
from rewrite_compiler.lang import Expr, Step, require, seq, update, when, wrap

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
        start, end = self.image.base[()], self.image.base[()] + self.image.size[()] - 1
        low, high = first * self.size, (last + 1) * self.size - 1
        sentence = f"{what} the DRAM bytes {{low}}…{{high}}; the image holds {{start}}…{{end}}"
        inside = require(self.image.holds(low, high), "I103", sentence, always=True, low=low, high=high, start=start, end=end)
        if self.virtual is None:
            other = require(0, "I103", f"{what} DRAM, but no DRAM image is attached", always=True)
        else:
            size = self.virtual.size[()]
            sentence = f"{what} the scalars {{first}}…{{last}} of {self.virtual.leaf.name}, which has {{size}}"
            checked = require(self.virtual.holds(first, last), "I103", sentence, always=True, first=first, last=last, size=size)
            other = seq(checked, step(self.virtual))
        return when(self.image.is_attached, seq(inside, step(self.image)), other)

    def read(self, dram: External, number: Expr) -> Expr:
        """Return a scalar; in the image it is the little-endian word of its bytes."""
        if dram is not self.image:
            return dram.leaf[dram.index(number)]
        return wrap(joined(lambda n: dram.leaf[dram.index(number * self.size + n)], self.size), self.bits, self.signed)

    def write(self, dram: External, extents: Sequence[Expr | int], scalar: Callable[..., tuple[Expr, Expr]]) -> Step:
        """Return the update that stores scalar(i, …) = (number, value) for all i, …"""
        size = self.size if dram is self.image else 1

        def part(*index: Expr) -> tuple[Expr, Expr]:
            number, value = scalar(*index[: len(extents)])
            n = index[-1] if size > 1 else 0
            return dram.index(number * size + n), wrap(value >> 8 * n, 8, False) if dram is self.image else value

        return update(dram.leaf, (*extents, size) if size > 1 else tuple(extents), part)


def place_of(m: Ila, c: Config, sort: str, virtual: str | None) -> Place:
    """Return where the scalars of a buffer lie; `virtual` names its virtual DRAM."""
    apart = None if virtual is None else m.externals[f"dram_{virtual}"]
    return Place(m.externals["dram"], apart, c.width(sort), sort != "uop")
