"""Rows of egglog tables for one term and its facts, and the operator of a constructor.

The child process of saturation reads this file: it does without numpy, whose import takes longer than most answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...ir.types import TensorType
from ...ops import OPS, Op
from ...ops.op import AttributeValue
from .schema import op_constructor
from .table_load import NO_ORIGIN, Row, cell


def fact_rows(number: int, t: TensorType, fixed: bool) -> Iterator[Row]:
    """Yield the facts of a class: shape, size in elements, element type, and constness where it does not follow from operands."""
    yield ["Known", number, list(t.shape), t.size, t.dtype]
    if fixed:
        yield ["Fixed", number]


def term_row(number: int, op: Op, operands: Iterable[int], attributes: Sequence[AttributeValue], origin: int = NO_ORIGIN) -> Row:
    """Return the row of a class that is an operator's result, or its tuple of results."""
    cells = [cell(v, a.kind) for v, a in zip(attributes, op.attributes, strict=True)]
    return [op_constructor(op).name, number, *operands, *cells, origin]


def operator_named(constructor: str) -> Op | None:
    """Return the core operator of a constructor, None for others."""
    return OPS.get(constructor.removeprefix("o_")) if constructor.startswith("o_") else None
