"""What a plan's arithmetic may lose by rounding, beside what its model's may: bounds of both on the same data, and their ratio.

Every operator stands for its meaning over the real numbers, each operation rounded to float32; so do the operations that a plan
offloads. What the number formats of a device cost is not in it: the ratio is about the laws that led from the model to the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import FlexmatchError
from ...frontend.graph.emit import to_onnx
from ...hostrun import Session
from ...ir.evaluate import run_op
from ...ir.program import OPAQUE, Data, Node, Program, Value
from ...ir.types import interval_of
from ...lang.binders import Array, Leaf
from ...ops import OPS
from ...readings.arrays.labelled_array import Store
from ...readings.kernels.evaluate import evaluator_of
from ...readings.rounding.error_terms import ErrorTerms
from ...target import body_of, inlined
from .plan import Plan

FLOAT32 = np.finfo(np.float32)
UNIT = Fraction(float(FLOAT32.eps))  # relative, of one operation; least is absolute, where results underflow
LEAST = Fraction(float(FLOAT32.smallest_subnormal))
FIRST_ORDER = Fraction(1, 1 << 240)  # of both: errors so small that products of them do not count
KEPT_MEANINGS = 64


@dataclass(frozen=True)
class Bounded:
    """A value in double precision, and a bound of how far rounding may have moved each element; None where all are exact."""

    value: Data
    error: Data | None = None


@dataclass(frozen=True)
class RoundingRatio:
    """The largest ratio of a plan's error bound to its model's over all elements of the outputs on some data, or why there is none.

    One unit in the last place counts for both. `output` names where it is largest; `host_operators` have no meaning here and read inputs
    and constants only: both programs have their results from the host.
    """

    ratio: float | None
    output: str = ""
    unknown: str = ""
    host_operators: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.ratio is None:
            return f"not known: {self.unknown}"
        return "not bounded" if math.isinf(self.ratio) else f"≤ {_rounded_up(self.ratio)}×"


class NoBound(Exception):
    """An operator whose meaning is not known, and so no bound of its rounding."""


def rounding_ratio(plan: Plan, inputs: Mapping[str, Data]) -> RoundingRatio:
    """Return how much more a plan's arithmetic may lose than its model's, to first order, on inputs by name."""
    offloads = {o.node.outputs[0]: o for o in plan.offloads}
    p, source = plan.program, plan.source
    flat = inlined(p, lambda node: body_of(offloads[node.outputs[0]].mapping, [p.types[v] for v in node.inputs], dict(node.attributes)))
    return ratio_of_programs(source, flat, inputs)


def ratio_of_programs(source: Program, rewritten: Program, inputs: Mapping[str, Data]) -> RoundingRatio:
    """Return how much more a rewritten program may lose by rounding than its source, to first order, on inputs by name."""
    unit, least = UNIT * FIRST_ORDER, LEAST * FIRST_ORDER
    host_operators: dict[str, None] = {}
    try:
        of_source, of_rewritten = (
            bounds_of(p, {v: inputs[p.names[v]] for v in p.inputs}, unit, least, host_operators) for p in (source, rewritten)
        )
    except NoBound as why:
        return RoundingRatio(None, "", str(why))
    worst, output = 1.0, ""
    for v, w in zip(source.outputs, rewritten.outputs, strict=True):
        ratio = _largest_ratio(of_source[v], of_rewritten[w], float(unit), float(least))
        if math.isnan(ratio):
            return RoundingRatio(None, source.names[v], f"the model's own rounding is not bounded at {source.names[v]}")
        if ratio > worst:
            worst, output = ratio, source.names[v]
    return RoundingRatio(worst, output, host_operators=tuple(host_operators))


def _largest_ratio(of_source: Bounded, of_rewritten: Bounded, unit: float, least: float) -> float:
    """Return the largest ratio over elements; NaN where the source has no bound at an element."""
    if of_rewritten.error is None or of_source.value.size == 0:
        return 1.0
    step = unit * np.abs(of_source.value) + least if of_source.value.dtype.kind == "f" else np.zeros(of_source.value.shape)
    step = np.where(np.isfinite(step), step, 0.0)
    below = step if of_source.error is None else of_source.error + step
    above = of_rewritten.error + step
    if np.isinf(below).any():
        return math.nan
    with np.errstate(all="ignore"):
        return float(np.max(np.where(above <= below, 1.0, above / below)))


def bounds_of(
    p: Program, inputs: Mapping[Value, Data], unit: Fraction = UNIT, least: Fraction = LEAST, host_operators: dict[str, None] | None = None
) -> dict[Value, Bounded]:
    """Return the outputs of a program with bounds of how far rounding every operation moves them; inputs and constants are exact.

    An operator without a meaning here is run by the host where all it reads is exact, and entered in `host_operators`.

    Raises:
        NoBound: such an operator reads what is rounded.
    """
    values = {v: Bounded(_wide(x)) for v, x in (*p.constants.items(), *inputs.items())}
    last_use = {v: n for n, node in enumerate(p.nodes) for v in node.inputs}
    for n, node in enumerate(p.nodes):
        operands = [values[v] for v in node.inputs]
        if node.op in OPS:
            with np.errstate(all="ignore"):
                results = _results(node, operands, unit, least)
        else:
            results = _given(p, node, operands, {} if host_operators is None else host_operators)
        values.update(zip(node.outputs, results, strict=True))
        for v in node.inputs:
            if last_use[v] == n and v not in p.outputs:
                values.pop(v, None)
    return {v: values[v] for v in p.outputs}


def _given(p: Program, node: Node, operands: list[Bounded], host_operators: dict[str, None]) -> list[Bounded]:
    """Return the results of an operator without a meaning here on exact operands, as the host computes them."""
    label = p.opaque_of(node).label if node.op == OPAQUE else node.op
    if node.op != OPAQUE or any(x.error is not None for x in operands):
        raise NoBound(f"operator {label}")
    inputs = tuple(v for v in dict.fromkeys(node.inputs) if v not in p.constants)
    constants = {v: p.constants[v] for v in node.inputs if v in p.constants}
    subprogram = replace(p, inputs=inputs, outputs=node.outputs, nodes=(node,), constants=constants)
    exact = {v: x.value for v, x in zip(node.inputs, operands, strict=True)}
    try:
        results = Session(to_onnx(subprogram), name=label).run({p.names[v]: exact[v].astype(p.types[v].dtype, copy=False) for v in inputs})
    except FlexmatchError:
        raise NoBound(f"operator {label}") from None
    host_operators[label] = None
    return [Bounded(_wide(np.asarray(y))) for y in results.values()]


def _wide(x: Data) -> Data:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _results(node: Node, operands: list[Bounded], unit: Fraction, least: Fraction) -> list[Bounded]:
    operator = OPS[node.op]
    if any(0 in s for s in operator.shapes([x.value.shape for x in operands], dict(node.attributes))):
        return [Bounded(y) for y in run_op(operator, [x.value for x in operands], dict(node.attributes), np.float64)]
    shapes = tuple((x.value.shape, str(x.value.dtype), x.error is not None) for x in operands)
    leaves, bounds, results = _meaning(node.op, shapes, node.attributes, unit, least)
    stores = {leaf: Store(x.value) for leaf, x in zip(leaves, operands, strict=True)}
    stores |= {leaf: Store(x.error) for leaf, x in zip(bounds, operands, strict=True) if leaf is not None and x.error is not None}
    evaluator = evaluator_of(stores)
    pairs = [(evaluator.store_of(y).data, None if e is None else evaluator.store_of(e).data) for y, e in results]
    dtype = operator.dtype_of(str(operands[0].value.dtype) if operands else "float64", dict(node.attributes))
    return [_bounded(np.asarray(y), e, y_term, dtype) for (y, e), (y_term, _) in zip(pairs, results, strict=True)]


def _bounded(y: Data, error: Data | None, term: Array, dtype: str) -> Bounded:
    """Return a result with its bound: none where float32 overflows, exact where a value is infinite."""
    if not term.real:
        return Bounded(y.astype(dtype, copy=False), error)
    y = y.astype(np.float64, copy=False)
    bound = np.zeros(y.shape) if error is None else np.nan_to_num(error, nan=np.inf, posinf=np.inf)
    overflows = np.isfinite(y) & (np.abs(y) + bound > float(FLOAT32.max))
    if error is None and not overflows.any():
        return Bounded(y)
    return Bounded(y, np.where(overflows, np.inf, np.where(np.isinf(y), 0.0, bound)))


@lru_cache(maxsize=KEPT_MEANINGS)
def _meaning(
    op: str,
    operands: tuple[tuple[tuple[int, ...], str, bool], ...],
    attributes: tuple[tuple[str, Any], ...],
    unit: Fraction,
    least: Fraction,
) -> tuple[list[Leaf], list[Leaf | None], list[tuple[Array, Array | None]]]:
    """Return leaves for operands and for their bounds, and each result as a term with the term of its bound."""
    leaves, bounds = [], list[Leaf | None]()
    for n, (shape, dtype, has_error) in enumerate(operands):
        is_real = dtype.startswith("float")
        leaves.append(Leaf(shape, (None, None) if is_real else interval_of(dtype), is_real, f"x{n}"))
        bounds.append(Leaf(shape, (None, None), True, f"error of x{n}") if has_error else None)
    terms = ErrorTerms({x: e for x, e in zip(leaves, bounds, strict=True) if e is not None}, unit, least)
    meaning = OPS[op].meaning(*leaves, **dict(attributes))
    return leaves, bounds, [(y, terms.array(y)) for y in (meaning if isinstance(meaning, tuple) else (meaning,))]


def _rounded_up(ratio: float) -> str:
    """Return a ratio with two digits, rounded up."""
    if ratio >= 1e4:
        exponent = math.floor(math.log10(ratio))
        return f"{math.ceil(ratio / 10**exponent)}e{exponent}"
    digits = max(0, 1 - math.floor(math.log10(ratio)))
    return f"{math.ceil(ratio * 10**digits - 1e-9) / 10**digits:.{digits}f}"
