"""Types of tensors: a literal shape and an element type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..lang import intervals as iv
from ..lang.intervals import Interval
from ..ops.op import AttributeValue, Op

FLOATS = ("float32", "float64", "float16", "bfloat16", "float8e4m3", "float8e5m2")
# element type → (bits, the range of its integers)
BITS = {
    "bool": 8,
    "int4": 4,
    "uint4": 4,
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "uint32": 32,
    "int64": 64,
    "uint64": 64,
}
BITS |= {"float32": 32, "float64": 64, "float16": 16, "bfloat16": 16, "float8e4m3": 8, "float8e5m2": 8, "string": 64}


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor: its shape and its element type, by ONNX names."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, packed."""
        return -(-self.size * BITS.get(self.dtype, 64) // 8)

    @property
    def is_float(self) -> bool:
        """Tell whether the elements are floating-point."""
        return self.dtype in FLOATS

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def interval_of(dtype: str) -> Interval:
    """Return the range of the integers of an element type; 64-bit ones are taken as unbounded."""
    if dtype == "bool":
        return iv.TRUTH
    bits = BITS.get(dtype, 64)
    return iv.EVERYTHING if bits > 32 else iv.of_width(bits, not dtype.startswith("u"))


def result_types(operator: Op, operands: Sequence[TensorType], attributes: Mapping[str, AttributeValue]) -> tuple[TensorType, ...]:
    """Return the types of an operator's outputs (type inference).

    Raises:
        ShapeError: the operator is not defined on these operands and attributes.
    """
    shapes = operator.shapes([t.shape for t in operands], attributes)
    dtype = operator.dtype_of(operands[0].dtype if operands else "float32", attributes)
    return tuple(TensorType(tuple(s), dtype) for s in shapes)
