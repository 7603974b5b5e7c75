"""Matching: saturate the program under rules and mappings, then extract the cheapest program with offloads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Mapping as MappingOf
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import combinations

from ...egraph.extraction.decode import DeviceName, classes_of, extracted_program
from ...egraph.extraction.extract import Extraction, ExtractionStatus, extract
from ...egraph.graph.graph import EGraph, ENode
from ...egraph.graph.outcome import Saturation, StopReason
from ...egraph.graph.schema import Constructor
from ...egraph.graph.term_rows import operator_named
from ...egraph.graph.unsaturated import unsaturated_graph
from ...egraph.saturation.rule_text import mapping_text
from ...egraph.saturation.saturate import DeviceRule, Unsaturated, saturate_regions
from ...errors import SpecError
from ...fit import Refusal, Tiling, tile
from ...fit.cheapest_calls import cheapest_tiling
from ...fit.cost import Price, femtojoules, price
from ...fit.host import host_bytes, host_picoseconds
from ...garbage import paused_collection
from ...ir.program import Program, Value, total_macs
from ...ir.types import TensorType
from ...limits import Limits
from ...ops.op import ELEMENTWISE, LAYOUT, STAGE, AttributeValue
from ...rewrite.rule import Rule
from ...target import Mapping, body_of
from .dominance import dominated_by_host, without_dominated
from .objective import ENERGY, MAPPED, OFFLOADS, Objective, sentence_with_line
from .pins import NO_PINS, Pins
from .placement import RESULT, Key, Placement, PlacementGraph, key_of

FREE = (0, 0, 0, 0, 0)
Case = tuple[str, tuple[TensorType, ...], tuple[tuple[str, AttributeValue], ...]]  # an operation on operand types with attributes
Fits = MappingOf[Case, Tiling | Refusal]
Signature = tuple[Hashable, ...]  # an e-node's operator, its attributes, and types of its class and operands with whether they are constant


@dataclass(frozen=True)
class MatchResult:
    """A program with offloads, the saturation and extraction behind it, and the tiling or refusal of each case of each operation."""

    program: Program
    saturation: Saturation
    extraction: Extraction
    e_nodes: MappingOf[Value, ENode]
    fitted: Fits


def match(
    p: Program, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits, objective: Objective = OFFLOADS, pins: Pins = NO_PINS
) -> MatchResult:
    """Return the cheapest program by the levels of an objective: by default fewest host multiply-accumulates first.

    Raises:
        BudgetError: (F210) saturation crashed before its first round; (F211) no choice satisfies the pins.
    """
    with paused_collection():  # an e-graph is many acyclic objects, which every collection would traverse
        return extract_match(p, saturate_program(p, rules, mappings, limits), rules, mappings, limits, objective, pins)


def saturate_program(p: Program, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits) -> Saturation:
    """Return the e-graph of a program under rules and the patterns of mappings; equal regions are saturated once.

    Where a limit ends saturation before its first round, the e-graph is that of the program without rewriting.

    Raises:
        Unsaturated: (F210) the child process crashed before its first round.
    """
    try:
        return saturate_regions(p, rules, [_device_rule(m, len(rules) + n) for n, m in enumerate(mappings)], limits)
    except Unsaturated as ended:
        if ended.reason is StopReason.CRASHED:
            raise
        return Saturation(unsaturated_graph(p), 0, ended.reason, ended.problem.sentence)


def extract_match(
    p: Program, saturation: Saturation, rules: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits,
    objective: Objective = OFFLOADS, pins: Pins = NO_PINS,
) -> MatchResult:  # fmt: skip
    """Return the cheapest program of an e-graph; the mappings are those of its saturation, or others of the same patterns.

    Raises:
        BudgetError: (F211) no choice satisfies the pins.
        SpecError: (R105) a rule has put operators of different shapes into one class.
    """
    devices, costs, extraction = _extracted(p, saturation, mappings, limits, objective, pins)
    names = {c: DeviceName(m.name, tuple(name for name, _ in m.statics), _results(m)) for c, m in devices.items()}
    program, e_nodes = extracted_program(p, saturation.graph, extraction.choice, names, rules)
    return MatchResult(program, saturation, extraction, e_nodes, costs.fitted)


def offloads_as_written(
    p: Program, spelling: Sequence[Rule], mappings: Sequence[Mapping], limits: Limits, objective: Objective = OFFLOADS
) -> list[Mapping]:
    """Return the mapping of each offload found by exact matching, under spelling rules alone."""
    saturation = saturate_program(p, spelling, mappings, limits)
    devices, _, extraction = _extracted(p, saturation, mappings, limits, objective)
    return [devices[node.op] for node in extraction.choice.values() if node.op in devices]


def _extracted(
    p: Program, saturation: Saturation, mappings: Sequence[Mapping], limits: Limits, objective: Objective, pins: Pins = NO_PINS
) -> tuple[dict[str, Mapping], Costs, Extraction]:
    devices = {constructor_of(m).name: m for m in mappings}
    graph = saturation.graph
    work = {key: op.macs or 0 for key, op in p.opaque.items()}
    costs, roots = Costs(graph, devices, objective, work), classes_of(graph, p.outputs)
    restricted_cost = pins.restrict(costs, graph, devices)
    if not objective.is_placed:
        return devices, costs, extract(graph, roots, restricted_cost, limits.extraction_seconds)
    costs.forbidden = dominated_by_host(graph, Undivided(graph, devices, objective), restricted_cost)
    placements = costs.placements()
    places = PlacementGraph(graph, without_dominated(graph, restricted_cost, devices.keys(), placements), placements)
    placed_extraction = extract(places.extended_graph(), roots, places.cost, limits.extraction_seconds)
    projected = places.project(placed_extraction, roots)
    if projected is None:  # a tensor on the host and on a device, computed twice: extract without placement
        unplaced = extract(graph, roots, restricted_cost, limits.extraction_seconds)
        projected = replace(unplaced, bound=min(placed_extraction.bound, unplaced.bound), status=ExtractionStatus.LIMITED)
    return devices, costs, projected


def _results(m: Mapping) -> Callable[[Sequence[TensorType]], Sequence[TensorType]] | None:
    """Return the function from operand types to the types of several results; None for one result."""
    if len(m.rule.pairs) == 1:
        return None

    def types(operands: Sequence[TensorType]) -> Sequence[TensorType]:
        body = body_of(m, operands, {})
        return [body.types[v] for v in body.outputs]

    return types


def constructor_of(m: Mapping) -> Constructor:
    """Return the e-graph constructor of a device operation."""
    return Constructor(f"m_{m.target}_{m.variant}", len(m.operands), tuple(kind for _, kind in m.statics), True)


def _device_rule(m: Mapping, number: int) -> DeviceRule:
    constructor = constructor_of(m)
    attributes = [(m.rule.variables[name], kind) for name, kind in m.statics]
    return DeviceRule(constructor, mapping_text(m.rule, constructor.name, number, m.operands, attributes))


class Costs:
    """The cost function of extraction: the cost of an e-node by the levels of an objective."""

    def __init__(
        self, graph: EGraph, devices: MappingOf[str, Mapping], objective: Objective = OFFLOADS, work: MappingOf[str, int] | None = None
    ) -> None:
        """Create the cost function; `work` are the multiply-accumulates of opaque operators by key."""
        self.graph, self.devices, self.objective, self.work = graph, devices, objective, work or {}
        self.fitted: dict[Case, Tiling | Refusal] = {}
        self.cache: dict[Signature, tuple[int, ...] | None] = {}
        self.priced: dict[Case, tuple[Tiling, Price]] = {}
        self.placed: dict[Signature, Placement | None] = {}
        numbers: dict[tuple[TensorType | None, bool], int] = {}
        self.forms = {c: numbers.setdefault((e.type, e.fixed), len(numbers)) for c, e in graph.classes.items()}
        self.forbidden: AbstractSet[int] = frozenset()  # ids of e-nodes that are never chosen, and never tiled

    def __call__(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the cost, cached; None for an e-node that must not be chosen: an operation that does not fit or that is constant."""
        if id(node) in self.forbidden:
            return None
        signature = self.signature(c, node)
        if signature not in self.cache:
            self.cache[signature] = self.cost(c, node)
        return self.cache[signature]

    def signature(self, c: int, node: ENode) -> Signature:
        """Return what the cost and the placement of an e-node depend on: those of equal signatures are computed once."""
        forms = self.forms
        return node.op, node.attributes, forms[c], *[forms[d] for d in node.children]

    def cost(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the cost of an e-node, not cached."""
        counted = self.counts(c, node)
        if counted is None:
            return None
        return self.objective.by_levels(counted, self.price_of(c, node) if self.objective.is_priced and any(counted) else 0)

    def price_of(self, c: int, node: ENode) -> int:
        """Return the price of an e-node as the objective has it: nanoseconds, bytes, energy, or energy times time."""
        if node.op in self.devices:
            return self.device_price(node)
        if self.objective.price_level in (ENERGY, MAPPED):
            return 0
        is_time = self.objective.price_level == "nanoseconds"
        types = self.types(node)
        op, result_type = operator_named(node.op), self.graph.classes[c].type
        results = [] if result_type is None else [result_type]
        if not is_time:
            return host_bytes(op, types, results)
        attributes = {} if op is None else {a.name: v for a, v in zip(op.attributes, node.attributes, strict=True)}
        return -(-host_picoseconds(op, types, results, attributes, self.objective.host) // 1000)

    def device_price(self, node: ENode) -> int:
        """Return the price of a device operation: its target's, or a mapper's."""
        if self.objective.is_mapped(self.devices[node.op]):
            mapped_cost = self.objective.mapped_cost(self.devices[node.op], self.types(node), self.attributes(node))
            return 0 if isinstance(mapped_cost, Refusal) else mapped_cost.amount(self.objective.price_level)  # refused ones never fit
        return self.energy(node) if self.objective.price_level == ENERGY else self.amount(self.tiling_and_price(node)[1])

    def tiling_and_price(self, node: ENode) -> tuple[Tiling, Price]:
        """Return the tiling and the price of a device operation that fits, cached by its operands' types."""
        m, case = self.devices[node.op], self.case(node)
        if case not in self.priced:
            fit = self.fit(node)
            assert isinstance(fit, Tiling)
            node_price = price(m, fit, self.attributes(node), self.objective.resources[m.target], self.objective.host)
            assert node_price is not None
            self.priced[case] = fit, node_price
        return self.priced[case]

    def case(self, node: ENode) -> Case:
        """Return the key of a device operation on operands of its types."""
        return case_of(self.devices[node.op], self.types(node), self.attributes(node))

    def energy(self, node: ENode) -> int:
        """Return the femtojoules of a device operation: of its accesses and of its multiply-accumulates."""
        m, attributes = self.devices[node.op], self.attributes(node)
        fit, resources = self.fit(node), self.objective.resources[m.target]
        assert isinstance(fit, Tiling)
        assert resources is not None
        return femtojoules(m, fit, attributes, resources, total_macs(body_of(m, self.types(node), attributes)))

    def amount(self, p: Price) -> int:
        """Return the nanoseconds or bytes of a price."""
        return -(-p.picoseconds // 1000) if self.objective.price_level == "nanoseconds" else p.moved_bytes

    def placements(self) -> dict[int, Placement]:
        """Return the placement of each device operation that can have a resident operand or result, by the id of its e-node."""
        nodes = ((c, n) for c, e_class in self.graph.classes.items() for n in e_class.nodes if n.op in self.devices and not e_class.fixed)
        fitting_ones = ((c, n) for c, n in nodes if self(c, n) is not None)
        return {id(n): placement for c, n in fitting_ones if (placement := self.placement_of(c, n)) is not None}

    def placement_of(self, c: int, node: ENode) -> Placement | None:
        """Return the placement of a device operation; None when it states no rooms or costs, or its tiling divides all of them."""
        signature = self.signature(c, node)
        if signature not in self.placed:
            self.placed[signature] = self._placement(node)
        return self.placed[signature]

    def _placement(self, node: ENode) -> Placement | None:
        if self.objective.is_mapped(self.devices[node.op]):
            return None
        m, (fit, node_price) = self.devices[node.op], self.tiling_and_price(node)
        rooms = self.rooms(m, fit, self.attributes(node))
        names = {v.name: k for k, v in enumerate(m.operands) if not self.graph.classes[node.children[k]].fixed}
        operands, result = {k: rooms[t] for t, k in names.items() if t in rooms}, rooms.get(m.axes.result)
        if not operands and result is None:
            return None
        crossing = node_price.cost.moved  # a tensor that it does not name does not cross
        moved_bytes = {k: crossing.get(t, 0) for t, k in names.items() if k in operands}
        if result is not None:
            moved_bytes[RESULT] = crossing.get(m.axes.result, 0)
        resident_sets = (frozenset(x) for count in range(len(moved_bytes) + 1) for x in combinations(moved_bytes, count))
        return Placement(
            operands, result, fit.calls, {h: self.amount(node_price.without_bytes(sum(moved_bytes[k] for k in h))) for h in resident_sets}
        )

    def rooms(self, m: Mapping, fit: Tiling, attributes: MappingOf[str, AttributeValue]) -> dict[str, Key]:
        """Return the place of each tensor that the tiling does not divide."""
        rooms = (r for r in m.rooms(fit.tile, attributes) or () if r.tensor)
        return {r.tensor: key_of(m.target, r) for r in rooms if all(fit.tile[d] == fit.sizes[d] for d in _dimensions(m, fit, r.tensor))}

    def attributes(self, node: ENode) -> dict[str, AttributeValue]:
        """Return the values of the static variables of a device operation's pattern."""
        return dict(zip((name for name, _ in self.devices[node.op].statics), node.attributes, strict=True))

    def counts(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the counts of LEVELS for an e-node, None where it must not be chosen."""
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
        """Return the counts of a device operation, None when it does not fit, or writes weights at run time that it must not."""
        m = self.devices[node.op]
        is_fixed = any(self.graph.classes[node.children[k]].fixed for k, v in enumerate(m.operands) if v.name in m.runtime_weights)
        if is_fixed or (m.runtime_weights and not self.objective.runtime_weights):
            return None
        fit = self.fit(node)
        return None if isinstance(fit, Refusal) else (0, 0, fit.calls, 0, 0)

    def fit(self, node: ENode) -> Tiling | Refusal:
        """Return the tiling of a device operation, or its refusal."""
        return fit_case(self.devices[node.op], self.types(node), self.attributes(node), self.fitted, self.objective)

    def types(self, node: ENode) -> list[TensorType]:
        """Return the types of an e-node's operands."""
        return [t for child in node.children if (t := self.graph.classes[child].type) is not None]

    def host_cost(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """Return the counts of a host operator, None for an operator that only device patterns use."""
        op = operator_named(node.op)
        assert op is not None
        if op.kind == STAGE:
            return None
        shapes = self.shapes(node)
        if op.kind == LAYOUT:
            t = self.graph.classes[c].type
            elements = 0 if op.name in ("reshape", "full") or t is None else t.size
            return (0, 0, 0, 0, elements + 1)
        if op.kind == ELEMENTWISE:
            return (0, 0, 0, 1, 1)
        attributes = {a.name: v for a, v in zip(op.attributes, node.attributes, strict=True)}
        macs = int(op.macs(*shapes, **attributes)) if op.macs is not None else 0
        return (macs, 1, 0, 0, 1)


class Undivided(Costs):
    """A lower bound of costs: device operations in one call of any size, since tiling never saves anything."""

    def fit(self, node: ENode) -> Tiling | Refusal:
        """Return the tiling into one call if the smallest tile fits, cached by its operands' types."""
        case = self.case(node)
        if case not in self.fitted:
            self.fitted[case] = self._undivided(node)
        return self.fitted[case]

    def _undivided(self, node: ENode) -> Tiling | Refusal:
        m, attributes = self.devices[node.op], self.attributes(node)
        sizes = sizes_of(m, self.types(node), attributes)
        try:
            violated = m.exceeded_limit(m.unit_sizes(sizes), attributes)
        except SpecError as error:
            return Refusal(sentence_with_line(error))
        return Tiling(sizes, sizes) if violated is None else Refusal(violated)

    def rooms(self, m: Mapping, fit: Tiling, attributes: MappingOf[str, AttributeValue]) -> dict[str, Key]:
        """Return the place of each tensor that some tiling leaves undivided: tested with the smallest tile of all other dimensions."""
        units, room_of = m.unit_sizes(fit.sizes), dict[str, Key]()
        for tensor in m.axes.of:
            tile = {**units, **{d: fit.sizes[d] for d in _dimensions(m, fit, tensor)}}
            rooms = (m.rooms(tile, attributes) if m.exceeded_limit(tile, attributes) is None else None) or ()
            room_of.update((tensor, key_of(m.target, r)) for r in rooms if r.tensor == tensor)
        return room_of


def _dimensions(m: Mapping, fit: Tiling, tensor: str) -> Iterable[str]:
    """Return the dimensions that must be undivided for a tensor to be: its own, for a result all (it is summed over the others)."""
    return fit.sizes if tensor in m.axes.results else m.axes.of[tensor]


def fit_case(
    m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue], fits: dict[Case, Tiling | Refusal],
    objective: Objective = OFFLOADS,
) -> Tiling | Refusal:  # fmt: skip
    """Return the tiling or refusal of an operation on operands of these types, memoised in `fits`; what no mapper prices is refused."""
    key = case_of(m, types, attributes)
    if key not in fits:
        fit = _shared_tiling(m, sizes_of(m, types, attributes), attributes, objective)
        mapped_cost = objective.mapped_cost(m, types, attributes) if isinstance(fit, Tiling) and objective.is_mapped(m) else None
        fits[key] = mapped_cost if isinstance(mapped_cost, Refusal) else fit
    return fits[key]


def sizes_of(m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]) -> dict[str, int]:
    """Return the size of every dimension of an operation on operands of these types, by its name."""
    body = body_of(m, types, attributes)
    results = dict(zip(m.axes.results, (body.types[v].shape for v in body.outputs), strict=True))
    return m.axes.sizes({**m.shapes_of([t.shape for t in types]), **results})


def _shared_tiling(
    m: Mapping, sizes: MappingOf[str, int], attributes: MappingOf[str, AttributeValue], objective: Objective
) -> Tiling | Refusal:
    """Return the best tiling by an objective, memoised; patterns of one operation with equal costs and limits share a search."""
    key = (m.tiling_key, tuple(sizes.items()), tuple(attributes.items()))
    with objective.lock:  # exact matching runs concurrently
        if key not in objective.tilings:
            objective.tilings[key] = _searched_tiling(m, sizes, attributes, objective)
    return objective.tilings[key]


def _searched_tiling(
    m: Mapping, sizes: MappingOf[str, int], attributes: MappingOf[str, AttributeValue], objective: Objective
) -> Tiling | Refusal:
    """Return the tiling with the least time or bytes if the objective prices them, else with the fewest calls."""
    resources = objective.resources.get(m.target)
    try:
        if not objective.is_placed or resources is None or objective.is_mapped(m):
            return tile(m, sizes, attributes)
        plan_tiling = cheapest_tiling(m, sizes, attributes, resources, objective.levels[0])
    except SpecError as error:  # inconsistent capacities or costs: the layer stays on the host
        return Refusal(sentence_with_line(error))
    return plan_tiling if isinstance(plan_tiling, Refusal) else plan_tiling.tiling


def case_of(m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]) -> Case:
    """Return the key of an operation on operands of these types."""
    return m.name, tuple(types), tuple((name, attributes[name]) for name, _ in m.statics)


def spelling_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules that only respell one source operator, the rules of exact matching."""
    return [r for r in rules if "spelling" in r.marks]
