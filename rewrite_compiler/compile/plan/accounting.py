"""Accounting of source nodes: each is offloaded, on the host, or absorbed, in exactly one place and with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass

from ...ir.program import Node, Program
from ...ops.op import LAYOUT
from .plan import Absorbed, HostNode

WhyNot = Callable[[Node], str]


@dataclass(frozen=True)
class Account:
    """The partition of source nodes; `offloads` has the node names of each offload, in the order of offloads."""

    offloads: tuple[tuple[str, ...], ...]
    host: tuple[HostNode, ...]
    absorbed: tuple[Absorbed, ...]


def account(source: Program, extracted: Program, offloads: MappingOf[str, Node], why_not: WhyNot) -> Account:
    """Return where each node of `source` is in the extracted program; `offloads` are its device operations by id, in order."""
    names = [s.name for s in source.sources]
    owner: dict[int, str] = {}
    offload_nodes: list[tuple[str, ...]] = []
    host_products = _product_sources(source.nodes) & _product_sources(extracted.nodes)
    for key, node in offloads.items():
        source_nodes = sorted(s for s in node.origins if s not in owner and s not in host_products)
        owner.update(dict.fromkeys(source_nodes, key))
        offload_nodes.append(tuple(names[s] for s in source_nodes))
    devices = {id(n) for n in offloads.values()}
    host: dict[int, HostNode] = {}
    compute_first = sorted((n for n in extracted.nodes if id(n) not in devices), key=_is_layout)
    for node in compute_first:
        for s in sorted(node.origins):
            if s not in owner:
                owner[s] = names[s]
                host[s] = HostNode(names[s], source.sources[s].op_type, why_not(node))
    absorbed = [Absorbed(names[s], by) for s, by in _absorbed(source, owner).items()]
    return Account(tuple(offload_nodes), tuple(host[s] for s in sorted(host)), tuple(absorbed))


def _product_sources(nodes: Iterable[Node]) -> set[int]:
    """Return the source nodes whose multiply-accumulates these nodes compute."""
    return {s for n in nodes if n.operator is not None and n.operator.macs is not None for s in n.origins}


def _is_layout(node: Node) -> bool:
    """Tell whether a node is a layout operator: a computing node explains a source node better."""
    return node.operator is not None and node.operator.kind == LAYOUT


def _absorbed(source: Program, owner: MappingOf[int, str]) -> dict[int, str]:
    """Return what absorbed each remaining node: the importer's reason, or the nearest owner downstream."""
    users = source.users()
    nodes_of: dict[int, list[Node]] = {}
    for n in source.nodes:
        for s in n.origins:
            nodes_of.setdefault(s, []).append(n)
    absorbers = {}
    for s in range(len(source.sources)):
        if s in owner:
            continue
        absorbers[s] = source.absorbed[s] if s in source.absorbed else _downstream(nodes_of.get(s, []), users, owner)
    return absorbers


def _downstream(start: Sequence[Node], users: MappingOf[int, list[Node]], owner: MappingOf[int, str]) -> str:
    visited: set[int] = set()
    work = list(start)
    while work:
        node = work.pop(0)
        owners = sorted(owner[s] for s in node.origins if s in owner)
        if owners:
            return owners[0]
        for v in node.outputs:
            readers = [u for u in users.get(v, ()) if id(u) not in visited]
            visited.update(map(id, readers))
            work.extend(readers)
    return "nothing reads its result in the chosen program"
