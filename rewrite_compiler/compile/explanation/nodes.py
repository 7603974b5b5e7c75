"""Lookup of a model's nodes by name, number, operator, tensor or glob, and the place of each in a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from ..plan.plan import Plan

WILDCARDS = frozenset("*?[")


class NodePlace(StrEnum):
    """Where a source node went in a plan."""

    OFFLOAD = "offload"
    """It is computed by one or several offloads."""

    HOST = "host"
    """It stays on the host."""

    ABSORBED = "absorbed"
    """It left no operation of its own: another node, or the importer, took it in."""


@dataclass(frozen=True)
class NodeRow:
    """A node of the source model: its number from 0, its operator, its place, and its offloads or the reason for having none."""

    number: int
    node: str
    op: str
    place: NodePlace
    offloads: tuple[str, ...] = ()
    why: str = ""


def node_rows(plan: Plan) -> list[NodeRow]:
    """Return every node of a plan's model, in the order of the model."""
    offloads: dict[int, list[str]] = {}
    for o in plan.offloads:
        for number in o.node.origins:
            offloads.setdefault(number, []).append(o.id)
    host, absorbed = {h.node: h.why_not for h in plan.host}, {a.node: a.by for a in plan.absorbed}
    return [
        NodeRow(n, s.name, s.op_type, NodePlace.OFFLOAD, tuple(offloads[n]))
        if n in offloads
        else NodeRow(n, s.name, s.op_type, NodePlace.HOST, why=host[s.name])
        if s.name in host
        else NodeRow(n, s.name, s.op_type, NodePlace.ABSORBED, why=absorbed.get(s.name, ""))
        for n, s in enumerate(plan.source.sources)
    ]


def nodes_called(plan: Plan, text: str) -> list[str]:
    """Return the names of the nodes or offloads that `text` denotes, by the first kind of name with a match; none without one."""
    sources = [s.name for s in plan.source.sources]
    if text in sources or any(text == o.id for o in plan.offloads):
        return [text]
    if text.isascii() and text.isdigit() and int(text) < len(sources):
        return [sources[int(text)]]
    candidates = (_by_operator(plan, text), _by_operation(plan, text), _by_tensor(plan, text), _by_glob(plan, text))
    return next(filter(None, map(list, candidates)), [])


def _by_operator(plan: Plan, text: str) -> Iterator[str]:
    return (s.name for s in plan.source.sources if s.op_type.lower() == text.lower())


def _by_operation(plan: Plan, text: str) -> Iterator[str]:
    return (o.id for o in plan.offloads if text in {o.mapping.operation, f"{o.target.name}.{o.mapping.operation}"})


def _by_tensor(plan: Plan, text: str) -> list[str]:
    """Return the nodes that define a tensor; for an input or a weight those that read it."""
    p = plan.source
    values = {v for v, name in enumerate(p.names) if name == text}
    return _names_of(plan, (n.origins for n in p.nodes if values & {*n.outputs})) or _names_of(
        plan, (n.origins for n in p.nodes if values & {*n.inputs})
    )


def _by_glob(plan: Plan, text: str) -> Iterator[str]:
    """Yield the nodes whose names match a glob, else the offloads whose ids do."""
    if not WILDCARDS & {*text}:
        return iter(())
    nodes = [s.name for s in plan.source.sources if fnmatchcase(s.name, text)]
    return iter(nodes or [o.id for o in plan.offloads if fnmatchcase(o.id, text)])


def _names_of(plan: Plan, origins: Iterable[frozenset[int]]) -> list[str]:
    numbers = sorted({number for group in origins for number in group})
    return [plan.source.sources[number].name for number in numbers]
