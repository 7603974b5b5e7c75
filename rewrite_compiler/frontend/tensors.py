"""Tensors of a model as numpy arrays, without copies where the bytes allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.program import Data
from ..ir.types import BITS
from ..limits import Limits

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
_PACKED_FIELD = 2  # integers of a packed sub-byte type in one element of int32_data, per 4 bits


def dtype_name(code: int, what: str) -> str:
    """Return our name of an ONNX element type; InputError names an unknown one."""
    if code not in DTYPES:
        raise InputError("F133", f"Element type of {what} must be one that ONNX defines (1 to {max(DTYPES)}), not {code}")
    return DTYPES[code]


def dims_of(tensor: Any, what: str, limits: Limits) -> tuple[int, ...]:
    """Return the declared extents of a tensor; InputError on impossible or excessive ones."""
    dims = tuple(int(n) for n in tensor.dims)
    if any(n < 0 for n in dims):
        raise InputError("F132", f"Dimensions of {what} must be zero or positive, not {list(dims)}")
    if len(dims) > limits.rank:
        raise InputError("F105", f"{what} must have at most {limits.rank} axes, not {len(dims)}", help="raise --limits rank=")
    bits = _bits(dtype_name(int(tensor.data_type), what))
    nbytes = -(-math.prod(dims) * bits // 8)
    if nbytes > limits.tensor_bytes:
        raise InputError("F105", f"{what} must have at most {limits.tensor_bytes} bytes, not {nbytes}", help="raise --limits tensor_bytes=")
    return dims


def _bits(dtype: str) -> int:
    return _WIDTHS.get(dtype) or BITS[dtype]


def payload_bytes(tensor: Any, dims: tuple[int, ...], dtype: str) -> int:
    """Return how many bytes of raw data a tensor needs."""
    return -(-math.prod(dims) * _bits(dtype) // 8)


def check_payload(tensor: Any, what: str, limits: Limits) -> None:
    """Refuse a tensor whose payload is missing, doubled or of the wrong length."""
    dims = dims_of(tensor, what, limits)
    dtype = dtype_name(int(tensor.data_type), what)
    filled = [name for name, read in _PAYLOADS.items() if len(read(tensor))]
    if (tensor.HasField("raw_data") and filled) or len(filled) > 1:
        both = ["raw_data", *filled] if tensor.HasField("raw_data") else filled
        raise InputError("F141", f"{what} must have one payload, not {' and '.join(both)}")
    if tensor.HasField("raw_data"):
        _check_raw(len(tensor.raw_data), payload_bytes(tensor, dims, dtype), dims, dtype, what)
        return
    field = _FIELDS.get(dtype, "int32_data")
    if filled and filled != [field]:
        raise InputError("F140", f"Payload of {what} ({dtype}) must be in {field}, not in {filled[0]}")
    count, given = _typed_count(dims, dtype), len(_PAYLOADS[field](tensor))
    if count != given:
        raise InputError("F140", f"{what} ({dtype}{list(dims)}) must have {count} elements in {field}, not {given}")


def _check_raw(given: int, needed: int, dims: tuple[int, ...], dtype: str, what: str) -> None:
    if dtype == "string":
        raise InputError("F140", f"{what} holds strings, which cannot be raw bytes")
    if given != needed:
        raise InputError("F140", f"{what} ({dtype}{list(dims)}) must have {needed} bytes of data, not {given}")


def _typed_count(dims: tuple[int, ...], dtype: str) -> int:
    count = math.prod(dims)
    if dtype.startswith("complex"):
        return 2 * count
    bits = _bits(dtype)
    return -(-count * bits // 8) if bits < 8 else count


def to_array(tensor: Any, what: str, limits: Limits) -> tuple[Data, str]:
    """Return the elements of a tensor and the name of their type."""
    check_payload(tensor, what, limits)
    dims, dtype = tuple(int(n) for n in tensor.dims), DTYPES[int(tensor.data_type)]
    if dtype in _PLAIN and tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, np.dtype(dtype)).reshape(dims), dtype
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(tensor)), dtype
