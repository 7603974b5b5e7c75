"""GeneSys's element-wise operations: nests over the rows of vector memories, in 32 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Array, Expr, Fixed, array, lift, maximum, minimum, select, signed
from rewrite_compiler.lang import Int as Integers
from rewrite_compiler.ops import HasType
from rewrite_compiler.rewrite import Float
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import StreamedDevice, axis_sizes, pad_axis

from .base import Codes, config, int8, target
from .simd import FIRST, SECOND, Nest, Operand, Sweep, flat, run, scalar, spread

RANKS = {2: "a b", 4: "a b c d"}
FRACTION = 16  # bits of the fraction of the functions' operands and results
BYTE = (-128, 127)
P = Mapping[str, str]
Formats = Mapping[str, Fixed]
Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """What is done to every element: operations from a place to itself with a source, and the scalars that they name."""

    steps: tuple[tuple[str, str, Operand], ...]  # operation, the memory that it changes, its second source
    scalars: tuple[int, ...] = ()
    fraction: int = 0

    def nests(self, m: Sweep, group: int, band: int) -> list[Nest]:
        """Return the nests of a tile."""
        rows = {FIRST: flat(FIRST), SECOND: flat(SECOND)}
        counts = (group * band * m.size[1],)
        sources = (rows[source.space] if source.space != "IMM" else source for _, _, source in self.steps)
        return [Nest(name, counts, rows[space], rows[space], b) for (name, space, _), b in zip(self.steps, sources, strict=True)]


def sweep(sizes: Mapping[str, int], rank: int, p: P, *, operands: int) -> Sweep:
    """Return the work on all elements of tensors, whose axes do not matter."""
    c = config(p)
    return Sweep(c, 1, 1, spread(c, math.prod(sizes[d] for d in RANKS[rank].split())), operands=operands)


def run_flat(
    device: StreamedDevice, m: Sweep, tensors: Sequence[Codes], rank: int, scalars: Sequence[int], fraction: int = 0
) -> Codes:  # fmt: skip
    """Emit the work on tensors [(samples,) …] of one shape and rank; return results of that shape."""
    shape, lanes = tensors[0].shape[tensors[0].ndim - rank :], m.design.lanes
    size, images = math.prod(shape), []
    for x in tensors:
        rows = pad_axis(x.reshape(*x.shape[: x.ndim - rank], size), -1, m.size[0] * lanes)
        images.append(np.moveaxis(rows.reshape(*rows.shape[:-1], 1, *m.size, lanes), -1, -3))
    y = run(device, m, images, scalars=scalars, fraction=fraction)
    return np.moveaxis(y, -3, -1).reshape(*y.shape[:-4], -1)[..., :size].reshape(*y.shape[:-4], *shape)


def _drive(device: StreamedDevice, *, rank: int, work: Callable[..., Work], p: P, f: Formats, **given: Any) -> Codes:
    """Emit the operation on x and, where there is one, z [(samples,) …] of one shape."""
    tensors = [given.pop(name) for name in ("x", "z") if name in given]
    sizes = axis_sizes(RANKS[rank], tensors[0])
    done = work(f, given)
    m = replace(sweep(sizes, rank, p, operands=len(tensors)), program=done.nests)
    return run_flat(device, m, tensors, rank, done.scalars, done.fraction)


def _plan(*, rank: int, operands: int, steps: int, p: P, **sizes: int) -> Sweep:
    """Return the work of so many steps, whatever they are: limits and cost depend on no more."""
    return replace(sweep(sizes, rank, p, operands=operands), program=Work((("add", FIRST, scalar(0)),) * steps).nests)


# -- what there is: work on codes, and the same as a function of elements


def _one(name: str, source: Operand, *scalars: int) -> Callable[[Formats, Numbers], Work]:
    return lambda f, g: Work(((name, FIRST, source),), scalars)


def _bounds(f: Formats, g: Numbers) -> tuple[int, int]:
    """Return the codes nearest to the bounds of a clip; an open one bounds nothing."""

    def code(bound: float) -> int:
        scaled = bound * 2.0 ** f["x"].fraction
        return min(max(round(scaled), BYTE[0]), BYTE[1]) if math.isfinite(scaled) else BYTE[int(bound > 0)]

    return code(g["low"]), code(g["high"])


def _clip(f: Formats, g: Numbers) -> Work:
    return Work((("max", FIRST, scalar(0)), ("min", FIRST, scalar(1))), _bounds(f, g))


def _clipped(x: Expr, f: Formats, g: Numbers) -> Expr:
    low, high = _bounds(f, g)
    return minimum(maximum(x, low), high)


def _shift(f: Formats) -> int:
    """Return by how many bits codes go up to have the fraction of the functions: where that is more than 24 every code saturates."""
    return max(min(FRACTION - f["x"].fraction, 24), -31)


def _function(name: str) -> Callable[[Formats, Numbers], Work]:
    def work(f: Formats, g: Numbers) -> Work:
        by = _shift(f)
        return Work(((f"{'l' if by >= 0 else 'r'}shift", FIRST, scalar(0)), (name, FIRST, scalar(1))), (abs(by), 0), FRACTION)

    return work


def _scaled(x: Expr, f: Formats) -> Expr:
    by = _shift(f)
    return x << by if by >= 0 else x >> -by


def _sigmoid(x: Expr, f: Formats, g: Numbers) -> Expr:
    """The published line in pieces, with ends at 1, 2.375 and 5; of negative ones 1 less that of their size."""
    value, one = _scaled(x, f), 1 << FRACTION
    size = maximum(value, -value)
    line = (size >> 2) + one // 2
    for begin, piece in ((one, (size >> 3) + one * 5 // 8), (one * 19 // 8, (size >> 5) + one * 27 // 32), (5 * one, lift(one))):
        line = select(size >= begin, piece, line)
    return select(value < 0, one - line, line)


def _tanh(x: Expr, f: Formats, g: Numbers) -> Expr:
    one = 1 << FRACTION
    return minimum(maximum(_scaled(x, f), -one), one)


@dataclass(frozen=True)
class Kind:
    """One operation: its meaning, the format of its result, the work, its steps, and the same as a function of elements."""

    meaning: FunctionType
    y: Callable[..., Fixed]
    work: Callable[[Formats, Numbers], Work]
    element: Callable[..., Expr]
    steps: int = 1
    is_shared: bool = False
    is_integer: bool = False  # whether it works on a model's own int32

    @property
    def operands(self) -> int:
        """How many tensors it has."""
        return 1 + ("z" in self.meaning.__code__.co_varnames)


def _codes(element: Callable[..., Expr], *operands: Array, f: Formats, **attributes: Any) -> Array:
    return array(lambda *i: element(*(x[i] for x in operands), f, attributes), operands[0].shape)


def function(f: Callable[..., Any], name: str = "") -> FunctionType:
    """Return a function that is to be named."""
    assert isinstance(f, FunctionType)
    f.__name__ = name or f.__name__
    return f


def _wide(x: Fixed) -> Fixed:
    return Fixed(32, x.fraction)


def _same(x: Fixed) -> Fixed:
    return x


def _declare(rank: int) -> None:
    dims = RANKS[rank]

    def add(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The sum of two tensors of one shape."""
        return o.add(x, z), Where(x.rank == rank, x.shape == z.shape)

    def add_relu(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The larger of the sum of two tensors of one shape and zero."""
        return o.relu(o.add(x, z)), Where(x.rank == rank, x.shape == z.shape)

    def relu(x: Tensor) -> tuple[Tensor, Where]:
        """The larger of each element and zero."""
        return o.relu(x), Where(x.rank == rank)

    def clip(x: Tensor, low: Float, high: Float) -> tuple[Tensor, Where]:
        """Each element limited to the codes nearest to two bounds."""
        return o.clip(x, low=low, high=high), Where(x.rank == rank)

    def sigmoid(x: Tensor) -> tuple[Tensor, Where]:
        """The sigmoid as a line of pieces, which the compiler's tests give."""
        return o.sigmoid(x), Where(x.rank == rank)

    def tanh(x: Tensor) -> tuple[Tensor, Where]:
        """The hyperbolic tangent as each element limited to −1 … 1, which the compiler's tests give."""
        return o.tanh(x), Where(x.rank == rank)

    def add_int32(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The sum of two int32 tensors of one shape, which wraps."""
        return o.add(x, z), Where(x.rank == rank, x.shape == z.shape, HasType(x, ("int32",)), HasType(z, ("int32",)))

    def relu_int32(x: Tensor) -> tuple[Tensor, Where]:
        """The larger of each int32 and zero."""
        return o.relu(x), Where(x.rank == rank, HasType(x, ("int32",)))

    added, fixed = ("add", FIRST, Operand(SECOND)), lambda x: Fixed(32, FRACTION)
    for kind in (
        Kind(function(add), _wide, _one("add", Operand(SECOND)), lambda x, z, f, g: x + z, is_shared=True),
        Kind(function(add_relu), _wide, lambda f, g: Work((added, ("relu", FIRST, scalar(0))), (0,)),
             lambda x, z, f, g: maximum(x + z, 0), 2, is_shared=True),
        Kind(function(relu), _same, _one("relu", scalar(0), 0), lambda x, f, g: maximum(x, 0)),
        Kind(function(clip), _same, _clip, _clipped, 2),
        Kind(function(sigmoid), fixed, _function("sigmoid"), _sigmoid, 2),
        Kind(function(tanh), fixed, _function("tanh"), _tanh, 2),
        Kind(function(add_int32), _same, _one("add", Operand(SECOND)), lambda x, z, f, g: signed(x + z, 32), is_integer=True),
        Kind(function(relu_int32), _same, _one("relu", scalar(0), 0), lambda x, f, g: maximum(x, 0), is_integer=True),
    ):  # fmt: skip
        _register(kind, rank, dims)


def _register(kind: Kind, rank: int, dims: str) -> None:
    name = kind.meaning.__name__
    inputs = dict.fromkeys(("x", "z")[: kind.operands], int8)
    axes = "; ".join(f"{n}: {dims}" for n in (*inputs, "y"))
    bounds = ({"low": -0.25, "high": 3.0}, {"low": -math.inf, "high": 3.0}) if name == "clip" else ({},)
    sizes = ((*(1,) * (rank - 1), 17), (3, 2, 5, 7)[:rank])
    trials = tuple({**dict(zip(dims.split(), s, strict=True)), **b} for b in bounds for s in sizes)
    integers = dict.fromkeys((*inputs, "y"), partial(Integers, 32))
    formats, derived = ({}, integers) if kind.is_integer else (inputs, {"y": kind.y})
    mapping: Operation = target.accelerates(
        axes=axes, formats=formats, derived=derived, operation=name.removesuffix("_relu").removesuffix("_int32"), whole=dims,
        shared=("x z",) if kind.is_shared else (), trials=trials,
    )(function(kind.meaning, f"{name}_{rank}"))  # fmt: skip
    mapping.work(partial(_plan, rank=rank, operands=len(inputs), steps=kind.steps))
    mapping.driver(partial(_drive, rank=rank, work=kind.work))
    mapping.numerics(partial(_codes, kind.element))


for _rank in RANKS:
    _declare(_rank)
