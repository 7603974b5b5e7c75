"""The e-graph of a program without rewriting: the fallback when a limit ends saturation before its first round."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ...ir.program import Node, Program
from ...ir.types import TensorType, result_types
from ...ops import Op
from ...ops.op import AttributeValue
from .encode import opaque_key
from .graph import PROGRAM, ClassId, EClass, EGraph, ENode
from .schema import op_constructor


def unsaturated_graph(p: Program) -> EGraph:
    """Return the e-graph with one class a value and one e-node a class; classes have the numbers of values."""
    return EGraph(dict(_Plain(p).classes()), {v: v for v in range(len(p.types))})


class _Plain:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.fresh = itertools.count(len(p.types))
        self.fixed: set[ClassId] = set(p.constants)

    def classes(self) -> Iterator[tuple[ClassId, EClass]]:
        for name, values in (("Input", self.p.inputs), ("Constant", tuple(self.p.constants))):
            for v in values:
                yield v, self.single_node(v, self.p.types[v], ENode(name, (), (v,), PROGRAM, frozenset()))
        for node in self.p.nodes:
            yield from self.opaque_operator(node) if node.operator is None else self.core_operator(node, node.operator)

    def single_node(self, c: ClassId, t: TensorType | None, node: ENode) -> EClass:
        return EClass(t, c in self.fixed, (node,))

    def opaque_operator(self, node: Node) -> Iterator[tuple[ClassId, EClass]]:
        yield from self.results(node, ENode("Opaque", node.inputs, (opaque_key(node),), PROGRAM, frozenset(node.origins)), is_tuple=True)

    def core_operator(self, node: Node, op: Op) -> Iterator[tuple[ClassId, EClass]]:
        if self.fixed.issuperset(node.inputs):
            self.fixed.update(node.outputs)
        attributes = tuple(v for _, v in node.attributes)
        constructor = op_constructor(op)
        origins = frozenset(node.origins) if constructor.is_work else frozenset()
        operands = node.inputs
        if op.variadic and len(operands) > len(op.operands):
            links = [next(self.fresh) for _ in operands[1:-1]]
            yield from self.chain(node, op, links, ENode(constructor.name, (), attributes, PROGRAM, frozenset()))
            operands = (links[-1], operands[-1])
        yield from self.results(node, ENode(constructor.name, operands, attributes, PROGRAM, origins))

    def chain(self, node: Node, op: Op, links: Sequence[int], link: ENode) -> Iterator[tuple[ClassId, EClass]]:
        """Yield the left-associated chain of a variadic operator over all operands but the last."""
        prefix, attributes = node.inputs[0], dict[str, AttributeValue](node.attributes)
        t = self.p.types[prefix]
        for v, number in zip(node.inputs[1:-1], links, strict=True):
            t = result_types(op, [t, self.p.types[v]], attributes)[0]
            if prefix in self.fixed and v in self.fixed:
                self.fixed.add(number)
            yield number, self.single_node(number, t, ENode(link.op, (prefix, v), link.attributes, PROGRAM, frozenset()))
            prefix = number

    def results(self, node: Node, application: ENode, *, is_tuple: bool = False) -> Iterator[tuple[ClassId, EClass]]:
        if len(node.outputs) == 1 and not is_tuple:
            yield node.outputs[0], self.single_node(node.outputs[0], self.p.types[node.outputs[0]], application)
            return
        tuple_ = next(self.fresh)
        yield tuple_, EClass(None, False, (application,))
        for n, v in enumerate(node.outputs):
            yield v, self.single_node(v, self.p.types[v], ENode("Result", (tuple_,), (n,), PROGRAM, frozenset()))
