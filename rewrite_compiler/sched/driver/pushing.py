"""Memories into which elements are pushed: line buffers through which they are shifted, and buffers that a pointer goes round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...readings.arrays.labelled_array import Data
from ..instructions.control import Settings, after
from ..instructions.copies import NoCopy
from ..instructions.movement import Address, Mover, width_of
from .matching import NONE
from .program import BYTE, Block, Lanes
from .schedule import depth_of
from .writer import Held, Writer

NOTHING: Held = ("", NONE)
UNKNOWN: Held = ("", NONE - 1)


@dataclass(frozen=True)
class Origin:
    """Where an element comes from: the command that brought it and the place among what that brings; command −1: what lay there."""

    command: int
    address: Address


def is_pusher(w: Writer, m: Mover) -> bool:
    """Tell whether an instruction brings elements where no field says, so that others move on or a pointer does."""
    if not m.addressing.is_dictated:
        return False
    try:
        shifted = after(w.ila, m.instruction, {}, w.registers)
    except NoCopy:
        return False
    return bool(m.shifted) or m.addressing.base(shifted) != m.addressing.base(w.registers)


def push(w: Writer, m: Mover, source: str, indices: Data, addresses: Callable[[Settings], Data]) -> bool:
    """Write the fewest commands after which elements lie where they should, given what lies there already; tell whether there are any.

    `addresses` says where they should, which may depend on what the commands do to registers.
    """
    items = [NOTHING if e == NONE else (source, e) for e in indices.tolist()]
    contents = w.contents.get(m.memory, {})
    for count, (registers, origins) in enumerate(_states(w, m)):
        targets = dict(zip(map(tuple, addresses(registers).tolist()), items, strict=True))
        elements = _elements(origins, targets, contents)
        if elements is not None:
            _issue(w, m, source, elements, count)
            w.contents[m.memory] = contents | {
                a: elements.get(o, NOTHING) if o.command >= 0 else contents.get(o.address, UNKNOWN) for a, o in origins.items()
            }
            return True
    return False


def _states(w: Writer, m: Mover) -> Iterator[tuple[Settings, dict[Address, Origin]]]:
    """Yield what registers hold and where elements come from after no command, one, two, and so on, up to once around the memory."""
    registers, origins = w.registers, dict[Address, Origin]()
    yield registers, origins
    for n in range(depth_of(w.ila, m.memory) + 1):
        base = m.addressing.base(registers)
        shifted = {to: origins.get(at, Origin(-1, at)) for to, at in m.shifted.items()}
        brought = {_place(m, base, p.offset): Origin(n, p.offset) for p in m.pieces}
        origins = origins | shifted | brought
        registers = after(w.ila, m.instruction, {}, registers)
        yield registers, origins


def _place(m: Mover, base: Address, offset: Address) -> Address:
    places = (a + b for a, b in zip(base, offset, strict=True))
    return tuple(n if modulus is None else n % modulus for n, modulus in zip(places, m.addressing.access.moduli, strict=True))


def _elements(
    origins: Mapping[Address, Origin], targets: Mapping[Address, Held], contents: Mapping[Address, Held]
) -> dict[Origin, Held] | None:
    """Return what commands must bring where; None where two elements would be one, or another lies there already."""
    elements: dict[Origin, Held] = {}
    for address, element in targets.items():
        origin = origins.get(address, Origin(-1, address))
        element_there = contents.get(origin.address) if origin.command < 0 else elements.setdefault(origin, element)
        if element_there != element:
            return None
    return elements


def _issue(w: Writer, m: Mover, source: str, elements: Mapping[Origin, Held], count: int) -> None:
    for n in range(count):
        lanes = Lanes.empty(1, width_of(w.ila, m))
        for p in m.pieces:
            _, element = elements.get(Origin(n, p.offset), NOTHING)
            if element != NONE:
                lanes.elements[0, p.lane], lanes.digits[0, p.lane] = element, p.low // BYTE
        w.issue(Block(m.instruction, {}, 1, m.lanes, source, lanes))
