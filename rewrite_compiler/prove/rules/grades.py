"""Grades: how the sides of a true rule agree in floating point, checked on float32 data with zeros of both signs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.program import Data
from ...ops.op import Apply, subterms
from ...rewrite.rule import Rule
from ..instances.counterexamples import float32_difference
from ..instances.instance_search import Instance
from ..instances.sides import same_values
from ..verdict import Counterexample

EXACT_INSTANCES = 8  # instances on which values without rounding are tried
ROUNDED_INSTANCES = 256  # instances on which values that round are tried
EXACT_VALUES = (-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0)
SPECIAL_VALUES = (*EXACT_VALUES, float("inf"), float("-inf"), float("nan"))


def grade_violation(rule: Rule, instances: Sequence[Instance], same_order: bool) -> tuple[str, Counterexample | None] | None:
    """Return why a rule does not keep the grade it claims, with data if data shows it, or None.

    E: the same operations in the same order (`same_order`, proved from the terms) or, where nothing is summed, equal bits
    on rounding data; and equal bits on zeros of both signs and on infinities (sums of products: equal numbers, because
    libraries differ in the zero they start from). Z: the same but for added zeros, and equal numbers on finite data.
    A and F claim nothing that is checked here.
    """
    if rule.grade not in ("E", "Z"):
        return None
    random = np.random.default_rng(0)
    values = SPECIAL_VALUES if rule.grade == "E" else EXACT_VALUES
    agree = _bits if rule.grade == "E" and not _sums(rule) else _numbers
    step = max(1, len(instances) // EXACT_INSTANCES)
    for instance in instances[::step]:
        example = float32_difference(rule.pairs, instance, lambda shape: random.choice(values, shape), agree, rule.bounds)
        if example is not None:
            return f"it is not of grade {rule.full_grade}: the sides differ in float32", example
    if same_order:
        return None
    if _sums(rule):
        return f"it is not of grade {rule.grade}: the sides sum their products in different orders", None
    return _on_rounding_data(rule, instances, agree)


def _on_rounding_data(rule: Rule, instances: Sequence[Instance], agree: Callable[[Data, Data], Data]) -> tuple[str, Counterexample] | None:
    random = np.random.default_rng(1)
    for instance in instances[:: max(1, len(instances) // ROUNDED_INSTANCES)]:
        example = float32_difference(rule.pairs, instance, random.standard_normal, agree, rule.bounds)
        if example is not None:
            return f"it is not of grade {rule.full_grade}: the sides round differently in float32", example
    return None


def _sums(rule: Rule) -> bool:
    """Tell whether a side sums products, whose order a library may choose."""
    return any(isinstance(x, Apply) and x.op.macs is not None for pair in rule.pairs for side in pair for x in subterms(side))


def _bits(left: Data, right: Data) -> Data:
    return same_values(left, right, exact=True)


def _numbers(left: Any, right: Any) -> Data:
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))
