"""Vectorised conjunctions: a condition on consecutive elements, evaluated in the lanes of one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ...lang import intervals as iv
from ...lowering.loop_ir import Conjunction, Tree
from ...lowering.vector_idioms import coefficient_of, first_value
from .protocol import RoutinePrinter

WORD = ir.IntType(64)
LANEWISE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "bitand": lambda b, x, y: b.and_(x, y),
    "bitor": lambda b, x, y: b.or_(x, y),
    "bitxor": lambda b, x, y: b.xor(x, y),
    "shl": lambda b, x, n: b.shl(x, n),
    "shr": lambda b, x, n: b.ashr(x, n),
}
COMPARISON_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}


def is_vector(s: Conjunction, static: Callable[[str], int | None]) -> bool:
    """Tell whether a conjunction can be printed as a vector; `static` gives the number of elements of an array."""

    def has_vector(t: Tree) -> bool:
        if coefficient_of(t, s.loop.name) == 0:
            return True
        if t.op == "load":
            size = static(t.data)
            is_inside = size is not None and iv.inside(t.args[0].interval, (0, size - 1))
            return is_inside and coefficient_of(t.args[0], s.loop.name) == 1
        if t.op in ("shl", "shr"):
            return t.args[1].op == "const" and 0 <= int(t.args[1].data) < 64 and has_vector(t.args[0])
        if t.op == "extract" and t.data[0] > 63:
            return False
        return (t.op in LANEWISE or t.op in COMPARISON_SIGNS or t.op in ("not", "extract")) and all(map(has_vector, t.args))

    return has_vector(s.value)


def print_every(p: RoutinePrinter, s: Conjunction) -> None:
    """Print a conjunction as one vector."""
    kind = ir.VectorType(WORD, s.count)
    vector = _Vectors(p, s.loop.name, kind).value(s.value)
    bits = p.b.bitcast(p.b.icmp_signed("!=", vector, constant_vector(kind, 0)), ir.IntType(s.count))
    is_all = p.b.zext(p.b.icmp_signed("==", bits, ir.Constant(bits.type, -1)), WORD)
    p.b.store(p.b.and_(p.b.load(p.slots[s.name]), is_all), p.slots[s.name])


def constant_vector(kind: ir.VectorType, n: int) -> ir.Constant:
    """Return a constant vector, the same number in every lane."""
    return ir.Constant(kind, [n] * kind.count)


class _Vectors:
    """Emits trees as vectors, one lane an iteration."""

    def __init__(self, p: RoutinePrinter, counter: str, kind: ir.VectorType) -> None:
        self.p, self.counter, self.kind = p, counter, kind

    def value(self, t: Tree) -> Any:
        if coefficient_of(t, self.counter) == 0:
            return self.broadcast(self.p.value(t))
        if t.op == "load":
            return self.p.vector(t.data, first_value(t.args[0], self.counter), self.kind)
        return self.operator(t, [self.value(x) for x in t.args])

    def operator(self, t: Tree, a: list[Any]) -> Any:
        b = self.p.b
        if t.op in LANEWISE:
            return LANEWISE[t.op](b, *a)
        if t.op in COMPARISON_SIGNS:
            return b.zext(b.icmp_signed(COMPARISON_SIGNS[t.op], *a), self.kind)
        if t.op == "not":
            return b.xor(a[0], constant_vector(self.kind, 1))
        low, width = t.data
        return b.and_(b.lshr(a[0], constant_vector(self.kind, low)), constant_vector(self.kind, (1 << min(width, 63)) - 1))

    def broadcast(self, x: Any) -> Any:
        if isinstance(x, ir.Constant):
            return constant_vector(self.kind, x.constant)
        undefined, mask_type = ir.Constant(self.kind, ir.Undefined), ir.VectorType(ir.IntType(32), self.kind.count)
        vector = self.p.b.insert_element(undefined, x, ir.Constant(ir.IntType(32), 0))
        return self.p.b.shuffle_vector(vector, undefined, constant_vector(mask_type, 0))
