"""Clusters: an architecture as nested memories and arrays of sub-clusters, outermost first; a virtual one holds nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...errors import InputError
from ..problems.documents import (
    WORD_BITS,
    check_count,
    check_keys,
    check_schema,
    checked_list,
    checked_name,
    checked_object,
    positive_integer,
)
from ..problems.problem import Problem

AXES = ("X", "Y")


@dataclass(frozen=True)
class Cluster:
    """A memory of so many elements (None: as many as needed), or a virtual level, and the sub-clusters below it along an axis.

    `width` is how many elements a cycle come from the memory outside, to all clusters below one of its instances together.
    """

    name: str
    capacity: int | None = None
    children: int = 1
    axis: str | None = None
    width: int | None = None
    is_virtual: bool = False


@dataclass(frozen=True)
class Clusters:
    """Levels outermost first, the clock, the unit operation, and femtojoules of an access by memory and of an operation by unit."""

    name: str
    levels: tuple[Cluster, ...]
    hertz: int
    energies: Mapping[str, int] = field(default_factory=dict)
    operations: Mapping[str, int] = field(default_factory=dict)
    source: str | None = None  # of the energies

    @property
    def units(self) -> int:
        """Number of units."""
        return math.prod(level.children for level in self.levels)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the levels."""
        return tuple(level.name for level in self.levels)

    def row(self, name: str) -> int:
        """Return the engine's row of a level: its number from the inside."""
        return len(self.levels) - 1 - self.names.index(name)

    def cluster(self, row: int) -> Cluster:
        """Return the level of an engine's row."""
        return self.levels[len(self.levels) - 1 - row]

    @property
    def bypasses(self) -> list[bool]:
        """Tell of each row, innermost first, whether it is virtual."""
        return [level.is_virtual for level in reversed(self.levels)]

    @cached_property
    def limited_links(self) -> tuple[tuple[str, int], ...]:
        """The memories whose link to what lies inside is limited, and its elements a cycle."""
        links, source = [], self.levels[0].name
        for level in self.levels[1:]:
            if level.width is not None:
                links.append((source, level.width))
            source = source if level.is_virtual else level.name
        return tuple(links)

    def missing_energy(self, problem: Problem) -> str | None:
        """Return the sentence that says which energy is missing for a problem, None when all are there."""
        if problem.unit not in self.operations:
            tag = f" ({problem.tag})" if problem.tag else ""
            return f"energy: {problem.unit} has no energy in {self.name}{tag}"
        lacking = next((level.name for level in self.levels if not level.is_virtual and level.name not in self.energies), None)
        return None if lacking is None else f"energy: an access of {lacking} has no energy in {self.name}"

    def with_shape(self, shape: Mapping[str, int]) -> Clusters:
        """Return the architecture with other extents of its axes.

        Raises:
            InputError: no level has such an axis (F231).
        """
        axes = [level.axis for level in self.levels if level.axis]
        for axis in shape:
            if axes.count(axis) != 1:
                raise InputError("F231", f"{self.name} has {axes.count(axis)} levels on axis {axis}: its shape cannot be set there")
        return replace(self, levels=tuple(replace(c, children=shape.get(c.axis or "", c.children)) for c in self.levels))

    def document(self) -> dict[str, Any]:
        """Return the architecture as JSON."""
        levels = []
        for c in self.levels:
            entry = {
                "name": c.name,
                "capacity": c.capacity,
                "children": c.children,
                "axis": c.axis,
                "width": c.width,
                "virtual": c.is_virtual,
            }
            levels.append({k: v for k, v in entry.items() if v not in (None, False)})
        energy = {"energies": dict(self.energies), "operations": dict(self.operations)} if self.energies or self.operations else {}
        source = {} if self.source is None else {"source": self.source}
        return {"name": self.name, "clock_hertz": self.hertz, "levels": levels, **energy, **source}


def clusters_from(document: Any) -> Clusters:
    """Return the architecture of a JSON or TOML document.

    Raises:
        InputError: the document is not an architecture (F231).
    """
    try:
        return _parsed(document)
    except InputError as error:
        raise InputError("F231", error.problem.sentence) from error


def check_units(levels: Sequence[Cluster]) -> None:
    """Check that the units of an architecture are a word.

    Raises:
        InputError: they are more (F231).
    """
    if math.prod(level.children for level in levels) >= 1 << WORD_BITS:
        raise InputError("F231", f"An architecture must have fewer than 2^{WORD_BITS} units")


def _parsed(document: Any) -> Clusters:
    check_keys(document, "The architecture", ("name", "clock_hertz", "levels"), ("energies", "operations", "source", "schema"))
    check_schema(document, "clusters")
    entries = checked_list(document["levels"], "The levels of the architecture")
    check_count(entries, "levels of an architecture")
    levels = tuple(_cluster(entry) for entry in entries)
    check_units(levels)
    if levels[0].is_virtual or levels[-1].is_virtual:
        raise InputError("F231", "The outermost and the innermost level of an architecture must be memories, not virtual")
    names = [level.name for level in levels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError("F231", f'The levels of an architecture must differ, not be "{twice}" twice')
    energies = _femtojoules(document.get("energies", {}), "energies", names)
    operations = _femtojoules(document.get("operations", {}), "operations", None)
    source = document.get("source")
    if (energies or operations) and not isinstance(source, str):
        raise InputError("F231", "An architecture with energies must say their source")
    hertz = positive_integer(document["clock_hertz"], "clock_hertz")
    return Clusters(checked_name(document["name"], "The name of an architecture"), levels, hertz, energies, operations, source)


def _cluster(entry: Any) -> Cluster:
    check_keys(entry, "A level of the architecture", ("name",), ("capacity", "children", "axis", "width", "virtual"))
    name = checked_name(entry["name"], "The name of a level")
    numbers = {k: positive_integer(entry[k], f"{k} of {name}") for k in ("capacity", "children", "width") if k in entry}
    axis = entry.get("axis")
    if axis not in (None, *AXES):
        raise InputError("F231", f"The axis of {name} must be X or Y, not {axis!r}")
    is_virtual = entry.get("virtual", False)
    if not isinstance(is_virtual, bool):
        raise InputError("F231", f"virtual of {name} must be true or false, not {is_virtual!r}")
    if is_virtual and "capacity" in numbers:
        raise InputError("F231", f"The level {name} must be virtual or have a capacity, not both")
    return Cluster(name, numbers.get("capacity"), numbers.get("children", 1), axis, numbers.get("width"), is_virtual)


def _femtojoules(document: Any, key: str, names: list[str] | None) -> dict[str, int]:
    energies = checked_object(document, key)
    for name, value in energies.items():
        if names is not None and name not in names:
            raise InputError("F231", f"{key} must be of levels ({', '.join(names)}), not of {name!r}")
        positive_integer(value, f"{key} of {name} in femtojoules")
    return dict(energies)
