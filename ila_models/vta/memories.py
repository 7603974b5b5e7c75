"""VTA memories: the on-chip buffers, and DRAM as one image of bytes or as the separate virtual DRAMs of the published ILA."""

from rewrite_compiler.ila import CONTROL, DATA, Ila

from .config import Config

BUFFERS = {
    "uop": "Micro-ops: destination, source and weight index.",
    "inp": "Inputs: elements of batch × block.",
    "wgt": "Weights: elements of block × block, one row an output channel.",
    "acc": "Accumulators: elements of batch × block.",
    "out": "Outputs: what STORE reads.",
}
VIRTUAL = {"inp": "inp", "wgt": "wgt", "bias": "acc", "uop": "uop", "out": "inp"}  # virtual DRAM → whose scalars it holds


def declare_memories(m: Ila, c: Config) -> None:
    """Declare the buffers and both forms of DRAM; the functional simulator has no OUT buffer."""
    for sort, doc in BUFFERS.items():
        shape, binding = (c.depth(sort), *c.shape(sort)), CONTROL if sort == "uop" else DATA
        if sort != "out" or c.behaviour != "fsim":
            m.memory(sort, shape, c.width(sort), signed=sort != "uop", binding=binding, doc=doc)
    m.external("dram", 8, doc="The DRAM image: bytes, little-endian.")
    for name, sort in VIRTUAL.items():
        m.external(f"dram_{name}", c.width(sort), signed=sort != "uop", doc=f"Virtual DRAM of {name}: scalars.")
