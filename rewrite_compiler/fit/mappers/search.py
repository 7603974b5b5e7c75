"""A search: mappings that are priced within a budget of evaluations, the best of them, and those that no other dominates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Protocol

import numpy as np

from ..mapping.schedule import Schedule, schedule_of
from ..mapping.space import CHUNK, Genomes, Index, Space
from ..models.model import Cost, CostModel, Costs, Objective, Values
from .lower_bound import SplitBounds

CLOSE = 0.005  # share that a better mapping may save when a search ends


class Stop(StrEnum):
    """Why a search ended."""

    COMPLETE = "complete"
    """Every mapping was priced or ruled out by a bound."""
    BUDGET = "budget"
    """The evaluations were used up."""
    BOUND = "bound"
    """No mapping is noticeably better than the best one."""
    LIMITED = "limited"
    """The mapper has no further step."""


@dataclass(frozen=True)
class Point:
    """A mapping's cycles and energy that no other of the search is below in both."""

    cycles: int
    energy_fj: int
    schedule: Schedule


@dataclass(frozen=True)
class SearchResult:
    """The best mapping and its cost, a lower bound on the objective, counts of evaluations, and the front of cycles and energy."""

    best: Schedule
    cost: Cost
    objective: Objective
    bound: float | None
    evaluated: int
    legal: int
    stop: Stop
    front: tuple[Point, ...] = ()
    points: tuple[Point, ...] = ()  # of those that were priced, as many as were asked for
    may_leave_rests: bool = False

    @property
    def gap(self) -> float | None:
        """Share of the best value that lies above the bound."""
        value = self.cost.value(self.objective)
        return None if self.bound is None else max(0.0, 1 - self.bound / value) if value else 0.0


class Mapper(Protocol):
    """A way to search: it may stop when the search has no budget."""

    def __call__(self, search: Search) -> Stop:
        """Price mappings of the search's space."""


class Search:
    """What all mappers share: prices of points, in chunks, the best one and how many were asked for."""

    def __init__(self, space: Space, model: CostModel, objective: Objective, budget: int, seed: int) -> None:
        self.space, self.model, self.objective, self.budget = space, model, objective, budget
        self.rng = np.random.default_rng(seed)
        self.evaluated = self.legal = 0
        self.tolerance = CLOSE
        self.best_value = float("inf")
        self.best: Genomes | None = None
        self.bound: float | None = None
        self.splits: SplitBounds | None = None  # over the units, each with its bound
        self.listeners: list[Callable[[Genomes, Costs], None]] = []

    @property
    def remaining(self) -> int:
        """Evaluations that are left."""
        return self.budget - self.evaluated

    @property
    def is_close(self) -> bool:
        """Whether no mapping saves more than the tolerated share of what the best one costs."""
        return self.is_within(self.tolerance)

    def is_within(self, share: float) -> bool:
        """Tell whether no mapping saves more than a share of what the best one costs."""
        return self.splits is not None and self.best_value * (1 - share) <= self.splits.least

    @cached_property
    def bypasses(self) -> tuple[frozenset[str], ...]:
        """Tensors that each row does not hold."""
        return self.space.constraints.bypasses(self.space.problem, self.space.clusters)

    def values(self, genomes: Genomes) -> Values:
        """Return the objective of points, infinite where they are not legal; points beyond the budget are not priced."""
        values = np.full(genomes.count, np.inf)
        count = min(genomes.count, self.remaining)
        for start in range(0, count, CHUNK):
            chunk = slice(start, min(start + CHUNK, count))
            values[chunk] = self._chunk_values(genomes.selected(chunk))
        self.evaluated += count
        return values

    def _chunk_values(self, genomes: Genomes) -> Values:
        values = np.full(genomes.count, np.inf)
        legal = np.flatnonzero(self.space.keeps_rules(genomes.factors))
        batch = self.space.batch(genomes.selected(legal))
        fits = np.flatnonzero(self.model.fits(self.space.clusters, batch, self.bypasses))
        if not len(fits):
            return values
        legal = legal[fits]
        points = genomes.selected(legal)
        costs = self.model.evaluate(self.space.clusters, batch.selected(fits), self.bypasses)
        values[legal] = costs.values(self.objective)
        self.legal += len(legal)
        self.note(points, values[legal])
        for listener in self.listeners:
            listener(points, costs)
        return values

    def note(self, genomes: Genomes, values: Values) -> None:
        """Keep the best of priced points."""
        first = int(np.argmin(values))
        if values[first] < self.best_value:
            self.best_value, self.best = float(values[first]), genomes.selected(slice(first, first + 1))

    def bounds(self, factors: Index) -> Values:
        """Return what no order of tilings goes below, infinite where they are not legal; no evaluation."""
        values = np.full(factors.shape[1], np.inf)
        legal = np.flatnonzero(self.space.keeps_rules(factors))
        batch = self.space.batch(Genomes(factors[:, legal], np.zeros((len(self.space.ordered_rows), len(legal)), np.intp)))
        fits = np.flatnonzero(self.model.fits(self.space.clusters, batch, self.bypasses))
        if len(fits):
            bounds = self.model.bound(self.space.clusters, batch.selected(fits), self.bypasses)
            values[legal[fits]] = bounds.values(self.objective)
        return values

    def schedule(self, genomes: Genomes, column: int = 0) -> Schedule:
        """Return a point as a schedule."""
        return schedule_of(self.space.batch(genomes.selected(slice(column, column + 1))), self.space.clusters, 0, self.bypasses)


class Scatter:
    """The first mappings that a search priced, up to a number."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.genomes: list[Genomes] = []
        self.costs: list[tuple[int, int]] = []

    def __call__(self, genomes: Genomes, costs: Costs) -> None:
        """Take points of a chunk in, spread over it."""
        count = min(self.most - len(self.costs), genomes.count)
        if count > 0 and costs.energy is not None:
            columns = np.linspace(0, genomes.count - 1, count).astype(np.intp)
            self.genomes.append(genomes.selected(columns))
            self.costs += zip(costs.cycles[columns].tolist(), costs.energy[columns].tolist(), strict=True)


class Front:
    """The points that no other is below in cycles and energy."""

    def __init__(self) -> None:
        self.cycles = np.zeros(0, np.int64)
        self.energy = np.zeros(0, np.int64)
        self.genomes: Genomes | None = None

    def __call__(self, genomes: Genomes, costs: Costs) -> None:
        """Take the points of a chunk in."""
        if costs.energy is None:
            return
        cycles, energy = np.concatenate([self.cycles, costs.cycles]), np.concatenate([self.energy, costs.energy])
        union = genomes if self.genomes is None else self.genomes.joined(genomes)
        order = np.lexsort((energy, cycles))
        least = np.minimum.accumulate(energy[order])
        keep = order[np.concatenate([[True], energy[order][1:] < least[:-1]])]
        self.cycles, self.energy, self.genomes = cycles[keep], energy[keep], union.selected(keep)
