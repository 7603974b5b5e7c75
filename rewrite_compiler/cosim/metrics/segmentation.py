"""Segmentation of a plan: the host segments and offloads in the order of their dependencies.

A node's level is the number of offloads on the longest path to it; all host nodes of a level form one segment, and the
offloads that need only that level follow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...compile.plan.plan import Offload, Plan
from ...ir.program import Node, Program, Value


@dataclass(frozen=True)
class Segment:
    """The host nodes of one level as a program (None without any), the offloads after it, and the values `dead` behind them."""

    host: Program | None
    offloads: tuple[Offload, ...]
    dead: tuple[Value, ...]


def segments(plan: Plan) -> tuple[Segment, ...]:
    """Return the segments of a plan in execution order."""
    p = plan.program
    offload_of = {id(o.node): o for o in plan.offloads}
    level: dict[Value, int] = dict.fromkeys((*p.inputs, *p.constants), 0)
    host: dict[int, list[Node]] = {}
    device: dict[int, list[Offload]] = {}
    for node in p.nodes:
        node_level = max((level[v] for v in node.inputs), default=0)
        o = offload_of.get(id(node))
        if o is None:
            host.setdefault(node_level, []).append(node)
        else:
            device.setdefault(node_level, []).append(o)
        level.update(dict.fromkeys(node.outputs, node_level + (o is not None)))
    count = max((*host, *device), default=-1) + 1
    read_at = _reads(p, level, offload_of.keys())
    programs = [_program(p, host.get(n, []), n, read_at) for n in range(count)]
    return tuple(Segment(programs[n], tuple(device.get(n, ())), _dead(p, level, read_at, n)) for n in range(count))


def _reads(p: Program, level: dict[Value, int], devices: object) -> dict[Value, list[tuple[int, bool]]]:
    """Return for each value the levels that read it, and whether an offload reads it there; outputs are live to the end."""
    reads: dict[Value, list[tuple[int, bool]]] = {v: [(1 << 30, True)] for v in p.outputs}
    for node in p.nodes:
        node_level = max((level[v] for v in node.inputs), default=0)
        for v in node.inputs:
            reads.setdefault(v, []).append((node_level, id(node) in devices))  # type: ignore[operator]
    return reads


def _program(p: Program, nodes: list[Node], n: int, read_at: dict[Value, list[tuple[int, bool]]]) -> Program | None:
    results = {v for node in nodes for v in node.outputs}
    needed = [v for node in nodes for v in node.inputs if v not in results]
    outputs = [v for v in sorted(results) if any(reader_level > n or device for reader_level, device in read_at.get(v, ()))]
    if not outputs:
        return None
    constants = {v: p.constants[v] for v in needed if v in p.constants}
    inputs = tuple(dict.fromkeys(v for v in needed if v not in constants))
    return replace(p, inputs=inputs, outputs=tuple(outputs), nodes=tuple(nodes), constants=constants)


def _dead(p: Program, level: dict[Value, int], read_at: dict[Value, list[tuple[int, bool]]], n: int) -> tuple[Value, ...]:
    """Return the values whose last use is in segment n."""
    return tuple(
        v for v, reads in read_at.items() if v not in p.constants and max(reader_level for reader_level, _ in reads) == n and level[v] <= n
    )
