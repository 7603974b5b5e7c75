"""Constraints: what a mapping must also be, each one a row that can be dropped alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ..problems.documents import check_keys, check_schema, checked_list, checked_object, positive_integer
from ..problems.problem import Problem
from .clusters import Clusters

KEYS = ("tiles", "orders", "parallel", "bypass", "one_dimension_an_axis", "utilisation", "schema")


@dataclass(frozen=True)
class Constraints:
    """Tile sizes and orders by level, dimensions that may be parallel by level, tensors that a level passes on, least utilisation."""

    tiles: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (level, dimension)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # outermost first
    parallel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bypass: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_one_an_axis: bool = False
    least_utilisation: float = 0.0
    most_utilisation: float = 1.0

    def atoms(self) -> list[tuple[str, Constraints]]:
        """Return every constraint with the set that lacks it."""
        single: list[tuple[str, Constraints]] = []
        for (level, d), n in self.tiles.items():
            single.append((f"tile {d} = {n:,} at {level}", self._replaced(tiles=_without(self.tiles, (level, d)))))
        for level, order in self.orders.items():
            single.append((f"order [{', '.join(order)}] at {level}", self._replaced(orders=_without(self.orders, level))))
        for level, dims in self.parallel.items():
            single.append((f"parallel [{', '.join(dims)}] at {level}", self._replaced(parallel=_without(self.parallel, level))))
        for level, tensors in self.bypass.items():
            single.append((f"bypass [{', '.join(tensors)}] at {level}", self._replaced(bypass=_without(self.bypass, level))))
        if self.is_one_an_axis:
            single.append(("one dimension an axis", self._replaced(is_one_an_axis=False)))
        if self.least_utilisation > 0:
            single.append((f"utilisation of {self.least_utilisation:g} or more", self._replaced(least_utilisation=0.0)))
        if self.most_utilisation < 1:
            single.append((f"utilisation of {self.most_utilisation:g} or less", self._replaced(most_utilisation=1.0)))
        return single

    def _replaced(self, **changes: Any) -> Constraints:
        fields = {
            "tiles": self.tiles, "orders": self.orders, "parallel": self.parallel, "bypass": self.bypass,
            "is_one_an_axis": self.is_one_an_axis, "least_utilisation": self.least_utilisation, "most_utilisation": self.most_utilisation,
        }  # fmt: skip
        return Constraints(**{**fields, **changes})

    def bypasses(self, problem: Problem, clusters: Clusters) -> tuple[frozenset[str], ...]:
        """Return the tensors that each engine's row does not hold."""
        tensors = frozenset(problem.spaces)
        return tuple(tensors if c.is_virtual else frozenset(self.bypass.get(c.name, ())) for c in reversed(clusters.levels))


def _without(table: Mapping[Any, Any], key: Any) -> dict[Any, Any]:
    return {k: v for k, v in table.items() if k != key}


def constraints_from(document: Any, problem: Problem, clusters: Clusters) -> Constraints:
    """Return the constraints of a JSON document.

    Raises:
        InputError: the document does not constrain mappings of this problem on these clusters (F232).
    """
    try:
        return _parsed(document, problem, clusters)
    except InputError as error:
        raise InputError("F232", error.problem.sentence) from error


def _parsed(document: Any, problem: Problem, clusters: Clusters) -> Constraints:
    check_keys(document, "The constraints", (), KEYS)
    check_schema(document, "constraints")
    tiles = {}
    for level, sizes in _by_level(document, "tiles", clusters).items():
        for d, n in checked_object(sizes, f"tiles of {level}").items():
            _check_names("tiles", [d], problem)
            tiles[level, d] = positive_integer(n, f"The tile of {d} at {level}")
    orders, parallel, bypass = (
        {level: _names(names, f"{kind} of {level}") for level, names in _by_level(document, kind, clusters).items()}
        for kind in ("orders", "parallel", "bypass")
    )
    for kind, table in (("orders", orders), ("parallel", parallel)):
        for names in table.values():
            _check_names(kind, names, problem)
    for level, tensors in bypass.items():
        reasons = {
            f"the tensors are {' '.join(problem.spaces)}": any(t not in problem.spaces for t in tensors),
            "the outermost memory holds every tensor": level == clusters.names[0],
            "it is virtual and holds none": any(c.is_virtual for c in clusters.levels if c.name == level),
        }
        reason = next((why for why, applies in reasons.items() if applies), None)
        if reason is not None:
            raise InputError("F232", f"Constraint bypass {list(tensors)} at {level} is not possible: {reason}")
    utilisation = checked_object(document.get("utilisation", {}), "utilisation")
    check_keys(utilisation, "The utilisation", (), ("min", "max"))
    shares = {k: _share(v, f"The {k} of utilisation") for k, v in utilisation.items()}
    one_an_axis = document.get("one_dimension_an_axis", False)
    if not isinstance(one_an_axis, bool):
        raise InputError("F232", f"one_dimension_an_axis must be true or false, not {json.dumps(one_an_axis)}")
    return Constraints(tiles, orders, parallel, bypass, one_an_axis, shares.get("min", 0.0), shares.get("max", 1.0))


def _names(document: Any, subject: str) -> tuple[str, ...]:
    """Return a list of names of which none is there twice."""
    names = checked_list(document, subject)
    if not all(isinstance(n, str) for n in names) or len({*names}) < len(names):
        raise InputError("F232", f"Constraint {subject} must be a list of different names, not {json.dumps(names)}")
    return tuple(names)


def _by_level(document: Mapping[str, Any], kind: str, clusters: Clusters) -> Mapping[str, Any]:
    table = checked_object(document.get(kind, {}), kind)
    for level in table:
        if level not in clusters.names:
            raise InputError("F232", f"Constraint {kind} names {level}: the architecture has {' '.join(clusters.names)}")
    return table


def _check_names(kind: str, names: Any, problem: Problem) -> None:
    for d in names:
        if d not in problem.dimensions:
            raise InputError(
                "F232", f"Constraint {kind} [{', '.join(map(str, names))}] names {d}: the problem has {' '.join(problem.names)}"
            )


def _share(value: Any, subject: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError("F232", f"{subject} must be from 0 to 1, not {value!r}")
    return float(value)
