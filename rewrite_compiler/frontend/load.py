"""Import of an ONNX model as a program in core operators."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import FlexmatchError, InputError, UsageError
from ..ir.program import Builder, Program, Source, Value
from ..ir.unbatch import with_samples
from ..limits import DEFAULT, Limits
from .file.read import read_split, read_split_memory
from .file.weight_payloads import NO_PAYLOADS, Payloads
from .graph.header import check_header, imports_of, own_domain
from .graph.names import check_names
from .graph.opset_upgrade import BASE
from .graph.scope import NodeContext, Scope
from .graph.structure import check_count, check_structure, drop_trailing_absent, function_key
from .importer.declared_types import declared_type
from .importer.importer import Importer
from .importer.qdq import integer_form
from .importer.shape_binding import ShapeBinding, bind_shapes, bound_declarations, check_declared, is_contradicted, rebatched_program
from .site.context import Absorption, Context

if TYPE_CHECKING:
    from onnx import ModelProto
else:
    ModelProto = Any


@dataclass(frozen=True)
class LoadedModel:
    """An imported model: its program, its origin, and the operator sets its opaque nodes are written in."""

    program: Program
    path: Path
    sha256: str
    opset: int
    imports: Mapping[str, int]
    ir_version: int
    batch_inputs: tuple[str, ...] = ()
    file_opset: int = 0  # what the file declares; `opset` is what its nodes are read in


Model: TypeAlias = str | Path | bytes | ModelProto  # a file, what is in one, or onnx's message

IN_MEMORY = Path("the model in memory")


def load(model: Model, shapes: Mapping[str, tuple[int, ...]] | None = None, limits: Limits = DEFAULT) -> LoadedModel:
    """Import an ONNX model; external data of a model in memory lies below the current folder.

    Raises:
        InputError: the model is malformed, unsafe, over a limit, or has no literal shapes.
        UsageError: the path is wrong, or the model is an object of another library, or `shapes` do not fit it.
    """
    file = Path(model) if isinstance(model, (str, Path)) else IN_MEMORY
    message, payloads, digest = (
        read_split(file, limits) if file is not IN_MEMORY else read_split_memory(_bytes_of(model), str(file), limits)
    )
    try:
        loaded = import_model(message, file, digest, shapes or {}, limits, payloads)
    except FlexmatchError as error:
        raise error.at(str(file)) from None
    return replace(loaded, sha256=_hash_with_data(message, file, digest))


def _bytes_of(model: object) -> bytes:
    """Return the bytes of a model in memory; UsageError F100 for any other object."""
    if isinstance(model, bytes):
        return model
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        return bytes(model.SerializeToString())
    kind = type(model)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    sentence = f"a model must be an ONNX file, its bytes or a ModelProto, not {name}"
    raise UsageError("F100", sentence, help="give the path of an .onnx file, or a model of torch, Keras or scikit-learn")


def _hash_with_data(model: Any, file: Path, digest: str) -> str:
    """Return the SHA-256 over a model and the data files of its initializers, whose places the import has checked."""
    names = sorted({entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"})
    if not names:
        return digest
    combined = hashlib.sha256(digest.encode())
    for name in names:
        with open(file.parent / name, "rb") as data:
            combined.update(hashlib.file_digest(data, "sha256").digest())
    return combined.hexdigest()


def import_model(
    model: Any, file: Path, digest: str, shapes: Mapping[str, tuple[int, ...]], limits: Limits, payloads: Payloads = NO_PAYLOADS
) -> LoadedModel:  # fmt: skip
    """Import a parsed model as a program; `payloads` are the raw bytes of initializers that the message does not hold itself.

    Raises:
        InputError: the model is malformed, over a limit, or a value has no known type.
        UsageError: `shapes` contradict the model.
    """
    place = str(file)
    check_count(model, place, limits)
    check_names(model, place)
    notes = check_header(model, place)
    order, structure_notes = check_structure(model, place, limits)
    drop_trailing_absent(model)
    imports = imports_of(model.opset_import, "the model", place)
    opset = max([BASE, imports.get("", 1), *(o.version for f in model.functions for o in f.opset_import if own_domain(o.domain) == "")])
    context = Context(Builder(model.graph.name or file.stem), limits, opset, {**imports, "": opset}, file.parent)
    context.builder.sources = [Source(name, n.op_type) for name, n in zip(_source_names(model.graph), model.graph.node, strict=True)]
    context.builder.notes = [*notes, *structure_notes]
    scope = Scope()
    binding = _define_inputs(context, model.graph, scope, shapes, place)
    importer = Importer(context, {function_key(f): f for f in model.functions}, place)
    importer.define_initializers(model.graph, scope, payloads)
    declared = bound_declarations((*model.graph.value_info, *model.graph.output), binding.symbols)
    importer.lower([(n, model.graph.node[n]) for n in order], NodeContext(scope, imports, declared=declared))
    refusal = importer.regions.refusal([o.name for o in model.graph.output], scope, place)
    if refusal is not None:
        raise refusal
    outputs = _outputs(context, scope, model.graph, place)
    _note_declarations(context, scope, model.graph)
    program = _finished_program(context, outputs)
    if binding.samples is not None:
        program = rebatched_program(with_samples(program, *binding.samples), binding.samples, place)
    return LoadedModel(
        program, file, digest, opset, {**imports, "": opset}, int(model.ir_version), binding.batch_inputs, imports.get("", opset)
    )


def _source_names(graph: Any) -> list[str]:
    """Return one stable, distinct name a node: its own, or its operator and number."""
    reserved: set[str] = set()
    names = []
    for number, node in enumerate(graph.node):
        base = node.name or f"{node.op_type}_{number}"
        name, n = base, 1
        while name in reserved:
            name, n = f"{base}_{n}", n + 1
        reserved.add(name)
        names.append(name)
    return names


def _define_inputs(context: Context, graph: Any, scope: Scope, shapes: Mapping[str, tuple[int, ...]], place: str) -> ShapeBinding:
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    binding = bind_shapes(inputs, shapes, place)
    context.reserved_names.update((o.name, None) for o in graph.output)
    for i, t in zip(inputs, binding.types, strict=True):
        context.check(t, i.name)
        context.reserved_names[i.name] = None
        scope.values[i.name] = context.builder.input(i.name, t)
    if binding.batch_inputs:
        names = ", ".join(f'"{n}"' for n in binding.batch_inputs)
        context.builder.notes.append(f"dimension 0 of input {names} is not fixed by the model and was set to 1")
    return binding


def _outputs(context: Context, scope: Scope, graph: Any, place: str) -> list[Value]:
    """Return the values of the graph outputs, each the result of an operation of its own, named as the output."""
    producer = {o: number for number, n in enumerate(graph.node) for o in n.output}
    outputs: list[Value] = []
    sources = {*context.builder.inputs, *context.builder.constants}
    for info in graph.output:
        if scope.find_sequence(info.name) is not None:
            raise InputError("F133", f'output "{info.name}" must be a tensor, not sequence', place=place)
        v = scope.find(info.name)
        if v is None:
            raise InputError("F123", f'output "{info.name}" is not defined by any node', place=place)
        is_named = context.builder.names[v] == info.name  # an input or a constant that is an output as it stands
        if (v in sources or v in outputs) and not is_named:
            origins = (producer[info.name],) if info.name in producer else ()
            (v,) = context.builder.apply("reshape", [v], {"shape": context.builder.types[v].shape}, origins=origins)
        context.builder.names[v] = info.name
        check_declared(info, context.builder.types[v], place)
        outputs.append(v)
    return outputs


def _note_declarations(context: Context, scope: Scope, graph: Any) -> None:
    """Note declared types of inner values that contradict the computed ones."""
    for info in graph.value_info:
        v = scope.values.get(info.name)
        if v is not None and is_contradicted(declared_type(info, f'value "{info.name}"'), context.builder.types[v]):
            context.builder.notes.append(f'the declared type of "{info.name}" was ignored: the model computes {context.builder.types[v]}')


def _note_nonfinite_weights(context: Context, program: Program) -> None:
    """Note constants that hold NaN or infinity; single numbers legitimately do, as bounds and masks."""
    nonfinite = [program.names[v] for v, x in program.constants.items() if x.dtype.kind == "f" and x.size > 1 and not np.isfinite(x).all()]
    if nonfinite:
        examples = ", ".join(f'"{n}"' for n in nonfinite[:3]) + (", …" if len(nonfinite) > 3 else "")
        context.builder.notes.append(f"{len(nonfinite)} constants hold NaN or infinity: {examples}")


def _finished_program(context: Context, outputs: Sequence[Value]) -> Program:
    integer_form(context, outputs)
    draft = context.builder.finish(outputs)
    _note_nonfinite_weights(context, draft)
    live_origins = {origin for n in draft.nodes for origin in n.origins}
    for number in range(len(context.builder.sources)):
        if number not in live_origins:
            context.builder.absorbed[number] = context.reasons.get(number, Absorption.UNUSED)
    opaque_keys = {str(n.attribute("key")) for n in draft.nodes if n.op == "opaque"}
    opaque = {key: op for key, op in draft.opaque.items() if key in opaque_keys}
    return replace(draft, absorbed=dict(sorted(context.builder.absorbed.items())), opaque=opaque, notes=tuple(context.builder.notes))
