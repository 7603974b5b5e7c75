"""Cut: some nodes of a model as a model of their own, each value with the type and shape it had in the whole."""

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
from .load import import_model

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Cuttable:
    """A model whose nodes can be left out; values without a known type cannot become inputs."""

    model: Any
    types: Mapping[str, Any]  # value name → its declaration

    @property
    def names(self) -> tuple[str, ...]:
        """Return a name for every node: its own, or operator and number, as elsewhere."""
        return tuple(n.name or f"{n.op_type}_{k}" for k, n in enumerate(self.model.graph.node))

    def readers(self) -> dict[int, set[int]]:
        """Return the nodes that each node reads from."""
        producer = {o: k for k, n in enumerate(self.model.graph.node) for o in n.output if o}
        return {k: {producer[i] for i in _reads(n) if i in producer} for k, n in enumerate(self.model.graph.node)}


def cuttable(path: Path, shapes: Shapes | None = None, limits: Limits = DEFAULT) -> Cuttable:
    """Read a model and find the types of its values, from the import where that works, else from onnx's inference."""
    model, _ = read_model(path, limits)
    if _is_apart(model):
        raise InputError("F151", "a model with external data cannot be reduced", place=str(path), help="save it as one file first")
    known = {i.name: i for i in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    return Cuttable(model, {**known, **_inferred(model), **_imported(model, path, shapes or {}, limits)})


def _is_apart(model: Any) -> bool:
    return any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)


def _inferred(model: Any) -> dict[str, Any]:
    """Return what onnx infers; nothing where it fails, since models to reduce are often odd."""
    try:
        found = shape_inference.infer_shapes(model)
    except Exception:  # the checker's and the parser's own kinds share no base class but Exception
        return {}
    return {i.name: i for i in found.graph.value_info if _is_closed(i)}


def _is_closed(info: Any) -> bool:
    shape = info.type.tensor_type.shape
    return bool(info.type.tensor_type.elem_type) and all(d.HasField("dim_value") for d in shape.dim)


def _imported(model: Any, path: Path, shapes: Shapes, limits: Limits) -> dict[str, Any]:
    """Return the types that importing computes, when the model can be imported."""
    try:
        p = import_model(model, path, "", shapes, limits).program
    except FlexmatchError:
        return {}
    named = zip(p.names, p.types, strict=True)
    return {name: helper.make_tensor_value_info(name, CODES[t.dtype], list(t.shape)) for name, t in named}


def cut(whole: Cuttable, keep: Collection[int]) -> bytes | None:
    """Return the kept nodes as a model; None when a value that it must read from outside has no known type."""
    graph = whole.model.graph
    nodes = [n for k, n in enumerate(graph.node) if k in keep]
    made, read = {o for n in nodes for o in n.output if o}, {i for n in nodes for i in _reads(n)}
    constants = [t for t in graph.initializer if t.name in read]
    given = {t.name for t in constants} | {t.values.name for t in graph.sparse_initializer}
    outside = [name for name in dict.fromkeys(i for n in nodes for i in _reads(n)) if name not in made | given]
    if not nodes or any(name not in whole.types for name in outside):
        return None
    used = {i for k, n in enumerate(graph.node) if k not in keep for i in _reads(n)} | {o.name for o in graph.output}
    ends = [o for n in nodes for o in n.output if o and (o in used or o not in read)]
    copy = onnx.ModelProto()
    copy.CopyFrom(whole.model)
    for field in ("node", "initializer", "input", "output", "value_info"):
        copy.graph.ClearField(field)
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(constants)
    copy.graph.input.extend(whole.types[name] for name in outside)
    copy.graph.output.extend(_end(whole, name) for name in ends)
    return bytes(copy.SerializeToString())


def _end(whole: Cuttable, name: str) -> Any:
    return whole.types[name] if name in whole.types else onnx.ValueInfoProto(name=name)


def _reads(node: Any) -> Iterable[str]:
    """Return what a node reads, the values that graphs inside it take from outside included."""
    yield from (i for i in node.input if i)
    for a in node.attribute:
        for inner in (*([a.g] if a.HasField("g") else []), *a.graphs):
            defined = {o for n in inner.node for o in n.output} | {i.name for i in inner.input} | {t.name for t in inner.initializer}
            yield from (i for n in inner.node for i in _reads(n) if i not in defined)
            yield from (o.name for o in inner.output if o.name not in defined)
