"""Matching: saturate the program under rules and mappings, then extract the cheapest program with offloads."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations

from ...egraph import (
    Constructor,
    DeviceName,
    DeviceRule,
    EGraph,
    ENode,
    Extraction,
    Saturation,
    Unsaturated,
    classes_of,
    extract,
    extracted_program,
    mapping_text,
    plain_graph,
    saturate_regions,
)
from ...egraph.graph.encode import operator_named
from ...errors import SpecError
from ...fit import Refusal, Tiling, tile
from ...fit.cost import Price, femtojoules, price
from ...fit.host import host_bytes, host_picoseconds
from ...fit.search import cheapest
from ...ir.program import Program, Value, total_macs
from ...ir.types import TensorType
from ...limits import Limits
from ...ops.op import ELEMENTWISE, LAYOUT, STAGE, AttributeValue
from ...rewrite.rule import Rule
from ...target import Mapping, body_of
from .dominance import hopeless, without_dominated
from .objective import OFFLOADS, Objective
from .pins import NO_PINS, Pins
from .placement import RESULT, Key, Placed, Places, key_of

FREE = (0, 0, 0, 0, 0)
Case = tuple[str, tuple[TensorType, ...], tuple[tuple[str, AttributeValue], ...]]  # an operation on operand types with attributes
Fitted = MappingOf[Case, Tiling | Refusal]


@dataclass(frozen=True)
class Matched:
    """A program with offloads, how it was found, and how each shape of each operation fits its device."""

    program: Program
    saturation: Saturation
    extraction: Extraction
    e_nodes: MappingOf[Value, ENode]
    fitted: Fitted


def match(
    p: Program, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits, objective: Objective = OFFLOADS, pins: Pins = NO_PINS
) -> Matched:
    """Return the cheapest program by the levels of an objective: fewest host multiply-accumulates first, if none is given."""
    with _uncollected():
        return chosen(p, saturated(p, rules, mappings, limits), rules, mappings, limits, objective, pins)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let reference cycles wait: an e-graph is many objects in no cycle, which collections in between would visit again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def saturated(p: Program, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits) -> Saturation:
    """Return the e-graph of a program under rules and the patterns of mappings; equal regions are saturated once.

    Where a limit ended it before its first round, the program alone is the e-graph.
    """
    try:
        return saturate_regions(p, rules, [_device_rule(m, len(rules) + n) for n, m in enumerate(mappings)], limits)
    except Unsaturated as ended:
        if ended.reason == "crashed":
            raise
        return Saturation(plain_graph(p), 0, ended.reason, ended.problem.sentence)


def chosen(
    p: Program, saturation: Saturation, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits,
    objective: Objective = OFFLOADS, pins: Pins = NO_PINS,
) -> Matched:  # fmt: skip
    """Return the cheapest program of an e-graph; the mappings are those it was made with, or ones of the same patterns."""
    devices, costs, extraction = _extracted(p, saturation, mappings, limits, objective, pins)
    names = {c: DeviceName(m.name, tuple(name for name, _ in m.statics), _results(m)) for c, m in devices.items()}
    program, e_nodes = extracted_program(p, saturation.graph, extraction.choice, names, rules)
    return Matched(program, saturation, extraction, e_nodes, costs.fitted)


def offloads_as_written(
    p: Program, spelling: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits, objective: Objective = OFFLOADS
) -> list[Mapping]:
    """Return the mapping of each offload that exact matching finds; the program itself is not written out."""
    saturation = saturated(p, spelling, mappings, limits)
    devices, _, extraction = _extracted(p, saturation, mappings, limits, objective)
    return [devices[node.op] for node in extraction.choice.values() if node.op in devices]


def _extracted(
    p: Program, saturation: Saturation, mappings: Sequence[Mapping], limits: Limits, objective: Objective, pins: Pins = NO_PINS
) -> tuple[dict[str, Mapping], Costs, Extraction]:
    devices = {constructor_of(m).name: m for m in mappings}
    graph = saturation.graph
    work = {key: op.macs or 0 for key, op in p.opaque.items()}
    costs, roots = Costs(graph, devices, objective, work), classes_of(graph, p.outputs)
    allowed = pins.restricted(costs, graph, devices)
    if not objective.is_placed:
        return devices, costs, extract(graph, roots, allowed, limits.extraction_seconds)
    costs.hopeless = hopeless(graph, Undivided(graph, devices, objective), allowed)
    placed = costs.placed()
    places = Places(graph, without_dominated(graph, allowed, devices.keys(), placed), placed)
    found = extract(places.whole(), roots, places.cost, limits.extraction_seconds)
    projected = places.projected(found, roots)
    if projected is None:  # a tensor both on the host and on a device, made twice: without places it is made once
        plain = extract(graph, roots, allowed, limits.extraction_seconds)
        projected = replace(plain, bound=min(found.bound, plain.bound), status="limited")
    return devices, costs, projected


def _results(m: Mapping) -> Callable[[Sequence[TensorType]], Sequence[TensorType]] | None:
    """Return how the types of several results follow from the operands'; None for one result."""
    if len(m.rule.pairs) == 1:
        return None

    def types(operands: Sequence[TensorType]) -> Sequence[TensorType]:
        body = body_of(m, operands, {})
        return [body.types[v] for v in body.outputs]

    return types


def constructor_of(m: Mapping) -> Constructor:
    """Return the e-graph's constructor of an operation."""
    return Constructor(f"m_{m.target}_{m.variant}", len(m.operands), tuple(kind for _, kind in m.statics), True)


def _device_rule(m: Mapping, number: int) -> DeviceRule:
    made = constructor_of(m)
    attributes = [(m.rule.variables[name], kind) for name, kind in m.statics]
    return DeviceRule(made, mapping_text(m.rule, made.name, number, m.operands, attributes))


class Costs:
    """The cost of an e-node by the levels of an objective."""

    def __init__(
        self, graph: EGraph, devices: MappingOf[str, Mapping], objective: Objective = OFFLOADS, work: MappingOf[str, int] | None = None
    ) -> None:
        """Prepare to price e-nodes; `work` are the multiply-accumulates of opaque operators by key."""
        self.graph, self.devices, self.objective, self.work = graph, devices, objective, work or {}
        self.fitted: dict[Case, Tiling | Refusal] = {}
        self.known: dict[tuple[int, int], tuple[int, ...] | None] = {}  # by class and id of an e-node
        self.hopeless: AbstractSet[int] = frozenset()  # e-nodes that are never chosen: nobody looks for their tilings

    def __call__(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the cost, None for an e-node that must not be chosen: an operation that does not fit or that is constant."""
        at = c, id(node)
        if at not in self.known:
            self.known[at] = None if id(node) in self.hopeless else self.cost(c, node)
        return self.known[at]

    def cost(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the cost of an e-node that was not asked for before."""
        counted = self.counted(c, node)
        if counted is None:
            return None
        return self.objective.ordered(counted, self.spent(c, node) if self.objective.is_priced and any(counted) else 0)

    def spent(self, c: int, node: ENode) -> int:
        """Return the nanoseconds or bytes of an e-node that is chosen."""
        is_time = self.objective.spends == "nanoseconds"
        types = [t for child in node.children if (t := self.graph.classes[child].type) is not None]
        if self.objective.spends == "femtojoules":
            return self.energy(node) if node.op in self.devices else 0
        if node.op in self.devices:
            return self.paid(self.priced(node)[1])
        op, own = operator_named(node.op), self.graph.classes[c].type
        results = [] if own is None else [own]
        if not is_time:
            return host_bytes(op, types, results)
        given = {} if op is None else {a.name: v for a, v in zip(op.attributes, node.attributes, strict=True)}
        return -(-host_picoseconds(op, types, results, given, self.objective.host) // 1000)

    def priced(self, node: ENode) -> tuple[Tiling, Price]:
        """Return how a device operation that fits is tiled, and what it costs."""
        m, fit = self.devices[node.op], self.fit(node)
        assert isinstance(fit, Tiling)
        found = price(m, fit, self.attributes(node), self.objective.resources[m.target], self.objective.host)
        assert found is not None
        return fit, found

    def energy(self, node: ENode) -> int:
        """Return the femtojoules of a device operation: of its accesses and of its multiply-accumulates."""
        m, attributes = self.devices[node.op], self.attributes(node)
        fit, resources = self.fit(node), self.objective.resources[m.target]
        assert isinstance(fit, Tiling)
        assert resources is not None
        return femtojoules(m, fit, attributes, resources, total_macs(body_of(m, self.types(node), attributes)))

    def paid(self, p: Price) -> int:
        """Return the nanoseconds or bytes of a price."""
        return -(-p.picoseconds // 1000) if self.objective.spends == "nanoseconds" else p.bytes

    def placed(self) -> dict[int, Placed]:
        """Return the device operations that could find an operand on the device or leave their result there, by e-node."""
        nodes = ((c, n) for c, found in self.graph.classes.items() for n in found.nodes if n.op in self.devices and not found.fixed)
        fitting_ones = (n for c, n in nodes if self(c, n) is not None)
        return {id(n): placed for n in fitting_ones if (placed := self.place(n)) is not None}

    def place(self, node: ENode) -> Placed | None:
        """Return the rooms of a device operation; None when it says nothing of them or each is divided by the tiling."""
        m, (fit, found) = self.devices[node.op], self.priced(node)
        rooms = self.rooms(m, fit, self.attributes(node))
        names = {v.name: k for k, v in enumerate(m.operands) if not self.graph.classes[node.children[k]].fixed}
        operands, result = {k: rooms[t] for t, k in names.items() if t in rooms}, rooms.get(m.axes.result)
        if not operands and result is None:
            return None
        moved = {**{k: found.cost.moved[t] for t, k in names.items() if k in operands}}
        if result is not None:
            moved[RESULT] = found.cost.moved[m.axes.result]
        held = (frozenset(x) for count in range(len(moved) + 1) for x in combinations(moved, count))
        return Placed(operands, result, fit.calls, {h: self.paid(found.without(sum(moved[k] for k in h))) for h in held})

    def rooms(self, m: Mapping, fit: Tiling, attributes: MappingOf[str, AttributeValue]) -> dict[str, Key]:
        """Return the room of each tensor that the tiling does not divide."""
        rooms = (r for r in m.rooms(fit.tile, attributes) or () if r.tensor)
        return {r.tensor: key_of(m.target, r) for r in rooms if all(fit.tile[d] == fit.sizes[d] for d in _dimensions(m, fit, r.tensor))}

    def attributes(self, node: ENode) -> dict[str, AttributeValue]:
        """Return the static variables of a device operation's pattern."""
        return dict(zip((name for name, _ in self.devices[node.op].statics), node.attributes, strict=True))

    def counted(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return host multiply-accumulates, host operators, device calls, elementwise host operators, moved elements."""
        fixed = self.graph.classes[c].fixed
        if node.op in self.devices:
            return None if fixed else self.device_cost(node)
        if fixed or node.op in ("Input", "Constant", "Result"):
            return FREE
        return (self.work.get(str(node.attributes[0]), 0), 1, 0, 0, 0) if node.op == "Opaque" else self.host_cost(c, node)

    def shapes(self, node: ENode) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of an e-node's operands."""
        types = [self.graph.classes[child].type for child in node.children]
        return tuple(t.shape for t in types if t is not None)

    def device_cost(self, node: ENode) -> tuple[int, ...] | None:
        """Return the cost of a device operation, None when it does not fit."""
        fit = self.fit(node)
        return None if isinstance(fit, Refusal) else (0, 0, fit.calls, 0, 0)

    def fit(self, node: ENode) -> Tiling | Refusal:
        """Return how a device operation fits its device."""
        return fitting(self.devices[node.op], self.types(node), self.attributes(node), self.fitted, self.objective)

    def types(self, node: ENode) -> list[TensorType]:
        """Return the types of an e-node's operands."""
        return [t for child in node.children if (t := self.graph.classes[child].type) is not None]

    def host_cost(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the cost of a host operator, None for a stage of a larger form."""
        op = operator_named(node.op)
        assert op is not None
        if op.kind == STAGE:
            return None
        shapes = self.shapes(node)
        if op.kind == LAYOUT:
            t = self.graph.classes[c].type
            moved = 0 if op.name in ("reshape", "full") or t is None else t.size
            return (0, 0, 0, 0, moved + 1)
        if op.kind == ELEMENTWISE:
            return (0, 0, 0, 1, 1)
        attributes = {a.name: v for a, v in zip(op.attributes, node.attributes, strict=True)}
        macs = int(op.macs(*shapes, **attributes)) if op.macs is not None else 0
        return (macs, 1, 0, 0, 1)


class Undivided(Costs):
    """What device operations cost at least: in one call, however large; splitting never saves anything."""

    def fit(self, node: ENode) -> Tiling | Refusal:
        """Return the tiling into one call where the smallest tile fits."""
        m, attributes = self.devices[node.op], self.attributes(node)
        sizes = sizes_of(m, self.types(node), attributes)
        try:
            violated = m.violated(m.unit_sizes(sizes), attributes)
        except SpecError as error:
            return Refusal(error.problem.sentence)
        return Tiling(sizes, sizes) if violated is None else Refusal(violated)

    def rooms(self, m: Mapping, fit: Tiling, attributes: MappingOf[str, AttributeValue]) -> dict[str, Key]:
        """Return the room of each tensor that some tiling need not divide: the smallest tile of all else with it."""
        units, found = m.unit_sizes(fit.sizes), dict[str, Key]()
        for tensor in m.axes.of:
            tile = {**units, **{d: fit.sizes[d] for d in _dimensions(m, fit, tensor)}}
            rooms = (m.rooms(tile, attributes) if m.violated(tile, attributes) is None else None) or ()
            found.update((tensor, key_of(m.target, r)) for r in rooms if r.tensor == tensor)
        return found


def _dimensions(m: Mapping, fit: Tiling, tensor: str) -> Iterable[str]:
    """Return the dimensions that must be whole for a tensor to be that: its own, of a result all."""
    return fit.sizes if tensor in m.axes.results else m.axes.of[tensor]


def fitting(
    m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue], known: dict[Case, Tiling | Refusal],
    objective: Objective = OFFLOADS,
) -> Tiling | Refusal:  # fmt: skip
    """Return how an operation on operands of these types fits its device, each case computed once."""
    key = case_of(m, types, attributes)
    if key not in known:
        known[key] = _tiled(m, sizes_of(m, types, attributes), attributes, objective)
    return known[key]


def sizes_of(m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]) -> dict[str, int]:
    """Return the size of every dimension of an operation on operands of these types."""
    body = body_of(m, types, attributes)
    results = dict(zip(m.axes.results, (body.types[v].shape for v in body.outputs), strict=True))
    return m.axes.sizes({**m.shapes_of([t.shape for t in types]), **results})


def _tiled(m: Mapping, sizes: MappingOf[str, int], attributes: MappingOf[str, AttributeValue], objective: Objective) -> Tiling | Refusal:
    """Return the tiling that an objective asks for; patterns of one operation that cost and take the same share one search."""
    key = (m.alike, tuple(sizes.items()), tuple(attributes.items()))
    with objective.searching:  # counts of exact matching are made beside the plan
        if key not in objective.tilings:
            objective.tilings[key] = _searched(m, sizes, attributes, objective)
    return objective.tilings[key]


def _searched(m: Mapping, sizes: MappingOf[str, int], attributes: MappingOf[str, AttributeValue], objective: Objective) -> Tiling | Refusal:
    """Return the tiling with the least time or bytes where these decide, else that with the fewest calls."""
    resources = objective.resources.get(m.target)
    try:
        if not objective.is_placed or resources is None:
            return tile(m, sizes, attributes)
        found = cheapest(m, sizes, attributes, resources, objective.levels[0])
    except SpecError as error:  # capacities or costs that make no sense: the layer stays on the host
        return Refusal(error.problem.sentence)
    return found if isinstance(found, Refusal) else found.tiling


def case_of(m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]) -> Case:
    """Return the key of an operation on operands of these types."""
    return m.name, tuple(types), tuple((name, attributes[name]) for name, _ in m.statics)


def spelling_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules that only give another spelling of one source operator: all that exact matching may use."""
    return [r for r in rules if "spelling" in r.marks]
