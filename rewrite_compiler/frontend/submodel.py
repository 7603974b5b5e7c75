"""Extraction of some nodes of a model as a model of their own, each value with the type and shape it had in the original."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import helper, shape_inference

from ..errors import FlexmatchError, InputError
from ..limits import DEFAULT, Limits
from .file.read import read_model
from .file.tensors import CODES
from .graph.attributes import subgraphs
from .load import import_model

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ReducibleModel:
    """A model whose nodes can be removed; a value without a known type cannot become an input."""

    model: Any
    types: Mapping[str, Any]  # value name → its declaration

    @property
    def names(self) -> tuple[str, ...]:
        """Return a name for every node: its own, or operator and index, as in the importer."""
        return tuple(n.name or f"{n.op_type}_{k}" for k, n in enumerate(self.model.graph.node))

    def producers_by_node(self) -> dict[int, set[int]]:
        """Return for each node the nodes whose results it reads."""
        producer = {o: k for k, n in enumerate(self.model.graph.node) for o in n.output if o}
        return {k: {producer[i] for i in _read_names(n) if i in producer} for k, n in enumerate(self.model.graph.node)}


def read_reducible(path: Path, shapes: Shapes | None = None, limits: Limits = DEFAULT) -> ReducibleModel:
    """Read a model with the types of its values, from the import where that succeeds, else from ONNX's shape inference.

    Raises:
        InputError: the model is malformed or has external data.
    """
    model, _ = read_model(path, limits)
    if _has_external_data(model):
        raise InputError("F151", "a model with external data cannot be reduced", place=str(path), help="save it as one file first")
    declared = {i.name: i for i in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    return ReducibleModel(model, {**declared, **_inferred_types(model), **_imported_types(model, path, shapes or {}, limits)})


def _has_external_data(model: Any) -> bool:
    return any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)


def _inferred_types(model: Any) -> dict[str, Any]:
    """Return the types that ONNX's shape inference finds; nothing where it fails, since models to reduce are often malformed."""
    try:
        inferred = shape_inference.infer_shapes(model)
    except Exception:  # the checker's and the parser's own kinds share no base class but Exception
        return {}
    return {i.name: i for i in inferred.graph.value_info if _is_closed(i)}


def _is_closed(info: Any) -> bool:
    shape = info.type.tensor_type.shape
    return bool(info.type.tensor_type.elem_type) and all(d.HasField("dim_value") for d in shape.dim)


def _imported_types(model: Any, path: Path, shapes: Shapes, limits: Limits) -> dict[str, Any]:
    """Return the types that the import computes; nothing where it fails."""
    try:
        p = import_model(model, path, "", shapes, limits).program
    except FlexmatchError:
        return {}
    typed_names = zip(p.names, p.types, strict=True)
    return {name: helper.make_tensor_value_info(name, CODES[t.dtype], list(t.shape)) for name, t in typed_names}


def submodel(source: ReducibleModel, keep: Collection[int]) -> bytes | None:
    """Return the nodes with indices in `keep` as a model; None when a value they read from the others has no known type."""
    graph = source.model.graph
    nodes = [n for k, n in enumerate(graph.node) if k in keep]
    defined, read = {o for n in nodes for o in n.output if o}, {i for n in nodes for i in _read_names(n)}
    constants = [t for t in graph.initializer if t.name in read]
    constant_names = {t.name for t in constants} | {t.values.name for t in graph.sparse_initializer}
    free_names = [name for name in dict.fromkeys(i for n in nodes for i in _read_names(n)) if name not in defined | constant_names]
    if not nodes or any(name not in source.types for name in free_names):
        return None
    outer_reads = {i for k, n in enumerate(graph.node) if k not in keep for i in _read_names(n)} | {o.name for o in graph.output}
    output_names = [o for n in nodes for o in n.output if o and (o in outer_reads or o not in read)]
    copy = onnx.ModelProto()
    copy.CopyFrom(source.model)
    for field in ("node", "initializer", "input", "output", "value_info"):
        copy.graph.ClearField(field)
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(constants)
    copy.graph.input.extend(source.types[name] for name in free_names)
    copy.graph.output.extend(_output_info(source, name) for name in output_names)
    return bytes(copy.SerializeToString())


def _output_info(source: ReducibleModel, name: str) -> Any:
    return source.types[name] if name in source.types else onnx.ValueInfoProto(name=name)


def _read_names(node: Any) -> Iterable[str]:
    """Yield the names that a node reads, free names of its subgraphs included."""
    yield from (i for i in node.input if i)
    for inner in subgraphs(node):
        defined = {o for n in inner.node for o in n.output} | {i.name for i in inner.input} | {t.name for t in inner.initializer}
        yield from (i for n in inner.node for i in _read_names(n) if i not in defined)
        yield from (o.name for o in inner.output if o.name not in defined)
