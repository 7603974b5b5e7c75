"""The cost of an offload: its target's cost of each tile, summed over all calls, and the partial sums that the host adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..target import Cost, Resources
from ..target import Mapping as Operation
from .host import SHIPPED, HostTable
from .mapping.calls import Tiling
from .overlap import Overlap, overlap

FLOAT_BYTES = 4
STAYED = "stayed"
FEMTO = 1e15
PICO = 10**12


class Bound(StrEnum):
    """What most of an offload's cycles are spent on."""

    COMPUTE = "compute"
    """The unit, from trigger to interrupt."""
    TRANSFER = "transfer"
    """The links between host and device."""


@dataclass(frozen=True)
class Price:
    """The cost of an offload: cycles and bytes of its device at a clock in hertz, and elements of partial sums that the host adds."""

    cost: Cost
    hertz: int
    per_cycle: int  # operations of the unit
    added_elements: int = 0
    host: HostTable = SHIPPED
    overlap: Overlap | None = None  # where memories hold several tiles

    @property
    def hidden_cycles(self) -> int:
        """Cycles that overlap hides: no more than either computation or transfers take."""
        return 0 if self.overlap is None else min(self.overlap.hidden_cycles, self.cost.compute_cycles, self.cost.transfer_cycles)

    @property
    def cycles(self) -> int:
        """Cycles of the device, those that overlap counted once."""
        return self.cost.cycles - self.hidden_cycles

    @property
    def picoseconds(self) -> int:
        """Time of device and host in picoseconds, the host's additions after the device."""
        return -(-self.cycles * PICO // self.hertz) + self.added_elements * self.host.element["add"]

    @property
    def bytes(self) -> int:
        """Bytes over the links."""
        return self.cost.bytes

    @property
    def host_bytes(self) -> int:
        """Bytes that the host's additions of partial sums read and write in its memory."""
        return 3 * FLOAT_BYTES * self.added_elements

    @property
    def moved_bytes(self) -> int:
        """Bytes over the links and in the host's memory."""
        return self.bytes + self.host_bytes

    def without_bytes(self, byte_count: int) -> Price:
        """Return the price with so many bytes fewer over the links; transfer cycles shrink in proportion."""
        c = self.cost
        saved_cycles = c.transfer_cycles * byte_count // c.bytes if byte_count else 0
        remaining_cost = Cost(c.unit, c.compute_cycles, c.transfer_cycles - saved_cycles, {**c.moved, STAYED: -byte_count}, c.estimated)
        return replace(self, cost=remaining_cost)

    @property
    def bound(self) -> Bound:
        """What most of the cycles are spent on: `transfer` or `compute`."""
        return Bound.TRANSFER if self.cost.transfer_cycles > self.cost.compute_cycles else Bound.COMPUTE

    def utilisation(self, macs: int) -> float | None:
        """Return the share of the unit's multiply-accumulates per cycle that the operation uses; None for one without any."""
        return macs / (self.per_cycle * self.cycles) if macs and self.cycles else None


def price(
    m: Operation, tiling: Tiling, attributes: Mapping[str, Any], resources: Resources | None, host: HostTable = SHIPPED,
    tile_costs: dict[tuple[int, ...], Cost] | None = None,
) -> Price | None:  # fmt: skip
    """Return the price of all calls of an operation, None when its target gives no cost.

    The costs of this operation's tiles can be cached by their sizes, across calls.
    """
    if resources is None or m.price is None:
        return None
    total: Cost | None = None
    for sizes, calls in tiling.regions():
        key = tuple(sizes.values())
        tile_cost = None if tile_costs is None else tile_costs.get(key)
        if tile_cost is None:
            tile_cost = m.cost(sizes, attributes, resources)
            assert tile_cost is not None
            if tile_costs is not None:
                tile_costs[key] = tile_cost
        total = tile_cost.times(calls) if total is None else total.plus(tile_cost.times(calls))
    assert total is not None
    unit = next((u.per_cycle for u in resources.units if u.name == total.unit), 1)
    return Price(total, resources.clock.hertz, unit, partial_sum_elements(m, tiling), host)


def price_with_overlap(
    m: Operation, tiling: Tiling, attributes: Mapping[str, Any], resources: Resources | None, host: HostTable = SHIPPED
) -> Price | None:
    """Return the price of all calls where transfers and computations may overlap; tilings are chosen without that."""
    serial_price = price(m, tiling, attributes, resources, host)
    if serial_price is None or resources is None:
        return None
    return replace(serial_price, overlap=overlap(m, tiling, attributes, resources))


def accesses(m: Operation, tiling: Tiling, attributes: Mapping[str, Any]) -> dict[str, dict[str, dict[str, int]]] | None:
    """Return the bytes that all calls read and write by memory and tensor, None when the target gives no accesses."""
    totals: dict[str, dict[str, dict[str, int]]] = {}
    for sizes, calls in tiling.regions():
        tile_accesses = m.accesses(sizes, attributes)
        if tile_accesses is None:
            return None
        for memory, tensors in tile_accesses.items():
            for tensor, (reads, writes) in tensors.items():
                total = totals.setdefault(memory, {}).setdefault(tensor, {"reads": 0, "writes": 0})
                total["reads"] += calls * reads
                total["writes"] += calls * writes
    return totals


def femtojoules(m: Operation, tiling: Tiling, attributes: Mapping[str, Any], resources: Resources, macs: int) -> int:
    """Return the energy of all calls: memory accesses at their memory's energy an element, multiply-accumulates at their unit's.

    The resources must give energies and the mapping its accesses; host and links are not counted.
    """
    access_counts = accesses(m, tiling, attributes)
    assert access_counts is not None
    total = 0.0
    for name, tensors in access_counts.items():
        memory = resources.memory(name)
        assert memory.read_energy is not None
        assert memory.write_energy is not None
        reads, writes = (
            sum(tensor_counts[kind] for tensor_counts in tensors.values()) / memory.element_bytes for kind in ("reads", "writes")
        )
        total += reads * memory.read_energy.joules + writes * memory.write_energy.joules
    unit = next((u for u in resources.units if m.operation in u.operations), resources.units[0])
    assert unit.energy is not None
    return round((total + macs * unit.energy.joules) * FEMTO)


def partial_sum_elements(m: Operation, tiling: Tiling) -> int:
    """Return how many elements of partial sums the host adds: the result's size for each split but one of the summed dimensions."""
    parts = math.prod(-(-tiling.sizes[d] // tiling.tile[d]) for d in m.axes.summed if tiling.sizes.get(d) and tiling.tile[d])
    if parts == 1:
        return 0
    return (parts - 1) * math.prod(tiling.sizes[d] for d in m.axes.of[m.axes.result])


def cost_document(
    p: Price, macs: int, host_picoseconds: int, levels: Mapping[str, Any] | None = None, links: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return a price as the plan's JSON, beside the host's time for the same meaning; accesses by memory, and bytes by link."""
    utilisation = p.utilisation(macs)
    return {
        "cycles": p.cycles, "hidden_cycles": p.hidden_cycles,
        "compute_cycles": p.cost.compute_cycles, "transfer_cycles": p.cost.transfer_cycles, "clock_hertz": p.hertz,
        "nanoseconds": _nanoseconds(p.picoseconds), "host_nanoseconds": _nanoseconds(host_picoseconds),
        "bytes": p.bytes, "host_bytes": p.host_bytes, "traffic": dict(p.cost.moved), "links": dict(links or {}), "levels": levels,
        "added_elements": p.added_elements, "unit": p.cost.unit,
        "utilisation": None if utilisation is None else round(utilisation, 6), "bound": p.bound.value, "estimated": p.cost.estimated,
        "lanes": [{"resource": x.resource, "busy": x.busy, "waits": dict(x.waits)} for x in (p.overlap.lanes if p.overlap else ())],
    }  # fmt: skip


def _nanoseconds(picoseconds: int) -> int:
    return -(-picoseconds // 1000)
