"""Operators at shapes that are not known: their shape rules on polynomials, their elements at any place.

A tensor is its extents and a function from an index, or from a row-major place, to the element there. Elementwise operators
are read from their one meaning on scalars; the others have a reader each, which the tests compare with the meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..lang.binders import Comprehension, Leaf
from ..lang.expr import Expr
from ..ops.op import ELEMENTWISE, Op
from .integers import Poly, as_poly, place_of, product
from .reals import NIL, NotProved, Real, Reals, Unmet, number

Index = Sequence[Poly]
Attributes = Mapping[str, Any]


class Typing:
    """What a shape rule may ask: `same` of two extents, `joined` of two that broadcast. Left sides assume it, right sides prove it."""

    def __init__(self, reals: Reals) -> None:
        self.reals = reals
        self.facts = reals.facts

    def same(self, a: Poly, b: Poly) -> None:
        """Require two extents to be equal."""
        if not self.facts.equal(a, b):
            raise Unmet

    def least(self, p: Poly) -> None:
        """Require a polynomial not to be negative."""
        if not self.facts.nonnegative(p):
            raise Unmet

    def joined(self, a: Poly, b: Poly) -> Poly:
        """Return the extent that two broadcast to."""
        if self.facts.equal(a, b) or self.facts.norm(b).number == 1:
            return a
        if self.facts.norm(a).number == 1:
            return b
        raise Unmet


@dataclass(frozen=True)
class Tensor:
    """Extents, and the element at an index; `flat` is the element at a row-major place where that is no regrouping."""

    shape: tuple[Poly, ...]
    at: Callable[[Index], Real]
    flat: Callable[[Poly], Real]


def variable(reals: Reals, name: str, shape: Sequence[Poly]) -> Tensor:
    """Return an operand."""
    return Tensor(tuple(shape), lambda i: reals.read(name, place_of(i, shape)), lambda p: reals.read(name, p))


def _indexed(t: Typing, shape: Sequence[Poly], at: Callable[[Index], Real]) -> Tensor:
    """Return a tensor that is read by index: a place is taken apart into digits."""
    return Tensor(tuple(shape), at, lambda p: at(t.facts.digits(p, shape)))


def read(operator: Op, t: Typing, operands: Sequence[Tensor], attributes: Attributes) -> Tensor:
    """Return the result of an operator; NotProved where it has no reader or its shape rule is not satisfied."""
    if operator.kind == ELEMENTWISE and operator.name not in READERS:
        return _elementwise(operator, t, operands, attributes)
    found = READERS.get(operator.name)
    if found is None:
        raise NotProved
    return found(t, operands, attributes)


# -- elementwise


def _elementwise(operator: Op, t: Typing, operands: Sequence[Tensor], attributes: Attributes) -> Tensor:
    function = _function(operator, t.reals, attributes)
    if len(operands) == 1:
        (x,) = operands
        return Tensor(x.shape, lambda i: function(x.at(i)), lambda p: function(x.flat(p)))
    if len({len(x.shape) for x in operands}) == 1 and all(_agree(t, x, operands[0]) for x in operands):
        shape = operands[0].shape
        return Tensor(shape, lambda i: function(*(x.at(i) for x in operands)), lambda p: function(*(x.flat(p) for x in operands)))
    shape = tuple(_broadcast(t, [x.shape for x in operands]))
    return _indexed(t, shape, lambda i: function(*(_broadcast_read(t, x, i) for x in operands)))


def _agree(t: Typing, x: Tensor, y: Tensor) -> bool:
    return all(t.facts.equal(a, b) for a, b in zip(x.shape, y.shape, strict=True))


def _function(operator: Op, reals: Reals, attributes: Attributes) -> Callable[..., Real]:
    """Return an elementwise operator as a function of elements: its meaning on scalars; with attributes a function by that name."""
    if attributes:
        values = tuple(sorted((n, str(v)) for n, v in attributes.items()))
        return lambda *xs: reals.apply(f"{operator.name}{values}", *xs)
    leaves = [Leaf((), (None, None), True, f"x{n}") for n in range(len(operator.operands))]
    meaning = operator.meaning(*leaves)
    if not isinstance(meaning, Comprehension):
        raise NotProved
    return lambda *xs: _scalar(meaning.body, reals, dict(zip(leaves, xs, strict=True)))


def _scalar(e: Expr, reals: Reals, values: Mapping[Any, Real]) -> Real:
    if e.op == "const":
        return number(Fraction(e.data))
    if e.op == "load":
        return values[e.data]
    operands = [_scalar(a, reals, values) for a in e.args]
    if e.op in ARITHMETIC:
        return ARITHMETIC[e.op](reals, *operands)
    return reals.apply(f"{e.op} {e.data}" if e.op == "call" else e.op, *operands)


ARITHMETIC: dict[str, Callable[..., Real]] = {
    "add": lambda r, a, b: r.add(a, b),
    "sub": lambda r, a, b: r.add(a, r.scaled(b, -1)),
    "neg": lambda r, a: r.scaled(a, -1),
    "mul": lambda r, a, b: r.multiply(a, b),
    "real": lambda r, a: a,
}


def _broadcast(t: Typing, shapes: Sequence[Sequence[Poly]]) -> list[Poly]:
    rank = max(map(len, shapes))
    padded = [[as_poly(1)] * (rank - len(s)) + list(s) for s in shapes]
    found = padded[0]
    for other in padded[1:]:
        found = [t.joined(a, b) for a, b in zip(found, other, strict=True)]
    return found


def _broadcast_read(t: Typing, x: Tensor, i: Index) -> Real:
    tail = i[len(i) - len(x.shape) :]
    return x.at([as_poly(0) if t.facts.norm(n).number == 1 else p for p, n in zip(tail, x.shape, strict=True)])


# -- data movement


def _reshape(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), shape = operands, a["shape"]
    t.same(product(x.shape), product(shape))
    return Tensor(tuple(shape), lambda i: x.flat(place_of(i, shape)), x.flat)


def _transpose(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), perm = operands, [p.number for p in a["perm"]]
    if None in perm:
        raise NotProved
    if sorted(perm) != list(range(len(x.shape))):
        raise Unmet
    back = [perm.index(axis) for axis in range(len(perm))]
    return _indexed(t, [x.shape[p] for p in perm], lambda i: x.at([i[b] for b in back]))


def _axis(a: Attributes, x: Tensor) -> int:
    axis = a["axis"].number
    if axis is None:
        raise NotProved
    if not 0 <= axis < len(x.shape):
        raise Unmet
    return int(axis)


def _slice(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), axis = operands, _axis(a, operands[0])
    start, stop, step = a["start"], a["stop"], a["step"]
    for p in (start, stop - start - 1, x.shape[axis] - stop, step - 1):
        t.least(p)
    count = t.facts.divided(stop - start - 1, step) + 1
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    return _indexed(t, shape, lambda i: x.at([*i[:axis], i[axis] * step + start, *i[axis + 1 :]]))


def _concat(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    axis = _axis(a, operands[0])
    first = operands[0].shape
    for x in operands[1:]:
        if len(x.shape) != len(first):
            raise Unmet
        for n in range(len(first)):
            if n != axis:
                t.same(first[n], x.shape[n])
    ends = list(itertools.accumulate(x.shape[axis] for x in operands))

    def at(i: Index) -> Real:
        found: Real | None = None
        for x, end in reversed([*zip(operands, ends, strict=True)]):
            here = x.at([*i[:axis], i[axis] - (end - x.shape[axis]), *i[axis + 1 :]])
            found = here if found is None else t.reals.choose([end - 1 - i[axis]], here, found)
        return found or NIL

    return _indexed(t, [*first[:axis], ends[-1], *first[axis + 1 :]], at)


def _pad(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), pads = operands, a["pads"]
    if len(pads) != 2 * len(x.shape):
        raise Unmet
    for p in pads:
        t.least(p)
    fill = number(a["value"]) if isinstance(a["value"], Fraction) else t.reals.atom("float", a["value"])
    return _indexed(t, _padded(x.shape, pads), lambda i: _inside(t, x, i, pads, fill))


def _padded(shape: Sequence[Poly], pads: Sequence[Poly]) -> list[Poly]:
    return [n + pads[k] + pads[k + len(shape)] for k, n in enumerate(shape)]


def _inside(t: Typing, x: Tensor, i: Index, pads: Sequence[Poly], fill: Real) -> Real:
    """Return the element of x under pads, or what fills them."""
    place = [p - pads[k] for k, p in enumerate(i)]
    moved = [k for k in range(len(place)) if not (pads[k].number == 0 and pads[k + len(place)].number == 0)]
    conditions = [c for k in moved for c in (place[k], x.shape[k] - 1 - place[k])]
    return t.reals.choose(conditions, x.at(place), fill) if conditions else x.at(place)


def _expand(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), shape = operands, a["shape"]
    joined = _broadcast(t, [x.shape, shape])
    if len(joined) != len(shape):
        raise Unmet
    for n, m in zip(joined, shape, strict=True):
        t.same(n, m)
    return _indexed(t, shape, lambda i: _broadcast_read(t, x, i))


def _full(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    value = number(a["value"]) if isinstance(a["value"], Fraction) else t.reals.atom("float", a["value"])
    return Tensor(tuple(a["shape"]), lambda i: value, lambda p: value)


# -- sums


def _dense(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, w = operands
    if len(w.shape) != 2 or not x.shape:
        raise Unmet
    t.same(x.shape[-1], w.shape[1])
    r = t.reals
    return _indexed(
        t,
        (*x.shape[:-1], w.shape[0]),
        lambda i: r.total([w.shape[1]], lambda c: r.multiply(x.at((*i[:-1], c)), w.at((i[-1], c)))),
    )


def _matmul(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, y = operands
    if len(x.shape) < 2 or len(y.shape) < 2:
        raise Unmet
    t.same(x.shape[-1], y.shape[-2])
    shape = (*_broadcast(t, [x.shape[:-2], y.shape[:-2]]), x.shape[-2], y.shape[-1])
    r = t.reals

    def at(i: Index) -> Real:
        lead, m, n = i[:-2], i[-2], i[-1]
        return r.total([x.shape[-1]], lambda c: r.multiply(_broadcast_read(t, x, (*lead, m, c)), _broadcast_read(t, y, (*lead, c, n))))

    return _indexed(t, shape, at)


def _gate_sum(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, h, w, r, first, second = operands
    if any(len(m.shape) != 2 for m in (x, h, w, r)) or any(len(v.shape) != 1 for v in (first, second)):
        raise Unmet
    same = ((x, 0, h, 0), (w, 1, x, 1), (r, 0, w, 0), (r, 1, h, 1), (first, 0, w, 0), (second, 0, w, 0))
    for left, k, right, n in same:
        t.same(left.shape[k], right.shape[n])
    reals = t.reals

    def at(i: Index) -> Real:
        n, j = i
        from_x = reals.total([w.shape[1]], lambda c: reals.multiply(x.at((n, c)), w.at((j, c))))
        from_h = reals.total([r.shape[1]], lambda c: reals.multiply(h.at((n, c)), r.at((j, c))))
        return reals.add(from_x, from_h, first.at([j]), second.at([j]))

    return _indexed(t, (x.shape[0], w.shape[0]), at)


def _vector(combine: str) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        x, b = operands
        axis = _axis(a, x)
        if len(b.shape) != 1:
            raise Unmet
        t.same(b.shape[0], x.shape[axis])
        return _indexed(t, x.shape, lambda i: ARITHMETIC[combine](t.reals, x.at(i), b.at([i[axis]])))

    return reader


def _windows(t: Typing, spatial: Sequence[Poly], kernel: Sequence[Poly], a: Attributes) -> list[Poly]:
    strides, pads, dilations = a["strides"], a["pads"], a["dilations"]
    rank = len(spatial)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise Unmet
    for p in (*(s - 1 for s in strides), *(d - 1 for d in dilations), *pads):
        t.least(p)
    found = []
    for k, n in enumerate(spatial):
        room = n + pads[k] + pads[k + rank] - dilations[k] * (kernel[k] - 1) - 1
        t.least(room)
        found.append(t.facts.divided(room, strides[k]) + 1)
    return found


def _around(x: Tensor, pads: Sequence[Poly]) -> list[Poly]:
    none = [as_poly(0)] * 2
    half = len(pads) // 2
    return [*none, *pads[:half], *none, *pads[half:]]


def _conv(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    x, w = operands
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        raise Unmet
    group = a["group"]
    t.least(group - 1)
    t.same(x.shape[1], w.shape[1] * group)
    out = _windows(t, x.shape[2:], w.shape[2:], a)
    outputs = w.shape[0]
    if group.number != 1:
        outputs = t.facts.divided(w.shape[0], group)
        t.same(outputs * group, w.shape[0])
    pads, r = _around(x, a["pads"]), t.reals

    def at(i: Index) -> Real:
        n, o, *p = i
        first = as_poly(0) if group.number == 1 else t.facts.divided(o, outputs) * w.shape[1]

        def term(c: Poly, *k: Poly) -> Real:
            places = [q * s + j * d for q, s, j, d in zip(p, a["strides"], k, a["dilations"], strict=True)]
            return r.multiply(_inside(t, x, [n, first + c, *places], pads, NIL), w.at([o, c, *k]))

        return r.total([w.shape[1], *w.shape[2:]], term)

    return _indexed(t, [x.shape[0], w.shape[0], *out], at)


def _im2col(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
    (x,), kernel = operands, a["kernel"]
    if len(x.shape) < 3:
        raise Unmet
    for k in kernel:
        t.least(k - 1)
    out = [x.shape[0], *_windows(t, x.shape[2:], kernel, a)]
    columns, pads = [x.shape[1], *kernel], _around(x, a["pads"])

    def at(i: Index) -> Real:
        n, *p = t.facts.digits(i[0], out)
        c, *k = t.facts.digits(i[1], columns)
        places = [q * s + j * d for q, s, j, d in zip(p, a["strides"], k, a["dilations"], strict=True)]
        return _inside(t, x, [n, c, *places], pads, NIL)

    return _indexed(t, [product(out), product(columns)], at)


def _reduction(kind: str) -> Callable[[Typing, Sequence[Tensor], Attributes], Tensor]:
    def reader(t: Typing, operands: Sequence[Tensor], a: Attributes) -> Tensor:
        (x,), axes, keep = operands, [p.number for p in a["axes"]], a["keepdims"].number
        if keep is None or None in axes:
            raise NotProved
        if len(set(axes)) != len(axes) or any(not 0 <= n < len(x.shape) for n in axes):
            raise Unmet
        extents = [x.shape[n] for n in axes]
        shape = [as_poly(1) if n in axes else e for n, e in enumerate(x.shape) if keep or n not in axes]

        def at(i: Index) -> Real:
            kept = [p for n, p in enumerate(i) if n not in axes] if keep else list(i)

            def element(*k: Poly) -> Real:
                inner, outer = dict(zip(axes, k, strict=True)), iter(kept)
                return x.at([inner[n] if n in inner else next(outer) for n in range(len(x.shape))])

            if kind in ("max", "min"):
                return t.reals.extremum(kind, extents, element)
            found = t.reals.total(extents, element)
            return t.reals.apply("rdiv", found, t.reals.atom("integer", t.facts.norm(product(extents)))) if kind == "mean" else found

        return _indexed(t, shape, at)

    return reader


READERS: dict[str, Callable[[Typing, Sequence[Tensor], Attributes], Tensor]] = {
    "bias_add": _vector("add"),
    "concat": _concat,
    "conv": _conv,
    "dense": _dense,
    "expand": _expand,
    "full": _full,
    "gate_sum": _gate_sum,
    "im2col": _im2col,
    "matmul": _matmul,
    "pad": _pad,
    "reduce_max": _reduction("max"),
    "reduce_mean": _reduction("mean"),
    "reduce_min": _reduction("min"),
    "reduce_sum": _reduction("sum"),
    "reshape": _reshape,
    "scale": _vector("mul"),
    "slice": _slice,
    "transpose": _transpose,
}
