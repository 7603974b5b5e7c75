"""The meaning of an offload as a program of core operators, at its own shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingOf
from typing import Any

from ..ir.program import OPAQUE, Builder, Node, Program, Value
from ..ir.types import TensorType
from ..lang.expr import Expr
from ..ops.op import Apply, AttributeValue, Tensor
from ..ops.static import Binding, Ints, list_of, value_of
from ..rewrite.rule import Float
from .mapping import Mapping


def body_of(mapping: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]) -> Program:
    """Return the meaning of an operation on operands of given types, its inputs in the mapping's order."""
    program = Builder(mapping.variant)
    inputs = {v.name: program.input(v.name, t) for v, t in zip(mapping.operands, types, strict=True)}
    build = _PatternBuilder(program, mapping, inputs, attributes)
    return program.finish([build.value(left) for left, _ in mapping.rule.pairs])


class _PatternBuilder:
    def __init__(
        self, program: Builder, mapping: Mapping, inputs: MappingOf[str, Value], attributes: MappingOf[str, AttributeValue]
    ) -> None:
        self.program = program
        self.applied: dict[Any, tuple[Value, ...]] = {}
        self.values: dict[int, Value] = {id(v): inputs[v.name] for v in mapping.operands}
        # integer variables are terms, the others names
        values = {
            (v if isinstance(v, Expr) else name): attributes[name] for name, v in mapping.rule.variables.items() if name in attributes
        }
        self.binding = Binding(lambda x: program.types[self.value(x)].shape, values)

    def value(self, x: Tensor) -> Value:
        if id(x) not in self.values:
            assert isinstance(x, Apply)
            operands = [self.value(y) for y in x.operands]
            attributes = {name: self.attribute(a) for name, a in x.attributes.items()}
            key = (x.op.name, tuple(operands), tuple(attributes.items()))
            if key not in self.applied:
                self.applied[key] = self.program.apply(x.op.name, operands, attributes)
            self.values[id(x)] = self.applied[key][x.output]
        return self.values[id(x)]

    def attribute(self, a: Any) -> AttributeValue:
        if isinstance(a, Ints):
            return list_of(a, self.binding)
        if isinstance(a, Float):
            return self.binding.attributes[a.name]  # type: ignore[no-any-return]
        return value_of(a, self.binding) if isinstance(a, Expr) else a


def inlined(p: Program, body: Callable[[Node], Program | None]) -> Program:
    """Return the program with device operations inlined by their meaning (None keeps one); its values keep their numbers."""
    program = Builder(p.name)
    program.types, program.names = list(p.types), list(p.names)
    program.inputs, program.constants = list(p.inputs), dict(p.constants)
    program.sources, program.opaque, program.absorbed = list(p.sources), dict(p.opaque), dict(p.absorbed)
    for node in p.nodes:
        meaning = None if node.operator is not None or node.op == OPAQUE else body(node)
        if meaning is None:
            program.node(node)
            continue
        for inner in _inlined_nodes(program, meaning, node):
            program.node(inner)
    return program.finish(p.outputs)


def _inlined_nodes(program: Builder, body: Program, node: Node) -> Iterable[Node]:
    """Yield the nodes of a body on the values of the program around it."""
    place = dict(zip(body.inputs, node.inputs, strict=True)) | dict(zip(body.outputs, node.outputs, strict=True))
    for v, data in body.constants.items():
        place[v] = program.constant(data)
    for inner in body.nodes:
        for v in inner.outputs:
            if v not in place:
                place[v] = program.value(body.types[v])
        yield Node(inner.op, tuple(place[v] for v in inner.inputs), tuple(place[v] for v in inner.outputs), inner.attributes, node.origins)
