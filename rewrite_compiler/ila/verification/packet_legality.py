"""Packet legality: which instructions a device can execute together, by what they write and by the resources they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import SpecError
from ...lang.expr import const
from ...lang.step import Require, Seq, Step, Together, Update
from ...lang.substitution import substitute
from ..model import Ila, Instruction, Resources
from .write_conflicts import find_write_conflict


@dataclass(frozen=True)
class Member:
    """An instruction of a packet with the values of its operands."""

    instruction: Instruction
    operands: Mapping[str, int]


def refusal_of(ila: Ila, members: Sequence[Member]) -> str:
    """Return why these instructions cannot be one packet; "" where they can."""
    packets = ila.packets
    if packets is None:
        return f"{ila.name} has no packets"
    conflict = find_write_conflict([u for m in members for u in _writes(m)])
    if conflict is not None:
        memory, index = conflict
        return f"two members write {memory.name}[{', '.join(map(str, index))}]"
    consumers = [m.instruction.name for m in members if m.instruction.name in packets.takes]
    if assign_resources([packets.takes[name] for name in consumers]) is None:
        return f"the resources of a packet do not suffice for {', '.join(consumers)}"
    return ""


def _writes(member: Member) -> Iterator[Update]:
    """Yield the updates of a member at the values of its operands."""
    values = {o.leaf[()]: const(member.operands[name]) for name, o in member.instruction.operands.items()}
    for part in parts_of(member.instruction, member.instruction.update):
        if isinstance(part, Update):
            address = tuple(substitute(a, values) for a in part.address)
            yield replace(part, address=address)


def assign_resources(choices: Sequence[Sequence[Resources]]) -> tuple[Resources, ...] | None:
    """Return one set of resources for each member, no two with a resource in common; None where there is no such choice."""
    order = sorted(range(len(choices)), key=lambda n: len(choices[n]))
    assignment = _search([choices[n] for n in order], frozenset())
    if assignment is None:
        return None
    return tuple(resources for _, resources in sorted(zip(order, assignment, strict=True), key=lambda pair: pair[0]))


def _search(choices: Sequence[Sequence[Resources]], busy: Resources) -> list[Resources] | None:
    if not choices:
        return []
    for option in choices[0]:
        if busy.isdisjoint(option):
            others = _search(choices[1:], busy | option)
            if others is not None:
                return [option, *others]
    return None


def parts_of(instruction: Instruction, step: Step) -> Iterator[Require | Update]:
    """Yield the diagnostics and updates of a member of a packet, which is one parallel update after diagnostics.

    Raises:
        SpecError: I102, it is not, or it returns a value.
    """
    steps = step.steps if isinstance(step, Seq) else (step,)
    changes = [s for s in steps if not isinstance(s, Require)]
    if len(changes) > 1 or instruction.result is not None or not all(isinstance(s, Update | Together) for s in changes):
        refusal = "cannot be in a packet: its update must be one parallel update, and it must return nothing"
        raise SpecError("I102", f"{instruction.name} {refusal}", place=instruction.place)
    for s in steps:
        if isinstance(s, Together):
            yield from s.updates
        elif isinstance(s, Require | Update):
            yield s
