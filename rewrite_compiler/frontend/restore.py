"""Put the source node of an opaque operation back into a graph, under the names that its values have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx

from ..errors import InputError
from .writer import Names


def restored(payload: Any, operands: Sequence[str], results: Sequence[str], names: Names) -> Any:
    """Return the node with its inputs and outputs renamed.

    `operands` are the inputs that are given (omitted optional ones skipped), then the values that its subgraphs
    capture, in order of first use; `results` are all outputs, or those that have a name.
    """
    node = onnx.NodeProto()
    node.CopyFrom(payload)
    inputs = [n for n in payload.input if n]
    captured = list(dict.fromkeys(_captured(payload, frozenset())))
    outputs = [n for n in payload.output if n] if len(results) != len(payload.output) else list(payload.output)
    wanted, given = (len(inputs) + len(captured), len(outputs)), (len(operands), len(results))
    if wanted != given:
        sentence = f"{payload.op_type} reads {wanted[0]} values and gives {wanted[1]}, not {given[0]} and {given[1]}"
        raise InputError("F131", sentence, place=f'node "{results[0]}"')
    reads, gives = iter(operands), iter(results)
    node.input[:] = [next(reads) if n else "" for n in payload.input]
    node.output[:] = [next(gives) if n or len(results) == len(payload.output) else "" for n in payload.output]
    node.name = results[0]
    scope = dict(zip(captured, reads, strict=True))
    for graph in graphs_of(node):
        _rename(graph, scope, names)
    return node


def graphs_of(node: Any) -> Iterator[Any]:
    """Yield the subgraphs of a node."""
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield a.g
        yield from a.graphs


def _captured(node: Any, known: frozenset[str]) -> Iterator[str]:
    """Yield the outer names that the subgraphs of a node read."""
    for graph in graphs_of(node):
        inner = known | set(_defined(graph))
        for n in graph.node:
            yield from (name for name in n.input if name and name not in inner)
            yield from _captured(n, inner)
        yield from (o.name for o in graph.output if o.name not in inner)


def _defined(graph: Any) -> Iterator[str]:
    yield from (i.name for i in graph.input)
    yield from (t.name for t in graph.initializer)
    yield from (t.values.name for t in graph.sparse_initializer)
    yield from (name for n in graph.node for name in n.output if name)


def _rename(graph: Any, outer: Mapping[str, str], names: Names) -> None:
    """Rename a subgraph in place; its own names are made different from all around it."""
    scope = {**outer, **{name: names.unique(name) for name in dict.fromkeys(_defined(graph))}}
    for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *(t.values for t in graph.sparse_initializer)):
        named.name = scope.get(named.name, named.name)
    for node in graph.node:
        node.input[:] = [scope.get(n, n) for n in node.input]
        node.output[:] = [scope.get(n, n) for n in node.output]
        for inner in graphs_of(node):
            _rename(inner, scope, names)
