"""Residency of a plan: which operands each device call finds on its device, and which results it leaves, in execution order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ...fit.residency import CONSTANT, IN, OUT, SCRATCH, Call, Gap, Piece, Residency, ResidencyProblem, solve_residency
from ...ir.program import Node, Program, Value
from ...target import Resources, Room, Stay
from ..host.order_preserving import keeps_order
from .plan import Offload, tensors_of
from .resident_document import DeviceResidency


def execution_order(p: Program, offloads: Sequence[Offload]) -> tuple[Offload, ...]:
    """Return the offloads in the order of co-simulation: by depth in offloads, then in program order."""
    of_node = {id(o.node): o for o in offloads}
    level: dict[Value, int] = dict.fromkeys((*p.inputs, *p.constants), 0)
    entries: list[tuple[int, int, Offload]] = []
    for n, node in enumerate(p.nodes):
        depth = max((level[v] for v in node.inputs), default=0)
        o = of_node.get(id(node))
        if o is not None:
            entries.append((depth, n, o))
        level.update(dict.fromkeys(node.outputs, depth + (o is not None)))
    return tuple(o for *_, o in sorted(entries, key=lambda entry: entry[:2]))


def residencies(p: Program, offloads: Sequence[Offload], resources: Mapping[str, Resources | None]) -> dict[str, DeviceResidency]:
    """Return the residency of every device whose resources and costs are stated, by target."""
    ordered = execution_order(p, offloads)
    names = dict.fromkeys(o.target.name for o in ordered)
    by_target = {}
    for name in names:
        device_offloads, device_resources = [o for o in ordered if o.target.name == name], resources.get(name)
        if device_resources is not None and all(o.price is not None for o in device_offloads):
            by_target[name] = _Device(p, device_offloads, offloads, device_resources).resident()
    return by_target


class _Device:
    """The offloads of one device as a residency problem, and its solution as Stays."""

    def __init__(self, p: Program, offloads: Sequence[Offload], all_offloads: Sequence[Offload], resources: Resources) -> None:
        self.p, self.offloads, self.resources = p, offloads, resources
        self.alias_of = aliases(p)
        self.producer = {self.alias_of.get(v, v): o for o in all_offloads for v in o.node.outputs}
        self.calls: list[Call] = []
        self.owner: list[tuple[Offload, int]] = []
        for o in offloads:
            self.add(o)

    def add(self, o: Offload) -> None:
        """Add the calls of an offload."""
        tensors = tensors_of(o)
        attributes = dict(o.node.attributes)
        for n, sizes in enumerate(o.tiling.call_sizes()):
            rooms = o.mapping.rooms(sizes, attributes)
            cost = o.mapping.cost(sizes, attributes, self.resources)
            self.owner.append((o, n))
            if rooms is None or cost is None:
                self.calls.append(Call((), is_opaque=True))
                continue
            self.check_rooms(o, rooms)
            pieces = (self.piece(o, room, tensors, cost.moved) for room in rooms)
            self.calls.append(Call(tuple(pieces)))

    def check_rooms(self, o: Offload, rooms: Iterable[Room]) -> None:
        """Refuse a room that is larger than its memory."""
        elements = {m.name: m.elements for m in self.resources.memories}
        for room in rooms:
            if room.size > elements.get(room.memory, room.size):
                expected = f"that fit ({room.memory} has {elements[room.memory]:,} elements)"
                raise o.mapping.misplaced_room(expected, f"one of {room.size:,}")

    def piece(self, o: Offload, room: Room, tensors: Mapping[str, Value], moved_bytes: Mapping[str, int]) -> Piece:
        """Return the memory piece of a tensor in a call; a tensor that the tiling divides is scratch."""
        bytes_ = moved_bytes.get(room.tensor, 0)
        if not room.tensor:
            return Piece(room.scratch, room.memory, room.size, SCRATCH)
        value = tensors[room.tensor]
        if value in self.p.constants:
            return Piece(room.tensor, room.memory, room.size, CONSTANT if room.lasting else SCRATCH, bytes_)
        dims = o.mapping.axes.of[room.tensor]
        is_result = room.tensor in o.mapping.axes.results
        is_undivided = all(o.tiling.tile[d] == o.tiling.sizes[d] for d in (o.tiling.sizes if is_result else dims))
        role = (OUT if is_result else IN) if is_undivided else SCRATCH
        return Piece(room.tensor, room.memory, room.size, role, bytes_, self.alias_of.get(value, value), room.form)

    def question(self) -> ResidencyProblem:
        """Return the residency problem."""
        memories = {piece.memory for call in self.calls for piece in call.pieces}
        capacities = {m.name: m.elements for m in self.resources.memories if m.name in memories}
        return ResidencyProblem(tuple(self.calls), capacities, frozenset(self.read_elsewhere()))

    def read_elsewhere(self) -> Iterable[Value]:
        """Yield the values that the host or another device reads."""
        device_nodes = {id(o.node) for o in self.offloads}
        input_pieces = {(n, p.value) for n, call in enumerate(self.calls) for p in call.pieces if p.role == IN}
        device_reads = {(id(self.owner[n][0].node), v) for n, v in input_pieces}
        for node in self.p.nodes:
            if is_renaming(self.p, node):
                continue
            for v in node.inputs:
                value = self.alias_of.get(v, v)
                if id(node) not in device_nodes or (id(node), value) not in device_reads:
                    yield value
        yield from (self.alias_of.get(v, v) for v in self.p.outputs)

    def resident(self) -> DeviceResidency:
        """Return the solution of the residency problem for the plan."""
        q = self.question()
        residency = solve_residency(q)
        present, lasting = self.present(q, residency.gaps)
        unread_tensors = {at: q.piece(at).tensor for at in residency.unread}
        stays: dict[str, list[Stay]] = {o.id: [] for o in self.offloads}
        remaining: dict[str, list[frozenset[str]]] = {o.id: [] for o in self.offloads}
        for n, (o, _) in enumerate(self.owner):
            at = {
                p.tensor: residency.addresses[n, k] for k, p in enumerate(q.calls[n].pieces) if (n, k) in residency.addresses and p.tensor
            }
            stays[o.id].append(Stay(at, present.get(n, frozenset()), frozenset(t for (m, _), t in unread_tensors.items() if m == n)))
            remaining[o.id].append(lasting.get(n, frozenset()))
        inner, why = self.edges(q, residency)
        return DeviceResidency(
            {i: tuple(s) for i, s in stays.items()}, {i: tuple(s) for i, s in remaining.items()},
            sum(o.price.cost.bytes for o in self.offloads if o.price is not None), _bytes_saved(q, residency),
            residency.upper_bound, *inner,
            self.saved_by(q, residency), why,
        )  # fmt: skip

    def present(self, q: ResidencyProblem, gaps: Sequence[Gap]) -> tuple[dict[int, frozenset[str]], dict[int, frozenset[str]]]:
        """Return by call the operands that are resident, and the constants that are resident from the second inference on."""
        operands_by_call: dict[bool, dict[int, frozenset[str]]] = {False: {}, True: {}}
        for g in gaps:
            calls, n = operands_by_call[g.is_cyclic], g.end[0]
            calls[n] = calls.get(n, frozenset()) | {q.piece(g.end).tensor}
        return operands_by_call[False], operands_by_call[True]

    def edges(self, q: ResidencyProblem, residency: Residency) -> tuple[tuple[int, int, int], dict[str, str]]:
        """Return the numbers of computed operands, of those made on this device, of those that never cross the link; and why others do."""
        ends = {g.end for g in residency.gaps if not g.is_cyclic}
        stays_at = {(self.owner[n][0].id, q.piece((n, k)).tensor) for n, k in ends}
        crossing = {
            (self.owner[n][0].id, p.tensor) for n, call in enumerate(q.calls) for k, p in enumerate(call.pieces)
            if p.role == IN and (n, k) not in ends
        }  # fmt: skip
        operands = [
            (o, v.name, x) for o in self.offloads for v in o.mapping.operands if (x := tensors_of(o)[v.name]) not in self.p.constants
        ]
        made_on_device = [self.made_by(x) is not None for *_, x in operands]
        staying = [(o.id, name) in stays_at - crossing for o, name, _ in operands]
        why = {f"{o.id}.{name}": self.why_not(q, o, name, x) for (o, name, x), s in zip(operands, staying, strict=True) if not s}
        return (len(operands), sum(made_on_device), sum(staying)), why

    def made_by(self, v: Value) -> Offload | None:
        """Return the offload of this device that defines a value, None if there is none."""
        o = self.producer.get(self.alias_of.get(v, v))
        return o if o is not None and any(o is offload for offload in self.offloads) else None

    def why_not(self, q: ResidencyProblem, o: Offload, name: str, v: Value) -> str:
        """Return why an operand comes from the host."""
        maker = self.made_by(v)
        if maker is None:
            return "no offload of this device makes it"
        roles = {p.tensor: p for n, call in enumerate(q.calls) if self.owner[n][0] is o for p in call.pieces}
        maker_pieces = [
            p for n, call in enumerate(q.calls) if self.owner[n][0] is maker for p in call.pieces if p.value == self.alias_of.get(v, v)
        ]
        if name not in roles or not maker_pieces:
            return f"{o.mapping.name if name not in roles else maker.mapping.name} does not say where it could stay"
        if roles[name].role != IN or maker_pieces[0].role != OUT:
            return f"the tiling of {(o if roles[name].role != IN else maker).id} divides it"
        result, operand = maker_pieces[0], roles[name]
        if (operand.memory, operand.form) != (result.memory, result.form):
            return f"{maker.id} leaves it as {result.form} in {result.memory}, {o.id} takes {operand.form} in {operand.memory}"
        return "its memory is needed in between"

    def saved_by(self, q: ResidencyProblem, residency: Residency) -> dict[str, int]:
        """Return the bytes that residency saves, by offload."""
        bytes_saved = dict.fromkeys((o.id for o in self.offloads), 0)
        for at, saves in (*((g.end, g.saved_bytes) for g in residency.gaps), *((at, q.piece(at).link_bytes) for at in residency.unread)):
            bytes_saved[self.owner[at[0]][0].id] += saves
        return bytes_saved


def _bytes_saved(q: ResidencyProblem, residency: Residency) -> dict[str, int]:
    """Return the bytes saved, by kind: resident operands, results not read back, constants kept between inferences."""
    return {
        "operands": sum(g.saved_bytes for g in residency.gaps if not g.is_cyclic),
        "results": sum(q.piece(at).link_bytes for at in residency.unread),
        "constants": sum(g.saved_bytes for g in residency.gaps if g.is_cyclic),
    }


def is_renaming(p: Program, node: Node) -> bool:
    """Tell whether a node keeps its elements in memory order (only renames its operand)."""
    return node.operator is not None and keeps_order(node.operator, dict(node.attributes), p.types[node.inputs[0]].shape)


def aliases(p: Program) -> dict[Value, Value]:
    """Return for every value that only renames another one that value: a must-alias map."""
    alias_of: dict[Value, Value] = {}
    for node in p.nodes:
        if is_renaming(p, node) and node.inputs[0] not in p.constants:
            alias_of[node.outputs[0]] = alias_of.get(node.inputs[0], node.inputs[0])
    return alias_of


def resident_edges(
    p: Program, offloads: Sequence[Offload], residency: Mapping[str, DeviceResidency]
) -> list[tuple[Offload, str, Offload, str]]:
    """Return the resident operands as (maker, result, reader, operand): result and operand must share a format."""
    alias_of = aliases(p)
    makers = {alias_of.get(v, v): (o, name) for o in offloads for name, v in tensors_of(o).items() if v in o.node.outputs}
    result = []
    for o in offloads:
        present: AbstractSet[str] = frozenset(itertools.chain.from_iterable(s.present for s in _stays(o, residency)))
        for name in sorted(present):
            v = tensors_of(o)[name]
            maker = makers.get(alias_of.get(v, v))
            if maker is not None and maker[0].target.name == o.target.name:
                result.append((*maker, o, name))
    return result


def _stays(o: Offload, by_target: Mapping[str, DeviceResidency]) -> tuple[Stay, ...]:
    residency = by_target.get(o.target.name)
    return () if residency is None else residency.stays[o.id]
