"""Totals: the cost of a whole program on host and devices, summed over its operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...fit.cost import Price
from ...fit.host import SHIPPED, HostTable, host_bytes, picoseconds_of
from ...ir.program import Node, Program, total_macs


@dataclass(frozen=True)
class Totals:
    """Sums over a program: cycles, nanoseconds, multiply-accumulates, bytes over the links, and bytes in the host's memory.

    `unpriced` offloads have no device figures.
    """

    offloads: int = 0
    device_calls: int = 0
    device_cycles: int = 0
    bytes: int = 0
    device_nanoseconds: int = 0
    host_macs: int = 0
    host_bytes: int = 0
    host_nanoseconds: int = 0
    unpriced: int = 0

    @property
    def nanoseconds(self) -> int:
        """Time of devices and host, one after the other."""
        return self.device_nanoseconds + self.host_nanoseconds

    @property
    def moved_bytes(self) -> int:
        """Bytes over the links and in the host's memory."""
        return self.bytes + self.host_bytes

    def plus(self, other: Totals) -> Totals:
        """Return the sum of two totals."""
        return Totals(**{name: value + vars(other)[name] for name, value in vars(self).items()})

    def minus(self, other: Totals) -> Totals:
        """Return the difference of two totals."""
        return Totals(**{name: value - vars(other)[name] for name, value in vars(self).items()})

    def document(self) -> dict[str, int]:
        """Return the sums as JSON."""
        return {**vars(self), "nanoseconds": self.nanoseconds, "moved_bytes": self.moved_bytes}


@dataclass(frozen=True)
class Run:
    """The device calls of one offload and their price, None when that is not known."""

    calls: int
    price: Price | None


def totals(p: Program, run_of: Callable[[Node], Run | None], table: HostTable = SHIPPED) -> Totals:
    """Return the sums over a program; `run_of` maps a node to its offload, None for a host operator."""
    sums = Totals()
    for node in p.nodes:
        run = run_of(node)
        sums = sums.plus(_on_host(p, node, table) if run is None else _on_device(run))
    return sums


def _on_device(run: Run) -> Totals:
    if run.price is None:
        return Totals(offloads=1, device_calls=run.calls, unpriced=1)
    price = run.price
    nanoseconds = -(-price.picoseconds // 1000)
    return Totals(1, run.calls, price.cycles, price.bytes, nanoseconds, host_bytes=price.host_bytes)


def _on_host(p: Program, node: Node, table: HostTable) -> Totals:
    byte_count = host_bytes(node.operator, [p.types[v] for v in node.inputs], [p.types[v] for v in node.outputs])
    return Totals(host_macs=total_macs(p, [node]), host_bytes=byte_count, host_nanoseconds=-(-picoseconds_of(p, [node], table) // 1000))
