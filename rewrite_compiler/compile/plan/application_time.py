"""Time of a whole application: all of it on one host core, and with its offloads on their devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...fit.cost import Price
from ...fit.host import HostTable, picoseconds_of
from ...ir.program import Node, Program, Value


def application_time(source: Program, program: Program, prices: Mapping[Value, Price | None], table: HostTable) -> dict[str, int] | None:
    """Return nanoseconds of an application both ways, host work that rewriting inserted counted in; None where a cost is unknown.

    `prices` are those of the offloads of the program by their first result. What depends on constants alone is computed once,
    before any inference, and is not counted.
    """
    known_prices = [price for price in prices.values() if price is not None]
    if len(known_prices) < len(prices):
        return None
    host_nodes = [n for n in moving_nodes(program) if n.outputs[0] not in prices]
    devices = sum(price.picoseconds for price in known_prices)
    return {
        "host_nanoseconds": _nanoseconds(picoseconds_of(source, moving_nodes(source), table)),
        "nanoseconds": _nanoseconds(devices + picoseconds_of(program, host_nodes, table)),
    }


def picoseconds_of_sources(source: Program, covered: Sequence[Sequence[str]], table: HostTable) -> list[int]:
    """Return the host's time of the model's own nodes that each offload covers; nodes that several offloads cover count in equal parts.

    An offload's body may have operations that no node of the model has, such as the sum with a bias of zeros.
    """
    costs: Counter[str] = Counter()
    for n in moving_nodes(source):
        for s in n.origins:
            costs[source.sources[s].name] += picoseconds_of(source, [n], table) // len(n.origins)
    times_covered = Counter(name for names in covered for name in names)
    return [sum(costs[name] // times_covered[name] for name in names) for names in covered]


def moving_nodes(p: Program) -> Iterator[Node]:
    """Yield the nodes that depend on an input."""
    moving = set(p.inputs)
    for n in p.nodes:
        if not moving.isdisjoint(n.inputs):
            moving.update(n.outputs)
            yield n


def _nanoseconds(picoseconds: int) -> int:
    return -(-picoseconds // 1000)
