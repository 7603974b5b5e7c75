"""The state of one import: the program under construction, its budgets, and why source nodes left no operation."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...ir.program import Builder, Data, Node, OpaqueOp, Value
from ...ir.types import FLOATS, TensorType
from ...limits import Limits
from ...ops import OPS
from ...ops.op import AttributeValue, ShapeError
from ..file.tensors import to_array, to_dense
from ..graph.attributes import tensors_in
from .equal_weights import WeightIndex


class Absorption(StrEnum):
    """Why a source node left no operation in the program."""

    FOLDED = "constant folded"
    """Its results are constants."""
    ALIAS = "identity"
    """Its results are its operands."""
    DROPOUT = "Dropout at inference"
    """It changes nothing outside training."""
    SAME_TYPE = "cast to its own type"
    """It converts to the type that its operand has."""
    INTEGER_FORM = "part of the integer form"
    """Its operations became part of integer operators, as those of a QDQ model do."""
    UNUSED = "nothing reads its result"
    """Its operations are dead code."""


@dataclass(frozen=True)
class QuantizedTensor:
    """Quantised codes of a real tensor: real = scale · (code − zero); one scale, or one for each place of `axis`."""

    codes: Value
    scale: Data
    axis: int
    zero: int


class Unsupported(Exception):
    """A source operator has no expression in core operators here; the message is the reason why the host runs it."""


class UnknownShape(InputError):
    """The shape of a node's result is not known, or the result is no tensor."""


@dataclass
class Context:
    """The state of an import: program builder, limits, operator sets, folding budget, and indices of shared constants."""

    builder: Builder
    limits: Limits
    opset: int
    imports: Mapping[str, int]
    folder: Path
    folded_bytes: int = 0
    lowered_nodes: int = 0
    reasons: dict[int, Absorption] = field(default_factory=dict)
    derived: dict[Hashable, Value] = field(default_factory=dict)
    name_suffixes: dict[str, int] = field(default_factory=dict)
    weight_index: WeightIndex = field(default_factory=WeightIndex)
    rearranged: dict[Value, Data] = field(default_factory=dict)  # transposes of constants
    dequantized: dict[Value, QuantizedTensor] = field(default_factory=dict)  # constants of real numbers that were written as codes
    reserved_names: dict[str, None] = field(default_factory=dict)  # in the order in which the names were given

    def unique(self, name: str) -> str:
        """Return `name`, or a numbered variant when another value has it."""
        candidate = name
        while candidate in self.reserved_names:
            self.name_suffixes[name] = self.name_suffixes.get(name, 0) + 1
            candidate = f"{name}_{self.name_suffixes[name]}"
        self.reserved_names[candidate] = None
        return candidate

    def note(self, text: str) -> None:
        """Add a note about the import unless it is there already."""
        if text not in self.builder.notes:
            self.builder.notes.append(text)

    def charge_folding(self, nbytes: int) -> None:
        """Charge bytes to the constant-folding budget.

        Raises:
            Unsupported: the budget is exhausted.
        """
        if self.folded_bytes + nbytes > self.limits.folding_bytes:
            self.note(f"constant folding stopped at its limit of {self.limits.folding_bytes} bytes (--limits folding_bytes=)")
            raise Unsupported(f"folding it needs {nbytes} bytes and {self.limits.folding_bytes - self.folded_bytes} are left")
        self.folded_bytes += max(0, nbytes)

    def check(self, t: TensorType, name: str) -> None:
        """Check a type against the limits.

        Raises:
            InputError: an extent is negative, or rank or bytes exceed the limits.
        """
        if any(n < 0 for n in t.shape):
            raise InputError("F132", f'dimensions of "{name}" must not be negative, not {t.shape}')
        if len(t.shape) > self.limits.rank:
            raise InputError("F105", f'"{name}" must have at most {self.limits.rank} axes, not {len(t.shape)}', help="raise --limits rank=")
        if max(t.nbytes, math.prod(n or 1 for n in t.shape)) > self.limits.tensor_bytes:  # extents of empty tensors are bounded too
            raise InputError(
                "F105",
                f'"{name}" must have at most {self.limits.tensor_bytes} bytes, not the {max(t.nbytes, 1)} of {t}',
                help="raise --limits tensor_bytes= if the model really needs this tensor",
            )

    def constant(self, data: Data, name: str, dtype: str | None = None) -> Value:
        """Add a constant under a name that no other value has."""
        self.check(TensorType(tuple(data.shape), dtype or str(data.dtype)), name)
        return self.builder.constant(data, self.unique(name), dtype)

    def weight(self, data: Data, name: str, dtype: str) -> Value:
        """Add a weight of the model: an equal constant is reused, and one that is a transpose or reshape of another is derived from it."""
        moves = _possible_moves(data) if dtype in FLOATS and self.equal_constant(data, dtype) is None else []
        source = next(
            (
                (equal, op, attributes)
                for op, candidate, attributes in moves
                if (equal := self.equal_constant(candidate, dtype)) is not None
            ),
            None,
        )
        if source is None:
            return self.rearranged_constant(data, name, dtype)
        (v,) = self.builder.apply(source[1], [source[0]], source[2], names=[self.unique(name)])
        self.rearranged[v] = data
        return v

    def rearranged_constant(self, data: Data, name: str, dtype: str) -> Value:
        """Add a constant obtained by moving elements of another; an equal constant is reused."""
        constant = self.equal_constant(data, dtype)
        if constant is not None:
            return constant
        v = self.constant(data, name, dtype)
        self.weight_index.add(v, data, dtype)
        return v

    def equal_constant(self, data: Data, dtype: str) -> Value | None:
        """Return a constant with equal elements, if any; dequantised constants, which have codes, are not shared."""
        constant = self.weight_index.find(data, dtype, self.builder.constants)
        return None if constant in self.dequantized else constant

    def tensor(self, message: Any, subject: str, payload: memoryview | None = None) -> tuple[Data, str]:
        """Return the elements and type name of a tensor of the model; `payload` are its raw bytes where the message has none."""
        return to_array(message, subject, self.limits, self.folder, payload)

    def sparse(self, message: Any, subject: str) -> tuple[Data, str]:
        """Return the elements of a sparse tensor of the model as a dense array."""
        return to_dense(message, subject, self.limits, self.folder)

    def apply(
        self, op: str, inputs: Sequence[Value], attributes: Mapping[str, AttributeValue], origin: int, name: str
    ) -> tuple[Value, ...]:
        """Add an operation; its results get provisional names."""
        _check_one_type(op, [self.builder.types[v].dtype for v in inputs])
        values = self.builder.apply(op, inputs, attributes, origins=(origin,))
        for v in values:
            self.check(self.builder.types[v], name)
            self.builder.names[v] = self.unique(f"{name}/{op}")
        return values

    def opaque(
        self, op: OpaqueOp, key: str, inputs: Sequence[Value], types: Sequence[TensorType], origins: Iterable[int], name: str
    ) -> list[Value]:  # fmt: skip
        """Add an opaque operation, which the host runs."""
        for t in types:
            self.check(t, name)
        outputs = [self.builder.value(t) for t in types]
        self.builder.opaque[key] = op
        self.builder.node(Node("opaque", tuple(inputs), tuple(outputs), (("key", key),), frozenset(origins)))
        return outputs

    def data(self, v: Value) -> Data | None:
        """Return the elements of a value that is constant at compile time, else None."""
        elements = self.builder.constants.get(v)
        return self.rearranged.get(v) if elements is None else elements


def embed_tensors(c: Context, node: Any) -> None:
    """Check the tensors inside an opaque node, and copy external data into it."""
    for t in tensors_in(node):
        data, _ = c.tensor(t, f'tensor "{t.name}" of {node.op_type}')
        if t.external_data:
            t.ClearField("external_data")
            t.ClearField("data_location")
            t.raw_data = data.tobytes()


@dataclass
class Checkpoint:
    """A checkpoint of an import, to roll back an attempted lowering."""

    values: int
    nodes: int
    folded_bytes: int
    derived: int
    reserved_names: int
    opaque: int


def checkpoint(c: Context) -> Checkpoint:
    """Return a checkpoint of the state of an import."""
    b = c.builder
    return Checkpoint(len(b.types), len(b.nodes), c.folded_bytes, len(c.derived), len(c.reserved_names), len(b.opaque))


def roll_back(c: Context, m: Checkpoint) -> None:
    """Roll an import back to a checkpoint."""
    b = c.builder
    for v in range(m.values, len(b.types)):
        b.constants.pop(v, None)
        c.rearranged.pop(v, None)
    del b.types[m.values :], b.names[m.values :], b.nodes[m.nodes :]
    c.folded_bytes = m.folded_bytes
    for entries, count in ((c.derived, m.derived), (c.reserved_names, m.reserved_names), (b.opaque, m.opaque)):
        while len(entries) > count:
            entries.popitem()


def _possible_moves(data: Data) -> list[tuple[str, Data, dict[str, AttributeValue]]]:
    """Return how a matrix or vector follows from another by moving elements: the operator, its operand, its attributes."""
    transpose: tuple[str, Data, dict[str, AttributeValue]] = ("transpose", data.T, {"perm": (1, 0)})
    shape, last_extent = tuple(data.shape), data.shape[-1:]
    source_shapes = [(*ones, *last_extent) for ones in ((), (1,), (1, 1)) if math.prod(shape[:-1]) == 1 and (*ones, *last_extent) != shape]
    return [transpose] * (data.ndim == 2) + [
        ("reshape", data.reshape(source_shape), {"shape": shape}) for source_shape in source_shapes if last_extent
    ]


def _check_one_type(op: str, dtypes: Sequence[str]) -> None:
    """Refuse operands of different element types; gather has indices, quantised operators have codes and scales."""
    if op != "gather" and not OPS[op].dtype and len(set(dtypes)) > 1:
        raise ShapeError(f"Operands of {op} must have one element type, not {' and '.join(dict.fromkeys(dtypes))}")
