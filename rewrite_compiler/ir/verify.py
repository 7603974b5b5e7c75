"""Check that a program is well formed: definitions before uses, types as the operators' shape rules say."""

from __future__ import annotations

from ..errors import InputError
from .program import Node, Program


def verify(p: Program) -> None:
    """Check that every value is defined once, before it is read, and has the type that shape inference gives it.

    Raises:
        InputError: the place names the first node that is wrong.
    """
    defined = {*p.inputs, *p.constants}
    for node in p.nodes:
        _verify_node(p, node, defined)
        defined.update(node.outputs)
    for v in p.outputs:
        if v not in defined:
            raise InputError("F123", f'output "{p.names[v]}" is not defined by any node', place=p.name)


def _verify_node(p: Program, node: Node, defined: set[int]) -> None:
    place = f'{p.name}:node "{p.names[node.outputs[0]]}"'
    for v in node.inputs:
        if v not in defined:
            raise InputError("F122", f'input "{p.names[v]}" of {node.op} is not defined before it is read', place=place)
    twice = [v for v in node.outputs if v in defined]
    if twice:
        raise InputError("F121", f'value "{p.names[twice[0]]}" is defined twice', place=place)
    operator = node.operator
    if operator is None:
        return
    shapes = operator.shapes([p.types[v].shape for v in node.inputs], dict(node.attributes))
    for v, shape in zip(node.outputs, shapes, strict=True):
        if p.types[v].shape != tuple(shape):
            raise InputError("F131", f"{node.op} gives shape {tuple(shape)}, not {p.types[v].shape}", place=place)
