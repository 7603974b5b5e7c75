"""Rounding error measured: both sides of a rule on random samples with edge values, every operation rounded to the type.

Elements are evaluated from their nodes, all samples at once. Where a rule promises no more than another order of rounded
operations, the difference is held against a bound of the rounding error that is carried along with every value
(first-order running error analysis, as in Higham, Accuracy and Stability of Numerical Algorithms, §3.3; underflow included).
Samples over many exponents, to the ends of the type, show where one side overflows, underflows or cancels and the other does
not; figures are of the usual samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.program import Data
from ...readings.arrays.elementwise import FUNCTIONS
from ...readings.rounding.error_rules import CALL_ROUNDINGS, ERROR_RULES, EXACT, rounding
from ...rewrite.float_condition import within
from ...rewrite.rule import Rule
from ..instances.element_meaning import NoSymbolicMeaning
from ..instances.element_terms import Node
from ..instances.instance_search import Instance
from ..instances.sides import symbolic_elements
from ..verdict import Counterexample, RoundingMeasurement

INSTANCES = 8
SAMPLES = 10_000  # at least so many of each type, over all instances
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0)  # beside the least and the largest magnitudes that a type's sums still hold
EDGE_SHARE = 0.2
WIDE = 4_000  # samples over many exponents, over all instances
REACH = 0.25  # the share of a type's exponents over which they are
FAR_REACH = 0.75  # and over which those of one operand alone are: the square of half of them is no number
CLOSEST = 5  # close numbers share at least this part of the bits of a type
RATIO_LIMITS = {"A": 2.0**10, "F": 2.0**24}  # of the sides' error bounds, by grade: beyond it one is no way to compute the other
USUAL = "on numbers around 1"
CANCELLATION_SHARE = 0.05  # the share of samples in which operands cancel by chance, so that bounds are further apart all the same
FLOATS: tuple[Any, ...] = (np.float32, np.float16)
INTEGER_MARKS = frozenset({"any_dtype", "ring"})


@dataclass(frozen=True)
class Excess:
    """A sample on which the sides are further apart than the grade allows."""

    dtype: str
    sentence: str
    example: Counterexample


def measure_rounding(rule: Rule, instances: Sequence[Instance]) -> tuple[list[RoundingMeasurement], Excess | None]:
    """Measure the float types, and int8 where the rule is marked to hold on integers; return the figures and the first excess."""
    sampled_instances = instances[:: max(1, len(instances) // INSTANCES)]
    real_cases = list(_cases(rule, sampled_instances, real=True))
    cases = dict.fromkeys(FLOATS[:1] if rule.bounds else FLOATS, real_cases)
    if rule.marks & INTEGER_MARKS:
        cases[np.int8] = list(_cases(rule, sampled_instances, real=False))
    figures = []
    for kind, cases_of_kind in cases.items():
        summary, excess = _measure_type(rule, cases_of_kind, -(-SAMPLES // len(sampled_instances)), kind)
        figures += [summary] if summary else []
        if excess is not None:
            return figures, excess
    return figures, None


Case = tuple[Instance, list[tuple[Node, Node]]]  # an instance, and the elements of both sides there


def _cases(rule: Rule, instances: Sequence[Instance], *, real: bool) -> Iterator[Case]:
    for instance in instances:
        with suppress(NoSymbolicMeaning):
            yield instance, symbolic_elements(rule.pairs, instance, real=real)


def _measure_type(rule: Rule, cases: Sequence[Case], count: int, kind: Any) -> tuple[RoundingMeasurement | None, Excess | None]:
    """Measure both sides on `count` samples of each case."""
    if not cases:
        return None, None
    name, samples = np.dtype(kind).name, count * len(cases)
    ratio = 1.0 if rule.grade in RATIO_LIMITS and kind is not np.int8 else None
    if all(a is b for _, pairs in cases for a, b in pairs):
        return RoundingMeasurement(name, samples, 0.0, 0.0, ratio), None
    random, wide_count = np.random.default_rng(0), -(-WIDE // len(cases))
    ulp = share = 0.0
    for instance, pairs in cases:
        operands = within({n: _draw(random, (count, *shape), kind) for n, shape in instance.operands.items()}, rule.bounds)
        for at, distance in _distances(rule, pairs, operands, kind):
            ulp, share = max(ulp, distance.ulp), max(share, distance.share)
            if distance.worst is not None:
                return None, _excess(rule, instance, operands, at, distance, kind)
        if kind is np.int8:
            continue
        wide = {n: _wide_draw(random, (wide_count, *shape), kind) for n, shape in instance.operands.items()}
        draws = [("over many exponents", wide), *(() if ratio is None else _far_draws(instance, wide_count, kind))]
        names = [where for where, _ in draws]
        operands = within({n: np.concatenate([drawn[n] for _, drawn in draws]) for n in wide}, rule.bounds)
        for at, distance in _distances(rule, pairs, operands, kind, names):
            ratio = ratio and max(ratio, distance.ratio)
            if distance.worst is not None:
                return None, _excess(rule, instance, operands, at, distance, kind)
    return RoundingMeasurement(name, samples, ulp, share, ratio), None


@dataclass(frozen=True)
class _Distance:
    left: Data
    right: Data
    ulp: float
    share: float
    worst: int | None  # the sample that exceeds the grade
    sentence: str = "the sides differ"
    ratio: float = 1.0  # of the sides' error bounds


def _draw(random: np.random.Generator, shape: tuple[int, ...], kind: Any) -> Data:
    if kind is np.int8:
        return random.integers(-128, 128, shape).astype(np.int8)
    type_info = np.finfo(kind)
    edges = np.array([*EDGES, type_info.tiny, float(type_info.max) ** 0.25, -(float(type_info.max) ** 0.25)])
    values = random.standard_normal(shape)
    return np.where(random.random(shape) < EDGE_SHARE, random.choice(edges, shape), values).astype(kind)


def _wide_draw(random: np.random.Generator, shape: tuple[int, ...], kind: Any) -> Data:
    """Draw over many exponents; in the first half of the samples edges and the ends of the type, too."""
    type_info = np.finfo(kind)
    large, small = float(type_info.max), float(type_info.smallest_subnormal)
    extremes = [sign * n for sign in (1, -1) for n in (large**0.25, 0.75 * large, float(type_info.tiny), 3 * small)]
    reach = REACH * np.log2(large)
    values = random.standard_normal(shape) * np.exp2(random.uniform(-reach, reach, shape))
    is_edge = random.random(shape) < EDGE_SHARE
    is_edge[len(is_edge) // 2 :] = False  # of these samples no two operands are equal, so that bounds may be compared
    return np.where(is_edge, random.choice([*EDGES, *extremes], shape), values).astype(kind)


def _far_draws(instance: Instance, count: int, kind: Any) -> Iterator[tuple[str, dict[str, Data]]]:
    """Yield draws in which one operand alone is over nearly all exponents, and one in which all numbers are close to each other.

    Products of operands that are all far out overflow in any order; what one of them alone makes overflow is one side's fault.
    That operands are close is rare among draws and common among data, and there a difference of rounded results is no number.
    """
    random = np.random.default_rng(2)
    type_info = np.finfo(kind)
    reach = FAR_REACH * np.log2(float(type_info.max))
    shapes = {name: (count, *shape) for name, shape in instance.operands.items()}
    usual = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        exponents = random.uniform(-reach, reach, (count, *(1 for _ in shape[1:])))
        far = {**usual, name: usual[name] * np.exp2(exponents)}
        yield f"over nearly all exponents of {name}", {n: x.astype(kind) for n, x in far.items()}
    yield USUAL, {n: x.astype(kind) for n, x in usual.items()}
    centre, bits = random.standard_normal(count), -np.log2(float(type_info.eps))

    def close(shape: tuple[int, ...]) -> Data:
        distance = np.exp2(random.uniform(-bits, -bits / CLOSEST, shape)) * random.choice((-1.0, 1.0), shape)
        return np.asarray(centre.reshape(count, *(1 for _ in shape[1:])) * (1 + distance)).astype(kind)

    yield "where numbers are close to each other", {n: close(shape) for n, shape in shapes.items()}


def _distances(
    rule: Rule, pairs: Iterable[tuple[Node, Node]], operands: Mapping[str, Data], kind: Any, draws: Sequence[str] = ()
) -> Iterable[tuple[int, _Distance]]:
    """Yield the distances of elements that are not the same; on draws of unusual samples, one after the other, bounds are compared."""
    with np.errstate(all="ignore"):
        values = _Values(operands, kind)
        for n, (a, b) in enumerate(pairs):
            if a is not b:
                if draws and rule.grade in RATIO_LIMITS:
                    yield from ((n, distance) for distance in _lost_precisions(values, a, b, kind, rule.grade, draws))
                else:
                    yield n, _distance(rule.grade, values, a, b, kind)


def _distance(grade: str, values: _Values, a: Node, b: Node, kind: Any) -> _Distance:
    left, right = values.values_of(a), values.values_of(b)
    if kind is np.int8:
        wrong = left != right
        return _Distance(left, right, float(wrong.any()), float(wrong.any()), _first_index(wrong))
    allowed = values.error(a) + values.error(b)
    finite = np.isfinite(left) & np.isfinite(right) & np.isfinite(allowed)
    gap = np.where(finite, np.abs(left.astype(np.float64) - right), 0.0)
    size = np.maximum(np.abs(left), np.abs(right)).astype(kind)
    steps = np.where(finite, gap / np.spacing(np.where(finite, size, 1)).astype(np.float64), 0.0)
    share = np.where(finite & (gap > 0), gap / np.maximum(allowed, np.finfo(np.float64).tiny), 0.0)
    equal = (left == right) | (np.isnan(left) & np.isnan(right))
    wrong = {"E": ~equal | ((left == 0) & (np.signbit(left) != np.signbit(right))), "Z": finite & ~equal, "A": finite & (gap > allowed)}
    return _Distance(left, right, float(steps.max()), float(share.max()), _first_index(wrong[grade]) if grade in wrong else None)


def _lost_precisions(values: _Values, a: Node, b: Node, kind: Any, grade: str, draws: Sequence[str]) -> Iterator[_Distance]:
    """Yield of each draw how far apart the sides' error bounds are, and a sample where that is more than the grade allows."""
    if not values.samples:  # of a law on numbers alone
        return
    left, right = values.values_of(a), values.values_of(b)
    type_info = np.finfo(kind)
    size = np.maximum(np.abs(left), np.abs(right)).astype(np.float64)
    least = 1.0 if grade == "F" else float(type_info.tiny)  # a law of grade F may lose all digits of a result that is near 0
    step = float(type_info.eps) * np.maximum(np.where(np.isfinite(size), size, 1), least)
    bounds = values.error(a) + step, values.error(b) + step
    is_bounded = np.isfinite(bounds[0]) | np.isfinite(bounds[1])
    ratio = np.where(is_bounded, np.maximum(*bounds) / np.minimum(*bounds), 1.0)  # of two infinite bounds none is the larger one
    left, right, ratio = (np.broadcast_to(x, values.samples) for x in (left, right, ratio))
    count = values.samples // len(draws)
    for n, where in enumerate(draws):
        half = slice(n * count + count // 2, (n + 1) * count)  # of these samples none is an edge
        distance = _lost_precision(left[half], right[half], ratio[half], grade, where)
        yield distance if distance.worst is None else replace(distance, left=left, right=right, worst=half.start + distance.worst)


def _lost_precision(left: Data, right: Data, ratio: Data, grade: str, where: str) -> _Distance:
    """Return the ratio that samples keep to, and the worst one that does not, where these are no rare cancellations.

    Of grade A a sample on which one side alone overflows does not; of grade F usual samples only count, on which constants are far out.
    """
    is_finite = np.isfinite(left) & np.isfinite(right)
    ratios = ratio[is_finite]
    spread = float(np.quantile(ratios, 1 - CANCELLATION_SHARE, method="lower")) if ratios.size else 1.0
    wrong = is_finite & (ratio > RATIO_LIMITS[grade])
    if grade == "A":
        wrong |= np.isfinite(left) != np.isfinite(right)
    share = np.mean(wrong)
    if share <= CANCELLATION_SHARE or (grade == "F" and where != USUAL):
        return _Distance(left, right, 0.0, 0.0, None, ratio=spread)
    gap = np.where(wrong, np.nan_to_num(np.abs(left.astype(np.float64) - right), nan=np.inf), -1.0)
    loss = f"may lose {RATIO_LIMITS[grade]:,.0f} times more by rounding"
    sentence = f"{where} one side {'overflows, or ' if grade == 'A' else ''}{loss}, in {share:.0%} of samples"
    return _Distance(left, right, 0.0, 0.0, int(np.argmax(gap)), sentence)


def _first_index(wrong: Data) -> int | None:
    return int(np.argmax(wrong)) if np.any(wrong) else None


def _excess(rule: Rule, instance: Instance, operands: Mapping[str, Data], at: int, distance: _Distance, kind: Any) -> Excess:
    n = distance.worst or 0
    operand_texts = {name: np.array2string(x[n].astype(np.float64), separator=", ", max_line_width=10_000) for name, x in operands.items()}
    left, right = (repr(float(np.broadcast_to(x, n + 1)[n] if x.ndim == 0 else x[n])) for x in (distance.left, distance.right))
    name = np.dtype(kind).name
    marks = " and ".join(sorted(rule.marks & INTEGER_MARKS))
    claim = (
        f"it is marked {marks}, but its sides differ" if kind is np.int8 else f"it is not of grade {rule.full_grade}: {distance.sentence}"
    )
    example = Counterexample(operand_texts, instance.attributes, (at,), left, right)
    return Excess(name, f"{claim} in {name}", example)


class _Values:
    """Values of nodes on samples [samples], each operation rounded to one type."""

    def __init__(self, operands: Mapping[str, Data], kind: Any) -> None:
        self.kind = kind
        self.samples = len(next(iter(operands.values()), ()))
        self.elements = {name: x.reshape(len(x), -1) for name, x in operands.items()}
        self.values: dict[Node, Data] = {}
        self.errors: dict[Node, Data] = {}

    def values_of(self, x: Node) -> Data:
        """Return the values of a node."""
        values = self.values.get(x)
        if values is None:
            values = self.values[x] = self._compute(x)
        return values

    def _compute(self, x: Node) -> Data:
        if x.op == "leaf":
            return np.asarray(self.elements[x.data[0]][:, x.data[1]])
        if x.op == "const":
            return np.asarray(float(x.data) if self.kind is not np.int8 else int(x.data)).astype(self.kind)
        operands = [self.values_of(a) for a in x.args]
        if x.op == "call":
            return np.asarray(FUNCTIONS[x.data](*operands)).astype(self.kind)
        if x.op not in OPERATIONS:
            raise NoSymbolicMeaning
        return np.asarray(OPERATIONS[x.op](*operands)).astype(self.kind)

    def error(self, x: Node) -> Data:
        """Return an absolute bound of the rounding error of a node's values; infinite where none is known."""
        bound = self.errors.get(x)
        if bound is None:
            operand_errors = [self.error(a) for a in x.args]
            bound = self.errors[x] = np.asarray(self._propagated(x, operand_errors) if x.args else np.zeros(()))
        return bound

    def _propagated(self, x: Node, operand_errors: Sequence[Data]) -> Any:
        rule = ERROR_RULES.get(x.data if x.op == "call" else x.op)
        if rule is None:
            return np.full((), np.inf)
        propagated = rule(ARRAYS, [self.real(a) for a in x.args], operand_errors, self.real(x))
        if x.op in EXACT:
            return propagated
        type_info = np.finfo(self.kind)
        size = sum(np.abs(self.real(a)) for a in x.args) if x.op == "sum" else np.abs(self.real(x))
        operations = len(x.args) if x.op == "sum" else CALL_ROUNDINGS if x.op == "call" else 1
        return propagated + rounding(size, propagated, float(type_info.eps), float(type_info.smallest_subnormal), operations)

    def real(self, x: Node) -> Data:
        """Return the values of a node in double precision."""
        return np.asarray(self.values_of(x).astype(np.float64))


def _total(*parts: Data) -> Data:
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    return total


class _Arrays:
    """The operations of error rules on arrays of samples."""

    infinity = np.inf

    def absolute(self, x: Any) -> Any:
        """Return |x|."""
        return np.abs(x)

    def maximum(self, x: Any, y: Any) -> Any:
        """Return the larger one."""
        return np.maximum(x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        """Return the smaller one."""
        return np.minimum(x, y)

    def where(self, truth: Any, x: Any, y: Any) -> Any:
        """Return x where it holds, else y."""
        return np.where(truth, x, y)

    def call(self, function: str, *operands: Any) -> Any:
        """Return a real function by its name."""
        return FUNCTIONS[function](*operands)


ARRAYS = _Arrays()
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "rdiv": np.divide, "neg": np.negative, "sum": _total, "min": np.minimum,
    "max": np.maximum, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "select": lambda c, x, y: np.where(c != 0, x, y), "not": lambda x: 1 - x, "real": lambda x: x,
}  # fmt: skip
