"""Shape binding: literal shapes for the inputs of a model, from the model, from `--shape`, or 1 for an open batch dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import InputError, UsageError
from ...ir.program import Program
from ...ir.rebatch import NotBatchable
from ...ir.types import TensorType
from .declared_types import Declared, declared_type

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ShapeBinding:
    """Literal types of the inputs, and the inputs whose dimension 0 was set to 1.

    `samples` are the number of samples that the model fixes in dimension 0 of all inputs and another that --shape asks for;
    `symbols` are the extents of the dimensions that inputs declare by name.
    """

    types: tuple[TensorType, ...]
    batch_inputs: tuple[str, ...]
    samples: tuple[int, int] | None = None
    symbols: Mapping[str, int] = field(default_factory=dict)


def bind_shapes(inputs: Sequence[Any], shapes: Shapes, file: str) -> ShapeBinding:
    """Return literal types of the inputs.

    Raises:
        InputError: a dimension stays open, or a declaration is not valid; the sentence names the `--shape` to give.
        UsageError: a shape is for no input, or contradicts the model.
    """
    names = [i.name for i in inputs]
    _check_names(names, shapes, file)
    samples = _changed_sample_count(inputs, shapes)
    if samples is not None:
        shapes = {}
    declared = {i.name: _declared_or_requested(i, shapes.get(i.name), file) for i in inputs}
    symbols = _symbols(inputs, shapes, file)
    bound_types = {name: (d, [symbols.get(n, n) if isinstance(n, str) else n for n in extents]) for name, (d, extents) in declared.items()}
    batch = _open_batch_inputs(bound_types)
    for name in batch:
        bound_types[name][1][0] = 1
    types = tuple(_literal_type(name, *bound_types[name], file) for name in names)
    shapes = {name: t.shape for name, t in zip(names, types, strict=True)}
    return ShapeBinding(types, batch, samples, _symbols(inputs, shapes, file))


def bound_declarations(infos: Iterable[Any], symbols: Mapping[str, int]) -> dict[str, Any]:
    """Return declarations of tensors by name, with the extents of named dimensions filled in where inputs fix them."""
    bound = {}
    for info in infos:
        bound[info.name] = info
        if any(d.dim_param in symbols for d in info.type.tensor_type.shape.dim):
            bound[info.name] = copy = type(info)()
            copy.CopyFrom(info)
            for d in copy.type.tensor_type.shape.dim:
                if d.dim_param in symbols:
                    d.dim_value = symbols[d.dim_param]
    return bound


def _check_names(names: Sequence[str], shapes: Shapes, file: str) -> None:
    for name in sorted(shapes.keys() - set(names)):
        input_names = ", ".join(f'"{n}"' for n in names)
        raise UsageError("F203", f'the model has no input called "{name}"', place=file, help=f"its inputs are {input_names or 'none'}")


def _changed_sample_count(inputs: Sequence[Any], shapes: Shapes) -> tuple[int, int] | None:
    """Return the batch extent that all inputs fix and the one that the shapes request, if that is all they change."""
    declared = {i.name: d[1] for i in inputs if (d := declared_type(i, f'input "{i.name}"')) is not None}
    if len(declared) < len(inputs) or not all(d and all(isinstance(n, int) for n in d) for d in declared.values()):
        return None
    is_rest_as_declared = all(len(s) == len(declared[name]) and list(s[1:]) == list(declared[name][1:]) for name, s in shapes.items())
    declared_counts, requested_counts = {d[0] for d in declared.values()}, {s[0] for s in shapes.values()} if is_rest_as_declared else set()
    if len(declared_counts) != 1 or len(requested_counts) != 1 or declared_counts == requested_counts:
        return None
    (declared_count,), (requested_count,) = declared_counts, requested_counts
    return (declared_count, requested_count) if isinstance(declared_count, int) and declared_count > 0 and requested_count > 0 else None


def rebatched_program(rebatched: Program | NotBatchable, samples: tuple[int, int], place: str) -> Program:
    """Return the program for another number of samples, with a note.

    Raises:
        UsageError: F134 where the model's samples are not independent.
    """
    if isinstance(rebatched, NotBatchable):
        raise UsageError(
            "F134", f"Dimension 0 of the inputs must be {samples[0]}, as the model fixes it, not {samples[1]}: {rebatched.reason}",
            place=place,
            help="export the model again with an open dimension 0",
        )  # fmt: skip
    note = f"dimension 0 of the inputs is {samples[0]} in the model and was set to {samples[1]}: every sample is computed on its own"
    return replace(rebatched, notes=(*rebatched.notes, note))


def _declared_or_requested(info: Any, shape: tuple[int, ...] | None, file: str) -> Declared:
    subject = f'input "{info.name}"'
    dtype = _element_type(info, subject, file)
    declared = declared_type(info, subject)
    if shape is None:
        if declared is None:
            raise InputError(
                "F160", f"the shape of {subject} is not declared", place=file, help=f"give it: --shape {info.name}=EXTENT,EXTENT,…"
            )
        return declared
    if any(n < 0 for n in shape):
        raise UsageError("F132", f"Dimensions of {subject} given by --shape must be zero or positive, not {list(shape)}", place=file)
    if declared is not None and not _agrees(declared[1], shape):
        declared_text = extents_text(declared[1])
        raise UsageError(
            "F134",
            f"The shape of {subject} given by --shape must agree with the declared {declared_text}, not be {list(shape)}",
            place=file,
        )
    return dtype, list(shape)


def _element_type(info: Any, subject: str, file: str) -> str:
    from ..file.tensors import dtype_name

    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise InputError("F133", f"{subject} must be a tensor, not {(kind or 'untyped').removesuffix('_type')}", place=file)
    return dtype_name(int(info.type.tensor_type.elem_type), subject)


def extents_text(extents: Sequence[int | str | None]) -> str:
    """Return extents as text: numbers, symbols, "?" for unknown."""
    return f"[{', '.join('?' if n is None else str(n) for n in extents)}]"


def _agrees(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    return len(declared) == len(shape) and all(not isinstance(d, int) or d == n for d, n in zip(declared, shape, strict=True))


def _symbols(inputs: Sequence[Any], shapes: Shapes, file: str) -> dict[str, int]:
    """Return the extents that the requested shapes give to symbolic dimensions."""
    extents: dict[str, int] = {}
    for i in inputs:
        declared = declared_type(i, f'input "{i.name}"')
        for symbol, n in zip(declared[1] if declared else (), shapes.get(i.name, ()), strict=False):
            if isinstance(symbol, str) and extents.setdefault(symbol, n) != n:
                raise UsageError("F134", f'Dimension "{symbol}" must have one extent, not {extents[symbol]} and {n}', place=file)
    return extents


def _open_batch_inputs(types: Mapping[str, Declared]) -> tuple[str, ...]:
    """Return the inputs that share the only open dimension, when it is dimension 0 of all of them; else nothing."""
    open_places = [(a, n) for _, extents in types.values() for a, n in enumerate(extents) if not isinstance(n, int)]
    is_batch_axis = len(set(open_places)) == 1 and open_places[0][0] == 0
    is_shared = len(open_places) == len(types) and (len(types) == 1 or open_places[0][1] is not None) if open_places else False
    return tuple(types) if is_batch_axis and is_shared else ()


def _literal_type(name: str, dtype: str, extents: Sequence[int | str | None], file: str) -> TensorType:
    shape = tuple(n for n in extents if isinstance(n, int))
    if len(shape) == len(extents):
        return TensorType(shape, dtype)
    axis, symbol = next((a, n) for a, n in enumerate(extents) if not isinstance(n, int))
    symbol_text = f' ("{symbol}")' if symbol else ""
    example = ",".join(str(n) if isinstance(n, int) else str(n or "N").upper() for n in extents)
    raise InputError(
        "F160",
        f'dimension {axis}{symbol_text} of input "{name}" is not fixed by the model',
        place=file,
        help=f"give it: --shape {name}={example}",
    )


def is_contradicted(declared: Declared | None, actual: TensorType) -> bool:
    """Tell whether a declaration differs from the computed type."""
    return declared is not None and (declared[0] != actual.dtype or not _agrees(declared[1], actual.shape))


def check_declared(info: Any, actual: TensorType, file: str) -> None:
    """Check an output against its declaration.

    Raises:
        InputError: the model computes another type than it declares.
    """
    declared = declared_type(info, f'output "{info.name}"')
    if declared is not None and is_contradicted(declared, actual):
        raise InputError(
            "F134",
            f'output "{info.name}" is declared as {declared[0]}{extents_text(declared[1])} and the model computes {actual}',
            place=file,
        )
