"""The lowering context of one source node: its operands, its attributes, and the operations added for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.program import Data, Value
from ...ir.types import TensorType
from ...ops.op import AttributeValue, ShapeError
from .context import Context, Unsupported

FLOATS = ("float32", "float64", "float16")
# element types that numpy holds by itself
NATIVE = (*FLOATS, "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

# what data movement on constants does to their arrays: views where numpy gives them
_MOVES: dict[str, Callable[..., Data]] = {
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, perm: x.transpose(perm),
    "slice": lambda x, axis, start, stop, step=1: x[(slice(None),) * axis + (slice(start, stop, step),)],
    "reverse": lambda x, axis: x[(slice(None),) * axis + (slice(None, None, -1),)],
}


@dataclass(frozen=True)
class Site:
    """One source node: its operands, attributes and results, and the import it belongs to."""

    context: Context
    op: str
    domain: str
    version: int
    inputs: tuple[Value | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    origin: int
    place: str

    @property
    def label(self) -> str:
        """The operator's qualified name."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def name(self) -> str:
        """The name of the first result that has one."""
        return next((o for o in self.outputs if o), self.op)

    def has(self, n: int) -> bool:
        """Tell whether an operand is present."""
        return n < len(self.inputs) and self.inputs[n] is not None

    def value(self, n: int) -> Value:
        """Return an operand that the operator requires.

        Raises:
            Unsupported: the operand is absent.
        """
        v = self.inputs[n] if n < len(self.inputs) else None
        if v is None:
            raise Unsupported(f"its operand {n} is missing")
        return v

    def values(self) -> list[Value]:
        """Return all operands that are present."""
        return [v for v in self.inputs if v is not None]

    def type(self, v: Value) -> TensorType:
        """Return the type of a value."""
        return self.context.builder.types[v]

    def shape(self, n: int) -> tuple[int, ...]:
        """Return the shape of an operand."""
        return self.type(self.value(n)).shape

    def rank(self, n: int) -> int:
        """Return the number of axes of an operand."""
        return len(self.shape(n))

    def data(self, n: int) -> Data | None:
        """Return the elements of an operand that is constant at compile time, else None."""
        return self.context.data(self.value(n)) if self.has(n) else None

    def required_data(self, n: int, subject: str) -> Data:
        """Return the elements of an operand that must be constant.

        Raises:
            Unsupported: the operand is computed at run time.
        """
        data = self.data(n)
        if data is None:
            raise Unsupported(f'its {subject}, "{self.name_of(n)}", are computed at run time')
        return data

    def name_of(self, n: int) -> str:
        """Return the name of an operand, as the model has it."""
        return self.context.builder.names[self.value(n)]

    def ints(self, n: int, subject: str) -> tuple[int, ...]:
        """Return a one-dimensional integer operand that must be constant.

        Raises:
            Unsupported: the operand is computed at run time.
            ShapeError: the operand is not of rank 1.
        """
        data = self.required_data(n, subject)
        if data.ndim != 1:
            raise ShapeError(f"{subject.capitalize()} of {self.op} must be a list, not a tensor of shape {data.shape}")
        return tuple(int(i) for i in data.reshape(-1))

    def scalar(self, n: int, subject: str, default: float) -> float:
        """Return a scalar operand that must be constant when it is present.

        Raises:
            Unsupported: the operand is computed at run time.
            ShapeError: the operand has more than one element.
        """
        if not self.has(n):
            return default
        data = self.required_data(n, subject)
        if data.size != 1:
            raise ShapeError(f"{subject.capitalize()} of {self.op} must be single numbers, not a tensor of shape {data.shape}")
        return float(data.reshape(-1)[0])

    def flag(self, name: str, default: int = 0) -> int:
        """Return an attribute that is 0 or 1.

        Raises:
            ShapeError: the attribute has another value.
        """
        value = int(self.get(name, default))
        if value not in (0, 1):
            raise ShapeError(f"{name} of {self.op} must be 0 or 1, not {value}")
        return value

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute or its default."""
        return self.attributes.get(name, default)

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute `axis` counted from the front; the operator refuses one that is out of range."""
        axis = int(self.get("axis", default))
        return axis + rank if axis < 0 else axis

    def require_float(self) -> None:
        """Check that all operands are floats that numpy computes with.

        Raises:
            Unsupported: an operand has another element type, so the host runs the node.
        """
        for v in self.values():
            self._require(v, FLOATS)

    def require_float_at(self, n: int) -> None:
        """Check that one operand is a float that numpy computes with.

        Raises:
            Unsupported: it has another element type, so the host runs the node.
        """
        self._require(self.value(n), FLOATS)

    def require_native(self) -> None:
        """Check that numpy has the element types of all operands.

        Raises:
            Unsupported: an operand has another element type, so the host runs the node.
        """
        for v in self.values():
            self._require(v, NATIVE)

    def _require(self, v: Value, dtypes: tuple[str, ...]) -> None:
        if self.type(v).dtype not in dtypes:
            raise Unsupported(f"it works on {self.type(v).dtype}")

    def apply(self, op: str, *inputs: Value, **attributes: AttributeValue) -> Value:
        """Add an operation with one result; data movement of a constant gives a constant."""
        folded = self._fold_movement(op, inputs, attributes)
        return self.apply_all(op, *inputs, **attributes)[0] if folded is None else folded

    def apply_all(self, op: str, *inputs: Value, **attributes: AttributeValue) -> tuple[Value, ...]:
        """Add an operation and return all its results."""
        return self.context.apply(op, inputs, attributes, self.origin, self.name)

    def _fold_movement(self, op: str, inputs: Sequence[Value], attributes: Mapping[str, AttributeValue]) -> Value | None:
        if op not in _MOVES or len(inputs) != 1:
            return None
        data = self.context.data(inputs[0])
        if data is None:
            return None
        key = (op, inputs[0], tuple(attributes.items()))
        if key not in self.context.derived:
            from ...ops import OPS

            OPS[op].shapes([tuple(data.shape)], {"step": 1, **attributes} if op == "slice" else attributes)
            name = f"{self.context.builder.names[inputs[0]]}/{op}"
            add = self.context.constant if inputs[0] in self.context.dequantized else self.context.rearranged_constant
            self.context.derived[key] = add(_MOVES[op](data, **attributes), name, self.type(inputs[0]).dtype)
            self._move_codes(op, inputs[0], self.context.derived[key], attributes)
        return self.context.derived[key]

    def _move_codes(self, op: str, source: Value, result: Value, attributes: Mapping[str, AttributeValue]) -> None:
        """Move the codes of a dequantised constant along; scales per axis are kept under a transposition only."""
        scaled = self.context.dequantized.get(source)
        if scaled is None or (scaled.scale.size > 1 and op != "transpose"):
            return
        axis = list(attributes["perm"]).index(scaled.axis) if scaled.scale.size > 1 else 0  # type: ignore[arg-type]
        self.context.dequantized[result] = replace(scaled, codes=self.apply(op, scaled.codes, **attributes), axis=axis)

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        """Return a value with another shape; no operation is added when it has that shape."""
        return v if self.type(v).shape == tuple(shape) else self.apply("reshape", v, shape=tuple(int(n) for n in shape))

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        """Return a value with permuted axes; no operation is added for the identity."""
        return v if list(perm) == list(range(len(perm))) else self.apply("transpose", v, perm=tuple(int(p) for p in perm))

    def gather(self, v: Value, places: Sequence[int], axis: int) -> Value:
        """Return the slices of a value at constant indices of an axis; contiguous indices become a slice, perhaps reversed."""
        run = _contiguous_slice(places)
        if run is not None:
            x = v if run.stop - run.start == self.type(v).shape[axis] else self._part(v, axis, run)
            return x if run.step > 0 else self.apply("reverse", x, axis=axis)
        indices, data = np.asarray(places, np.int64), self.context.data(v)
        if data is None:
            return self.apply("gather", v, self.constant(indices, "places"), axis=axis)
        self.context.charge_folding(data.nbytes)
        return self.constant(np.take(data, indices, axis=axis), "picked")

    def _part(self, v: Value, axis: int, run: slice) -> Value:
        return self.apply("slice", v, axis=axis, start=run.start, stop=run.stop, step=1)

    def constant(self, data: Data, suffix: str) -> Value:
        """Add a constant that this node needs."""
        return self.context.constant(data, f"{self.name}/{suffix}")

    def zeros(self, shape: Sequence[int], like: Value) -> Value:
        """Add zeros of the element type of a value; float32 ones are `full`, which rules match."""
        if self.type(like).dtype != "float32":
            return self.constant(np.zeros(tuple(shape), self.type(like).dtype), "zeros")
        return self.apply("full", shape=tuple(int(n) for n in shape), value=0.0)

    def number(self, x: float, like: Value, suffix: str) -> Value:
        """Add a scalar constant of the element type of a value."""
        return self.constant(np.asarray(x, self.type(like).dtype), suffix)


def _contiguous_slice(places: Sequence[int]) -> slice | None:
    """Return two or more contiguous indices, ascending or descending, as a slice with step ±1; None for others."""
    steps = {b - a for a, b in itertools.pairwise(places)}
    if steps not in ({1}, {-1}) or min(places) < 0:
        return None
    return slice(min(places), max(places) + 1, steps.pop())


Lowering = Callable[[Site], Sequence[Value | None]]
"""What a lowering is: a function from one source node to the values of its outputs."""
