"""The refuter: random instances with strides, windows, pads, numbers, extents and ranks as in real models, executed on both sides.

It never proves. Small instances come first; how many are drawn is bounded by their work, so that equal rules get equal answers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...errors import FlexmatchError
from ...ir.program import Data
from ...ops.op import Apply, Shape, ShapeError, subterms
from ...ops.recurrent import GATES
from ...ops.static import holds
from ...rewrite.rule import Rule, free_attribute
from ..instances.instance_search import FLOATS, Instance, Search, State, TooManyCandidates, candidates_for, in_random_order, numbers_of
from ..instances.sides import Side, array_text, number_text, right_shape
from ..instances.thresholds import near, thresholds_of
from ..verdict import Counterexample
from .wrapped_words import has_integer_operands, operand_types

EXTENT, RANK, STEP, KERNEL, PAD = 12, 6, 5, 7, 5  # the largest that are drawn of rules without thresholds
LONGEST_STEP = 20  # near a threshold
SCALARS, LISTS = frozenset({"axis", "group", "start", "stop", "step"}), frozenset({"strides", "dilations", "kernel", "pads"})
CANDIDATES_PER_DRAW, GUARD_CHECKS_PER_DRAW = 400, 600  # candidates of one draw that are typed, and that are held against the guard
INSTANCES, WORK = 60, 300_000  # of one rule: instances, and about how many microseconds
DRAW, CANDIDATE, GUARD_CHECK = (
    300,
    20,
    12,
)  # microseconds of a draw, of a candidate that is typed, and of one that is held against the guard
RUN, RECURRENT, DATA = 300, 5_000, 3  # microseconds of an operator, of a recurrent one, and how often each side is run
ELEMENTS, LARGEST = 600, 12_000  # of one operand, and of all patterns of a left side
LARGER_INSTANCES, LARGER_DRAWS, LARGER_SIZE = (
    2,
    6,
    700,
)  # instances whose elements are compared as terms: of so many draws, and their elements
ZERO_POINTS = frozenset({"zero", "x_zero", "w_zero"})
VALUES_PER_ATTRIBUTE = 8  # values that are drawn for one attribute
DEFINED_DRAWS = 12  # of integers, one of which is to make no divisor 0
TRIES = 120  # to make operands of a difference plain
MAX_LISTED = 24  # elements of an operand that are all shown
TOLERANCE = 1e-6  # as a share of the largest value: true laws differ by a thousandth of it and less
RANDOM = (-2.5, -0.75, 0.3, 1.7, 6.0, 40.0)
UNDEFINED = (FlexmatchError, IndexError, ValueError, ZeroDivisionError, OverflowError, KeyError, TypeError)


class _WideSearch(Search):
    """A search of one instance among random candidates from wide ranges, the wider the later the draw."""

    def __init__(self, rule: Rule, source: random.Random, share: float, least_rank: int = 0) -> None:
        super().__init__(rule, range(1, EXTENT + 1), RANK, in_random_order(source), CANDIDATES_PER_DRAW)
        self.guard_budget = GUARD_CHECKS_PER_DRAW
        self.source = source
        self.top = 3 + round((EXTENT - 3) * share)
        self.least_rank = least_rank
        self.ranks = 4 if share < 0.3 and not least_rank else RANK
        self.pool = tuple(sorted({1, self.top, *(source.randint(1, self.top) for _ in range(3)), source.randint(2, self.top)}))
        self.thresholds = near(thresholds_of(rule))
        self.pin: tuple[str, int, int] | None = None  # an attribute, a place in its list, and the value there
        if self.thresholds:
            self._go_near_thresholds(rule)
        self.extents = self.pool
        neighbours = (m for n in (*numbers_of(rule), *self.numbers, 0.0, 1.0) for m in (n, n - 1, n + 1))
        self.reals = tuple(dict.fromkeys((*neighbours, *RANDOM)))

    def _go_near_thresholds(self, rule: Rule) -> None:
        """Draw extents near a threshold; every other time, pin a part of an attribute there, with operands on which it has a meaning."""
        self.pool += tuple(self.source.choice(self.thresholds) for _ in range(3))
        names = _free_attributes(rule)
        if not names or self.source.random() < 0.5:
            return
        name, value = self.source.choice(names), self.source.choice(self.thresholds)
        self.pin = name, self.source.randrange(RANK), value
        if name == "axis":
            self.least_rank, self.ranks = max(self.least_rank, min(value + 1, RANK)), RANK
        elif name == "group":
            self.pool = (1, 1, 2, 3, value, 2 * value)
        else:  # windows of two elements, and room for a few of their steps
            self.pool = (1, 2, 2, 3, *(n for n in (value + 1, 2 * value + 2) if n <= ELEMENTS // 4))

    def operand_shapes(self, state: State) -> Sequence[Shape]:
        """Return a few random shapes of every rank, and those related to the operands that are bound."""
        ranks = [r for r in (*range(self.ranks + 1), *range(2, self.ranks + 1)) if r >= self.least_rank]
        random_shapes = [self.shape(r) for r in ranks for _ in range(2 if r < self.ranks else 3)]
        related_shapes = [s for shape in state.operands.values() for s in (shape, shape[-1:], shape[1:], shape[1:2])]
        return list(dict.fromkeys([*random_shapes, *related_shapes, *related_shapes]))

    def shape(self, rank: int) -> Shape:
        """Return a random shape of a rank with a bounded number of elements."""
        extents = [self.source.choice(self.pool) for _ in range(rank)]
        while math.prod(extents) > ELEMENTS:
            extents[self.source.randrange(rank)] = self.source.randint(1, 2)
        return tuple(extents)

    def attribute_values(self, t: Apply, name: str, shapes: tuple[Shape, ...]) -> Sequence[Any]:
        """Return some values of an attribute."""
        values = self._values_of(t, name, shapes)
        if self.pin is None or self.pin[0] != name:
            return values
        _, place, pinned = self.pin
        if name in SCALARS:
            return [pinned] if pinned in values or name == "step" else values
        return list(dict.fromkeys((*v[: place % len(v)], pinned, *v[place % len(v) + 1 :]) if v else v for v in values))

    def _values_of(self, t: Apply, name: str, shapes: tuple[Shape, ...]) -> Sequence[Any]:
        x = shapes[0] if shapes else ()
        spatial = max(len(x) - 2, 0)
        if name in ("strides", "dilations", "kernel"):
            return self.value_lists(spatial, [1], self.steps(KERNEL if name == "kernel" else STEP))
        if name == "pads":
            count = 2 * (len(x) if t.op.name == "pad" else spatial)
            return self.value_lists(count, [0] * (3 * count if count > 4 else 1), [0, *self.steps(PAD)])
        if name == "step":
            return self.steps(STEP)
        if name == "shape":
            return [
                self.factors(math.prod(x)) if t.op.name == "reshape" else self.shape(self.source.randint(0, self.ranks))
                for _ in range(VALUES_PER_ATTRIBUTE)
            ]
        if name == "axes":
            axes = tuple(range(len(x)))
            return [
                *candidates_for(t.op, name, shapes, range(1, EXTENT + 1), RANK),
                *[axes] * 3 * len(axes),
                *(axes[:n] + axes[n + 1 :] for n in axes),
            ]
        if name in FLOATS:
            return self.numbers_of(name)
        if name in ZERO_POINTS:
            return range(STEP + 1)
        return candidates_for(t.op, name, shapes, range(1, EXTENT + 1), RANK)

    def steps(self, most: int) -> Sequence[int]:
        """Return steps from 1 on, and those near a threshold."""
        return [*range(1, most + 1), *(n for n in self.thresholds if most < n <= LONGEST_STEP)]

    def value_lists(self, count: int, plain: Sequence[int], values: Sequence[int]) -> list[tuple[int, ...]]:
        """Return lists of values: plain ones, equal ones, and any."""
        equal = [(self.source.choice(values),) * count for _ in range(VALUES_PER_ATTRIBUTE // 2)]
        mixed = [tuple(self.source.choice((*plain, *values)) for _ in range(count)) for _ in range(VALUES_PER_ATTRIBUTE)]
        return list(dict.fromkeys([tuple(plain[:1]) * count, *equal, *mixed]))

    def factors(self, size: int) -> Shape:
        """Return a random shape of a size."""
        extents = [size]
        for _ in range(self.source.randint(0, self.ranks - 1)):
            n = extents.pop(self.source.randrange(len(extents)))
            d = self.source.choice([k for k in range(1, n + 1) if n % k == 0] or [1])
            extents += [d, n // d]
        return tuple(extents)

    def numbers_of(self, name: str) -> list[float]:
        """Return numbers of a float attribute, infinite ones where it is a bound."""
        if name == "epsilon":
            return [*FLOATS[name], 1e-5]
        return [*self.reals, *(n for n in FLOATS[name] if math.isinf(n)), self.source.gauss(0, 3)]


def _free_attributes(rule: Rule) -> list[str]:
    """Return which integer attributes of operators a left side leaves open, and lists of them."""
    patterns = (x for left, _ in rule.pairs for x in subterms(left) if isinstance(x, Apply))
    names = (name for x in patterns for name, value in x.attributes.items() if free_attribute(value) is not None)
    return [name for name in dict.fromkeys(names) if name in SCALARS or name in LISTS]


def witness(rule: Rule, seed: int = 0, share: float = 1.0, least_rank: int = 0) -> tuple[Counterexample, str] | None:
    """Return a counterexample of a rule and what differs, None when no draw shows one.

    `share` is the share of the usual work to spend, `least_rank` the least rank of an operand that no operator narrows.
    """
    source, numbers = random.Random(seed), np.random.default_rng(seed)
    work = count = 0
    work_limit = share * WORK
    while work < work_limit and count < INSTANCES:
        search = _WideSearch(rule, source, max(work / work_limit, count / INSTANCES), least_rank)
        instance = None
        with suppress(TooManyCandidates, FlexmatchError):
            instance = next(search.instances(), None)
        work += (
            DRAW
            + CANDIDATE * (CANDIDATES_PER_DRAW - search.typing_budget)
            + GUARD_CHECK * (GUARD_CHECKS_PER_DRAW - int(search.guard_budget))
        )
        if instance is None or instance.size > LARGEST:
            continue
        count += 1
        work += _work(rule, instance)
        difference = _difference(rule, instance, numbers)
        if difference is not None:
            return difference
    return None


def confirmed(rule: Rule, instances: Sequence[Instance], numbers: Mapping[str, float]) -> Counterexample | None:
    """Return the counterexample with some numbers for all elements of operands and for float attributes, None where it is none."""
    for instance in instances:
        values = {key: numbers.get(key, x) if isinstance(key, str) else x for key, x in instance.values.items()}
        at_numbers = replace(instance, values=values)
        operands = {name: np.full(shape, numbers.get(name, 0.0)) for name, shape in instance.operands.items()}
        if all(holds(c, at_numbers.binding()) for c in rule.where):
            place = _place(rule, at_numbers, operands)
            return None if place is None else _simplified_example(rule, at_numbers, operands, place)
    return None


def larger_instances(rule: Rule) -> tuple[Instance, ...]:
    """Return a few instances with larger extents, windows and strides than the covering ones, small enough for symbolic elements."""
    source, instances = random.Random(1), list[Instance]()
    for _ in range(LARGER_DRAWS):
        search = _WideSearch(rule, source, 0.5)
        with suppress(TooManyCandidates, FlexmatchError):
            instances += [i for i in itertools.islice(search.instances(), 1) if i.size <= LARGER_SIZE]
        if len(instances) == LARGER_INSTANCES:
            break
    return tuple(instances)


def _work(rule: Rule, instance: Instance) -> int:
    """Return about how many microseconds both sides take on all data."""
    names = (x.op.name for left, _ in rule.pairs for x in subterms(left) if isinstance(x, Apply))
    return 2 * DATA * (sum(RECURRENT if name in GATES else RUN for name in names) + instance.size)


def _difference(rule: Rule, instance: Instance, numbers: np.random.Generator) -> tuple[Counterexample, str] | None:
    """Return how the sides differ at an instance, in shape or on data."""
    for left, right in rule.pairs:
        expected = instance.shapes[id(left)]
        try:
            shape = right_shape(right, instance)
        except ShapeError as error:
            return _shape_example(
                instance, str(expected), "no meaning"
            ), f"the right side has no meaning where the left has one: {error.problem.sentence}"
        except UNDEFINED:
            return None
        if shape != expected:
            return _shape_example(instance, str(expected), str(shape)), "the sides have different shapes"
    if instance.dtypes:
        return _difference_of_integers(rule, instance, numbers) if has_integer_operands(rule) else None
    for operands in _data(rule, instance, numbers):
        place = _place(rule, instance, operands)
        if place is not None:
            return _simplified_example(rule, instance, operands, place), "the sides differ"
    return None


def _difference_of_integers(rule: Rule, instance: Instance, numbers: np.random.Generator) -> tuple[Counterexample, str] | None:
    """Return integers of the guard's types that show a difference: every operator wraps its result around, and none is divided by 0."""
    parts = (x for pair in rule.pairs for side in pair for x in subterms(side) if isinstance(x, Apply))
    if any(x.op.name == "full" for x in parts):  # whose number is run as a real one
        return None
    for dtype in operand_types(rule):
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        edges = np.array([n for n in (low, low + 1, -2, -1, 1, 2, 3, high - 1, high) if low <= n and n], np.dtype(dtype))
        for small in (True, False):
            operands = _defined_values(rule, instance, partial(_integers, numbers, edges, small=small))
            place = None if operands is None else _place(rule, instance, operands)
            if operands is not None and place is not None:
                example = _example(instance, operands, place)
                named_types = {name: f"{text} ({dtype})" for name, text in example.operands.items()}
                return replace(example, operands=named_types), "the sides differ on integers that wrap around"
    return None


def _defined_values(rule: Rule, instance: Instance, draw: Callable[[Shape], Data]) -> dict[str, Data] | None:
    """Return integers at which every division of both sides has a result, None where some draws have none: divisors may be computed."""
    divisors = [
        x.operands[1] for pair in rule.pairs for side in pair for x in subterms(side) if isinstance(x, Apply) and x.op.name == "div"
    ]
    for _ in range(DEFINED_DRAWS if divisors else 1):
        operands = {name: draw(shape) for name, shape in instance.operands.items()}
        side = Side(instance)
        with suppress(*UNDEFINED):
            if all(np.all(side.data(d, operands, np.float64)) for d in divisors):
                return operands
    return None


def _integers(numbers: np.random.Generator, edges: Data, shape: Shape, *, small: bool) -> Data:
    return numbers.integers(1, 7, shape).astype(edges.dtype) if small else numbers.choice(edges, shape)


def _data(rule: Rule, instance: Instance, numbers: np.random.Generator) -> Iterator[dict[str, Data]]:
    """Yield operands: small integers, numbers around those of the instance, and normal ones that are positive."""
    neighbours = sorted({m for n in _constants(rule, instance) for m in (n - 1, n, n + 1, 2 * n, n * n + 1)} | {-2.0, 0.0, 0.5, 1.0, 3.0})
    names = instance.operands.items()
    yield {name: numbers.choice(neighbours, shape) for name, shape in names}
    yield {name: numbers.normal(0, 2, shape) for name, shape in names}
    yield {name: numbers.uniform(0.25, 3, shape) for name, shape in names}


def _constants(rule: Rule, instance: Instance) -> list[float]:
    float_values = (v for v in instance.attributes.values() if isinstance(v, float))
    return [v for v in (*numbers_of(rule), *float_values) if math.isfinite(v)]


@dataclass(frozen=True)
class _Place:
    """Where the sides are apart: the index and both values."""

    index: tuple[int, ...]
    left: float
    right: float

    def is_like(self, other: _Place) -> bool:
        """Tell whether another difference is one of two numbers, too, or is none, too."""
        return math.isfinite(other.right) == math.isfinite(self.right)


def _place(rule: Rule, instance: Instance, operands: Mapping[str, Data]) -> _Place | None:
    """Return where the sides are apart, among places where the left one is a number: where both are, if there are such places."""
    side, differences = Side(instance), list[_Place]()
    for left, right in rule.pairs:
        try:
            a, b = (np.asarray(side.data(t, operands, np.float64), np.float64) for t in (left, right))
        except UNDEFINED:
            return None
        size = max(1.0, *(float(np.max(np.abs(x), where=np.isfinite(x), initial=0.0)) for x in (a, b)))
        with np.errstate(invalid="ignore"):
            differing = np.isfinite(a) & ~(np.abs(a - b) <= TOLERANCE * size)
        for mask in (differing & np.isfinite(b), differing):
            differences += [_Place(tuple(map(int, at)), float(a[tuple(at)]), float(b[tuple(at)])) for at in np.argwhere(mask)[:1]]
    return next((p for p in differences if math.isfinite(p.right)), differences[0] if differences else None)


def _simplified_example(rule: Rule, instance: Instance, operands: Mapping[str, Data], place: _Place) -> Counterexample:
    """Return the difference with operands of as many zeros and ones as leave one of its kind."""
    simplified = {name: np.array(x) for name, x in operands.items()}
    tries = TRIES
    for part, value in _simplifications(simplified):
        original = part.copy()
        if tries and not np.isin(original, (0.0, value)).all():
            part[:] = value
            tries -= 1
            current = _place(rule, instance, simplified)
            if current is None or not place.is_like(current):
                part[:] = original
            else:
                place = current
    return _example(instance, simplified, place)


def _example(instance: Instance, operands: Mapping[str, Data], place: _Place) -> Counterexample:
    texts = {name: _text(x) for name, x in operands.items()}
    return Counterexample(texts, instance.attributes, place.index, number_text(place.left), number_text(place.right))


def _simplifications(operands: Mapping[str, Data]) -> Iterator[tuple[Data, float]]:
    """Yield parts of operands, large ones first, each with a value to try for all of it."""
    for x in operands.values():
        flat, block = x.reshape(-1), x.size
        while block:
            for start in range(0, x.size, block):
                yield flat[start : start + block], 0.0
            block //= 2
        for n in range(x.size):
            yield flat[n : n + 1], 1.0


def _text(x: Data) -> str:
    """Return an operand as text: what is not 0 where that is little of much."""
    places = np.argwhere(x)
    if x.size <= MAX_LISTED or len(places) > MAX_LISTED // 3:
        return array_text(x)
    nonzero = ", ".join(f"{number_text(x[tuple(at)])} at {at.tolist()}" for at in places)
    return f"zeros{list(x.shape)}{f' but {nonzero}' if nonzero else ''}"


def _shape_example(instance: Instance, left: str, right: str) -> Counterexample:
    operands = {name: f"tensor{list(shape)}" for name, shape in instance.operands.items()}
    return Counterexample(operands, instance.attributes, None, left, right)
