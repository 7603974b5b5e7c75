"""Floating point measured: what grades promise is held on samples, and the bound of rounding is one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.prove.instances.covering_sets import instances_of
from rewrite_compiler.prove.instances.sides import symbolic_elements
from rewrite_compiler.prove.rules import rounding_error as measure
from rewrite_compiler.prove.rules.rounding_error import measure_rounding
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.readings.rounding.error_rules import ERROR_RULES


@rule(marks=("ring",))
def reassociate(x: Tensor, y: Tensor, z: Tensor) -> Law:
    """(x + y) + z = x + (y + z)"""
    return o.add(o.add(x, y), z), o.add(x, o.add(y, z)), Where(x.rank == 1, x.shape == y.shape, y.shape == z.shape)


@rule(grade="E", marks=("any_dtype",))
def relu_of_transpose(x: Tensor) -> Law:
    """Data movement"""
    return o.relu(o.transpose(x, (1, 0))), o.transpose(o.relu(x), (1, 0))


@rule
def almost_reassociate(x: Tensor, y: Tensor) -> Law:
    """False by one part in a thousand: far more than rounding, unseen on small integers only by accident."""
    return o.add(x, y), o.add(x, o.mul(y, o.full((), 1.001))), Where(x.rank == 0, y.rank == 0)


@rule
def sum_of_minimum_and_maximum(x: Tensor, y: Tensor) -> Law:
    """min(x, y) + max(x, y) = x + y; on bytes, too, though they wrap"""
    return o.add(o.min_(x, y), o.max_(x, y)), o.add(x, y), Where(x.rank == 0, y.rank == 0)


def test_samples_of_every_type_are_counted() -> None:
    figures, excess = measure_rounding(reassociate, instances_of(reassociate).nonempty)
    assert excess is None
    assert [(f.dtype, f.samples >= 10_000) for f in figures] == [("float32", True), ("float16", True), ("int8", True)]
    assert [f.ulp > 0 for f in figures] == [True, True, False]
    assert all(0 <= f.share <= 1 for f in figures)
    assert prove_rule(reassociate).measured == tuple(figures)


@rule(grade="F")
def sum_less_a_part(x: Tensor, y: Tensor) -> Law:
    """(x + y) - y = x"""
    return o.sub(o.add(x, y), y), x, Where(x.rank == 0, y.rank == 0)


@rule(grade="F")
def sum_less_a_number(x: Tensor) -> Law:
    """(x + 10^30) - 10^30 = x"""
    return o.sub(o.add(x, o.full((), 1e30)), o.full((), 1e30)), x, Where(x.rank == 0)


def test_how_far_apart_error_bounds_are_is_measured_of_grades_that_promise_no_bits() -> None:
    order, _ = measure_rounding(reassociate, instances_of(reassociate).nonempty)
    assert [f.ratio is not None and 1 < f.ratio < 8 for f in order[:2]] == [True, True]
    assert order[2].ratio is None  # of int8
    assert [f.ratio for f in prove_rule(relu_of_transpose).measured] == [None, None, None]
    assert [f.ratio for f in prove_rule(replace(relu_of_transpose, grade="A")).measured] == [1.0, 1.0, None]
    assert prove_rule(replace(sum_less_a_part, grade="A")).verdict == "refuted"
    (single, half) = prove_rule(sum_less_a_part).measured
    assert single.ratio is not None
    assert half.ratio is not None
    assert single.ratio > 2**24 > half.ratio  # half precision has fewer exponents
    assert "error bounds within" in str(single)


def test_a_constant_that_loses_everything_is_no_law_of_numbers_either() -> None:
    claimed = prove_rule(sum_less_a_number)
    assert claimed.verdict == "refuted"
    assert claimed.evidence == (
        "it is not of grade F: on numbers around 1 one side may lose 16,777,216 times more by rounding, in 100% of samples in float32"
    )
    near = replace(
        sum_less_a_number,
        pairs=((o.sub(o.add(sum_less_a_number.variables["x"], o.full((), 8.0)), o.full((), 8.0)), sum_less_a_number.variables["x"]),),
    )
    assert prove_rule(near).verdict == "proved"


def test_exact_rules_show_no_difference() -> None:
    assert {(f.dtype, f.ulp, f.share) for f in prove_rule(relu_of_transpose).measured} == {
        ("float32", 0.0, 0.0), ("float16", 0.0, 0.0), ("int8", 0.0, 0.0)
    }  # fmt: skip


@pytest.mark.parametrize("grade", ["E", "Z"])
def test_a_grade_that_is_exceeded_is_refuted(grade: str) -> None:
    claimed = replace(reassociate, grade=grade)
    _, excess = measure_rounding(claimed, instances_of(claimed).nonempty)
    assert excess is not None
    assert excess.sentence == f"it is not of grade {grade}: the sides differ in float32"
    assert excess.example.left != excess.example.right
    assert prove_rule(claimed).verdict == "refuted"


def test_a_difference_beyond_rounding_is_an_excess() -> None:
    _, excess = measure_rounding(almost_reassociate, instances_of(almost_reassociate).nonempty)
    assert excess is not None
    assert excess.sentence == "it is not of grade A: the sides differ in float32"
    assert measure_rounding(replace(almost_reassociate, grade="F"), instances_of(almost_reassociate).nonempty)[1] is None


def test_bytes_wrap() -> None:
    claimed = replace(sum_of_minimum_and_maximum, marks=frozenset({"any_dtype"}))
    figures, excess = measure_rounding(claimed, instances_of(claimed).nonempty)
    assert (excess, figures[-1].dtype, figures[-1].ulp) == (None, "int8", 0.0)
    half = replace(claimed, pairs=((o.add(claimed.variables["x"], claimed.variables["y"]), claimed.variables["x"]),), grade="F")
    _, excess = measure_rounding(half, instances_of(claimed).nonempty)
    assert excess is not None
    assert excess.sentence == "it is marked any_dtype, but its sides differ in int8"


def exact(x: measure.Node, at: dict[tuple[str, int], Fraction]) -> Fraction:
    if x.op == "leaf":
        return at[x.data[0], x.data[1]]
    if x.op == "const":
        return Fraction(x.data)
    a = [exact(y, at) for y in x.args]
    operations = {"add": lambda: a[0] + a[1], "mul": lambda: a[0] * a[1], "rdiv": lambda: a[0] / a[1], "sum": lambda: sum(a, Fraction(0))}
    return operations[x.op]()


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_the_bound_of_rounding_holds(kind: type[np.floating]) -> None:
    @rule
    def quotients(x: Tensor, y: Tensor, w: Tensor) -> Law:
        return o.div(o.dense(x, w), y), o.div(o.dense(x, w), y), Where(x.shape == (1, 2), w.shape == (1, 2), y.rank == 0)

    instance = instances_of(quotients).nonempty[0]
    (pair,) = symbolic_elements(quotients.pairs, instance, real=True)
    source = np.random.default_rng(2)
    data = {name: source.standard_normal((300, *shape)).astype(kind) for name, shape in instance.operands.items()}
    values = measure._Values(data, kind)
    found, bound = values.real(pair[0]), values.error(pair[0])
    for n in range(300):
        at = {(name, place): Fraction(float(v)) for name, d in data.items() for place, v in enumerate(d[n].flat)}
        assert abs(Fraction(float(found[n])) - exact(pair[0], at)) <= Fraction(float(bound[n]))


@pytest.mark.parametrize(
    ("a", "a_off", "b", "b_off"),
    [(6.0, 0.5, 3.0, 0.25), (-6.0, 0.5, 3.0, 0.25), (6.0, 0.5, -3.0, 0.0), (6.0, 0.0, 3.0, 0.5), (0.0, 0.5, -3.0, 2.0)],
)
def test_a_quotient_is_as_far_off_as_its_operands_let_it_be(a: float, a_off: float, b: float, b_off: float) -> None:
    bound = ERROR_RULES["rdiv"](measure.ARRAYS, [np.float64(a), np.float64(b)], [np.float64(a_off), np.float64(b_off)], np.float64(a / b))
    worst = max(abs((a + s * a_off) / (b + t * b_off) - a / b) for s in (-1, 1) for t in (-1, 1))
    assert float(bound) == pytest.approx(worst)


def test_a_quotient_by_what_may_be_zero_is_without_a_bound() -> None:
    bound = ERROR_RULES["rdiv"](
        measure.ARRAYS, [np.float64(6), np.array([3.0, 3.0, -3.0])], [np.float64(0), np.array([3.0, 2.0, 4.0])], np.array([2.0, 2.0, -2.0])
    )
    assert np.isinf(bound).tolist() == [True, False, True]


def test_figures_are_in_the_document() -> None:
    from rewrite_compiler.prove.certificates.document import prove, to_json

    (document,) = to_json(prove([relu_of_transpose]))["rules"]
    assert [(m["dtype"], m["ulp"], m["share_of_rounding"]) for m in document["measured"]] == [
        ("float32", 0.0, 0.0), ("float16", 0.0, 0.0), ("int8", 0.0, 0.0)
    ]  # fmt: skip


def shown(r: Rule) -> str:
    return "; ".join(map(str, prove_rule(r).measured))


def test_figures_are_said_in_words() -> None:
    figures = "0 ulp, 0 of what rounding can do, in 10,008 samples"  # 1,112 at each of 9 instances
    assert shown(relu_of_transpose) == f"float32: {figures}; float16: {figures}; int8: {figures}"
