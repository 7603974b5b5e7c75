"""How a condition of a law's grade is shown: at one place by ranges or on data, at several by the least of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.compile.plan.grade_conditions import Evidence, _class_ranges, _condition, _shown
from rewrite_compiler.egraph.graph.graph import EClass, EGraph, ENode
from rewrite_compiler.egraph.graph.schema import op_constructor
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops import OPS
from rewrite_compiler.readings.rounding.real_ranges import EVERYTHING, Range
from rewrite_compiler.rewrite.float_condition import OperandBound
from rewrite_compiler.rewrite.ruleset import shipped_rules

FLOAT = TensorType((3,))
BELOW_4, MAGNITUDE_4, AT_LEAST_0 = OperandBound("x", False, "<", 4), OperandBound("x", True, "<", 4), OperandBound("x", False, ">=", 0)
BY_RANGES, ON_DATA, VIOLATED, NOT_SHOWN = Evidence


def data(*numbers: float) -> Any:
    return np.array(numbers, np.float64)


@pytest.mark.parametrize(
    ("bound", "span", "samples", "evidence"),
    [
        (BELOW_4, (-9.0, 3.5), [], BY_RANGES),
        (BELOW_4, (-9.0, 4.0), [], NOT_SHOWN),
        (MAGNITUDE_4, (-3.5, 3.9), [], BY_RANGES),
        (MAGNITUDE_4, (-4.0, 3.9), [], NOT_SHOWN),
        (MAGNITUDE_4, (-3.9, 4.0), [], NOT_SHOWN),
        (OperandBound("x", True, ">", 1), (-3.0, 2.0), [], NOT_SHOWN),  # 0 is within
        (OperandBound("x", True, ">", 1), (-3.0, -2.0), [], BY_RANGES),
        (AT_LEAST_0, (0.0, math.inf), [], BY_RANGES),
        (MAGNITUDE_4, EVERYTHING, [data(1, -3, 2)], ON_DATA),
        (MAGNITUDE_4, EVERYTHING, [data(1, -3, 2), data(1, 1, -4)], VIOLATED),
        (MAGNITUDE_4, EVERYTHING, [data(1, -4, 2), data(1, 1, 1)], VIOLATED),
        (MAGNITUDE_4, EVERYTHING, [data(1, math.nan, 2)], VIOLATED),
        (BELOW_4, (-9.0, 3.5), [data(5)], BY_RANGES),  # whatever the data are
    ],
)
def test_a_place_is_shown_by_ranges_or_on_data(bound: OperandBound, span: Range, samples: list[Any], evidence: Evidence) -> None:
    assert _shown(bound, FLOAT, span, samples)[0] == evidence
    for other in (None, TensorType((3,), "float64"), TensorType((3,), "int32")):
        assert _shown(bound, other, span, samples) == (NOT_SHOWN, EVERYTHING)


def test_what_is_seen_on_data_is_told() -> None:
    assert _shown(MAGNITUDE_4, FLOAT, EVERYTHING, [data(1, -3), data(2, 0.5)]) == (ON_DATA, (-3.0, 2.0))
    assert _shown(MAGNITUDE_4, FLOAT, (-1.0, 3.0), [data(1, -3)]) == (BY_RANGES, (-1.0, 3.0))


@pytest.mark.parametrize(
    ("places", "evidence", "span"),
    [
        ([0], BY_RANGES, (0.0, 1.0)),
        ([0, 1], ON_DATA, (0.0, 3.0)),
        ([1, 0], ON_DATA, (0.0, 3.0)),
        ([0, 2], VIOLATED, (0.0, 9.0)),
        ([0, 1, 3], NOT_SHOWN, EVERYTHING),
        ([3, 2, 1], VIOLATED, EVERYTHING),
        ([1, 1], ON_DATA, (2.0, 3.0)),
        ([], NOT_SHOWN, EVERYTHING),
    ],
)
def test_several_places_are_shown_by_the_least_of_them(places: list[int], evidence: Evidence, span: Range) -> None:
    leaves = {c: EClass(FLOAT, False, (ENode("Input", (), (c,), -1, frozenset()),)) for c in range(4)}
    law = replace(shipped_rules()[0], grade="E", bounds=(MAGNITUDE_4,))
    found = _condition(law, MAGNITUDE_4, places, EGraph(leaves, {}), {0: (0.0, 1.0)}, [{1: data(2, 3), 2: data(9, 3)}])
    assert (found.rule, found.evidence, found.range, found.places) == (law.name, evidence, span, len({*places}))
    assert found.bound == "abs(x) < 4"


def test_a_class_lies_within_the_range_of_each_of_its_e_nodes() -> None:
    b = Builder("net")
    x = b.input("x", FLOAT)
    (y,) = b.apply("sigmoid", [x])
    p = b.finish([y])

    def node(op: str, *operands: int) -> ENode:
        return ENode(op_constructor(OPS[op]).name, operands, (), -1, frozenset())

    given = EClass(FLOAT, False, (ENode("Input", (), (x,), -1, frozenset()),))
    for nodes, span in (
        ((node("sigmoid", 0),), (0.0, 1.0)),
        ((node("tanh", 0),), (-1.0, 1.0)),
        ((node("sigmoid", 0), node("tanh", 0)), (0.0, 1.0)),
        ((node("tanh", 0), node("sigmoid", 0)), (0.0, 1.0)),
        ((node("relu", 0), node("tanh", 0)), (0.0, 1.0)),
    ):
        assert _class_ranges(p, EGraph({0: given, 1: EClass(FLOAT, False, nodes)}, {x: 0, y: 1}))[1] == pytest.approx(span, abs=1e-4)
