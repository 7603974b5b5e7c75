"""Packets as instructions: the members' updates together, each with operands of its own.

All members read the state before the packet, and their writes take effect together at its end. A write that the device forwards
is seen by the other members of its packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from ...errors import SpecError
from ...lang.binders import Leaf
from ...lang.expr import Expr, const
from ...lang.step import Require, Seq, Step, Together, Update, make_update, seq, together
from ...lang.substitution import substitute
from ..model import Ila, Instruction, Operand
from ..verification.packet_legality import parts_of


def packet_instruction(ila: Ila, instructions: Sequence[Instruction]) -> Instruction:
    """Return the instruction that executes these together; operands of member n have the suffix `.n`.

    Raises:
        SpecError: I102, an update is no parallel one, or a member returns a value.
    """
    names = tuple(i.name for i in instructions)
    return _combined(ila, names)


@lru_cache(maxsize=1 << 12)
def _combined(ila: Ila, names: tuple[str, ...]) -> Instruction:
    checks: list[Step] = []
    early: list[Update] = []
    late: list[Update] = []
    operands: dict[str, Operand] = {}
    forwards = ila.packets.forwards if ila.packets is not None else {}
    for n, name in enumerate(names):
        instruction = ila.instructions[name]
        member, renamed = _with_operands(instruction, n)
        operands |= renamed
        for part in parts_of(instruction, member):
            if isinstance(part, Require):
                checks.append(part)
            else:
                (early if part.memory.name in forwards.get(name, frozenset()) else late).append(part)
    steps = [together(*updates) for updates in (early, late) if updates]
    doc = "Execute together: " + ", ".join(names)
    return Instruction("packet of " + ", ".join(names), doc, ila.instructions[names[0]].place, const(0), {}, operands, seq(*checks, *steps))


def _with_operands(instruction: Instruction, number: int) -> tuple[Step, dict[str, Operand]]:
    """Return an instruction's update with operands of its own, and these."""
    renamed = {
        f"{name}.{number}": replace(o, leaf=Leaf(o.leaf.shape, o.leaf.interval, False, f"{name}_{number}"))
        for name, o in instruction.operands.items()
    }
    exchanged: dict[Expr, Expr] = {}
    for name, operand in instruction.operands.items():
        if operand.leaf.shape:
            raise SpecError("I102", f"{instruction.name} cannot be in a packet: its operand {name} is an array", place=instruction.place)
        exchanged[operand.leaf[()]] = renamed[f"{name}.{number}"].leaf[()]
    return _substituted(instruction.update, exchanged), renamed


def _substituted(step: Step, terms: Mapping[Expr, Expr]) -> Step:
    """Return a parallel step with these terms replaced; another step as it is."""

    def term(e: Expr) -> Expr:
        return substitute(e, terms)

    if isinstance(step, Update):
        extents, address = tuple(map(term, step.extents)), tuple(map(term, step.address))
        return make_update(step.memory, step.variables, extents, address, term(step.value))
    if isinstance(step, Together):
        return Together(tuple(_substituted(u, terms) for u in step.updates))  # type: ignore[misc]
    if isinstance(step, Seq):
        return Seq(tuple(_substituted(s, terms) for s in step.steps))
    if isinstance(step, Require):
        values = tuple((name, term(e)) for name, e in step.values)
        return replace(step, condition=term(step.condition), values=values)
    return step
