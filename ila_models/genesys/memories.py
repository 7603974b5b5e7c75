"""GeneSys memories: the buffers of both arrays, and the five ports to memory, each with an address space of its own."""

from rewrite_compiler.ila import CONTROL, DATA, Ila

from .config import Config

PORTS = {
    "instr": "instructions",
    "param": "weights and biases",
    "ibuf": "inputs",
    "obuf": "sums and results of the systolic array",
    "simd": "operands and results of the SIMD array",
}
IMMEDIATES = 32  # that instructions can name


def declare_memories(m: Ila, c: Config) -> None:
    """Declare the buffers and the ports."""
    n, columns = c.array_n, c.array_m
    m.memory("ibuf", (c.ibuf_depth, n), 8, signed=True, binding=DATA, doc="Inputs: a row holds the input channels of one position.")
    m.memory("wbuf", (c.wbuf_depth, columns, n), 8, signed=True, binding=DATA, doc="Weights: a row is a block, output channels outer.")
    m.memory("bbuf", (c.bbuf_depth, columns), 32, signed=True, binding=DATA, doc="Biases of the output channels.")
    sums = "Sums of the output channels of one position; 0 after reset, though sums start at the bias and never read that."
    m.register("obuf", 32, shape=(c.obuf_depth, columns), signed=True, binding=DATA, doc=sums)
    for name in ("vmem1", "vmem2"):
        m.memory(name, (c.vmem_depth, c.lanes), 32, signed=True, binding=DATA, doc="Vectors: one element a lane.")
    m.memory("flags", (c.lanes,), 1, binding=DATA, doc="What the last comparison gave in each lane.")
    m.register("imm", 32, shape=(IMMEDIATES,), signed=True, binding=CONTROL, doc="Scalars, the same for all lanes.")
    for name, what in PORTS.items():
        m.external(f"dram_{name}", 8, doc=f"The port of {what}: bytes, little-endian.")
