"""A program as egglog commands: one for each term and one for each fact about it.

Values keep their numbers: `(at 7)` is the class of value 7. Tuples of multi-output operators and the inner links of a
variadic operator get numbers above the program's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..ir.program import Data, Node, Program
from ..ir.types import TensorType, result_types
from ..ops import OPS, Op
from ..ops.op import FLOAT, INT, INTS, AttributeValue
from .schema import literal, op_constructor, quoted

LARGEST_UNIFORM = 1 << 14  # elements of a constant that is looked at


def program_commands(p: Program) -> list[str]:
    """Return the commands that load a program into an e-graph with the schema."""
    return list(_Encoder(p).commands())


def fact_commands(number: int, t: TensorType, fixed: bool) -> Iterator[str]:
    """Yield what is known of a class: shape, size, element type, constness where it does not follow from operands."""
    yield f"(Known (at {number}) {literal(t.shape, INTS)} {literal(t.size, INT)} {quoted(t.dtype)})"
    if fixed:
        yield f"(Fixed (at {number}))"


def term(op: Op, operands: Iterable[int], attributes: Sequence[AttributeValue]) -> str:
    """Return the arguments of an operator's constructor as text."""
    literals = [literal(v, a.kind) for v, a in zip(attributes, op.attributes, strict=True)]
    return " ".join([*(f"(at {v})" for v in operands), *literals])


def id_set(origins: Iterable[int]) -> str:
    """Return a set of source nodes as text."""
    numbers = " ".join(map(str, sorted(origins)))
    return f"(set-of {numbers})" if numbers else "(set-empty)"


class _Encoder:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.fresh = itertools.count(len(p.types))
        self.fixed = set(p.constants)

    def commands(self) -> Iterator[str]:
        for v in self.p.inputs:
            yield f'(set (at {v}) (Input "{v}"))'
            yield from self.facts(v)
        for v, data in self.p.constants.items():
            yield f'(set (at {v}) (Constant "{v}"))'
            yield from self.facts(v)
            if (value := uniform(data)) is not None:
                yield f"(union (at {v}) ({op_constructor(OPS['full']).name} {literal(data.shape, INTS)} {literal(value, FLOAT)}))"
        for node in self.p.nodes:
            yield from self.opaque(node) if node.operator is None else self.known(node, node.operator)

    def facts(self, v: int) -> Iterator[str]:
        yield from fact_commands(v, self.p.types[v], v in self.fixed)

    def known(self, node: Node, op: Op) -> Iterator[str]:
        operands = node.inputs
        if op.variadic and len(operands) > len(op.operands):
            links = [next(self.fresh) for _ in operands[1:-1]]
            yield from self.chain(node, op, links)
            operands = (links[-1], node.inputs[-1])
        if all(v in self.fixed for v in node.inputs):
            self.fixed.update(node.outputs)
        attributes = [v for _, v in node.attributes]
        arguments = term(op, operands, attributes)
        made = op_constructor(op)
        yield from self.results(node, f"({made.name} {arguments})")
        if made.is_work:
            yield f"(set (f_{made.name} {arguments}) {id_set(node.origins)})"

    def chain(self, node: Node, op: Op, links: Sequence[int]) -> Iterator[str]:
        """Link all operands but the last, two by two from the left."""
        here, attributes, fixed = node.inputs[0], dict(node.attributes), all(v in self.fixed for v in node.inputs)
        t = self.p.types[here]
        for v, number in zip(node.inputs[1:-1], links, strict=True):
            yield f"(set (at {number}) ({op_constructor(op).name} {term(op, (here, v), list(attributes.values()))}))"
            t = result_types(op, [t, self.p.types[v]], attributes)[0]
            yield from fact_commands(number, t, fixed)
            here = number

    def opaque(self, node: Node) -> Iterator[str]:
        operands = " ".join(f"(at {v})" for v in node.inputs)
        arguments = f"{quoted(opaque_key(node))} {f'(vec-of {operands})' if operands else '(vec-empty)'}"
        yield from self.results(node, f"(Opaque {arguments})", always_tuple=True)
        yield f"(set (f_Opaque {arguments}) {id_set(node.origins)})"

    def results(self, node: Node, made: str, *, always_tuple: bool = False) -> Iterator[str]:
        if len(node.outputs) == 1 and not always_tuple:
            yield f"(set (at {node.outputs[0]}) {made})"
        else:
            whole = next(self.fresh)
            yield f"(set (at {whole}) {made})"
            for n, v in enumerate(node.outputs):
                yield f"(set (at {v}) (Result (at {whole}) {n}))"
        for v in node.outputs:
            yield from self.facts(v)


def uniform(data: Data) -> float | None:
    """Return the one value of all elements of a small float32 constant, which rules may then read; None for others."""
    if data.dtype != np.float32 or not 0 < data.size <= LARGEST_UNIFORM:
        return None
    value = float(data.flat[0])
    same = math.isfinite(value) and bool(np.all(data == value)) and not bool(np.any(np.signbit(data) != (value < 0)))
    return value if same else None


def opaque_key(node: Node) -> str:
    """Return the key of an opaque node's operator."""
    return str(node.attribute("key"))


def operator_named(constructor: str) -> Op | None:
    """Return the core operator of a constructor, None for others."""
    return OPS.get(constructor.removeprefix("o_")) if constructor.startswith("o_") else None
