"""Rewrites of sums: unrolled sums rolled into reductions, and sums of floored products split into sums of products.

Both are identities of the integers; their side conditions are decided by the intervals of the factors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ..lang import intervals as iv
from ..lang.binders import index_variable, reduction
from ..lang.expr import Expr, binary, const, node
from .affine import affine_of

MIN_TERMS = 4  # terms of a sum that become one over a variable
HALF_BITS = 16  # bits of a factor of a pair of products
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
