"""Attributes of source nodes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InputError

FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = range(1, 11)
TYPE_NAMES = {
    FLOAT: "FLOAT", INT: "INT", STRING: "STRING", TENSOR: "TENSOR", GRAPH: "GRAPH", FLOATS: "FLOATS", INTS: "INTS", STRINGS: "STRINGS",
    TENSORS: "TENSORS", GRAPHS: "GRAPHS", 11: "SPARSE_TENSOR", 12: "SPARSE_TENSORS", 13: "TYPE_PROTO", 14: "TYPE_PROTOS",
}  # fmt: skip

_READERS: dict[int, Callable[[Any], Any]] = {
    FLOAT: lambda a: float(a.f),
    INT: lambda a: int(a.i),
    STRING: lambda a: a.s.decode("utf-8", "replace"),
    TENSOR: lambda a: a.t,
    GRAPH: lambda a: a.g,
    FLOATS: lambda a: tuple(a.floats),
    INTS: lambda a: tuple(a.ints),
    STRINGS: lambda a: tuple(s.decode("utf-8", "replace") for s in a.strings),
    TENSORS: lambda a: tuple(a.tensors),
    GRAPHS: lambda a: tuple(a.graphs),
    11: lambda a: a.sparse_tensor,
    12: lambda a: tuple(a.sparse_tensors),
    13: lambda a: a.tp,
    14: lambda a: tuple(a.type_protos),
}


def attribute_values(attributes: Any, place: str = "") -> Mapping[str, Any]:
    """Return the attributes of a node by name.

    Raises:
        InputError: an attribute is given twice or has a type that ONNX does not define.
    """
    values: dict[str, Any] = {}
    for a in attributes:
        if a.name in values:
            raise InputError("F130", f'attribute "{a.name}" is given twice', place=place)
        if a.type not in _READERS:
            raise InputError("F130", f'attribute "{a.name}" must have a type that ONNX defines, not {a.type}', place=place)
        values[a.name] = _READERS[a.type](a)
    return values


def subgraphs(node: Any) -> list[Any]:
    """Return the graphs in the attributes of a node."""
    return [g for a in node.attribute for g in ((a.g,) if a.type == GRAPH else a.graphs if a.type == GRAPHS else ())]


def tensors_in(node: Any) -> list[Any]:
    """Return the tensors in the attributes of a node and, at any depth, in its subgraphs."""
    tensors = [t for a in node.attribute for t in ((a.t,) if a.type == TENSOR else a.tensors if a.type == TENSORS else ())]
    for graph in subgraphs(node):
        tensors.extend(graph.initializer)
        tensors.extend(t for inner in graph.node for t in tensors_in(inner))
    return tensors
