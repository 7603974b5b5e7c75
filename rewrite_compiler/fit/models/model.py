"""What a cost model is: a test of what it can price, the costs of a batch of mappings, and a bound below all orders of a tiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..mapping.clusters import Clusters
from ..mapping.columns import Batch, Column, Mask
from ..mapping.engine import Counts, Engine, Reading
from ..mapping.schedule import Schedule
from ..problems.problem import Problem

Values = NDArray[np.float64]
Key = tuple[str, str]  # level, tensor
Bypasses = tuple[frozenset[str], ...]  # tensors that each row does not hold, innermost first


class Objective(StrEnum):
    """What a mapper minimises."""

    CYCLES = "cycles"
    """Steps, or the slowest link's."""
    ENERGY = "energy"
    """Accesses and operations at their energies."""
    EDP = "edp"
    """Energy times cycles."""
    BYTES = "bytes"
    """Elements that cross the outermost memory's link."""

    @property
    def needs_energy(self) -> bool:
        """Tell whether the architecture must give energies."""
        return self in (Objective.ENERGY, Objective.EDP)


@dataclass(frozen=True)
class Costs:
    """Columns: cycles, femtojoules (None without energies), elements over the link below each memory, and units at work."""

    cycles: Column
    energy: Column | None
    traffic: Mapping[str, Column]
    units: Column
    counters: Mapping[Key, Counts]

    def values(self, objective: Objective) -> Values:
        """Return the column that an objective minimises."""
        if objective is Objective.CYCLES:
            return self.cycles.astype(np.float64)
        if objective is Objective.BYTES:
            return next(iter(self.traffic.values())).astype(np.float64)
        assert self.energy is not None, "the mapper asked whether the architecture has energies"
        energy = self.energy.astype(np.float64)
        return energy if objective is Objective.ENERGY else energy * self.cycles


@dataclass(frozen=True)
class Cost:
    """The cost of one mapping."""

    cycles: int
    energy_fj: int | None
    traffic: Mapping[str, int]
    counters: Mapping[Key, Mapping[str, int]]
    utilisation: Fraction
    model: str
    source: str | None = None

    def value(self, objective: Objective) -> int:
        """Return what an objective minimises."""
        if objective is Objective.CYCLES:
            return self.cycles
        if objective is Objective.BYTES:
            return next(iter(self.traffic.values()))
        assert self.energy_fj is not None
        return self.energy_fj * (self.cycles if objective is Objective.EDP else 1)

    def document(self) -> dict[str, Any]:
        """Return the cost as JSON."""
        counters: dict[str, dict[str, Mapping[str, int]]] = {}
        for (level, tensor), counts in self.counters.items():
            counters.setdefault(level, {})[tensor] = counts
        return {
            "model": self.model, "cycles": self.cycles, "energy_fj": self.energy_fj, "energy_source": self.source,
            "traffic": dict(self.traffic), "utilisation": round(float(self.utilisation), 6), "counters": counters,
        }  # fmt: skip


class CostModel(Protocol):
    """A way to price mappings."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def reading(self) -> Reading:
        """Which orders of loops it tells apart."""

    def conforms(self, problem: Problem, clusters: Clusters) -> str | None:
        """Return the sentence that says why the model does not price a problem, None when it does."""

    @property
    def refusal_of_rests(self) -> str | None:
        """The sentence that says why the model does not price tiles that leave rests, None when it does."""

    def engine(self, batch: Batch, bypasses: Bypasses) -> Engine:
        """Return the counters of a batch as this model reads them."""

    def fits(self, clusters: Clusters, batch: Batch, bypasses: Bypasses) -> Mask:
        """Tell of each mapping whether its tiles fit the memories."""

    def evaluate(self, clusters: Clusters, batch: Batch, bypasses: Bypasses) -> Costs:
        """Return the costs of mappings."""

    def bound(self, clusters: Clusters, batch: Batch, bypasses: Bypasses) -> Costs:
        """Return costs that no order of these tilings' loops goes below."""

    def cost(self, problem: Problem, clusters: Clusters, schedule: Schedule) -> Cost:
        """Return the cost of one mapping."""
