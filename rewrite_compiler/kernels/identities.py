"""Identities of the integers by which terms become cheaper: sums of products, folds that never saturate, roundings.

Their side conditions are decided by intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ..lang import intervals as iv
from ..lang.binders import Comprehension, Fold, index_variable, reduction
from ..lang.expr import Expr, binary, const, node
from ..lang.substitution import substitute
from .affine import affine_of

MIN_TERMS = 4  # terms of a sum that become one over a variable
HALF_BITS = 16  # bits of a factor of a pair of products
SUM_BITS = 32  # bits of a sum of pairs of products
Values = Callable[[Expr, Expr], Expr]  # a function of one load as a load of all its values


def roll_sum(e: Expr) -> Expr:
    """Roll an unrolled sum, of terms that differ in evenly spaced numbers, into a reduction plus the other terms."""
    terms = list(_terms(e))
    groups: dict[object, list[Expr]] = {}
    for t in terms:
        groups.setdefault(_form(t), []).append(t)
    group = max(groups.values(), key=len)
    if len(group) < MIN_TERMS or not group[0].reads:
        return e
    variable = index_variable("n", len(group))
    body = _pattern(group, variable)
    if body is None:
        return e
    total = reduction("sum", (variable,), (const(len(group)),), body)
    grouped_ids = set(map(id, group))
    for t in terms:
        if id(t) not in grouped_ids:
            total = binary("add", total, t)
    return node(total.op, total.args, total.data, e.interval, False)


def _terms(e: Expr) -> list[Expr]:
    return [x for a in e.args for x in _terms(a)] if e.op == "add" and not e.real else [e]


def _form(e: Expr) -> object:
    """Return what terms have in common that differ in numbers only."""
    if affine_of(e) is not None:
        return "number"
    return e.op, e.data, tuple(map(_form, e.args))


def _pattern(terms: Sequence[Expr], variable: Expr) -> Expr | None:
    """Return the term whose values over a variable are these terms; None where numbers are not evenly spaced."""
    first = terms[0]
    if all(t is first for t in terms):
        return first
    sums = [affine_of(t) for t in terms]
    if None not in sums:
        steps = [y.plus(x, -1) for x, y in itertools.pairwise(sums)]  # type: ignore[union-attr, arg-type]
        step = steps[0].constant
        if any(s.coefficients or s.constant != step for s in steps):
            return None
        return first + variable * step
    if any((t.op, t.data, len(t.args)) != (first.op, first.data, len(first.args)) or t.real for t in terms):
        return None
    args = [_pattern(x, variable) for x in zip(*(t.args for t in terms), strict=True)]
    patterns = [a for a in args if a is not None]
    if len(patterns) < len(args):
        return None
    interval = first.interval
    for t in terms:
        interval = iv.hull(interval, t.interval)
    free = None if first.op != "reduce" else frozenset[Expr]().union(*(t.free for t in terms), {variable})
    return node(first.op, patterns, first.data, interval, False, free)


def split_floored_sum(e: Expr, values: Values, is_moving: Callable[[Expr], bool]) -> Expr:
    """Return Σ ⌊a·b / 2^s⌋ of factors of 16 bits as Σ a·h + Σ ⌊a·l·2^(16−s) / 2^16⌋ where b = h·2^s + l, else the term itself.

    ⌊(a·h·2^s + a·l) / 2^s⌋ = a·h + ⌊a·l / 2^s⌋ for all integers; l lies in −2^(s−1) … 2^(s−1) − 1, so that l·2^(16−s) has 16 bits.
    """
    monoid, variables = e.data
    body = e.args[0]
    if monoid != "sum" or body.op != "shr" or body.args[0].op != "mul" or body.args[1].op != "const":
        return e
    amount = int(body.args[1].data)
    a, b = sorted(body.args[0].args, key=is_moving, reverse=True)
    if not 0 < amount < HALF_BITS or b.op != "load" or not all(iv.inside(x.interval, iv.of_width(HALF_BITS, True)) for x in (a, b)):
        return e
    high, low = halves(b, amount)
    extents = e.args[1:]
    exact = reduction("sum", variables, extents, binary("mul", a, values(high, b)))
    floored = reduction("sum", variables, extents, binary("mul", a, values(low, b)) >> HALF_BITS)
    return node("add", (exact, floored), None, e.interval, False)


def halves(b: Expr, amount: int) -> tuple[Expr, Expr]:
    """Return h and l·2^(16−s) of b = h·2^s + l, where l is the remainder nearest to 0."""
    near = 1 << amount - 1
    low = (b + near) % (1 << amount) - near
    return (b - low) >> amount, low << HALF_BITS - amount


def split_wide_sum(e: Expr, values: Values, is_moving: Callable[[Expr], bool]) -> Expr:
    """Return Σ a·b of factors of 16 bits, which needs more than 32, as 2^8·Σ a·h + Σ a·l where b = 2^8·h + l; else the term itself.

    Both sums must fit 32 bits; h and l are computed once, so that b must be an operand that does not move.
    """
    monoid, variables = e.data
    body, amount = e.args[0], HALF_BITS // 2
    if monoid != "sum" or body.op != "mul" or iv.inside(e.interval, iv.of_width(SUM_BITS, True)):
        return e
    a, b = sorted(body.args, key=is_moving, reverse=True)
    if b.op != "load" or is_moving(b) or not all(iv.inside(x.interval, iv.of_width(HALF_BITS, True)) for x in (a, b)):
        return e
    high, scaled_low = halves(b, amount)
    sums = [reduction("sum", variables, e.args[1:], binary("mul", a, values(x, b))) for x in (high, scaled_low >> HALF_BITS - amount)]
    if not all(iv.inside(x.interval, iv.of_width(SUM_BITS, True)) for x in sums):
        return e
    return node("add", (sums[0] << amount, sums[1]), None, e.interval, False)


def block_wide_sum(e: Expr) -> Expr:
    """Return Σ a·b of factors of 16 bits, which needs more than 32, as a sum of sums of blocks, which need less; else the term itself."""
    monoid, variables = e.data
    body, extent = e.args[0], e.args[-1]
    is_wide = monoid == "sum" and body.op == "mul" and not iv.inside(e.interval, iv.of_width(SUM_BITS, True))
    if not is_wide or extent.value is None or not all(iv.inside(x.interval, iv.of_width(HALF_BITS, True)) for x in body.args):
        return e
    variable, count = variables[-1], int(extent.value)
    most = max(-(body.interval[0] or 0), body.interval[1] or 0, 1)
    size = next((n for n in range(min(count, ((1 << SUM_BITS - 1) - 1) // most), MIN_TERMS - 1, -1) if not count % n), None)
    if size is None or (size == count and len(variables) == 1):
        return e
    block, place = index_variable("block", count // size), index_variable("place", size)
    inner = reduction("sum", (place,), (const(size),), substitute(body, {variable: block * size + place}))
    total = reduction("sum", (*variables[:-1], block), (*e.args[1:-1], const(count // size)), inner)
    return node("reduce", total.args, total.data, e.interval, False, total.free)


def shift_narrow_part(e: Expr) -> Expr:
    """Return ⌊(a·2^k + b) / 2^s⌋ of a sum that needs more than 32 bits as a·2^(k−s) + ⌊b / 2^s⌋ where s ≤ k, else the term itself.

    A multiple of 2^s leaves a floor, whatever the integers; a sign is that of ⌊(a·2^k + b) / 2^k⌋, so that x < 0 is a + ⌊b / 2^k⌋ < 0.
    """
    x, y = e.args
    parts = None if y.value is None or iv.inside(x.interval, iv.of_width(SUM_BITS, True)) else _multiple_and_rest(x)
    if parts is None:
        return e
    (multiple, power), rest = parts
    if e.op == "lt":
        return binary("add", multiple, rest >> power) < 0 if y.value == 0 else e
    amount = int(y.value or 0)
    return node("add", (multiple << power - amount, rest >> amount), None, e.interval, False) if 0 < amount <= power else e


def _multiple_and_rest(e: Expr) -> tuple[tuple[Expr, int], Expr] | None:
    """Return a, k and b of a sum a·2^k + b; None where no summand is shifted to the left."""
    for n, x in enumerate(e.args[: {"add": 2, "sub": 1}.get(e.op, 0)]):
        others = [*e.args[:n], *e.args[n + 1 :]]
        if x.op == "shl" and x.args[1].value is not None:
            return (x.args[0], int(x.args[1].value)), others[0] if e.op == "add" else -others[0]
        if (parts := _multiple_and_rest(x)) is not None:
            return parts[0], binary(e.op, parts[1], *others)
    return None


def unsaturated_fold(fold: Fold) -> Expr | None:
    """Return a fold whose accumulator saturates as a sum, where no partial sum reaches a bound; None elsewhere.

    total := min(max(total + x, low), high): by induction the total after k steps lies within the first one plus k · the interval
    of x, so that neither bound is reached as long as that interval, for all steps, lies inside of them.
    """
    if len(fold.bodies) != 1 or fold.accumulators[0].rank or fold.extent.value is None:
        return None
    first, step = (x.body for x in (fold.initial[0], fold.bodies[0]) if isinstance(x, Comprehension))
    step, bounds = _clamped(step)
    summand = _summand(step, fold)
    if summand is None:
        return None
    steps = int(fold.extent.value)
    reached = [iv.add(first.interval, iv.scale(iv.hull(summand.interval, (0, 0)), (n, n))) for n in (0, steps)]
    if not all(iv.inside(x, bounds) for x in reached):
        return None
    variables, extents = (fold.variable,), (fold.extent,)
    total = reduction("sum", variables, extents, summand)
    is_sum = summand.op == "reduce" and summand.data[0] == "sum" and not any(fold.variable in x.free for x in summand.args[1:])
    if is_sum and iv.inside(total.interval, iv.of_width(SUM_BITS, True)):
        total = reduction("sum", (*variables, *summand.data[1]), (*extents, *summand.args[1:]), summand.args[0])
    return binary("add", first, total)


def _clamped(e: Expr) -> tuple[Expr, iv.Interval]:
    """Return what a term clamps to constant bounds, and the bounds."""
    low: int | None = None
    high: int | None = None
    while e.op in ("min", "max") and any(a.op == "const" for a in e.args):
        x, bound = sorted(e.args, key=lambda a: a.op == "const")
        n = int(bound.data)
        if e.op == "max":
            low = n if low is None else max(low, n)
        else:
            high = n if high is None else min(high, n)
        e = x
    return e, (low, high)


def _summand(e: Expr, fold: Fold) -> Expr | None:
    """Return x of total + x, which does not depend on the total; None where a term is no such sum."""
    (total,) = fold.accumulators
    if e.op != "add" or e.real:
        return None
    (x, *others) = sorted(e.args, key=lambda a: a.op == "load" and a.data is total)
    is_total = len(others) == 1 and others[0].op == "load" and others[0].data is total
    return x if is_total and total not in x.reads else None


def round_half_away(e: Expr) -> Expr:
    """Return x < 0 ? −⌊(−x + 2^(n−1)) / 2^n⌋ : ⌊(x + 2^(n−1)) / 2^n⌋ as ⌊(x + 2^(n−1) − (x < 0)) / 2^n⌋, else the term itself."""
    if e.op != "select" or e.real:
        return e
    test, below, above = e.args
    x = test.args[0] if test.op == "lt" and test.args[1].value == 0 else None
    if x is None or above.op != "shr" or above.args[0].op != "add" or above.args[0].args[0] is not x:
        return e
    half, amount = above.args[0].args[1], above.args[1]
    if amount.value is None or half.value is None or not 0 < int(amount.value) < 64 or 2 * int(half.value) != 1 << int(amount.value):
        return e
    return e if below is not -((-x + half) >> amount) else node("shr", (x + half - test, amount), None, e.interval, False)
