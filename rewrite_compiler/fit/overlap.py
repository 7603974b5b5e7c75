"""Overlap: the time of an offload whose transfers and computations run at once where memories have rooms for two tiles.

Every call of the device becomes commands: its operands are loaded over the link to their memory, the unit computes, its results
are stored. The costs of a call say how long each takes; transfers share their cycles in proportion to their bytes. Where every
memory has one room nothing overlaps, and the time is that of the commands one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..target import Cost, Resources
from ..target import Mapping as Operation
from ..target.resources import HOST
from ..target.timing import Command, Region, Timeline, timeline
from .mapping.calls import Tiling

COMMANDS = "commands"
LINKS = "links"
MOST_CALLS = 48  # that are timed one by one; later ones repeat the last period
PERIOD = 16  # calls over which the time of one is taken


@dataclass(frozen=True)
class Overlap:
    """The time of an offload: its cycles, those of all commands one after the other, and what each resource works and waits for."""

    cycles: int
    serial_cycles: int
    lanes: tuple[Lane, ...]

    @property
    def hidden_cycles(self) -> int:
        """Cycles that overlap hides."""
        return self.serial_cycles - self.cycles


@dataclass(frozen=True)
class Lane:
    """A resource of the device over the calls that were timed: busy cycles, and cycles of waits by their reason."""

    resource: str
    busy: int
    waits: Mapping[str, int]


def overlapping_memories(resources: Resources) -> dict[str, int]:
    """Return the memories that hold several tiles at once, with how many."""
    return {m.name: m.buffering for m in resources.memories if m.buffering > 1}


def overlap(m: Operation, tiling: Tiling, attributes: Mapping[str, Any], resources: Resources) -> Overlap | None:
    """Return the time of all calls with overlap; None where the target gives no cost or no memory has several rooms."""
    rooms = overlapping_memories(resources)
    if not rooms or m.price is None:
        return None
    places = memories_of(m, tiling, attributes, resources)
    costs: dict[tuple[int, ...], Cost] = {}
    ends, commands = [], list[Command]()
    calls = 0
    serial = 0
    for slices in tiling.slices():
        sizes = {d: part.stop - part.start for d, part in slices.items()}
        key = tuple(sizes.values())
        if key not in costs:
            cost = m.cost(sizes, attributes, resources)
            assert cost is not None
            costs[key] = cost
        calls += 1
        serial += costs[key].cycles
        if calls <= MOST_CALLS:
            commands += call_commands(m, costs[key], places)
            ends.append(len(commands))
    timed = timeline(commands, rooms)
    cycles = timed.cycles
    if calls > MOST_CALLS:  # each later call takes as long as one of the last PERIOD
        period = cycles - timeline(commands[: ends[-1 - PERIOD]], rooms).cycles
        cycles += -(-period * (calls - MOST_CALLS) // PERIOD)
    return Overlap(min(cycles, serial), serial, lanes_of(timed))


def call_commands(m: Operation, cost: Cost, places: Mapping[str, str]) -> Iterator[Command]:
    """Yield the commands of one call: loads of operands and of its own instructions, the computation, stores of results.

    All transfers share the links, because their cycles in a cost are one after the other.
    """
    tensors = (COMMANDS, *(v.name for v in m.operands), *m.axes.results)
    regions = {name: Region(places.get(name, name), k, k + 1) for k, name in enumerate(tensors)}
    cycles = _shares(cost)
    results = [name for name in m.axes.results if name in cycles]
    loads = [name for name in cycles if name in regions and name not in results]
    for name in loads:
        yield Command(f"load {name}", LINKS, cycles[name], writes=(regions[name],), queue="loads")
    result_regions = tuple(regions[name] for name in results)
    yield Command(m.operation, cost.unit, cost.compute_cycles, tuple(regions[name] for name in loads), result_regions)
    for name in results:
        yield Command(f"store {name}", LINKS, cycles[name], reads=(regions[name],), queue="stores")
    yield from (Command(f"move {name}", LINKS, n, queue="loads") for name, n in cycles.items() if name not in regions)


def _shares(cost: Cost) -> dict[str, int]:
    """Return the transfer cycles of each tensor, in proportion to its bytes; they add up to those of the cost."""
    total, shares, first = cost.bytes, {}, 0
    for name, end in zip(cost.moved, itertools.accumulate(cost.moved.values()), strict=True):
        last = cost.transfer_cycles * end // total if total else 0
        shares[name], first = last - first, last
    return shares


def memories_of(m: Operation, tiling: Tiling, attributes: Mapping[str, Any], resources: Resources) -> dict[str, str]:
    """Return the memory that each tensor is brought to: of those that the mapping's levels name, one that a link joins to the host."""
    slices = next(tiling.slices())
    levels = m.accesses({d: part.stop - part.start for d, part in slices.items()}, attributes) or {}
    linked = {end for x in resources.links if HOST in (x.source, x.sink) for end in (x.source, x.sink)}
    places: dict[str, str] = {}
    for memory in sorted(levels, key=lambda name: name not in linked):
        for tensor in levels[memory]:
            places.setdefault(tensor, memory)
    return places


def lanes_of(timed: Timeline) -> tuple[Lane, ...]:
    """Return what each resource works and waits for."""
    waits: dict[str, dict[str, int]] = {}
    for (resource, wait, subject), cycles in timed.stalls().items():
        reasons = waits.setdefault(resource, {})
        text = f"{wait}: {subject}"
        reasons[text] = reasons.get(text, 0) + cycles
    return tuple(Lane(name, busy, waits.get(name, {})) for name, busy in timed.busy().items())
