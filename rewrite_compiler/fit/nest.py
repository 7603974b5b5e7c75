"""Loop nests: an operation as loop dimensions and affine projections, and the loops that tile it level by level of memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError

MAX_POSITIONS = 1 << 26  # along an axis whose elements have to be counted one by one
Loop = tuple[str, int]
Limits = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Problem:
    """Sizes of the loop dimensions, and for each tensor and axis the coefficients of the dimensions that index it."""

    dimensions: Mapping[str, int]
    tensors: Mapping[str, tuple[Mapping[str, int], ...]]
    output: str


@dataclass(frozen=True)
class Level:
    """A memory, the spatial loops over the instances below it, and its temporal loops; innermost first."""

    memory: str
    spatial: tuple[Loop, ...]
    temporal: tuple[Loop, ...]


def problem_from(document: Any) -> Problem:
    """Return the problem of a JSON document.

    Raises:
        InputError: the document is not a problem (F230).
    """
    check_keys(document, "The problem", ("dimensions", "tensors", "output"))
    dimensions = {d: positive_integer(n, f"Dimension {d}") for d, n in checked_object(document["dimensions"], "dimensions").items()}
    tensors = {t: _axes(t, axes, dimensions) for t, axes in checked_object(document["tensors"], "tensors").items()}
    if document["output"] not in tensors:
        raise InputError("F230", f'The output must be one of {", ".join(tensors)}, not "{document["output"]}"')
    return Problem(dimensions, tensors, document["output"])


def _axes(tensor: str, axes: Any, dimensions: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
    coefficients = []
    dimensions_used: set[str] = set()
    for axis in _list(axes, f"Tensor {tensor}"):
        for d, coefficient in checked_object(axis, f"an axis of tensor {tensor}").items():
            _check_dimension(d, dimensions, f"Tensor {tensor}")
            positive_integer(coefficient, f"The coefficient of {d} in tensor {tensor}")
            if d in dimensions_used:
                raise InputError("F230", f"Dimension {d} must run along one axis of tensor {tensor}, not along two")
            dimensions_used.add(d)
        coefficients.append(dict(axis))
    return tuple(coefficients)


def levels_from(document: Any, problem: Problem) -> tuple[Level, ...]:
    """Return the levels of a mapping, innermost first.

    Raises:
        InputError: the document is not a legal mapping of the problem (F230).
    """
    if not _list(document, "The mapping"):
        raise InputError("F230", "The mapping must have at least one level, not none")
    levels = tuple(_level(entry, problem) for entry in document)
    names = [level.memory for level in levels]
    for name in names:
        if names.count(name) > 1:
            raise InputError("F230", f'The memories of a mapping must differ, not be "{name}" twice')
    for d, size in problem.dimensions.items():
        covered = math.prod(n for level in levels for e, n in (*level.spatial, *level.temporal) if e == d)
        if covered != size:
            raise InputError("F230", f"The loops over {d} must cover its {size:,} steps exactly, not {covered:,}")
    return levels


def _level(entry: Any, problem: Problem) -> Level:
    check_keys(entry, "A level of the mapping", ("memory",), ("spatial", "temporal"))
    name = entry["memory"]
    if not isinstance(name, str) or not name:
        raise InputError("F230", f"The memory of a level must be a name, not {name!r}")
    spatial, temporal = (_loops(entry.get(kind, []), name, kind, problem) for kind in ("spatial", "temporal"))
    return Level(name, spatial, temporal)


def _loops(entries: Any, memory: str, kind: str, problem: Problem) -> tuple[Loop, ...]:
    loops = []
    for loop in _list(entries, f"The {kind} loops of {memory}"):
        if not isinstance(loop, list | tuple) or len(loop) != 2:
            raise InputError("F230", f"A {kind} loop of {memory} must be a dimension and a count, not {loop!r}")
        _check_dimension(loop[0], problem.dimensions, f"A {kind} loop of {memory}")
        loops.append((loop[0], positive_integer(loop[1], f"The {kind} loop of {memory} over {loop[0]}")))
    return tuple(loops)


def check_keys(document: Any, subject: str, needed: Sequence[str], allowed: Sequence[str] = ()) -> None:
    """Check that a JSON value is an object with the needed keys and no others but the allowed ones.

    Raises:
        InputError: it is not (F230).
    """
    if not isinstance(document, Mapping):
        raise InputError("F230", f"{subject} must be an object, not {document!r}")
    for name in needed:
        if name not in document:
            raise InputError("F230", f'{subject} must have the key "{name}"')
    for name in document:
        if name not in needed and name not in allowed:
            raise InputError("F230", f'{subject} has no key "{name}", only {", ".join((*needed, *allowed))}')


def checked_object(document: Any, subject: str) -> Mapping[str, Any]:
    """Return a JSON object whose keys are names.

    Raises:
        InputError: the value is anything else (F230).
    """
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise InputError("F230", f"{subject[0].upper()}{subject[1:]} must be an object of names, not {document!r}")
    return document


def positive_integer(value: Any, subject: str) -> int:
    """Return a positive integer.

    Raises:
        InputError: the value is anything else (F230).
    """
    if type(value) is not int or value < 1:
        raise InputError("F230", f"{subject} must be a positive integer, not {value!r}")
    return value


def _list(document: Any, subject: str) -> Sequence[Any]:
    if not isinstance(document, list | tuple):
        raise InputError("F230", f"{subject} must be a list, not {document!r}")
    return document


def _check_dimension(d: Any, dimensions: Mapping[str, int], subject: str) -> None:
    if not isinstance(d, str) or d not in dimensions:
        raise InputError("F230", f"{subject} must use a dimension of the problem ({', '.join(dimensions)}), not {d!r}")


@dataclass(frozen=True)
class Nest:
    """The loops of a mapping, innermost first, and the footprints counted on them.

    Within a level the spatial loops are inside the temporal ones. Level −1 stands for the compute units.
    """

    problem: Problem
    levels: tuple[Level, ...]

    def tile(self, tensor: str, level: int) -> int:
        """Return the elements of a tensor that one instance of a level holds."""
        return self.footprint(tensor, lambda at, kind: at <= level)

    def union_tile(self, tensor: str, level: int) -> int:
        """Return the distinct elements that all instances below one instance of a level use at a time."""
        return self.footprint(tensor, lambda at, kind: at < level or (at == level and kind == "spatial"))

    def partition(self, tensor: str, level: int) -> int:
        """Return the distinct elements that one instance of a level sees in the whole run."""
        return self.footprint(tensor, lambda at, kind: at <= level or kind == "temporal")

    def footprint(self, tensor: str, selects: Callable[[int, str], bool]) -> int:
        """Return the distinct elements of a tensor that the loops which a predicate of (level, kind) selects run through.

        Raises:
            InputError: an axis with gaps has too many positions to count (F230).
        """
        digits: dict[str, list[tuple[int, int]]] = {d: [] for d in self.problem.dimensions}
        step = dict.fromkeys(self.problem.dimensions, 1)
        for at, kind, d, n in self.loops():
            if selects(at, kind):
                digits[d].append((step[d], n))
            step[d] *= n
        axes = self.problem.tensors[tensor]
        return math.prod(distinct_sums((c * s, n) for d, c in axis.items() for s, n in digits[d]) for axis in axes)

    def loops(self) -> Iterable[tuple[int, str, str, int]]:
        """Yield level, kind, dimension and count of every loop, innermost first."""
        for at, level in enumerate(self.levels):
            yield from ((at, "spatial", d, n) for d, n in level.spatial)
            yield from ((at, "temporal", d, n) for d, n in level.temporal)

    def instances(self, level: int) -> int:
        """Return the number of parallel instances of a level."""
        return math.prod(n for at, kind, _, n in self.loops() if kind == "spatial" and at > level)

    def tile_changes(self, tensor: str, level: int) -> int:
        """Return how often the tile of an instance of a level changes, the first fill included; a compute unit's changes each step.

        Temporal loops inside the innermost one that indexes the tensor leave the tile where it is; every loop outside it counts.
        """
        outer = [(d, n) for at, kind, d, n in self.loops() if kind == "temporal" and at > level and n > 1]
        moves = {d for axis in self.problem.tensors[tensor] for d in axis}
        if level >= 0:
            while outer and outer[0][0] not in moves:
                outer.pop(0)
        return math.prod(n for _, n in outer)


def distinct_sums(digits: Iterable[tuple[int, int]]) -> int:
    """Return the number of distinct sums Σ step·i, 0 ≤ i < count, over (step, count) pairs.

    Raises:
        InputError: there are gaps and too many positions to count (F230).
    """
    pairs = sorted((step, n) for step, n in digits if n > 1)
    count, reach, is_dense = 1, 0, True  # sums so far, the largest, and whether all below it occur
    for step, n in pairs:
        if step > reach:
            count, is_dense = count * n, is_dense and step == reach + 1
        elif is_dense:
            count = reach + step * (n - 1) + 1
        else:
            return _count_sums(pairs)
        reach += step * (n - 1)
    return count


def _count_sums(pairs: Sequence[tuple[int, int]]) -> int:
    """Count sums one by one, a bit each."""
    reach = sum(step * (n - 1) for step, n in pairs)
    if reach > MAX_POSITIONS:
        raise InputError("F230", f"An axis with gaps must have at most {MAX_POSITIONS:,} positions, not {reach + 1:,}")
    sums = 1
    for step, n in pairs:
        copies = 1
        while copies < n:
            added = min(copies, n - copies)
            sums |= sums << step * added
            copies += added
    return sums.bit_count()
