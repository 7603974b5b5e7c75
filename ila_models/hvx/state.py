"""HVX state: vector, predicate and scalar registers, the hardware loops, the program counter, and memory.

Scalar registers are control: they hold addresses, counts and shift amounts, and the scalar operands of multiplications, which a
plan keeps constant. Data is in vectors. The predicate registers of the scalar core are left out: no instruction here uses them.
"""

from rewrite_compiler.ila import DATA, Ila

VECTOR = 128  # bytes
REGISTERS, PREDICATES = 32, 4
WORD_BYTES = 9  # an instruction word, its constant extender, and what the sequencer does


def declare_state(m: Ila) -> None:
    """Declare all state and the input."""
    m.input("data", 8, WORD_BYTES)
    m.memory("v", (REGISTERS, VECTOR), 8, binding=DATA, doc="Vector registers; a pair is an even register (low) and the next one.")
    m.memory("q", (PREDICATES, VECTOR), 1, binding=DATA, doc="Vector predicates: one bit a byte.")
    m.register("r", 32, shape=(REGISTERS,), doc="Scalar registers.")
    m.register("pc", 32, doc="Address of the packet.")
    for n in range(2):
        m.register(f"sa{n}", 32, doc=f"First packet of hardware loop {n}.")
        m.register(f"lc{n}", 32, doc=f"Iterations left of hardware loop {n}, the present one included.")
    m.interrupt = m.register("trapped", 1, doc="Set by trap0.")
    m.external("dram", 8, doc="Memory: bytes, little-endian.")
