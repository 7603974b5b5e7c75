"""An extracted choice of e-nodes as a program, with constants folded and the source nodes of every operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import SpecError
from ...ir.evaluate import run_op
from ...ir.program import OPAQUE, Data, Node, Program, Value
from ...ir.types import TensorType, result_types
from ...ops.op import LAYOUT, AttributeValue, Op, ShapeError
from ...rewrite.rule import Rule
from ..graph.encode import opaque_key
from ..graph.graph import ClassId, EGraph, ENode
from ..graph.term_rows import operator_named


@dataclass(frozen=True)
class DeviceName:
    """Names of a device constructor in programs: operation, attributes, and how several result types follow from operand types."""

    op: str
    attributes: tuple[str, ...] = ()
    results: Callable[[Sequence[TensorType]], Sequence[TensorType]] | None = None


def extracted_program(
    p: Program, graph: EGraph, choice: Mapping[ClassId, ENode], devices: Mapping[str, DeviceName], rules: Sequence[Rule] = ()
) -> tuple[Program, dict[Value, ENode]]:
    """Return the chosen program, and the e-node behind the first output of each operation.

    `rules` are numbered as the births of e-nodes. Constants are folded in float64 and rounded once to their type.

    Raises:
        SpecError: (R105) a rule has put operators of different shapes into one class.
    """
    decoder = _Decoder(p, graph, choice, devices, rules)
    return decoder.program(), decoder.e_nodes


class _Decoder:
    def __init__(
        self, p: Program, graph: EGraph, choice: Mapping[ClassId, ENode], devices: Mapping[str, DeviceName], rules: Sequence[Rule]
    ) -> None:
        self.p, self.graph, self.choice, self.devices, self.rules = p, graph, choice, devices, rules
        self.types: list[TensorType] = []
        self.names: list[str] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Data] = {}
        self.place: dict[ClassId, Value] = {}
        self.tuples: dict[ClassId, tuple[Value, ...]] = {}
        self.folded: dict[ClassId, Data] = {}
        self.e_nodes: dict[Value, ENode] = {}
        self.name_of = {graph.values[v]: p.names[v] for v in reversed(range(len(p.types))) if v in graph.values}
        self.opaque = {opaque_key(n): n for n in p.nodes if n.op == OPAQUE}
        self.layout = self.layout_sources()
        self.projections = {
            (n.children, n.attributes): c for c, e_class in graph.classes.items() for n in e_class.nodes if n.op == "Result"
        }

    def layout_sources(self) -> dict[ClassId, frozenset[int]]:
        """Return the source nodes that only move data, by the class of their result."""
        sources: dict[ClassId, frozenset[int]] = {}
        for n in self.p.nodes:
            if _moves_only(n):
                c = self.graph.values[n.outputs[0]]
                sources[c] = sources.get(c, frozenset()) | n.origins
        return sources

    def program(self) -> Program:
        inputs = [self.input(v) for v in self.p.inputs]
        for c in self.choice:
            if not self.graph.classes[c].fixed:
                self.build(c)
        outputs: list[Value] = []
        for v in self.p.outputs:
            outputs.append(self.output(v, outputs))
        return replace(
            self.p, types=tuple(self.types), names=tuple(self.names), inputs=tuple(inputs), outputs=tuple(outputs), nodes=tuple(self.nodes),
            constants=self.constants,
        )  # fmt: skip

    def input(self, v: Value) -> Value:
        c = self.graph.values[v]
        if c not in self.place:
            self.place[c] = self.new(self.p.types[v], self.p.names[v])
        return self.place[c]

    def output(self, v: Value, earlier_outputs: Sequence[Value]) -> Value:
        """Return an output under its own name; a copy where its class is an input, a constant or an earlier output."""
        place = self.value(self.graph.values[v])
        if place not in self.constants and place not in self.place_of_inputs() and place not in earlier_outputs:
            self.names[place] = self.p.names[v]
            return place
        source = self.p.producer().get(v)
        copy = self.new(self.types[place], self.p.names[v])
        origins = source.origins if source is not None and _moves_only(source) else frozenset()
        self.nodes.append(Node("reshape", (place,), (copy,), (("shape", self.types[place].shape),), origins))
        return copy

    def place_of_inputs(self) -> set[Value]:
        return {self.place[self.graph.values[v]] for v in self.p.inputs}

    def new(self, t: TensorType, name: str) -> Value:
        self.types.append(t)
        self.names.append(name or f"t{len(self.types) - 1}")
        return len(self.types) - 1

    def value(self, c: ClassId) -> Value:
        """Return the value of a class; a compile-time constant is evaluated where it is first needed."""
        if c not in self.place and self.graph.classes[c].fixed:
            data = self.constant(c)
            self.place[c] = self.new(self.type_of(c), self.name_of.get(c, ""))
            self.constants[self.place[c]] = data
        return self.place[c]

    def type_of(self, c: ClassId) -> TensorType:
        t = self.graph.classes[c].type
        if t is None:
            raise AssertionError("an extracted class has no type")
        return t

    def constant(self, c: ClassId) -> Data:
        """Evaluate a constant class in float64, operands first, and round it once to its type."""
        work = [c]
        while work:
            current = work[-1]
            node = self.choice[current]
            unevaluated = [d for d in node.children if d not in self.folded]
            if unevaluated:
                work.extend(unevaluated)
                continue
            self.folded[current] = self.evaluated(current, node)
            work.pop()
        data, t = self.folded[c], self.type_of(c)
        return data.astype(t.dtype) if data.dtype == np.float64 and t.dtype != "float64" else data

    def evaluated(self, c: ClassId, node: ENode) -> Data:
        if node.op == "Constant":
            return self.p.constants[int(node.attributes[0])]  # type: ignore[arg-type]
        op = operator_named(node.op)
        if op is None:
            raise AssertionError(f"{node.op} is not a constant")
        attributes = dict(zip((a.name for a in op.attributes), node.attributes, strict=True))
        self.check(c, node, op, [self.type_of(d) for d in node.children])
        operands = [self.folded[d] for d in node.children]
        if op.name == "transpose":  # a view: weights are large
            return operands[0].transpose(attributes["perm"])  # type: ignore[arg-type]
        if op.name == "scale" and operands[0].dtype.kind == "f":
            return _scaled(operands[0], operands[1], int(attributes["axis"]))  # type: ignore[arg-type]
        moves = op.kind == LAYOUT and len({x.dtype for x in operands}) == 1  # and so rounds nothing
        return run_op(op, operands, attributes, None if moves else np.float64)[0]

    def build(self, c: ClassId) -> None:
        """Add the operation that a class has chosen."""
        node = self.choice[c]
        if c in self.place or node.op == "Input":
            return
        if node.op == "Result":
            self.place[c] = self.tuples[node.children[0]][int(node.attributes[0])]  # type: ignore[arg-type]
            self.names[self.place[c]] = self.name_of.get(c, self.names[self.place[c]])
            return
        operation = (
            self.opaque_node(c, node)
            if node.op == "Opaque"
            else self.device_node(c, node)
            if node.op in self.devices
            else self.core_node(c, node)
        )
        self.nodes.append(operation)
        self.e_nodes[operation.outputs[0]] = node

    def opaque_node(self, c: ClassId, node: ENode) -> Node:
        source = self.opaque[str(node.attributes[0])]
        results = [self.projections[(c,), (n,)] for n in range(len(source.outputs))]  # one key may stand for operators of several shapes
        self.tuples[c] = tuple(self.new(self.type_of(r), self.name_of.get(r, "")) for r in results)
        return replace(source, inputs=self.operands(node), outputs=self.tuples[c], origins=frozenset(node.origins))

    def device_node(self, c: ClassId, node: ENode) -> Node:
        name = self.devices[node.op]
        attributes: tuple[tuple[str, AttributeValue], ...] = tuple(zip(name.attributes, node.attributes, strict=True))
        operands = self.operands(node)
        if name.results is not None:
            outputs = self.tuples[c] = tuple(self.new(t, "") for t in name.results([self.types[v] for v in operands]))
            return Node(name.op, operands, outputs, attributes, frozenset(node.origins))
        self.place[c] = self.new(self.type_of(c), self.name_of.get(c, ""))
        return Node(name.op, operands, (self.place[c],), attributes, frozenset(node.origins))

    def core_node(self, c: ClassId, node: ENode) -> Node:
        op = operator_named(node.op)
        if op is None:
            raise AssertionError(f"{node.op} is not an operator")
        operands = self.operands(node)
        attributes = tuple(zip((a.name for a in op.attributes), node.attributes, strict=True))
        origins = self.layout.get(c, frozenset()) if op.kind == LAYOUT else frozenset(node.origins)
        self.check(c, node, op, [self.types[v] for v in operands])
        if op.outputs > 1:
            types = result_types(op, [self.types[v] for v in operands], dict(attributes))
            outputs = self.tuples[c] = tuple(self.new(t, "") for t in types)
        else:
            self.place[c] = self.new(self.type_of(c), self.name_of.get(c, ""))
            outputs = (self.place[c],)
        return Node(op.name, operands, outputs, attributes, origins)

    def check(self, c: ClassId, node: ENode, op: Op, operands: Sequence[TensorType]) -> None:
        """Refuse an operator that does not give what its class is: the rule that made it is false."""
        expected = self.graph.classes[c].type
        try:
            results = result_types(op, operands, dict(zip((a.name for a in op.attributes), node.attributes, strict=True)))
        except ShapeError as error:
            raise self.unsound(node, error.problem.sentence) from None
        if expected is not None and results[0].shape != expected.shape:
            raise self.unsound(node, f"{op.name} gives {results[0]} where {expected} is needed")

    def unsound(self, node: ENode, sentence: str) -> SpecError:
        if not 0 <= node.birth < len(self.rules):
            raise AssertionError(sentence)
        rule = self.rules[node.birth]
        return SpecError("R105", f"the sides of {rule.name} differ in shape: {sentence}", place=rule.place, help="add a guard")

    def operands(self, node: ENode) -> tuple[Value, ...]:
        return tuple(self.value(d) for d in node.children)


def _moves_only(n: Node) -> bool:
    return n.operator is not None and n.operator.kind == LAYOUT


def classes_of(graph: EGraph, values: Sequence[Value]) -> list[ClassId]:
    """Return the e-classes of program values."""
    return [graph.values[v] for v in values]


def _scaled(x: Data, factors: Data, axis: int) -> Data:
    """Return `scale` of x [… axis …] in float64, without a float64 copy of the weights."""
    with np.errstate(all="ignore"):
        product: Data = np.multiply(x, factors.reshape(-1, *[1] * (x.ndim - 1 - axis)), dtype=np.float64)
    return product
