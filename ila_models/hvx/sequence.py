"""HVX's sequencer: where the next packet lies, the hardware loops, jumps and traps.

The packet's bits that end a hardware loop belong to no member, so the sequencer is a member of its own: every packet is issued
with one command of bits 71:64 of the input, which carries the packet's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rewrite_compiler.ila import Bits, Fields, Ila
from rewrite_compiler.lang import Expr, Step, assign, lift, select, together, wrap

from .encoding import declare
from .scalar import signed_parts

ADVANCE, END_0, END_1, END_BOTH = "advance", "endloop0", "endloop1", "endloop01"
SEQUENCE = {ADVANCE: 1, END_0: 2, END_1: 3, END_BOTH: 4}
SIZE = Bits(0, 5)  # bytes of the packet
TARGET = {"target_low": Bits(3, 4), "target": Bits(8, 12, signed=True)}
COUNT = {"count_low": Bits(0, 1), "count_mid": Bits(5, 7), "count": Bits(16, 20)}
JUMP = {"target_low": Bits(1, 13), "target": Bits(16, 24, signed=True)}
ENDS: Mapping[str, tuple[int, ...]] = {ADVANCE: (), END_0: (0,), END_1: (1,), END_BOTH: (0, 1)}


def declare_sequence(m: Ila) -> None:
    """Declare loops, jumps, traps and what follows a packet."""
    for n in range(2):
        declare(m, f"loop{n}_imm", 0x69000000 | n << 21, {**TARGET, **COUNT}, partial(_loop, m, n), f"loop{n}(target,#u10)")
        declare(m, f"loop{n}", 0x60000000 | n << 21, {**TARGET, "rs": Bits(16, 20)}, partial(_loop, m, n), f"loop{n}(target,Rs)")
    declare(m, "jump", 0x58000000, JUMP, lambda f: assign(m.s.pc, _relative(m, f, JUMP)), "jump target")
    trap = {"number_low": Bits(2, 4), "number": Bits(8, 12)}
    declare(m, "trap0", 0x54000000, trap, lambda f: assign(m.s.trapped, 1), "trap0(#u8)")
    for name, number in SEQUENCE.items():
        doc = "Go on behind the packet." if name == ADVANCE else f"End the packet's hardware loop ({name})."
        m.encoded(name, {"size": SIZE, "sequence": Bits(64, 71)}, {"sequence": number}, partial(_next, m, ENDS[name]), doc=doc)


def _relative(m: Ila, f: Fields, parts: Mapping[str, Bits]) -> Expr:
    """Return an address that is given relative to the packet, in words."""
    return wrap(m.r.pc + 4 * signed_parts(f, parts), 32, False)


def _loop(m: Ila, n: int, f: Fields) -> Step:
    count = m.s.r[f.rs] if "rs" in f else signed_parts(f, COUNT)
    return together(assign(m.s[f"sa{n}"], _relative(m, f, TARGET)), assign(m.s[f"lc{n}"], count))


def _next(m: Ila, loops: tuple[int, ...], f: Fields) -> Step:
    """The innermost loop that has iterations left starts again; else the next packet follows."""
    target, updates = wrap(m.r.pc + f.size, 32, False), []
    for n in reversed(loops):
        target = select(m.r[f"lc{n}"] > 1, m.r[f"sa{n}"], target)
    running = lift(1)
    for n in loops:
        count = m.r[f"lc{n}"]
        updates.append(assign(m.s[f"lc{n}"], select(running & (count > 1), wrap(count - 1, 32, False), count)))
        running = running & (count <= 1)
    return together(assign(m.s.pc, target), *updates)
