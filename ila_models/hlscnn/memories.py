"""HLSCNN memories: the SoC memory that the accelerator reads, two scratchpads, and the words that reads have returned.

All are byte-addressed and little-endian. What would leave a memory continues at its start (strict simulation refuses it).
"""

from __future__ import annotations

from rewrite_compiler.ila import Bits, Ila, Match, Operand
from rewrite_compiler.lang import Array, Expr, Leaf, Step, array, clamp, lift, minimum, require, seq, signed, update
from rewrite_compiler.lang import Operand as Number

from .config import masked, on_bus
from .revisions import SPAD0_BASE, Revision

VECTOR, LANES = 16, 8  # bytes, 16-bit words
ADDRESS = Bits(0, 31)


def declare_memories(m: Ila, p: Revision) -> None:
    """Declare the memories and the commands that write, fill and read them."""
    m.memory("soc", (p.soc_bytes,), 8, doc="Simulated SoC memory: what the accelerator's bus master reads.")
    m.memory("spad0", (p.spad_bytes,), 8, doc="Scratchpad 0: weights.")
    m.memory("spad1", (p.spad_bytes,), 8, doc="Scratchpad 1: outputs; in unified designs activations too.")
    m.memory("virtual_output", (p.spad1 + p.spad_bytes + VECTOR,), 16, doc="Words that scratchpad reads returned, by masked bus address.")
    _soc_write(m, p)
    for name, memory, base in (("spad0", m.s.spad0, SPAD0_BASE), ("spad1", m.s.spad1, p.spad1)):
        _fill(m, p, name, memory, base)
        _read(m, p, name, memory, base)


def byte(memory: Leaf, address: Number) -> Expr:
    """Return one byte; addresses wrap at the end of the memory."""
    return memory[lift(address) % _size(memory)]


def word(memory: Leaf, address: Number) -> Expr:
    """Return a signed 16-bit word; addresses wrap at the end of the memory."""
    return signed(byte(memory, address) + (byte(memory, lift(address) + 1) << 8), 16)


def _size(memory: Leaf) -> int:
    (n,) = memory.shape
    assert isinstance(n, int)
    return n


def _soc_write(m: Ila, p: Revision) -> None:
    """Writes to the SoC memory: by the input `virtual`, or in a window of bus addresses of their own."""
    address = m.inputs["addr"][()]
    wr, rd = m.inputs["wr"][()], m.inputs["rd"][()]
    window = p.soc_window or 0
    chosen = (address >= window) & (address < window + p.soc_bytes)
    if p.soc_window is None:
        chosen = chosen & m.inputs["virtual"][()]
    fixed = {"wr": 1, "rd": 0, "addr": 0, "virtual": int(p.soc_window is None)}
    offset = _offset(address, window, p.soc_bytes)

    def vir_mem_wr(offset: Array, vector: Array) -> Step:
        """Write sixteen bytes to the SoC memory."""
        inside = require(offset[()] <= p.soc_bytes - VECTOR, "I103", "a write of 16 bytes must end inside the SoC memory")
        return seq(inside, update(m.s.soc, VECTOR, lambda j: ((offset[()] + j) % p.soc_bytes, vector[j])))

    m.instruction("vir_mem_wr", Match(wr & ~rd & chosen, fixed, {"offset": offset}), lanes="vector")(vir_mem_wr)


def _offset(address: Expr, base: int, size: int) -> Operand:
    leaf = Leaf((), (0, size - 1), False, "offset")
    return Operand(leaf, clamp(address - base, 0, size - 1), "addr", ADDRESS, base)


def _access(m: Ila, p: Revision, base: int, *, is_write: bool) -> Match:
    """Match an access to a scratchpad; the operand `offset` is the byte in it."""
    inside = (masked(m) >= base) & (masked(m) < base + p.spad_bytes)
    fixed = {"wr": int(is_write), "rd": int(not is_write), "addr": 0}
    return Match(on_bus(m, is_write=is_write) & inside, fixed, {"offset": _offset(masked(m), base, p.spad_bytes)})


def _fill(m: Ila, p: Revision, name: str, memory: Leaf, base: int) -> None:
    length, source = m.s.soc_mem_length[()], m.s.soc_mem_base[()]

    def fill(offset: Array) -> Step:
        """Copy soc_mem_length vectors from the SoC memory; the data of the command is ignored."""
        count = minimum(length * VECTOR, p.spad_bytes)
        return seq(
            require(length >= 1, "I112", "a scratchpad fill must copy at least one vector, but SocMemRdWrLength is 0"),
            require(offset[()] + length * VECTOR <= p.spad_bytes, "I103", f"a fill of {name} must end inside {name}"),
            require(source + length * VECTOR <= p.soc_bytes, "I103", f"a fill of {name} must read inside the SoC memory"),
            update(memory, count, lambda k: ((offset[()] + k) % p.spad_bytes, byte(m.s.soc, source + k))),
        )

    m.instruction(f"{name}_data_wr", _access(m, p, base, is_write=True))(fill)


def _read(m: Ila, p: Revision, name: str, memory: Leaf, base: int) -> None:
    match = _access(m, p, base, is_write=False)
    offset = match.operands["offset"].leaf

    def read(offset: Array) -> Step:
        """Read eight 16-bit words; they are also kept in virtual_output at the masked address."""
        at = offset[()]

        def kept(i: Expr) -> tuple[Expr, Expr]:
            return base + at + 2 * i, byte(memory, at + 2 * i) + (byte(memory, at + 2 * i + 1) << 8)

        inside = require(at <= p.spad_bytes - VECTOR, "I103", f"a read of 16 bytes must end inside {name}")
        return seq(inside, update(m.s.virtual_output, LANES, kept))

    m.instruction(f"{name}_data_rd", match, result=array(lambda j: byte(memory, offset[()] + j), VECTOR))(read)
