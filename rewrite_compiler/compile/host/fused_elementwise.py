"""Fused elementwise host parts: sums, products with numbers, and clamps of floats, or of quantised codes, in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.program import Node, Program, Value
from ...lang.formats import Format
from ...readings.arrays.buffer_pool import pooled_array_with_strides
from ...readings.kernels.layout_conversion import Conversion, append_operators, is_large_and_regular, joined_conversions
from ...readings.kernels.selection import has_machine_code
from ...readings.straightline.code import REAL, Op
from .lazy_codes import SINGLE, Clamp, LazyCodes, Operand, RangedFloats, clamp_conversion, decode_conversion, elements_of

ROUNDED = Op("single", (0,), None, REAL, REAL)
FLOATS = Conversion((Op("array", (), (0, 0), REAL),))
Kind = tuple[Format, tuple[Clamp, ...]] | None  # of an operand: format and clamps of codes, None for floats
LIMITING = ("relu", "clip")


def clamps_of(node: Node) -> tuple[Clamp, ...]:
    """Return the clamps of a relu or clip in order."""
    if node.op == "relu":
        return (("max", 0.0),)
    attributes: Any = dict(node.attributes)
    return ("max", float(np.float32(attributes["low"]))), ("min", float(np.float32(attributes["high"])))


def factor_of(p: Program, node: Node) -> float | None:
    """Return the number that a node multiplies its first operand by; None where it does something else."""
    factor = p.constants.get(node.inputs[1]) if node.op == "mul" else None
    return None if factor is None or factor.shape != (1,) or factor.dtype != SINGLE else float(factor[0])


def _is_known(p: Program, node: Node) -> bool:
    """Tell whether a node can be fused bit-exactly: not clamps at NaN, or at a zero where the sign of the result is unspecified."""
    if node.op not in LIMITING:
        return node.op == "add" or factor_of(p, node) is not None
    return not any(math.isnan(n) or (n == 0 and (kind == "min" or math.copysign(1, n) < 0)) for kind, n in clamps_of(node))


@dataclass
class Elementwise:
    """A host part of sums, products with numbers, and clamps, with one result."""

    program: Program
    conversions: dict[tuple[Kind, ...], Conversion | None] = field(default_factory=dict)

    @property
    def is_limit(self) -> bool:
        """Whether it consists of clamps only."""
        return all(n.op in LIMITING for n in self.program.nodes)

    def __call__(self, values: Mapping[Value, Operand]) -> Operand | None:
        """Return the result [samples, …]; None where operands do not fit one pass, or machine code is not available."""
        operands = [x if isinstance(x, LazyCodes) else elements_of(x) for x in (values[v] for v in self.program.inputs)]
        if self.is_limit and isinstance(operands[0], LazyCodes):
            return operands[0].clamped(*(limit for n in self.program.nodes for limit in clamps_of(n)))
        sources = [x.codes if isinstance(x, LazyCodes) else x for x in operands]
        if not has_machine_code() or not is_large_and_regular(*sources) or len({x.shape for x in sources}) > 1:
            return None
        conversion = self._cached(tuple((x.format, x.limits) if isinstance(x, LazyCodes) else None for x in operands))
        if conversion is None:
            return None
        out = pooled_array_with_strides(sources[0].shape, sources[0].strides, SINGLE)
        return RangedFloats(out, conversion.convert_with_range(out, *sources))

    def _cached(self, kinds: tuple[Kind, ...]) -> Conversion | None:
        if kinds not in self.conversions:
            self.conversions[kinds] = self._conversion([FLOATS if k is None else decode_conversion(*k) for k in kinds])
        return self.conversions[kinds]

    def _conversion(self, operands: Sequence[Conversion | None]) -> Conversion | None:
        """Return the fused code of all nodes on stored operands, None where a format has no decoder."""
        decoders = [x for x in operands if x is not None]
        if len(decoders) < len(operands):
            return None
        places = {v: n for n, v in enumerate(self.program.inputs)}
        code: list[Op] = [Op("array", (), (n, 0), REAL) for n in places.values()]
        for node in self.program.nodes:
            operands_at = [places[v] for v in node.inputs if v in places]
            if (factor := factor_of(self.program, node)) is not None:
                code.append(Op("const", (), factor, REAL, REAL))
                operands_at.append(len(code) - 1)
            if node.op not in LIMITING:
                code += [Op(node.op, (operands_at[0], operands_at[1]), None, REAL, REAL), Op("single", (len(code),), None, REAL, REAL)]
            for limit in clamps_of(node) if node.op in LIMITING else ():
                append_operators(code, clamp_conversion(*limit).code, 0, lambda _, at=operands_at[0]: at)  # type: ignore[misc]
                operands_at = [len(code) - 1]
            places[node.outputs[0]] = len(code) - 1
        return joined_conversions(decoders, [ROUNDED] * len(decoders), Conversion(tuple(code)))


def elementwise(p: Program) -> Elementwise | None:
    """Return a host part as a fused pass; None where it has other operators than these."""
    are_known = bool(p.nodes) and len(p.outputs) == 1 and all(_is_known(p, n) for n in p.nodes)
    return Elementwise(p) if are_known and p.outputs[0] in p.nodes[-1].outputs else None
