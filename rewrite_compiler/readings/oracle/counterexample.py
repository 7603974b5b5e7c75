"""Counterexample search: values of a term's leaves at which it leaves an interval, at the ends of their ranges and at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from ...errors import FlexmatchError, SpecError
from ...lang.binders import Accumulator, Leaf, scalar_array, static_shape
from ...lang.expr import Expr
from ...lang.intervals import Interval
from ...lang.out_of_range import OutOfRange
from ...lang.substitution import substitute
from ...lowering.lower import lower_array
from .emit_python import compile_routine

TOO_LONG = 1 << 100  # for a sentence
TRIES, ELEMENTS, SEED = 64, 1 << 12, 1
UNBOUNDED = 1 << 31
Choice = dict[Leaf, int]


def find_counterexample(e: Expr, interval: Interval) -> str:
    """Return where an integer term leaves the interval `wanted`, as "it is 16 where count is 15"; "" when the search finds no place."""
    variables = {v: Leaf((), v.interval, False, str(v.data[0])) for v in sorted(e.free, key=lambda v: str(v.data))}
    accumulators = [a for a in e.reads if isinstance(a, Accumulator)]
    if any(a.shape for a in accumulators):
        return ""
    variables |= {a[()]: Leaf((), a.interval, a.real, a.name) for a in sorted(accumulators, key=lambda a: a.name)}
    e = substitute(e, {v: leaf[()] for v, leaf in variables.items()})
    try:
        value = _function(e)
    except SpecError:
        return ""
    free_leaves = tuple(variables.values())
    leaves = [*sorted(e.reads.difference(free_leaves), key=lambda leaf: str(leaf.name)), *free_leaves]
    if any(_size(leaf) > ELEMENTS for leaf in leaves):
        return ""
    for choice in _choices(leaves):
        result = value(choice)
        if result is not None and not _is_inside(result, interval):
            assignment = " and ".join(f"{leaf.name} is {x}" for leaf, x in choice.items())
            return f"it is {result}" + (f" where {assignment}" if assignment else "")
    return ""


def with_example(refusal: FlexmatchError) -> FlexmatchError:
    """Return an out-of-range refusal with a counterexample in its help, where the search finds one; any other refusal unchanged."""
    if not isinstance(refusal, OutOfRange):
        return refusal
    example, p = next(filter(None, (find_counterexample(e, refusal.required) for e in refusal.terms)), ""), refusal.problem
    return SpecError(p.code, p.sentence, place=p.place, help=f"{example}; {p.help}") if example else refusal


def _function(e: Expr) -> Callable[[Choice], int | None]:
    """Return the oracle of a term; a choice gives every element of a leaf one value."""
    routine = lower_array(scalar_array(e))
    _, run = compile_routine(routine)

    def value(choice: Choice) -> int | None:
        out = [0]
        try:
            run(*(out if leaf not in choice else [choice[leaf]] * _size(leaf) for leaf in routine.memories.values()))
            result = int(out[0])
        except (SpecError, IndexError, ArithmeticError, ValueError):  # no value there, or no number
            return None
        return result if abs(result) < TOO_LONG else None

    return value


def _choices(leaves: list[Leaf]) -> Iterator[Choice]:
    low = {leaf: -UNBOUNDED if leaf.interval[0] is None else leaf.interval[0] for leaf in leaves}
    high = {leaf: UNBOUNDED if leaf.interval[1] is None else leaf.interval[1] for leaf in leaves}
    yield high
    yield low
    for leaf in leaves:
        yield {**low, leaf: high[leaf]}
        yield {**high, leaf: low[leaf]}
    numbers = random.Random(SEED)  # noqa: S311 — any spread of values will do
    for _ in range(TRIES):
        yield {leaf: numbers.randint(low[leaf], high[leaf]) for leaf in leaves}


def _is_inside(x: int, interval: Interval) -> bool:
    return (interval[0] is None or x >= interval[0]) and (interval[1] is None or x <= interval[1])


def _size(leaf: Leaf) -> int:
    try:
        total = 1
        for n in static_shape(leaf):
            total *= n
    except SpecError:
        return ELEMENTS + 1
    return total
