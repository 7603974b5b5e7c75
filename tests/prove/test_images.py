"""The image lemma: pools of pools at all windows, strides and extents; what reaches other places is not proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops.static import Ints as Bound
from rewrite_compiler.prove.rules.all_shapes import theorem_of
from rewrite_compiler.prove.verdict import Stop
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.rewrite.ruleset import every_rule

ZEROS = (0, 0)


def maximum(x: Tensor, kernel: Any, stride: Any = 1, dilation: Any = 1) -> Tensor:
    return o.max_pool(x, along(kernel), along(stride), ZEROS, along(dilation), ceil=0)


def mean(x: Tensor, kernel: Any, stride: Any = 1, dilation: Any = 1) -> Tensor:
    return o.average_pool(x, along(kernel), along(stride), ZEROS, along(dilation), ceil=0, count_include_pad=0)


def along(value: Any) -> Any:
    """Return an attribute of one axis: a list that a pattern binds, or a number as one."""
    return value if isinstance(value, Bound) else (value,)


def pools(pool: Callable[..., Tensor], wide: Callable[..., Any], far: Callable[..., Any], guard: Callable[..., Any] | None) -> Rule:
    """Return a rule on the pool of a pool: window and stride of the right side, and the guard, as functions of k, s, m, t."""

    @rule
    def of_pools(x: Tensor, k: Ints, s: Ints, m: Ints, t: Ints) -> Law:
        """pool(pool(x, k, s), m, t) = pool(x, …)"""
        given = k[0], s[0], m[0], t[0]
        outer = pool(pool(x, k, s), m, t)
        conditions = [] if guard is None else [guard(*given)]
        return outer, pool(x, wide(*given), far(*given)), Where(x.rank == 3, *conditions)

    return of_pools


def parts(first: Callable[[Any], Any], count: int, apart: Callable[[Any], Any], least: int) -> Rule:
    """Return a rule on a window as some windows of a part of its length, so far apart."""

    @rule
    def in_parts(x: Tensor, k: Ints, s: Ints) -> Law:
        """max_pool(x, k, s) = max_pool(max_pool(x, part of k), count, dilation, s)"""
        two = maximum(maximum(x, first(k[0])), count, s[0], apart(k[0]))
        return maximum(x, k, s), two, Where(x.rank == 3, k[0] > least)

    return in_parts


@rule
def along_axes(x: Tensor, k: Ints, d: Ints) -> Law:
    """False where the dilations differ: they are exchanged."""
    zeros = (0,) * 4
    columns = o.max_pool(x, (1, k[1]), (1, 1), zeros, (1, d[0]), ceil=0)
    rows = o.max_pool(columns, (k[0], 1), (1, 1), zeros, (d[1], 1), ceil=0)
    return o.max_pool(x, k, (1, 1), zeros, d, ceil=0), rows, Where(x.rank == 4)


@rule
def two_taps(x: Tensor, k: Ints) -> Law:
    """False from 3 taps on: those between are left out."""
    return maximum(x, k), maximum(x, 2, 1, k[0] - 1), Where(x.rank == 3, k[0] > 1)


@rule
def gaps(x: Tensor, k: Ints, s: Ints) -> Law:
    """False: the mean of overlapping windows counts elements twice."""
    return mean(mean(x, k), s), mean(x, k[0] + s[0] - 1), Where(x.rank == 3, k[0] > 1, s[0] > 1)


@rule
def maximum_of_every_window(x: Tensor, k: Ints) -> Law:
    """The largest of all windows is the largest element."""
    return o.reduce_max_(maximum(x, k), axes=(2,), keepdims=0), o.reduce_max_(x, axes=(2,), keepdims=0), Where(x.rank == 3)


@rule
def mean_of_rows(x: Tensor) -> Law:
    """The mean of the means of the rows is the mean."""
    rows = o.reduce_mean_(x, axes=(3,), keepdims=0)
    return o.reduce_mean_(rows, axes=(2,), keepdims=0), o.reduce_mean_(x, axes=(2, 3), keepdims=0), Where(x.rank == 4)


def spread(k: Any, s: Any, m: Any, _: Any) -> Any:
    return k + (m - 1) * s


def far(_: Any, s: Any, __: Any, t: Any) -> Any:
    return s * t


TRUE = {
    "maxima": pools(maximum, spread, far, lambda k, s, m, t: s <= k),
    "maxima of windows with a gap less": pools(maximum, spread, far, lambda k, s, m, t: s + 1 <= k),
    "means": pools(mean, lambda k, s, m, t: k * m, far, lambda k, s, m, t: s == k),
    "thirds": parts(lambda k: (k + 1) // 2, 2, lambda k: k // 2, 2),
    "all but one": parts(lambda k: k - 1, 2, lambda k: 1, 1),
    "every window": maximum_of_every_window,
    "rows": mean_of_rows,
}
FALSE = {
    "maxima without the guard": pools(maximum, spread, far, None),
    "maxima of windows with a gap": pools(maximum, spread, far, lambda k, s, m, t: s <= k + 1),
    "maxima of one step more": pools(maximum, lambda k, s, m, t: k + m * s, far, lambda k, s, m, t: s <= k),
    "maxima of one element less": pools(maximum, lambda k, s, m, t: k + (m - 1) * s - 1, far, lambda k, s, m, t: s < k),
    "maxima at the sum of the strides": pools(maximum, spread, lambda k, s, m, t: s + t - 1, lambda k, s, m, t: s <= k),
    "maxima at the larger window": pools(maximum, lambda k, s, m, t: k * m, far, lambda k, s, m, t: s <= k),
    "means that overlap": pools(mean, spread, far, lambda k, s, m, t: s <= k),
    "means with gaps": pools(mean, lambda k, s, m, t: k * m, far, lambda k, s, m, t: s >= k),
    "means without the guard": pools(mean, lambda k, s, m, t: k * m, far, None),
    "halves that leave a gap": parts(lambda k: k // 2, 2, lambda k: (k + 1) // 2, 2),
    "halves too far apart": parts(lambda k: (k + 1) // 2, 2, lambda k: k // 2 + 1, 2),
    "halves that miss the end": parts(lambda k: k // 2, 2, lambda k: k // 2, 2),
    "three taps": parts(lambda k: k - 2, 2, lambda k: 2, 2),
    "dilations exchanged": along_axes,
    "two taps": two_taps,
    "means that count twice": gaps,
}


@pytest.mark.parametrize("name", TRUE)
def test_equal_images_are_proved(name: str) -> None:
    assert not isinstance(theorem_of(TRUE[name]), Stop)


@pytest.mark.parametrize("name", FALSE)
def test_other_images_are_not_proved(name: str) -> None:
    assert isinstance(theorem_of(FALSE[name]), Stop)


def test_every_shipped_rule_is_proved_at_all_shapes() -> None:
    assert [r.name for r in every_rule() if isinstance(theorem_of(r), Stop)] == []
