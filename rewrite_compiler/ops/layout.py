"""Operators that only move data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..lang.binders import Array, array
from ..lang.expr import Expr, const, lift, select
from .conv import digits
from .elementwise import broadcast, broadcast_read
from .op import LAYOUT, Shape, ShapeError, op


def _reshape_shape(x: Shape, *, shape: Shape) -> Shape:
    if math.prod(x) != math.prod(shape) or any(n < 0 for n in shape):
        raise ShapeError(f"Reshape must keep the {math.prod(x)} elements of {x}, not make {tuple(shape)}")
    return tuple(shape)


@op("reshape", "x", _reshape_shape, attributes="shape:ints", kind=LAYOUT)
def reshape(x: Array, *, shape: Shape) -> Array:
    """The same elements in row-major order under another shape."""
    extents = [int(n) for n in x.shape]  # type: ignore[arg-type]

    def element(*i: Expr) -> Expr:
        return x[tuple(regroup(i, shape, extents))]

    return array(element, shape)


def regroup(index: Sequence[Expr], shape: Sequence[int], target: Sequence[int]) -> list[Expr]:
    """Return the index in `target` of the row-major place `index` in `shape`, splitting axes where the shapes agree."""
    places: list[Expr] = []
    a = b = 0
    while a < len(shape) or b < len(target):
        size_a, size_b, next_a, next_b = 1, 1, a, b
        while next_a == a or next_b == b or size_a != size_b:
            if (size_a <= size_b and next_a < len(shape)) or next_b == len(target):
                if next_a == len(shape):
                    break
                size_a, next_a = size_a * shape[next_a], next_a + 1
            else:
                size_b, next_b = size_b * target[next_b], next_b + 1
        places.extend(_group(index[a:next_a], shape[a:next_a], target[b:next_b]))
        a, b = next_a, next_b
    return places


def _group(index: Sequence[Expr], shape: Sequence[int], target: Sequence[int]) -> list[Expr]:
    if not target:
        return []
    number: Expr = lift(0)
    for i, n in zip(index, shape, strict=True):
        number = number * n + i
    return digits(number, target)


def _transpose_shape(x: Shape, *, perm: Shape) -> Shape:
    if sorted(perm) != list(range(len(x))):
        raise ShapeError(f"Permutation of transpose must name each of the {len(x)} axes once, not {tuple(perm)}")
    return tuple(x[p] for p in perm)


@op("transpose", "x", _transpose_shape, attributes="perm:ints", kind=LAYOUT)
def transpose(x: Array, *, perm: Shape) -> Array:
    """Axis i of the result is axis perm[i] of x."""
    back = [perm.index(axis) for axis in range(len(perm))]
    return array(lambda *i: x[tuple(i[b] for b in back)], [x.shape[p] for p in perm])


def _slice_shape(x: Shape, *, axis: int, start: int, stop: int, step: int) -> Shape:
    if not 0 <= axis < len(x):
        raise ShapeError(f"Axis of slice must be in 0…{len(x) - 1}, not {axis}")
    if step < 1 or not 0 <= start <= stop <= x[axis]:
        raise ShapeError(f"slice takes start ≤ stop ≤ {x[axis]} and a positive step, not {start}, {stop}, {step}")
    return (*x[:axis], -(-(stop - start) // step), *x[axis + 1 :])


@op("slice", "x", _slice_shape, attributes="axis:int start:int stop:int step:int=1", kind=LAYOUT)
def slice_(x: Array, *, axis: int, start: int, stop: int, step: int) -> Array:
    """Elements start, start+step, … below stop of one axis."""
    shape = _slice_shape(x.shape, axis=axis, start=start, stop=stop, step=step)  # type: ignore[arg-type]
    if 0 in shape:
        return array(lambda *_: const(Fraction(0)) if x.real else lift(0), shape)
    return array(lambda *i: x[(*i[:axis], i[axis] * step + start, *i[axis + 1 :])], shape)


def _reverse_shape(x: Shape, *, axis: int) -> Shape:
    if not 0 <= axis < len(x):
        raise ShapeError(f"Axis of reverse must be in 0…{len(x) - 1}, not {axis}")
    return x


@op("reverse", "x", _reverse_shape, attributes="axis:int", kind=LAYOUT)
def reverse(x: Array, *, axis: int) -> Array:
    """X with the elements of one axis in the opposite order."""
    if x.shape[axis] == 0:
        return x
    last = x.shape[axis] - 1
    return array(lambda *i: x[(*i[:axis], last - i[axis], *i[axis + 1 :])], x.shape)


def _concat_shape(*operands: Shape, axis: int) -> Shape:
    first = operands[0]
    if not 0 <= axis < len(first):
        raise ShapeError(f"Axis of concat must be in 0…{len(first) - 1}, not {axis}")
    for operand in operands[1:]:
        if len(operand) != len(first) or any(a != b for n, (a, b) in enumerate(zip(first, operand, strict=True)) if n != axis):
            raise ShapeError(f"concat along axis {axis} needs operands that agree on the other axes, not {first} and {operand}")
    return (*first[:axis], sum(s[axis] for s in operands), *first[axis + 1 :])


@op("concat", "x y", _concat_shape, attributes="axis:int", kind=LAYOUT, variadic=True)
def concat(*operands: Array, axis: int) -> Array:
    """Operands one after the other along an axis."""
    shape = _concat_shape(*(x.shape for x in operands), axis=axis)  # type: ignore[arg-type]

    def element(*i: Expr) -> Expr:
        sizes = [int(x.shape[axis]) for x in operands]  # type: ignore[arg-type]
        base = sum(sizes[:-1])
        result = operands[-1][(*i[:axis], i[axis] - base, *i[axis + 1 :])]
        for n in reversed(range(len(operands) - 1)):
            base -= sizes[n]
            part = operands[n][(*i[:axis], i[axis] - base, *i[axis + 1 :])]
            result = select(i[axis] < base + sizes[n], part, result)
        return result

    nonempty = [x for x in operands if x.shape[axis] != 0]
    if len(nonempty) != len(operands):
        return concat.meaning(*nonempty, axis=axis) if nonempty else operands[0]  # type: ignore[return-value]
    return array(element, shape)


def _pad_shape(x: Shape, *, pads: Shape, value: float) -> Shape:
    if len(pads) != 2 * len(x) or any(p < 0 for p in pads):
        raise ShapeError(f"pad of {len(x)} axes needs {2 * len(x)} pads that are not negative, not {tuple(pads)}")
    return tuple(n + pads[a] + pads[a + len(x)] for a, n in enumerate(x))


@op("pad", "x", _pad_shape, attributes="pads:ints value:float=0", kind=LAYOUT)
def pad(x: Array, *, pads: Shape, value: float) -> Array:
    """X with `value` around it; pads are all the befores, then all the afters."""
    fill = const(Fraction(value)) if x.real else lift(int(value))
    shape = _pad_shape(x.shape, pads=pads, value=value)  # type: ignore[arg-type]
    if 0 in x.shape:
        return array(lambda *_: fill, shape)

    def element(*i: Expr) -> Expr:
        inside: Expr = lift(1)
        for axis, (place, n) in enumerate(zip(i, x.shape, strict=True)):
            if pads[axis] or pads[axis + x.rank]:
                inside = inside & (place >= pads[axis]) & (place < n + pads[axis])
        return select(inside, x[tuple(p - pads[a] for a, p in enumerate(i))], fill)

    return array(element, shape)


def _expand_shape(x: Shape, *, shape: Shape) -> Shape:
    if broadcast(x, tuple(shape)) != tuple(shape):
        raise ShapeError(f"expand cannot make {tuple(shape)} from {x}")
    return tuple(shape)


@op("expand", "x", _expand_shape, attributes="shape:ints", kind=LAYOUT)
def expand(x: Array, *, shape: Shape) -> Array:
    """X broadcast to a shape."""
    return array(lambda *i: broadcast_read(x, i), shape)


def _gather_shape(x: Shape, indices: Shape, *, axis: int) -> Shape:
    if not 0 <= axis < len(x):
        raise ShapeError(f"Axis of gather must be in 0…{len(x) - 1}, not {axis}")
    return (*x[:axis], *indices, *x[axis + 1 :])


@op("gather", "x indices", _gather_shape, attributes="axis:int", kind=LAYOUT)
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """The slices of x along an axis that an integer tensor names; a negative index counts from the end."""
    size = int(x.shape[axis])  # type: ignore[arg-type]
    shape = _gather_shape(x.shape, indices.shape, axis=axis)  # type: ignore[arg-type]

    def element(*i: Expr) -> Expr:
        place = indices[i[axis : axis + indices.rank]]
        place = select(place < 0, place + size, place)
        return x[(*i[:axis], place, *i[axis + indices.rank :])]

    return array(element, shape)
