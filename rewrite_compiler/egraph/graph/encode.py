"""Encodes a program as rows of egglog tables, one for each term and one for each fact about it, and commands for what no table holds.

Values keep their numbers: `(at 7)` is the class of value 7. Tuples of multi-output operators and the inner links of a
variadic operator get numbers above the program's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np

from ...ir.program import Data, Node, Program
from ...ir.types import TensorType, result_types
from ...ops import OPS, Op
from ...ops.op import FLOAT, INTS, AttributeValue
from .schema import literal, op_constructor, string_literal
from .table_load import NO_ORIGIN, Item, Row
from .term_rows import fact_rows, term_row

LARGEST_UNIFORM = 1 << 14  # elements of a constant that is tested for being uniform


def program_items(p: Program) -> list[Item]:
    """Return the rows and commands that load a program into an e-graph with the schema."""
    return list(_Encoder(p).items())


def term(op: Op, operands: Iterable[int], attributes: Sequence[AttributeValue]) -> str:
    """Return the arguments of an operator's constructor as text."""
    literals = [literal(v, a.kind) for v, a in zip(attributes, op.attributes, strict=True)]
    return " ".join([*(f"(V {v})" for v in operands), *literals])


def id_set(origins: Iterable[int]) -> str:
    """Return a set of source nodes as text."""
    numbers = " ".join(map(str, sorted(origins)))
    return f"(set-of {numbers})" if numbers else "(set-empty)"


class _Encoder:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.fresh = itertools.count(len(p.types))
        self.fixed = set(p.constants)

    def items(self) -> Iterator[Item]:
        for v in self.p.inputs:
            yield ["Input", v]
            yield from self.facts(v)
        for v, data in self.p.constants.items():
            yield ["Constant", v]
            yield from self.facts(v)
            if (value := uniform(data)) is not None:
                yield f"(union (V {v}) ({op_constructor(OPS['full']).name} {literal(data.shape, INTS)} {literal(value, FLOAT)}))"
        for node in self.p.nodes:
            yield from self.opaque_operator(node) if node.operator is None else self.core_operator(node, node.operator)

    def facts(self, v: int) -> Iterator[Row]:
        yield from fact_rows(v, self.p.types[v], v in self.fixed)

    def core_operator(self, node: Node, op: Op) -> Iterator[Item]:
        operands = node.inputs
        if op.variadic and len(operands) > len(op.operands):
            operands = yield from self.halved(node, op)
        if all(v in self.fixed for v in node.inputs):
            self.fixed.update(node.outputs)
        attributes = [v for _, v in node.attributes]
        number = node.outputs[0] if len(node.outputs) == 1 else next(self.fresh)
        is_work = op_constructor(op).is_work
        source_node = next(iter(node.origins)) if is_work and len(node.origins) == 1 else NO_ORIGIN
        yield term_row(number, op, operands, attributes, source_node)
        if is_work and source_node == NO_ORIGIN:
            place = f"whole (V {number})" if op.outputs > 1 else f"f_{op_constructor(op).name} {term(op, operands, attributes)}"
            yield f"(set ({place}) {id_set(node.origins)})"
        yield from self.results(node, number)

    def halved(self, node: Node, op: Op) -> Generator[Row, None, tuple[int, int]]:
        """Yield a balanced tree over the operands of a variadic operator, which rules traverse in few rounds; return its two halves."""
        attributes, fixed = dict(node.attributes), all(v in self.fixed for v in node.inputs)

        def tree_of(parts: Sequence[tuple[int, TensorType]]) -> Generator[Row, None, tuple[int, TensorType]]:
            if len(parts) == 1:
                return parts[0]
            (left, a), (right, b) = yield from halves(parts)
            number, t = next(self.fresh), result_types(op, [a, b], attributes)[0]
            yield term_row(number, op, (left, right), list(attributes.values()))
            yield from fact_rows(number, t, fixed)
            return number, t

        def halves(parts: Sequence[tuple[int, TensorType]]) -> Generator[Row, None, tuple[tuple[int, TensorType], tuple[int, TensorType]]]:
            half = (len(parts) + 1) // 2
            left = yield from tree_of(parts[:half])
            return left, (yield from tree_of(parts[half:]))

        (left, _), (right, _) = yield from halves([(v, self.p.types[v]) for v in node.inputs])
        return left, right

    def opaque_operator(self, node: Node) -> Iterator[Item]:
        operands, number = " ".join(f"(V {v})" for v in node.inputs), next(self.fresh)
        arguments = f"{string_literal(opaque_key(node))} {f'(vec-of {operands})' if operands else '(vec-empty)'}"
        yield f"(union (V {number}) (Opaque {arguments}))"
        yield f"(set (at {number}) (V {number}))"
        yield f"(set (f_Opaque {arguments}) {id_set(node.origins)})"
        yield from self.results(node, number)

    def results(self, node: Node, tuple_number: int) -> Iterator[Row]:
        if tuple_number != node.outputs[0]:
            results: list[Row] = [["Result", v, tuple_number, n] for n, v in enumerate(node.outputs)]
            yield from results
        for v in node.outputs:
            yield from self.facts(v)


def uniform(data: Data) -> float | None:
    """Return the value of a small float32 constant whose elements are all equal, which rules may read; None for others."""
    if data.dtype != np.float32 or not 0 < data.size <= LARGEST_UNIFORM:
        return None
    value = float(data.flat[0])
    is_uniform = math.isfinite(value) and bool(np.all(data == value)) and not bool(np.any(np.signbit(data) != (value < 0)))
    return value if is_uniform else None


def opaque_key(node: Node) -> str:
    """Return the key of an opaque node's operator."""
    return str(node.attribute("key"))
