"""The e-graph of a program as it is written: what is left when a limit ends matching before its first round."""

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


def plain_graph(p: Program) -> EGraph:
    """Return the e-graph with one class for each value and one e-node for each class; classes have the numbers of values."""
    return EGraph(dict(_Plain(p).classes()), {v: v for v in range(len(p.types))})


class _Plain:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.fresh = itertools.count(len(p.types))
        self.fixed: set[ClassId] = set(p.constants)

    def classes(self) -> Iterator[tuple[ClassId, EClass]]:
        for name, values in (("Input", self.p.inputs), ("Constant", tuple(self.p.constants))):
            for v in values:
                yield v, self.made(v, self.p.types[v], ENode(name, (), (v,), PROGRAM, frozenset()))
        for node in self.p.nodes:
            yield from self.opaque(node) if node.operator is None else self.known(node, node.operator)

    def made(self, c: ClassId, t: TensorType | None, node: ENode) -> EClass:
        return EClass(t, c in self.fixed, (node,))

    def opaque(self, node: Node) -> Iterator[tuple[ClassId, EClass]]:
        yield from self.results(node, ENode("Opaque", node.inputs, (opaque_key(node),), PROGRAM, frozenset(node.origins)), whole=True)

    def known(self, node: Node, op: Op) -> Iterator[tuple[ClassId, EClass]]:
        if self.fixed.issuperset(node.inputs):
            self.fixed.update(node.outputs)
        attributes = tuple(v for _, v in node.attributes)
        made = op_constructor(op)
        origins = frozenset(node.origins) if made.is_work else frozenset()
        operands = node.inputs
        if op.variadic and len(operands) > len(op.operands):
            links = [next(self.fresh) for _ in operands[1:-1]]
            yield from self.chain(node, op, links, ENode(made.name, (), attributes, PROGRAM, frozenset()))
            operands = (links[-1], operands[-1])
        yield from self.results(node, ENode(made.name, operands, attributes, PROGRAM, origins))

    def chain(self, node: Node, op: Op, links: Sequence[int], link: ENode) -> Iterator[tuple[ClassId, EClass]]:
        """Link all operands but the last, two by two from the left."""
        here, attributes = node.inputs[0], dict[str, AttributeValue](node.attributes)
        t = self.p.types[here]
        for v, number in zip(node.inputs[1:-1], links, strict=True):
            t = result_types(op, [t, self.p.types[v]], attributes)[0]
            if here in self.fixed and v in self.fixed:
                self.fixed.add(number)
            yield number, self.made(number, t, ENode(link.op, (here, v), link.attributes, PROGRAM, frozenset()))
            here = number

    def results(self, node: Node, made: ENode, *, whole: bool = False) -> Iterator[tuple[ClassId, EClass]]:
        if len(node.outputs) == 1 and not whole:
            yield node.outputs[0], self.made(node.outputs[0], self.p.types[node.outputs[0]], made)
            return
        tuple_ = next(self.fresh)
        yield tuple_, EClass(None, False, (made,))
        for n, v in enumerate(node.outputs):
            yield v, self.made(v, self.p.types[v], ENode("Result", (tuple_,), (n,), PROGRAM, frozenset()))
