"""Operators at symbolic shapes: their shape rules on polynomials, their elements at any index.

Elementwise operators are read from their one meaning on scalars; the others have a reader each, which the tests compare
with the meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...lang.binders import Comprehension, Leaf
from ...lang.expr import Expr
from ...ops.op import ELEMENTWISE, FLOAT, Op
from .contractions import CONTRACTIONS
from .normalisations import LAYERS
from .polynomials import Poly, as_poly, place_of, product
from .pooling import POOLS
from .real_elements import ZERO_ELEMENT, NotProved, Real, Reals, ShapeMismatch, number
from .recurrences import RECURRENCES
from .symbolic_tensors import (
    ARITHMETIC,
    Attributes,
    Index,
    Tensor,
    Typing,
    axis_of,
    broadcast,
    broadcast_read,
    mean_of,
    padded_read,
    tensor_by_index,
)

Reader = Callable[[Typing, Sequence[Tensor], Attributes], Tensor | tuple[Tensor, ...]]


def read(operator: Op, t: Typing, operands: Sequence[Tensor], attributes: Attributes) -> tuple[Tensor, ...]:
    """Return the results of an operator.

    Raises:
        NotProved: it has no reader.
        ShapeMismatch: its shape rule is not satisfied.
    """
    reader = READERS.get(operator.name)
    if reader is None:
        if operator.kind != ELEMENTWISE or any(a.kind != FLOAT for a in operator.attributes):
            raise NotProved(f"it has no reading of {operator.name}")
        return (_elementwise(operator, t, operands, attributes),)
    results = reader(t, operands, attributes)
    return results if isinstance(results, tuple) else (results,)


# -- elementwise


def _elementwise(operator: Op, t: Typing, operands: Sequence[Tensor], attributes: Attributes) -> Tensor:
    function = _function(operator, t.reals, attributes)
    if len(operands) == 1:
        (x,) = operands
        return Tensor(x.shape, lambda i: function(x.at(i)), lambda p: function(x.flat(p)))
    if len({len(x.shape) for x in operands}) == 1 and all(_agree(t, x, operands[0]) for x in operands):
        shape = operands[0].shape
        return Tensor(shape, lambda i: function(*(x.at(i) for x in operands)), lambda p: function(*(x.flat(p) for x in operands)))
    shape = tuple(broadcast(t, [x.shape for x in operands]))
    return tensor_by_index(t, shape, lambda i: function(*(broadcast_read(t, x, i, shape) for x in operands)))


def _agree(t: Typing, x: Tensor, y: Tensor) -> bool:
    return all(t.facts.equal(a, b) for a, b in zip(x.shape, y.shape, strict=True))


def _function(operator: Op, reals: Reals, attributes: Attributes) -> Callable[..., Real]:
    """Return an elementwise operator as a function of elements: its meaning on scalars; with attributes a function by that name."""
    if operator.name == "clip":
        return lambda x: _clipped(reals, x, attributes["low"], attributes["high"])
    if attributes:
        values = tuple(sorted((n, str(v)) for n, v in attributes.items()))
        return lambda *xs: reals.apply(f"{operator.name}{values}", *xs)
    leaves = [Leaf((), (None, None), True, f"x{n}") for n in range(len(operator.operands))]
    meaning = operator.meaning(*leaves)
    if not isinstance(meaning, Comprehension):
        raise NotProved
    return lambda *xs: _scalar(meaning.body, reals, dict(zip(leaves, xs, strict=True)))


def _clipped(reals: Reals, x: Real, low: Any, high: Any) -> Real:
    """Return an element between two bounds; what a bound tends to where it is infinite is no bound."""
    above = x if low == "-inf" else reals.apply("max", x, _float(reals, low))
    return above if high == "inf" else reals.apply("min", above, _float(reals, high))


def _float(reals: Reals, value: Any) -> Real:
    """Return a float attribute as an element."""
    return number(value) if isinstance(value, Fraction) else reals.atom("float", value)


def _scalar(e: Expr, reals: Reals, values: Mapping[Any, Real]) -> Real:
    if e.op == "const":
        return number(Fraction(e.data))
    if e.op == "load":
        return values[e.data]
    operands = [_scalar(a, reals, values) for a in e.args]
    if e.op in ARITHMETIC:
        return ARITHMETIC[e.op](reals, *operands)
    return reals.apply(f"{e.op} {e.data}" if e.op == "call" else e.op, *operands)


# -- data movement


def _reshape(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), shape = operands, a["shape"]
    t.require_equal(product(x.shape), product(shape))
    return Tensor(tuple(shape), lambda i: x.flat(place_of(i, shape)), x.flat)


def _transpose(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), perm = operands, [p.number for p in a["perm"]]
    if None in perm:
        raise NotProved
    if sorted(perm) != list(range(len(x.shape))):
        raise ShapeMismatch
    back = [perm.index(axis) for axis in range(len(perm))]
    return tensor_by_index(t, [x.shape[p] for p in perm], lambda i: x.at([i[b] for b in back]))


def _slice(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), axis = operands, axis_of(a, operands[0])
    start, stop, step = a["start"], a["stop"], a["step"]
    for p in (start, stop - start - 1, x.shape[axis] - stop, step - 1):
        t.require_nonnegative(p)
    count = t.facts.floor_quotient(stop - start - 1, step) + 1
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    return tensor_by_index(t, shape, lambda i: x.at([*i[:axis], i[axis] * step + start, *i[axis + 1 :]]))


def _reverse(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), axis = operands, axis_of(a, operands[0])
    return tensor_by_index(t, x.shape, lambda i: x.at([*i[:axis], x.shape[axis] - 1 - i[axis], *i[axis + 1 :]]))


def _concat(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    axis = axis_of(a, operands[0])
    first = operands[0].shape
    for x in operands[1:]:
        if len(x.shape) != len(first):
            raise ShapeMismatch
        for n in range(len(first)):
            if n != axis:
                t.require_equal(first[n], x.shape[n])
    ends = list(itertools.accumulate(x.shape[axis] for x in operands))

    def at(i: Index) -> Real:
        element: Real | None = None
        for x, end in reversed([*zip(operands, ends, strict=True)]):
            value = x.at([*i[:axis], i[axis] - (end - x.shape[axis]), *i[axis + 1 :]])
            element = value if element is None else t.reals.choose([end - 1 - i[axis]], value, element)
        return element or ZERO_ELEMENT

    return tensor_by_index(t, [*first[:axis], ends[-1], *first[axis + 1 :]], at)


def _pad(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), pads = operands, a["pads"]
    if len(pads) != 2 * len(x.shape):
        raise ShapeMismatch
    for p in pads:
        t.require_nonnegative(p)
    fill = _float(t.reals, a["value"])
    return tensor_by_index(t, _padded(x.shape, pads), lambda i: padded_read(t, x, i, pads, fill))


def _padded(shape: Sequence[Poly], pads: Sequence[Poly]) -> list[Poly]:
    return [n + pads[k] + pads[k + len(shape)] for k, n in enumerate(shape)]


def _expand(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), shape = operands, a["shape"]
    if len(x.shape) > len(shape):
        raise ShapeMismatch
    for n, m in zip(reversed(x.shape), reversed(shape), strict=False):
        t.require_broadcast(n, m)
    return tensor_by_index(t, shape, lambda i: broadcast_read(t, x, i, shape))


def _full(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    value = _float(t.reals, a["value"])
    return Tensor(tuple(a["shape"]), lambda i: value, lambda p: value)


# -- vectors along an axis, reductions


def _vector(combine: str) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        x, b = operands
        axis = axis_of(a, x)
        if len(b.shape) != 1:
            raise ShapeMismatch
        t.require_equal(b.shape[0], x.shape[axis])
        return tensor_by_index(t, x.shape, lambda i: ARITHMETIC[combine](t.reals, x.at(i), b.at([i[axis]])))

    return reader


def _reduction(kind: str) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        (x,), axes, keep = operands, [p.number for p in a["axes"]], a["keepdims"].number
        if keep is None or None in axes:
            raise NotProved
        if len(set(axes)) != len(axes) or any(not 0 <= n < len(x.shape) for n in axes):
            raise ShapeMismatch
        extents = [x.shape[n] for n in axes]
        shape = [as_poly(1) if n in axes else e for n, e in enumerate(x.shape) if keep or n not in axes]

        def at(i: Index) -> Real:
            outer_index = [p for n, p in enumerate(i) if n not in axes] if keep else list(i)

            def element(*k: Poly) -> Real:
                inner, outer = dict(zip(axes, k, strict=True)), iter(outer_index)
                return x.at([inner[n] if n in inner else next(outer) for n in range(len(x.shape))])

            if kind in ("max", "min"):
                return t.reals.extremum(kind, extents, element)
            return mean_of(t, extents, element) if kind == "mean" else t.reals.total(extents, element)

        return tensor_by_index(t, shape, at)

    return reader


READERS: dict[str, Reader] = {
    **CONTRACTIONS,
    **LAYERS,
    **POOLS,
    **RECURRENCES,
    "bias_add": _vector("add"),
    "concat": _concat,
    "expand": _expand,
    "full": _full,
    "pad": _pad,
    "reduce_max": _reduction("max"),
    "reduce_mean": _reduction("mean"),
    "reduce_min": _reduction("min"),
    "reduce_sum": _reduction("sum"),
    "reshape": _reshape,
    "reverse": _reverse,
    "scale": _vector("mul"),
    "slice": _slice,
    "transpose": _transpose,
}
