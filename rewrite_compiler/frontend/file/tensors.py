"""Tensors of a model as numpy arrays, without copies where the bytes allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...ir.program import Data
from ...ir.types import BITS
from ...limits import Limits
from .external_data import read_region, region_of

# ONNX element type → our name
DTYPES: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3",
    18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0",
    25: "uint2", 26: "int2",
}  # fmt: skip
CODES = {name: code for code, name in DTYPES.items()}
_WIDTHS = {
    "complex64": 64,
    "complex128": 128,
    "float4e2m1": 4,
    "uint2": 2,
    "int2": 2,
    **{n: 8 for n in DTYPES.values() if n.startswith("float8")},
}
# element types whose bytes numpy reads as they stand
_PLAIN = {"float32", "float64", "float16", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
# the typed field that may hold a payload instead of raw bytes
_FIELDS = {"float32": "float_data", "complex64": "float_data", "float64": "double_data", "complex128": "double_data",
           "int64": "int64_data", "uint64": "uint64_data", "uint32": "uint64_data", "string": "string_data"}  # fmt: skip
_PAYLOADS: dict[str, Callable[[Any], Any]] = {
    "float_data": lambda t: t.float_data,
    "double_data": lambda t: t.double_data,
    "int32_data": lambda t: t.int32_data,
    "int64_data": lambda t: t.int64_data,
    "uint64_data": lambda t: t.uint64_data,
    "string_data": lambda t: t.string_data,
}
EXTERNAL = 1  # the data location of a tensor whose bytes are in another file


def dtype_name(code: int, subject: str) -> str:
    """Return our name of an ONNX element type.

    Raises:
        InputError: ONNX defines no element type of that number.
    """
    if code not in DTYPES:
        raise InputError("F133", f"Element type of {subject} must be one that ONNX defines (1 to {max(DTYPES)}), not {code}")
    return DTYPES[code]


def dims_of(tensor: Any, subject: str, limits: Limits) -> tuple[int, ...]:
    """Return the declared extents of a tensor.

    Raises:
        InputError: an extent is negative, or rank or bytes exceed the limits.
    """
    dims = tuple(int(n) for n in tensor.dims)
    if any(n < 0 for n in dims):
        raise InputError("F132", f"Dimensions of {subject} must be zero or positive, not {list(dims)}")
    if len(dims) > limits.rank:
        raise InputError("F105", f"{subject} must have at most {limits.rank} axes, not {len(dims)}", help="raise --limits rank=")
    bits = _bits(dtype_name(int(tensor.data_type), subject))
    nbytes = -(-math.prod(dims) * bits // 8)
    if nbytes > limits.tensor_bytes:
        raise InputError(
            "F105", f"{subject} must have at most {limits.tensor_bytes} bytes, not {nbytes}", help="raise --limits tensor_bytes="
        )
    return dims


def _bits(dtype: str) -> int:
    return _WIDTHS.get(dtype) or BITS[dtype]


def payload_bytes(dims: tuple[int, ...], dtype: str) -> int:
    """Return the number of raw bytes of a tensor; elements narrower than a byte are packed."""
    return -(-math.prod(dims) * _bits(dtype) // 8)


def to_array(tensor: Any, subject: str, limits: Limits, folder: Path, payload: memoryview | None = None) -> tuple[Data, str]:
    """Return the elements of a tensor and the name of their type; external data may lie below `folder`.

    `payload` are its raw bytes where the message has none itself.

    Raises:
        InputError: the payload has the wrong size, field or range, or there are several.
    """
    dims = dims_of(tensor, subject, limits)
    dtype = DTYPES[int(tensor.data_type)]
    stored = _raw(tensor, dims, dtype, subject, folder, limits)
    raw = stored if payload is None else payload
    if raw is None:
        _check_typed(tensor, dims, dtype, subject)
        return _from_message(tensor), dtype
    byte_count = payload_bytes(dims, dtype)
    if len(raw) != byte_count:
        raise InputError("F140", f"{subject} ({dtype}{list(dims)}) must have {byte_count} bytes of data, not {len(raw)}")
    if dtype in _PLAIN:
        return np.frombuffer(raw, np.dtype(dtype)).reshape(dims), dtype
    return _from_message(_with_raw(tensor, bytes(raw))), dtype


def _raw(tensor: Any, dims: tuple[int, ...], dtype: str, subject: str, folder: Path, limits: Limits) -> bytes | None:
    """Return the raw bytes of a tensor, or None when its elements are in a typed field; one payload only."""
    filled = [name for name, read in _PAYLOADS.items() if len(read(tensor))]
    if tensor.HasField("segment"):
        raise InputError("F140", f"{subject} is a segment of a tensor, which a model must not hold")
    if tensor.HasField("raw_data"):
        filled.append("raw_data")
    if tensor.data_location == EXTERNAL:
        filled.append("external data")
    if len(filled) > 1:
        raise InputError("F141", f"{subject} must have one payload, not {' and '.join(filled)}")
    if filled and filled[0] not in _PAYLOADS and dtype == "string":
        raise InputError("F140", f"{subject} holds strings, which cannot be {filled[0]}")
    if filled == ["raw_data"]:
        return bytes(tensor.raw_data)
    if filled != ["external data"]:
        return None
    return read_region(region_of(tensor, subject), payload_bytes(dims, dtype), folder, subject, limits)


def _check_typed(tensor: Any, dims: tuple[int, ...], dtype: str, subject: str) -> None:
    field = _FIELDS.get(dtype, "int32_data")
    misplaced = next((name for name, read in _PAYLOADS.items() if name != field and len(read(tensor))), None)
    if misplaced is not None:
        raise InputError("F140", f"Payload of {subject} ({dtype}) must be in {field}, not in {misplaced}")
    count, actual = _typed_count(dims, dtype), len(_PAYLOADS[field](tensor))
    if count != actual:
        raise InputError("F140", f"{subject} ({dtype}{list(dims)}) must have {count} elements in {field}, not {actual}")
    if field == "int32_data" and dtype != "int32" and count:
        _check_range(np.asarray(tensor.int32_data), dtype, subject)


def _check_range(data: Data, dtype: str, subject: str) -> None:
    """Refuse elements that the narrow type does not have; other types are bit patterns of their bytes."""
    bounds = np.iinfo(dtype) if dtype in ("int8", "int16") else None
    low, high = (bounds.min, bounds.max) if bounds else (0, 1 if dtype == "bool" else (1 << min(_bits(dtype), 16)) - 1)
    if _bits(dtype) < 8:
        low, high = 0, 255
    invalid = data[(data < low) | (data > high)]
    if invalid.size:
        raise InputError("F140", f"Elements of {subject} ({dtype}) must be in {low}…{high}, not {invalid[0]}")


def _typed_count(dims: tuple[int, ...], dtype: str) -> int:
    count = math.prod(dims)
    if dtype.startswith("complex"):
        return 2 * count
    bits = _bits(dtype)
    return -(-count * bits // 8) if bits < 8 else count


def _from_message(tensor: Any) -> Data:
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(tensor))


def _with_raw(tensor: Any, raw: bytes) -> Any:
    from onnx import TensorProto

    return TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=raw)


def to_dense(sparse: Any, subject: str, limits: Limits, folder: Path) -> tuple[Data, str]:
    """Return the elements of a sparse tensor as a dense array, and the name of their type.

    Raises:
        InputError: the indices lie outside the shape, are not ascending, or do not match the values.
    """
    from onnx import TensorProto

    values, dtype = to_array(sparse.values, subject, limits, folder)
    places, _ = to_array(sparse.indices, f"indices of {subject}", limits, folder)
    shape = dims_of(TensorProto(dims=sparse.dims, data_type=sparse.values.data_type), subject, limits)
    flat = np.ravel_multi_index(tuple(places.T), shape, mode="clip") if places.ndim == 2 and places.shape[1] == len(shape) else places
    if values.ndim != 1 or flat.shape != values.shape or not _inside(places, shape):
        raise InputError("F140", f"{subject} must have one index inside {list(shape)} for each of its {values.size} values")
    if np.any(np.diff(flat) <= 0):
        raise InputError("F140", f"Indices of {subject} must be in ascending order, each once")
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[flat] = values
    return dense.reshape(shape), dtype


def _inside(places: Data, shape: tuple[int, ...]) -> bool:
    bounds = np.asarray(shape if places.ndim == 2 else math.prod(shape))
    return bool(np.all(places >= 0) and np.all(places < bounds))
