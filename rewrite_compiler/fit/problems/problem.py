"""Problems: an operation as loop dimensions, and each tensor's axes as affine sums of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...errors import InputError
from .documents import WORD_BITS, check_count, check_keys, check_schema, checked_list, checked_name, checked_object, positive_integer

Projection = Mapping[str, int]  # coefficient of each dimension along an axis
MAX_POINTS = 1 << WORD_BITS  # of an iteration space or positions along an axis, so that every counter is a word of 64 bits
MAC = "mac2"
DESCRIPTION = ("unit", "tag", "schema")  # keys of a problem that say more than its loops


@dataclass(frozen=True)
class Problem:
    """Sizes of the loop dimensions, each tensor's axes as coefficients of dimensions, the unit operation and a tag."""

    dimensions: Mapping[str, int]
    spaces: Mapping[str, tuple[Projection, ...]]
    output: str
    unit: str = MAC
    tag: str | None = field(default=None, compare=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Dimensions in order."""
        return tuple(self.dimensions)

    @property
    def points(self) -> int:
        """Points of the iteration space: operations of the unit."""
        return math.prod(self.dimensions.values())

    def relevant(self, tensor: str) -> frozenset[str]:
        """Return the dimensions that index a tensor."""
        return frozenset(d for axis in self.spaces[tensor] for d in axis)

    def document(self) -> dict[str, Any]:
        """Return the problem as JSON."""
        tensors = {t: [dict(axis) for axis in axes] for t, axes in self.spaces.items()}
        optional = {} if self.tag is None else {"tag": self.tag}
        return {"dimensions": dict(self.dimensions), "tensors": tensors, "output": self.output, "unit": self.unit, **optional}


def problem_from(document: Any) -> Problem:
    """Return the problem of a JSON document.

    Raises:
        InputError: the document is not a problem (F230).
    """
    described = {k: v for k, v in document.items() if k not in DESCRIPTION} if isinstance(document, Mapping) else document
    check_keys(described, "The problem", ("dimensions", "tensors", "output"))
    check_schema(document, "problem")
    sizes, spaces = (checked_object(document[key], key) for key in ("dimensions", "tensors"))
    check_count(sizes, "dimensions")
    check_count(spaces, "tensors")
    dimensions = {checked_name(d, "A dimension"): positive_integer(n, f"Dimension {d}") for d, n in sizes.items()}
    tensors = {checked_name(t, "A tensor"): _axes(t, axes, dimensions) for t, axes in spaces.items()}
    if not isinstance(document["output"], str) or document["output"] not in tensors:
        raise InputError("F230", f'The output must be one of {", ".join(tensors)}, not "{document["output"]}"')
    for key in ("unit", "tag"):
        if key in document:
            checked_name(document[key], f"The problem's {key}")
    problem = Problem(dimensions, tensors, document["output"], document.get("unit", MAC), document.get("tag"))
    check_size(problem)
    return problem


def check_size(problem: Problem) -> None:
    """Check that every counter of every mapping is a word of 64 bits.

    Raises:
        InputError: the iteration space is too large (F230).
    """
    if problem.points >= MAX_POINTS:
        sizes = " × ".join(f"{d} {n:,}" for d, n in problem.dimensions.items())
        raise InputError("F230", f"The iteration space must have fewer than 2^62 points for its counters, not {problem.points:,} ({sizes})")
    for tensor, axes in problem.spaces.items():
        positions = max((sum(step * problem.dimensions[d] for d, step in axis.items()) for axis in axes), default=0)
        if positions >= MAX_POINTS:
            raise InputError("F230", f"An axis of tensor {tensor} must have fewer than 2^62 positions for its counters, not {positions:,}")


def _axes(tensor: str, axes: Any, dimensions: Mapping[str, int]) -> tuple[Projection, ...]:
    coefficients = []
    dimensions_used: set[str] = set()
    if checked_list(axes, f"Tensor {tensor}"):
        check_count(axes, f"axes of tensor {tensor}")
    for axis in axes:
        for d, coefficient in checked_object(axis, f"an axis of tensor {tensor}").items():
            check_dimension(d, dimensions, f"Tensor {tensor}")
            positive_integer(coefficient, f"The coefficient of {d} in tensor {tensor}")
            if d in dimensions_used:
                raise InputError("F230", f"Dimension {d} must run along one axis of tensor {tensor}, not along two")
            dimensions_used.add(d)
        coefficients.append(dict(axis))
    return tuple(coefficients)


def check_dimension(d: Any, dimensions: Mapping[str, int], subject: str) -> None:
    """Check that a value names a dimension.

    Raises:
        InputError: it does not (F230).
    """
    if not isinstance(d, str) or d not in dimensions:
        raise InputError("F230", f"{subject} must use a dimension of the problem ({', '.join(dimensions)}), not {d!r}")
