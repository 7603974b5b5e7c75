"""Algorithms: one problem as a native loop nest, as a product on a matrix of windows, and as a product between transposes.

A contraction becomes one product of matrices by grouping its indices: those of the result from either side, and the summed ones
(transpose-transpose-GEMM-transpose, TTGT). A convolution does so on its windows, written out (im2col); or by its channels alone, where
the product has a column for every tap of every filter, and the results of the taps are then added, each shifted by its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import InputError
from .problem import Problem, Projection

Axes = tuple[Projection, ...]
NATIVE, IM2COL, TTGT = "native", "im2col", "ttgt"


@dataclass(frozen=True)
class Algorithm:
    """A way to compute a problem: the problem that the units run, and the elements that layouts read and write around it."""

    name: str
    problem: Problem
    layout_elements: int = 0


def algorithms(problem: Problem) -> tuple[Algorithm, ...]:
    """Return the ways to compute a problem, itself first.

    Raises:
        InputError: it is not a sum of products of two operands, or two dimensions along one axis are not a window's (F233).
    """
    operands = [t for t in problem.spaces if t != problem.output]
    if len(operands) != 2:  # noqa: PLR2004 -- a product
        raise InputError("F233", f"Only a product of two operands is a product of matrices, not of {len(operands)}")
    native = Algorithm(NATIVE, problem)
    windowed = [t for t in operands if any(len(axis) > 1 for axis in problem.spaces[t])]
    if not windowed:
        product, layout_elements = _product(problem)
        return (native,) if product.names == problem.names else (native, Algorithm(TTGT, product, layout_elements))
    if len(windowed) > 1 or any(len(axis) > 2 for axis in problem.spaces[windowed[0]]):  # noqa: PLR2004 -- place and tap
        raise InputError("F233", "A convolution has windows on one operand, each a sum of a place and a tap")
    return (native, _windows(problem, windowed[0]), _channels(problem, windowed[0]))


def _windows(problem: Problem, x: str) -> Algorithm:
    """Write every window out: an element comes as often as there are windows that hold it."""
    window_axes: Axes = tuple({d: 1} for axis in problem.spaces[x] for d in axis)
    product, layout_elements = _product(Problem(problem.dimensions, {**problem.spaces, x: window_axes}, problem.output), (x,))
    one_tap = all(problem.dimensions[d] == 1 for d in _taps(problem, x))
    copies = 0 if one_tap and not _is_turned(problem, x, window_axes) else _span(problem, problem.spaces[x]) + _span(problem, window_axes)
    return Algorithm(IM2COL, product, layout_elements + copies)


def _channels(problem: Problem, x: str) -> Algorithm:
    """Multiply every place of the image by every tap; read the products that a result needs, and write their sums."""
    sizes, axes, taps = dict(problem.dimensions), [], _taps(problem, x)
    for axis in problem.spaces[x]:
        if len(axis) == 1:
            axes.append(axis)
            continue
        place = next(d for d in axis if d not in taps)
        sizes[place] = sum(c * (problem.dimensions[d] - 1) for d, c in axis.items()) + 1
        axes.append({place: 1})
    products = (*problem.spaces[problem.output], *({d: 1} for d in sorted(taps)))
    has_sums = any(problem.dimensions[d] > 1 for d in taps)
    free_tensors = (problem.output,) if has_sums else ()  # the sums read products where they are
    product, layout_elements = _product(
        Problem(sizes, {**problem.spaces, x: tuple(axes), problem.output: products}, problem.output), free_tensors
    )
    results = _span(problem, problem.spaces[problem.output])
    return Algorithm(
        TTGT, product, layout_elements + (results * math.prod(problem.dimensions[d] for d in taps) + results if has_sums else 0)
    )


def _taps(problem: Problem, x: str) -> frozenset[str]:
    """Return the dimensions of windows that do not index the result."""
    return frozenset(d for axis in problem.spaces[x] if len(axis) > 1 for d in axis) - problem.relevant(problem.output)


def _product(problem: Problem, free_tensors: tuple[str, ...] = ()) -> tuple[Problem, int]:
    """Return a contraction as one product of matrices, and the elements that transposes move; of `free_tensors`, none.

    Raises:
        InputError: a summed index is one of a single operand (F233).
    """
    a, b = (t for t in problem.spaces if t != problem.output)
    indices = {t: [d for axis in axes for d in axis if problem.dimensions[d] > 1] for t, axes in problem.spaces.items()}
    z = indices[problem.output]
    groups = {
        "b": [d for d in z if d in indices[a] and d in indices[b]],
        "m": [d for d in z if d in indices[a] and d not in indices[b]],
        "n": [d for d in z if d in indices[b] and d not in indices[a]],
        "k": [d for d in indices[a] if d not in z],
    }
    if {*z, *groups["k"]} != {*indices[a], *indices[b]} or not {*groups["k"]} <= {*indices[b]}:
        raise InputError("F233", f"A product of matrices sums over indices of both {a} and {b}")
    layout_elements = 0
    for t, pair in ((a, "mk"), (b, "kn"), (problem.output, "mn")):
        lead, (one, other) = groups["b"], (groups[g] for g in pair)
        if t not in free_tensors and indices[t] not in (lead + one + other, lead + other + one):
            layout_elements += 2 * _span(problem, problem.spaces[t])
    sizes = {g: math.prod(problem.dimensions[d] for d in ds) for g, ds in groups.items() if ds or g != "b"}
    batch: Axes = ({"b": 1},) if groups["b"] else ()
    spaces = {a: (*batch, {"m": 1}, {"k": 1}), b: (*batch, {"k": 1}, {"n": 1}), problem.output: (*batch, {"m": 1}, {"n": 1})}
    return Problem(sizes, spaces, problem.output, problem.unit, "gemm"), layout_elements


def _is_turned(problem: Problem, x: str, window_axes: Axes) -> bool:
    """Tell whether an image whose windows have one tap is not yet a matrix of its channels."""
    contraction = Problem(problem.dimensions, {**problem.spaces, x: window_axes}, problem.output)
    return _product(contraction)[1] > _product(contraction, (x,))[1]


def _span(problem: Problem, axes: Axes) -> int:
    """Return the elements along axes, gaps included."""
    return math.prod(sum(c * (problem.dimensions[d] - 1) for d, c in axis.items()) + 1 for axis in axes)
