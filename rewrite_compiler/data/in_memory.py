"""Samples in memory: arrays, tables or batches instead of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.program import Data
from ..ir.types import TensorType
from .onnx_test_sets import NamedArrays

PLACE = Path("the given samples")
TRUTHS = ("labels", "targets")  # arrays and columns with what a sample's result should be
FORMS = "give a file, a dict of arrays by input name, one array, (inputs, labels), or batches of these"


def samples_in_memory(samples: object, inputs: Mapping[str, TensorType]) -> NamedArrays:
    """Return arrays by name: `inputs` [samples, *shape of one], and `labels` [samples] where they are given.

    `samples` is a mapping from input names to arrays; one array or table for a model of one input; a pair (inputs, labels); or an
    iterable of these, each item one sample or one batch, as a data loader yields them.

    Raises:
        InputError: C100 for anything else.
    """
    arrays = _of_batches(samples, inputs) if _is_iterable_of_batches(samples) else _by_name(samples, inputs)
    return NamedArrays(PLACE, arrays, _digest(arrays))


def _is_iterable_of_batches(samples: object) -> bool:
    is_pair = isinstance(samples, tuple) and len(samples) == 2
    return isinstance(samples, Iterable) and not isinstance(samples, (str, bytes, Mapping)) and not is_pair and not _is_array(samples)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__array__") or np.isscalar(value)


def _by_name(samples: object, inputs: Mapping[str, TensorType]) -> dict[str, Data]:
    """Return the arrays of a mapping, an array, a table or a pair by the names they would have in an .npz."""
    if isinstance(samples, (tuple, list)) and len(samples) == 2 and not isinstance(samples[0], (int, float)):
        return {**_by_name(samples[0], inputs), TRUTHS[0]: _array(samples[1], TRUTHS[0])}
    if isinstance(samples, Mapping):
        return {str(name): _array(value, str(name), inputs.get(str(name))) for name, value in samples.items()}
    if hasattr(samples, "columns") and hasattr(samples, "to_numpy"):  # a table: of pandas, polars, …
        return _of_table(samples, inputs)
    if _is_array(samples):
        return {_single_input(inputs): _array(samples, _single_input(inputs))}
    raise InputError("C100", f"samples must be arrays, not {type(samples).__name__}", place=str(PLACE), help=FORMS)


def _single_input(inputs: Mapping[str, TensorType]) -> str:
    """Return the name of the only input."""
    if len(inputs) != 1:
        input_names = ", ".join(f'"{name}"' for name in inputs)
        raise InputError(
            "C100", f"one array is given and the model has {len(inputs)} inputs", place=str(PLACE), help=f"name them: {input_names}"
        )
    return next(iter(inputs))


def _array(value: object, name: str, of: TensorType | None = None) -> Data:
    """Return an array; a tensor of another library is converted by its `__array__`, Python's numbers to a real input's type."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError("C100", f'"{name}" cannot be read as an array: {reason}', place=str(PLACE), help=FORMS) from None
    if array.dtype.kind not in "biuf":
        raise InputError("C100", f'"{name}" must hold numbers, not {array.dtype}', place=str(PLACE), help=FORMS)
    if of is None or hasattr(value, "__array__") or not of.dtype.startswith("float"):
        return array
    return array.astype(of.dtype)


def _of_table(table: Any, inputs: Mapping[str, TensorType]) -> dict[str, Data]:
    """Return the columns of a table by input where they are named so, else all of them, in order, as the one input's features.

    Columns that are called like the truths of a data file, and like no input, are these.
    """
    columns = {str(c): c for c in table.columns}
    truths = [name for name in TRUTHS if name in columns and name not in inputs]
    arrays = {name: _array(table[columns[name]].to_numpy(), name) for name in truths}
    if all(name in columns for name in inputs):
        return arrays | {name: _array(table[columns[name]].to_numpy(), name).astype(t.dtype) for name, t in inputs.items()}
    name = _single_input(inputs)
    features = table[[c for label, c in columns.items() if label not in truths]] if truths else table
    return {**arrays, name: _array(features.to_numpy(), name).astype(inputs[name].dtype)}


def _of_batches(batches: Any, inputs: Mapping[str, TensorType]) -> dict[str, Data]:
    """Return the arrays of all items concatenated along their samples."""
    items = [_by_name(item, inputs) for item in batches]
    are_samples = all(_is_one_sample(a, inputs[name]) for arrays in items for name, a in arrays.items() if name in inputs)
    parts: dict[str, list[Data]] = {}
    for arrays in items:
        for name, a in arrays.items():
            parts.setdefault(name, []).append(a[np.newaxis] if are_samples or a.ndim == 0 else a)
    if not parts:
        raise InputError("C100", "data must have at least one sample, not 0", place=str(PLACE))
    return {name: _joined(name, arrays) for name, arrays in parts.items()}


def _is_one_sample(a: Data, t: TensorType) -> bool:
    """Tell whether an array is one sample, with or without an axis of extent 1; a first axis of extent 1 makes it a batch of one."""
    without = [(*t.shape[:axis], *t.shape[axis + 1 :]) for axis, n in enumerate(t.shape) if n == 1]
    return a.shape in (without if t.shape[:1] == (1,) else [t.shape, *without])


def _joined(name: str, arrays: list[Data]) -> Data:
    shapes = sorted({a.shape[1:] for a in arrays})
    if len(shapes) > 1:
        raise InputError("C100", f'samples of "{name}" must have one shape, not {shapes[0]} and {shapes[1]}', place=str(PLACE), help=FORMS)
    return np.concatenate(arrays)


def _digest(arrays: Mapping[str, Data]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, a in sorted(arrays.items()):
        digest.update(f"{name}:{a.dtype}:{a.shape}\n".encode())
        digest.update(np.ascontiguousarray(a).data)
    return digest.hexdigest()
