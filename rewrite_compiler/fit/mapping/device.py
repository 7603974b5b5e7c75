"""The clusters of an accelerator: its memories by how far they are from the host, its widest unit, and what an access takes.

Memories at one distance are one level with the bytes of all, and an element is one byte. Energies are those of the target; where it
gives none, those that Timeloop prints for memories of a like size, in between by straight lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ...errors import InputError
from ...target import Resources
from ...target.resources import HOST, Memory
from ..problems.problem import MAC
from .clusters import Cluster, Clusters

# bytes of a memory and femtojoules of an access of one byte, as Timeloop v2.0 prints them of `edge` and `cloud`
PRINTED = ((512, 500), (102_400, 3_000), (819_200, 20_588))
OUTSIDE, OPERATION = 100_000, 250
FEMTO = 1e15
SOURCE = "Timeloop v2.0 with its pat-public tables, 8 bits a word: memories by their size, between the sizes that it was asked for in lines"


def device_clusters(name: str, resources: Resources | None) -> Clusters:
    """Return the clusters of a target by its resources.

    Raises:
        InputError: it gives none, or no memory that the host reaches (F231).
    """
    if resources is None:
        raise InputError("F231", f"{name} gives no resources, so it is no architecture of memories and units", help="declare memories")
    groups = _distances(resources)
    if not groups:
        raise InputError("F231", f"{name} has no memory that a link joins to the host", help="declare the links of its resources")
    unit = max(resources.units, key=lambda u: u.per_cycle)
    levels = [Cluster(HOST)]
    energies = {HOST: OUTSIDE}
    sources = [HOST]
    for number, group in enumerate(groups):
        level = group[0].name if len(group) == 1 else f"on_chip_{number}" if number else "on_chip"
        capacity = sum(m.capacity_bytes * m.instances for m in group)
        energies[level] = _declared(group) or min(access_energy(capacity), OUTSIDE)
        levels.append(Cluster(level, capacity, width=_width(resources, group, sources)))
        sources = [m.name for m in group]
    last = levels[-1]
    levels[-1] = Cluster(last.name, last.capacity, unit.per_cycle, None, last.width)
    operation = OPERATION if unit.energy is None else max(round(unit.energy.joules * FEMTO), 1)
    source = "declared by the target; the host's memory as Timeloop v2.0 prints it" if resources.gives_energies else SOURCE
    return Clusters(name, tuple(levels), resources.clock.hertz, energies, {MAC: operation}, source)


def _distances(resources: Resources) -> list[list[Memory]]:
    """Return memories by the number of links from the host, those next to it first."""
    by_name = {m.name: m for m in resources.memories}
    groups: list[list[Memory]] = []
    reached, sources = {HOST}, [HOST]
    while sources:
        sinks = list(dict.fromkeys(x.sink for x in resources.links if x.source in sources and x.sink in by_name and x.sink not in reached))
        reached |= set(sinks)
        sources = sinks
        groups += [[by_name[n] for n in sinks]] if sinks else []
    return groups


def _width(resources: Resources, group: Iterable[Memory], sources: Iterable[str]) -> int:
    """Return the bytes a cycle of the widest link into a group."""
    names, ends = {m.name for m in group}, set(sources)
    return max(1, *(int(x.bytes_per_cycle) for x in resources.links if x.sink in names and x.source in ends))


def _declared(group: Iterable[Memory]) -> int | None:
    """Return the mean of what reads and writes of a byte take; None where a memory does not say."""
    joules = []
    for m in group:
        if m.read_energy is None or m.write_energy is None:
            return None
        joules.append((m.read_energy.joules + m.write_energy.joules) / (2 * m.element_bytes))
    return max(round(FEMTO * sum(joules) / len(joules)), 1)


def access_energy(capacity: int) -> int:
    """Return the femtojoules of an access of a memory of so many bytes, on the line through the two printed sizes next to it."""
    (low, a), (high, b) = next((pair for pair in pairwise(PRINTED) if capacity <= pair[1][0]), PRINTED[-2:])
    return max(round(a + (b - a) * (capacity - low) / (high - low)), 1)
