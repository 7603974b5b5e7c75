"""How accumulators start that no switch leaves out: by a like command that does not read them, or by what the first step brings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..instructions.computation import Computation, computations
from .matching import Match, Slot
from .operation import Reach
from .schedule import COPIED, Place, Schedule, addressing_of, is_chained, unified


def started(s: Schedule) -> Iterator[Schedule]:
    """Yield a schedule with each of its starters."""
    m = s.match
    if not m.computation.accumulates or m.starts is not None or m.initial is not None or is_chained(m, m.result):
        return
    for c in computations(s.ila):
        starter = _like(s, c)
        if starter is not None:
            yield replace(s, starter=starter)
    if first_step(s) is not None:
        yield replace(s, starter=COPIED)


def first_step(s: Schedule) -> Reach | None:
    """Return what the first step of a reduction brings to the accumulators where it has one operand, and lanes reduce nothing."""
    m = s.match
    reduced = m.operation.reduced
    if len(m.operands) != 1 or not reduced or reduced & {*s.inside, *(x for x in m.lanes.values() if x)}:
        return None
    reach = m.operands[0].reach
    axes = tuple(replace(a, terms=tuple((v, f) for v, f in a.terms if v not in reduced)) for a in reach.axes)
    return replace(reach, axes=axes)


def _like(s: Schedule, c: Computation) -> Schedule | None:
    """Return the schedule of a computation that does what one does without reading accumulators; None where it is another."""
    m = s.match
    lanes = dict(zip(c.lanes, m.lanes.values(), strict=False))
    extents = [*m.computation.lanes.values()] == [*c.lanes.values()]
    if c.accumulates or not extents or c.result.memory != m.result.access.memory or len(c.operands) != len(m.operands):
        return None
    slots = []
    for access, slot in zip(c.operands, m.operands, strict=True):
        is_carried = c.carries(access.memory) and m.computation.carries(slot.access.memory)
        if not is_carried and access.memory != slot.access.memory:
            return None
        slots.append(Slot(access, slot.reach))
    like = Match(c, m.operation, Slot(c.result, m.result.reach), tuple(slots), None, lanes, m.left)
    places = [_placed(s, p, like, slot) for p, slot in zip(s.places, (like.result, *like.operands), strict=True)]
    if not all(_is_same_window(a, b) for a, b in zip(s.places, places, strict=True)):
        return None
    starter = unified(s.ila, like, places, s.inside, s.outside, {})
    return starter if isinstance(starter, Schedule) and not starter.table else None


def _placed(s: Schedule, p: Place, like: Match, slot: Slot) -> Place:
    slot = Slot(slot.access, p.slot.reach)
    return Place(replace(p.region, match=like, slot=slot), addressing_of(s.ila, like.computation, slot), p.base)


def _is_same_window(a: Place, b: Place) -> bool:
    """Tell whether two places put the same elements at the same addresses."""
    if a.addressing.is_dictated != b.addressing.is_dictated:
        return False
    origins = [(p.base or 0, *(0,) * (len(p.slot.access.address) - 1)) for p in (a, b)]
    windows = [(p.region.addresses_from(origin), p.region.elements({})) for p, origin in zip((a, b), origins, strict=True)]
    return all(np.array_equal(x, y) for x, y in zip(*windows, strict=True))
