"""HLSCNN memories: the SoC memory that the accelerator reads, two scratchpads, and the words that reads have returned.

All are byte-addressed and little-endian. What would leave a memory continues at its start (strict simulation refuses it).
"""

from rewrite_compiler.ila import Bus, Ila, Region, joined
from rewrite_compiler.lang import Array, Leaf, Step, array, minimum, require, seq, update

from .revisions import SPAD0_BASE, Revision

VECTOR, LANES = 16, 8  # bytes, 16-bit words


def declare_memories(m: Ila, device: Bus, soc: Bus, p: Revision) -> None:
    """Declare the memories and the commands that write, fill and read them."""
    memory = m.memory("soc", (p.soc_bytes,), 8, doc="Simulated SoC memory: what the accelerator's bus master reads.")
    spad0 = m.memory("spad0", (p.spad_bytes,), 8, doc="Scratchpad 0: weights.")
    spad1 = m.memory("spad1", (p.spad_bytes,), 8, doc="Scratchpad 1: outputs; in unified designs activations too.")
    m.memory("virtual_output", (p.spad1 + p.spad_bytes + VECTOR,), 16, doc="Words that scratchpad reads returned, by masked bus address.")

    def vir_mem_wr(offset: Array, vector: Array) -> Step:
        """Write sixteen bytes to the SoC memory."""
        fits = require(offset[()] <= p.soc_bytes - VECTOR, "I103", "a write of 16 bytes must end inside the SoC memory")
        return seq(fits, update(memory, VECTOR, lambda j: ((offset[()] + j) % p.soc_bytes, vector[j])))

    m.instruction("vir_mem_wr", soc.write_range(p.soc_window or 0, p.soc_bytes, 1, "offset"), lanes="vector")(vir_mem_wr)
    for spad, base in ((spad0, SPAD0_BASE), (spad1, p.spad1)):
        _scratchpad(m, device, p, spad, base)


def _scratchpad(m: Ila, device: Bus, p: Revision, spad: Leaf, base: int) -> None:
    length, source = m.r.soc_mem_length, Region(m.s.soc, m.r.soc_mem_base, (m.r.soc_mem_length * VECTOR,), 1)

    def fill(offset: Array) -> Step:
        """Copy soc_mem_length vectors from the SoC memory; the data of the command is ignored."""
        count = minimum(length * VECTOR, p.spad_bytes)
        return seq(
            require(length >= 1, "I112", "a scratchpad fill must copy at least one vector, but SocMemRdWrLength is 0"),
            require(offset[()] + length * VECTOR <= p.spad_bytes, "I103", f"a fill of {spad.name} must end inside {spad.name}"),
            source.require(f"a fill of {spad.name} must read inside the SoC memory"),
            update(spad, count, lambda k: ((offset[()] + k) % p.spad_bytes, source.byte(source.address(k)))),
        )

    def read(offset: Array) -> tuple[Step, Array]:
        """Read eight 16-bit words; they are also kept in virtual_output at the masked address."""
        at = offset[()]
        vector = Region(spad, at, (VECTOR,), 1)
        copy = update(m.s.virtual_output, LANES, lambda i: (base + at + 2 * i, joined(lambda n: vector.byte(at + 2 * i + n), 2)))
        return seq(vector.require(f"a read of 16 bytes must end inside {spad.name}"), copy), array(lambda j: vector.byte(at + j), VECTOR)

    m.instruction(f"{spad.name}_data_wr", device.write_range(base, p.spad_bytes, 1, "offset"))(fill)
    m.instruction(f"{spad.name}_data_rd", device.read_range(base, p.spad_bytes, 1, "offset"))(read)
