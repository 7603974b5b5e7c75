"""HVX packets: how words form them, and what each class of instructions takes of a packet's slots and pipes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila, Packets

from .encoding import PACKET_BITS, ROWS
from .memory import ACCESSES, FORWARDED
from .sequence import ADVANCE, END_0, END_1, END_BOTH, SEQUENCE

WORD_BYTES, MOST_MEMBERS = 4, 4
LAST, MORE, ENDS_LOOP, DUPLEX = 3, 1, 2, 0  # bits 15:14
PIPES = ("X", "S", "M0", "M1")
ANY = tuple({p} for p in PIPES)
EXTENDER_OPCODE = 0  # bits 31:28
# class → slots of which it takes one, and sets of pipes and ports of which it takes one
CLASSES: dict[str, tuple[tuple[int, ...], tuple[set[str], ...]]] = {
    "VA": ((0, 1, 2, 3), ANY),
    "VA_DV": ((0, 1, 2, 3), ({"X", "S"}, {"M0", "M1"})),
    "VX": ((2, 3), ({"M0"}, {"M1"})),
    "VX_DV": ((2, 3), ({"M0", "M1"},)),
    "VS": ((0, 1, 2, 3), ({"S"},)),
    "VP": ((0, 1, 2, 3), ({"X"},)),
    "VP_VS": ((0, 1, 2, 3), ({"X", "S"},)),
    "LD": ((0, 1), tuple({"load", p} for p in PIPES)),
    "ST": ((0,), tuple({"store", p} for p in PIPES)),
    "LDU": ((0,), ({"load", "X", "slot 1"},)),  # slot 1 stays empty
    "STU": ((0,), ({"store", "X", "slot 1"},)),
    "scalar access": ((0, 1), (set(),)),
    "scalar": ((0, 1, 2, 3), (set(),)),
    "scalar product": ((2, 3), (set(),)),
    "scalar control": ((2, 3), (set(),)),
    "loop": ((3,), (set(),)),
}
SCALAR = {
    **dict.fromkeys(("add", "add_imm", "transfer_imm", "transfer", "nop"), "scalar"),
    **dict.fromkeys(("mpyi", "mpyi_acc", "vrmpybu", "vrmpybu_acc", "vrmpybsu", "vrmpybsu_acc", "vaddub"), "scalar product"),
    **dict.fromkeys(("memw_load", "memub_load", "memw_store"), "scalar access"),
    **dict.fromkeys(("jump", "trap0"), "scalar control"),
    **dict.fromkeys(("loop0", "loop1", "loop0_imm", "loop1_imm"), "loop"),
}


def packets(m: Ila) -> Packets:
    """Return how words of this model form packets."""
    sorts = {**{row.name: row.sort for row in ROWS}, **{a.name: a.sort for a in ACCESSES}, **SCALAR}
    takes = {name: _options(sort) for name, sort in sorts.items()}
    extender = [frozenset({f"slot {n}"}) for n in range(MOST_MEMBERS)]
    pairs = tuple(a | b for a, b in product(_options("scalar"), extender) if a.isdisjoint(b))
    forwards = dict.fromkeys(FORWARDED, frozenset({"v"}))
    return Packets("pc", WORD_BYTES, split, forwards, {**takes, "transfer_extended": pairs})


def _options(sort: str) -> tuple[frozenset[str], ...]:
    slots, pipes = CLASSES[sort]
    return tuple(frozenset({f"slot {slot}", *taken}) for slot, taken in product(slots, pipes))


def split(words: Sequence[int], position: int) -> tuple[list[int], int]:
    """Return the commands of the packet at a position and the number of its words: members with their extenders, and the sequencer.

    Raises:
        SpecError: I101, the words there are no packet.
    """
    members = _words(words, position)
    marks = [_mark(word) for word in members]
    size = WORD_BYTES * len(members)
    ended = {n for n, mark in enumerate(marks[:2]) if mark == ENDS_LOOP and n < len(members) - 1}
    name = {frozenset(): ADVANCE, frozenset({0}): END_0, frozenset({1}): END_1, frozenset({0, 1}): END_BOTH}[frozenset(ended)]
    commands, extender = [], 0
    for word in members:
        if word >> 28 == EXTENDER_OPCODE:
            extender = word & ~(3 << PACKET_BITS[0]) | MORE << PACKET_BITS[0]
        else:
            commands.append((word & ~(3 << PACKET_BITS[0])) | extender << 32)
            extender = 0
    if extender:
        raise SpecError("I101", "a constant extender must stand before an instruction, not at the end of a packet")
    jumps = any(word >> 25 == 0x2C for word in members)  # the counter is the jump's
    return [*commands, *([] if jumps else [SEQUENCE[name] << 64 | size])], len(members)


def _words(words: Sequence[int], position: int) -> list[int]:
    """Return the words of the packet at a position."""
    for count in range(1, MOST_MEMBERS + 1):
        if position + count > len(words):
            raise SpecError("I101", "the last packet of a program must end with a word whose bits 15:14 are 11")
        mark = _mark(words[position + count - 1])
        if mark == DUPLEX:
            raise SpecError("I101", f"the word {words[position + count - 1]:#010x} holds two instructions, which are left out",
                            help="assemble without duplexes")  # fmt: skip
        if mark == LAST:
            return list(words[position : position + count])
    raise SpecError("I101", f"a packet must have at most {MOST_MEMBERS} words")


def _mark(word: int) -> int:
    return word >> PACKET_BITS[0] & 3
