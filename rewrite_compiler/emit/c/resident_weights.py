"""Resident weights: which moves of a call only the first inference makes, because the constants then stay on the device."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...compile import Plan
from ...compile.plan.plan import Offload
from ...ila.traces.trace import Commands
from ...readings.arrays.labelled_array import Data
from ...target import Stay
from .cells import Gather
from .command_stream import Fill, Get, Move, MoveRecorder, Pause, Put, Send


@dataclass(frozen=True)
class MoveGroup:
    """The moves of the first inference and of the later ones; common moves where both are the same object."""

    first: tuple[Move, ...]
    later: tuple[Move, ...]


def stays_of(plan: Plan, o: Offload, constants: frozenset[str]) -> list[tuple[Stay, Stay]]:
    """Return the resident constants of every call in the first inference and in the later ones; results are not resident.

    Tensors lie where the plan's residency places them, so that constants are found; activations cross the bus all the same,
    because a program returns every tensor to the host.
    """
    residency = plan.residency.get(o.target.name)
    if residency is None or o.id not in residency.stays:
        return []
    pairs = zip(residency.stays[o.id], residency.lasting[o.id], strict=True)
    first = [(replace(s, present=s.present & constants, kept=frozenset()), names) for s, names in pairs]
    return [(s, replace(s, present=s.present | (names & constants))) for s, names in first]


def aligned_moves(first: MoveRecorder, later: MoveRecorder) -> list[MoveGroup]:
    """Align the moves of two runs of a driver: parts in order, with common moves merged."""
    a, b = ([(_key(m), m) for m in steps.moves] for steps in (first, later))
    result: list[MoveGroup] = []
    while a or b:
        common = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x[0] != y[0]), min(len(a), len(b)))
        if common:
            common_moves = _merged_sends([m for _, m in a[:common]])
            result.append(MoveGroup(common_moves, common_moves))
            a, b = a[common:], b[common:]
            continue
        only_a, only_b = _next_common([k for k, _ in a], [k for k, _ in b])
        result.append(MoveGroup(_merged_sends([m for _, m in a[:only_a]]), _merged_sends([m for _, m in b[:only_b]])))
        a, b = a[only_a:], b[only_b:]
    return result


def _next_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[int, int]:
    """Return the numbers of moves of both before the next common one, fewest of the second first, as it only omits moves."""
    places: dict[Hashable, int] = {}
    for n, key in enumerate(a):
        places.setdefault(key, n)
    return next(((places[key], n) for n, key in enumerate(b) if key in places), (len(a), len(b)))


def _merged_sends(moves: Sequence[Move]) -> tuple[Move, ...]:
    """Return moves with neighbouring blocks of constant commands merged."""
    merged: list[Move] = []
    pending: list[Commands] = []
    for m in moves:
        if isinstance(m, Send):
            pending.append(m.commands)
            continue
        merged += _merged_send(pending)
        pending = []
        merged.append(m)
    return (*merged, *_merged_send(pending))


def _merged_send(blocks: Sequence[Commands]) -> list[Move]:
    if not blocks:
        return []
    return [Send(Commands({name: np.concatenate([c.columns[name] for c in blocks]) for name in blocks[0].columns}))]


def _key(m: Move) -> Hashable:
    """Return the key by which two moves are equal; buffers are named by their order."""
    if isinstance(m, Send):
        return "send", _bits(m.commands)
    if isinstance(m, Put):
        return "put", _bits(m.commands), _gathered(m.cells), m.lanes
    if isinstance(m, Get):
        return "get", _bits(m.commands), m.buffer.name
    if isinstance(m, Pause):
        return "pause", m.words
    if isinstance(m, Fill):
        return "fill", m.memory, m.address, m.words, None if m.cells is None else _gathered(m.cells)
    return "fetched", m.memory, m.address, m.buffer.name


def _bits(c: Commands) -> Hashable:
    return tuple((name, _data(x)) for name, x in c.columns.items())


def _gathered(g: Gather) -> Hashable:
    return g.forms, tuple(leaf.name for leaf in g.sources), _data(g.form_numbers), _data(g.indices), _data(g.source_numbers)


def _data(x: Data) -> Hashable:
    return x.shape, x.tobytes()
