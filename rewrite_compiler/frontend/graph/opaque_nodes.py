"""Opaque operations as source nodes of an exported graph, under the names that their values have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InputError
from ...ir.program import OpaqueOp
from .attributes import subgraphs
from .opaque import node_proto, read_names
from .opset_upgrade import schema_of
from .writer import Names


def restored_node(op: OpaqueOp, operands: Sequence[str], results: Sequence[str], names: Names) -> Any:
    """Return the source node with its operands and results named; names inside its subgraphs are made unique.

    Raises:
        InputError: the operation has another number of operands or results than its source node.
    """
    from onnx import NodeProto

    payload = NodeProto.FromString(op.payload)
    expected, actual = (len(read_names(payload)), sum(map(bool, payload.output))), (len(operands), len(results))
    if expected != actual:
        sentence = f"{op.label} reads {expected[0]} values and gives {expected[1]}, not {actual[0]} and {actual[1]}"
        raise InputError("F131", sentence, place=f'node "{results[0]}"')
    for graph in subgraphs(payload):  # before the names of operands come in: one may be a name inside
        _rename_subgraph(graph, {}, names)
    node = node_proto(replace(op, payload=payload.SerializeToString()), operands, results)
    node.name = results[0]
    return node


def is_supported(node: Any, opset: int) -> bool:
    """Tell whether an operator set of ONNX has a node's operator with its attributes and operands; so for its subgraphs."""
    if not all(is_supported(inner, opset) for graph in subgraphs(node) for inner in graph.node):
        return False
    if node.domain not in ("", "ai.onnx"):
        return True
    schema = schema_of(node.op_type, "", opset)
    if schema is None:
        return False
    return (
        len(node.input) <= schema.max_input
        and len(node.output) <= schema.max_output
        and {a.name for a in node.attribute} <= set(schema.attributes)
    )


def _defined_names(graph: Any) -> Iterator[str]:
    yield from (i.name for i in graph.input)
    yield from (t.name for t in graph.initializer)
    yield from (t.values.name for t in graph.sparse_initializer)
    yield from (name for n in graph.node for name in n.output if name)


def _rename_subgraph(graph: Any, outer: Mapping[str, str], names: Names) -> None:
    """Give the names that a subgraph defines unique replacements, in place."""
    scope = {**outer, **{name: names.unique(name) for name in dict.fromkeys(_defined_names(graph))}}
    for declaration in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *(t.values for t in graph.sparse_initializer)):
        declaration.name = scope.get(declaration.name, declaration.name)
    for node in graph.node:
        node.input[:] = [scope.get(n, n) for n in node.input]
        node.output[:] = [scope.get(n, n) for n in node.output]
        for inner in subgraphs(node):
            _rename_subgraph(inner, scope, names)
