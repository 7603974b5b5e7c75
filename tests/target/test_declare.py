"""Declaring operations: what a mapping must say, and how it keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import AdaptivFloat
from rewrite_compiler.rewrite import Int
from rewrite_compiler.target import Axes, Clock, Cost, Limit, Resources, Target, Unit

AXES = "x: t k; w: n k; y: t n"


def target() -> Target:
    return Target("made", lambda: None)  # type: ignore[arg-type,return-value]


def dense(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """x·wᵀ"""
    return o.dense(x, w), Where(x.rank == 2, IsConstant(w))


def test_a_mapping_keeps_its_meaning_guard_and_operands() -> None:
    t = target()
    m = t.accelerates(axes=AXES, formats={}, units={"k": 16})(dense)
    assert t.mappings == {"dense": m}
    assert (m.name, m.operation, m.variant) == ("made.dense", "dense", "dense")
    assert [v.name for v in m.operands] == ["x", "w"]
    assert m.rule.phase == "map"
    assert len(m.rule.where) == 2
    assert re.fullmatch(r".+/test_declare\.py:\d+", m.rule.place)
    assert m.units == {"k": 16}


def test_variants_share_an_operation() -> None:
    m = target().accelerates(axes=AXES, formats={}, operation="linear")(dense)
    assert (m.name, m.operation, m.variant) == ("made.dense", "linear", "dense")


def test_static_variables_are_listed_with_their_kind() -> None:
    def biased(x: Tensor, b: Tensor, axis: Int) -> Tensor:
        """x + b"""
        return o.bias_add(x, b, axis=axis)

    m = target().accelerates(axes="x: t k; b: k; y: t k", formats={})(biased)
    assert m.statics == (("axis", "int"),)


def nothing(x: Tensor) -> Any:
    return None


def no_guard(x: Tensor) -> Any:
    return o.relu(x), "x has rank 2"


def untyped(x: float) -> Any:
    return o.relu(x)


def with_default(x: Tensor, relu: Any = o.relu) -> Any:
    return relu(x)


REFUSED: list[tuple[Callable[..., Any], str, str, str]] = [
    (nothing, "x: t; y: t", "R101", "The meaning of made.nothing must return its result and, last, Where(…), not None"),
    (no_guard, "x: t; y: t", "R101", "The meaning of made.no_guard must return its result and, last, Where(…), not 'x has rank 2'"),
    (untyped, "x: t; y: t", "R101", 'parameter x must be annotated Tensor, Ints, Int, Float or Str, not "float"'),
    (dense, "x: t k; y: t n", "I102", 'the axes of made.dense must name its operand w, not only "x: t k; y: t n"'),
    (
        with_default, "x: t; y: t", "R101",
        "parameter relu of with_default must have no default value: what a model has there is matched, never assumed",
    ),
    (dense, "y: t; x: t; w: t", "I102", "the axes of made.dense must end with its result, not with w, which is an operand"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "axes", "code", "sentence"), REFUSED)
def test_what_a_mapping_must_say(f: Callable[..., Any], axes: str, code: str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        target().accelerates(axes=axes, formats={})(f)
    assert (caught.value.problem.code, caught.value.problem.sentence) == (code, sentence)
    assert re.fullmatch(r".+/test_declare\.py:\d+", caught.value.problem.place)


def test_axes_give_sizes_and_summed_dimensions() -> None:
    axes = Axes.parse("x: t k; w: n k; b: n; y: t n")
    assert axes.result == "y"
    assert axes.summed == ("k",)
    assert axes.sizes({"x": (3, 4), "w": (5, 4), "b": (5,)}) == {"t": 3, "k": 4, "n": 5}


def test_the_first_exceeded_capacity_is_named_with_its_values() -> None:
    m = target().accelerates(axes=AXES, formats={})(dense)
    assert m.exceeded_limit({"t": 10**9, "k": 1, "n": 1}) is None
    m.limits(lambda t, k, n: [Limit("rows", t, 4096), Limit("weights", k * n, 65_536)])
    assert m.exceeded_limit({"t": 1, "k": 1, "n": 65_536}) is None
    assert str(m.exceeded_limit({"t": 1, "k": 2, "n": 65_536})) == "weights 131,072, must be at most 65,536"
    assert str(m.exceeded_limit({"t": 5000, "k": 2, "n": 65_536})) == "rows 5,000, must be at most 4,096"


def test_shared_tensors_get_one_format() -> None:
    def bias(largest: float) -> AdaptivFloat:
        return AdaptivFloat(bias=int(largest))

    m = target().accelerates(axes=AXES, formats=dict.fromkeys("xwy", bias), shared=("x y",))(dense)
    assert {n: f.parameters["bias"] for n, f in m.formats_for({"x": 1.0, "w": 2.0, "y": 5.0}).items()} == {"x": 5, "w": 2, "y": 5}


def test_the_smallest_tile_takes_units_and_whole_dimensions() -> None:
    m = target().accelerates(axes=AXES, formats={}, units={"k": 16, "n": 64}, whole="t")(dense)
    assert m.unit_sizes({"t": 35, "k": 100, "n": 10}) == {"t": 35, "k": 16, "n": 10}


@dataclass(frozen=True)
class Rows:
    """Work that takes as many lines as it has rows, a cycle each."""

    rows: int
    lines: int

    def limits(self) -> list[Limit]:
        return [Limit("lines", self.rows, self.lines)]

    def cost(self, resources: Resources) -> Cost:
        return Cost(resources.units[0].name, self.rows, 0, {"x": self.rows})


def test_limits_and_costs_are_those_of_the_work_that_is_planned() -> None:
    m = target().accelerates(axes=AXES, formats={}, operation="linear")(dense)

    @m.work
    def plan(t: int, k: int, p: Any, lines: int = 7) -> Rows:
        return Rows(t * k, lines)

    resources = Resources(Clock(1, "a test"), (), (Unit("core", ("linear",), ("int8",), {}),), ())
    assert m.exceeded_limit({"t": 2, "k": 4, "n": 9}) == Limit("lines", 8, 7)
    assert m.exceeded_limit({"t": 2, "k": 4, "n": 9}, {"lines": 8}) is None
    assert m.cost({"t": 2, "k": 4, "n": 9}, {}, resources) == Cost("core", 8, 0, {"x": 8})
    others = [target().accelerates(axes=AXES, formats={})(dense) for _ in range(2)]
    for other, lines in zip(others, (7, 8), strict=True):
        other.work(partial(plan, lines=lines))
    again = target().accelerates(axes=AXES, formats={})(dense)
    again.work(partial(plan, lines=8))
    assert again.tiling_key == others[1].tiling_key != others[0].tiling_key


def test_a_plan_that_fails_is_told_at_its_line() -> None:
    m = target().accelerates(axes=AXES, formats={})(dense)

    @m.work
    def plan(t: int) -> Rows:
        return Rows(t // 0, 7)

    line = plan.__code__.co_firstlineno + 2
    with pytest.raises(SpecError, match=r"must return Limits \(at t=2, k=4, n=9\), not end with ZeroDivisionError") as refusal:
        m.exceeded_limit({"t": 2, "k": 4, "n": 9})
    assert refusal.value.problem.place.endswith(f"test_declare.py:{line}")
