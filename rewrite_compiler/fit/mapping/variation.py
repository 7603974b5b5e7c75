"""Variation: an architecture at every value of one parameter, the shape of its array or a size of one level."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...errors import UsageError, did_you_mean
from .clusters import Cluster, Clusters, check_units

SIZES = ("capacity", "children", "width")
SHAPE = "shape"
MOST_VALUES = 64
DIGITS = 15  # of a size


@dataclass(frozen=True)
class Variant:
    """An architecture with one value of a parameter, as it is written."""

    value: str
    clusters: Clusters


def variants(text: str, base: Clusters) -> tuple[str, list[Variant]]:
    """Return the parameter that a text `NAME=VALUE,…` names, and an architecture for each value.

    Raises:
        UsageError: F203, there is no such parameter or a value is none of it.
        InputError: F231, an architecture would have more units than a word counts.
    """
    name, separator, values = text.partition("=")
    texts = [v.strip() for v in values.split(",") if v.strip()]
    if not separator or not texts:
        raise UsageError("F203", f'--over is NAME=VALUE,…, not "{text}"', help="shape=1x256,16x16 or LEVEL.capacity=1024,2048")
    if len(texts) > MOST_VALUES:
        raise UsageError("F203", f"--over takes at most {MOST_VALUES} values, not {len(texts)}", help="search in two runs")
    if name == SHAPE:
        options = [Variant(v, _shaped(base, v)) for v in texts]
    else:
        level, size = _parameter(name, base)
        options = [Variant(v, _sized(base, level, size, v)) for v in texts]
    for variant in options:
        check_units(variant.clusters.levels)
    return name, options


def _parameter(name: str, base: Clusters) -> tuple[Cluster, str]:
    """Return the level and the size that a parameter is of."""
    level_name, _, size = name.rpartition(".")
    parameters = [SHAPE, *(f"{level.name}.{size}" for level in base.levels for size in _sizes_of(base, level))]
    level = next((c for c in base.levels if c.name == level_name), None)
    if level is None or size not in _sizes_of(base, level):
        remedy = " ".join(filter(None, (did_you_mean(name, parameters), f"it has {', '.join(parameters)}")))
        raise UsageError("F203", f'{base.name} has no parameter "{name}" for --over', help=remedy)
    return level, size


def _sizes_of(base: Clusters, level: Cluster) -> list[str]:
    """Return the sizes of a level that an answer depends on: no virtual one has a capacity, nothing fills the outermost."""
    has = {"capacity": not level.is_virtual, "children": level.axis is not None, "width": level is not base.levels[0]}
    return [size for size in SIZES if has[size]]


def _shaped(base: Clusters, text: str) -> Clusters:
    sides = re.fullmatch(rf"([0-9]{{1,{DIGITS}}})x([0-9]{{1,{DIGITS}}})", text)
    if sides is None or not all(int(n) for n in sides.groups()):
        raise UsageError(
            "F203",
            f'A shape is rows x columns of at most {DIGITS} digits, as 16x16, not "{text}"',
            help="rows lie along axis Y, columns along axis X",
        )
    return base.with_shape({"Y": int(sides[1]), "X": int(sides[2])})


def _sized(base: Clusters, level: Cluster, size: str, text: str) -> Clusters:
    if not re.fullmatch(rf"[0-9]{{1,{DIGITS}}}", text) or not int(text):
        subject = "elements" if size == "capacity" else "elements a cycle" if size == "width" else "sub-clusters"
        raise UsageError(
            "F203",
            f'{level.name}.{size} is a number of {subject} of at most {DIGITS} digits from 1 on, not "{text}"',
            help=f"as in {level.name}.{size}=32",
        )
    return resized(base, {(level.name, size): int(text)})


def resized(base: Clusters, sizes: Mapping[tuple[str, str], int]) -> Clusters:
    """Return an architecture with other sizes, by level and kind."""
    levels = [
        replace(
            c,
            capacity=sizes.get((c.name, "capacity"), c.capacity),
            children=sizes.get((c.name, "children"), c.children),
            width=sizes.get((c.name, "width"), c.width),
        )
        for c in base.levels
    ]
    return replace(base, levels=tuple(levels))


def sizes_in(clusters: Clusters) -> Iterator[tuple[str, str, int]]:
    """Yield every size that is limited, with its level and kind."""
    for level in clusters.levels:
        numbers = {"capacity": level.capacity, "children": level.children, "width": level.width}
        limited_sizes = ((size, numbers[size]) for size in _sizes_of(clusters, level))
        yield from ((level.name, size, n) for size, n in limited_sizes if n is not None)
