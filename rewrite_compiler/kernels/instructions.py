"""Dot-product instructions: sums of two neighbouring products of 16-bit numbers, by processor, and in plain code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ..readings.native.operators import declare_function
from .vectors import INDEX, Value, concatenate, extract_lanes, uniform


@dataclass(frozen=True)
class DotProduct:
    """An instruction on `lanes` sums of pairs; with `adds` it takes an addend as an operand."""

    feature: str
    lanes: int
    name: str
    adds: bool = False


# the first whose feature is there, and whose lanes divide the kernel's
DOT_PRODUCTS = (
    DotProduct("avx512vnni", 16, "llvm.x86.avx512.vpdpwssd.512", adds=True),
    DotProduct("avx512bw", 16, "llvm.x86.avx512.pmaddw.d.512"),
    DotProduct("avxvnni", 8, "llvm.x86.avx512.vpdpwssd.256", adds=True),
    DotProduct("avx2", 8, "llvm.x86.avx2.pmadd.wd"),
    DotProduct("sse2", 4, "llvm.x86.sse2.pmadd.wd"),
)


def dot_product(features: frozenset[str], lanes: int) -> DotProduct | None:
    """Return the widest instruction that a processor with these features has for so many lanes; None where there is none."""
    return next((d for d in DOT_PRODUCTS if d.feature in features and not lanes % d.lanes), None)


def add_pairs(b: ir.IRBuilder, features: frozenset[str], total: Value | None, x: Value, y: Value) -> Value:
    """Return total + x₀·y₀ + x₁·y₁ modulo 2³² for each pair of 16-bit lanes."""
    lanes = x.type.count // 2
    instruction = dot_product(features, lanes)
    if instruction is None:
        return _plain(b, total, x, y)
    parts = []
    for at in range(0, lanes, instruction.lanes):
        operands = [extract_lanes(b, v, 2 * at, 2 * instruction.lanes) for v in (x, y)]
        addend = None if total is None else extract_lanes(b, total, at, instruction.lanes)
        parts.append(_called(b, instruction, addend, operands))
    return concatenate(b, parts)


def _called(b: ir.IRBuilder, d: DotProduct, addend: Value | None, operands: Sequence[Value]) -> Value:
    sums, pairs = ir.VectorType(ir.IntType(32), d.lanes), ir.VectorType(ir.IntType(16), 2 * d.lanes)
    module = b.module
    if not d.adds:
        products = b.call(declare_function(module, d.name, ir.FunctionType(sums, [pairs, pairs])), operands)
        return products if addend is None else b.add(addend, products)
    addend = uniform(d.lanes, 32, 0) if addend is None else addend
    words = [b.bitcast(x, sums) for x in operands]
    return b.call(declare_function(module, d.name, ir.FunctionType(sums, [sums, sums, sums])), [addend, *words])


def _plain(b: ir.IRBuilder, total: Value | None, x: Value, y: Value) -> Value:
    wide = ir.VectorType(ir.IntType(32), x.type.count)
    products = b.mul(b.sext(x, wide), b.sext(y, wide))
    for odd in (0, 1):
        mask = ir.Constant(ir.VectorType(INDEX, x.type.count // 2), list(range(odd, x.type.count, 2)))
        half_products = b.shuffle_vector(products, ir.Constant(wide, ir.Undefined), mask)
        total = half_products if total is None else b.add(total, half_products)
    assert total is not None
    return total
