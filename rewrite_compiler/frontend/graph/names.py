"""Encoding of names: protobuf returns strings that are not valid UTF-8 as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import InputError
from .attributes import subgraphs


def check_names(model: Any, place: str) -> None:
    """Check that every name in a model is valid UTF-8.

    Raises:
        InputError: a name is not UTF-8.
    """
    for name in _names(model):
        if isinstance(name, bytes):
            text = name[:64].decode("utf-8", "backslashreplace")
            raise InputError("F103", f'names must be UTF-8 text, not "{text}"', place=place)


def _names(model: Any) -> Iterator[Any]:
    yield from (o.domain for o in model.opset_import)
    for f in model.functions:
        yield from (f.name, f.domain, f.overload, *f.input, *f.output, *f.attribute, *(o.domain for o in f.opset_import))
        yield from (a.name for a in f.attribute_proto)
        yield from _of_nodes(f.node)
    yield from _of_graph(model.graph)


def _of_graph(graph: Any) -> Iterator[Any]:
    yield graph.name
    yield from (i.name for i in (*graph.input, *graph.output, *graph.value_info))
    yield from (d.dim_param for i in (*graph.input, *graph.output, *graph.value_info) for d in i.type.tensor_type.shape.dim)
    for t in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
        yield t.name
        yield from (text for e in t.external_data for text in (e.key, e.value))
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        for a in node.attribute:
            yield from (a.name, a.ref_attr_name)
        for graph in subgraphs(node):
            yield from _of_graph(graph)
