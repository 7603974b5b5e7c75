"""The two published models: loop-centric as Timeloop's, data-centric as MAESTRO's; for movement they differ in one reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import InputError
from ..mapping.clusters import Clusters
from ..mapping.columns import Batch, Column, Mask
from ..mapping.engine import Counts, Engine, Halo, Reading
from ..mapping.remainders import Remainders, leaves_rests
from ..mapping.schedule import Schedule, batch_of, bypasses_of
from ..problems.problem import MAX_POINTS, Problem
from .model import Bypasses, Cost, CostModel, Costs, Key


@dataclass(frozen=True)
class MovementModel:
    """Prices steps, accesses and operations; a link of limited width may be slower than the units."""

    name: str
    reading: Reading
    refusal: Callable[[Problem], str | None]

    def conforms(self, problem: Problem, clusters: Clusters) -> str | None:
        """Return the sentence that says why the model does not price a problem, None when it does."""
        return self.refusal(problem)

    @property
    def refusal_of_rests(self) -> str | None:
        """The sentence that says why the model does not price tiles that leave rests, None when it does."""
        return None if self.reading is Reading.LOOPS else f"{self.name} does not price tiles that leave rests; timeloop does"

    def engine(self, batch: Batch, bypasses: Bypasses) -> Engine:
        """Return the counters of a batch as this model reads them."""
        return Engine(batch, self.reading, Halo.PART, bypasses, spans=True)

    def fits(self, clusters: Clusters, batch: Batch, bypasses: Bypasses) -> Mask:
        """Tell of each mapping whether its tiles fit the memories and its parts the sub-clusters."""
        engine = self.engine(batch, bypasses)
        fits = np.ones(batch.rows, np.bool_)
        for row, cluster in enumerate(reversed(clusters.levels)):
            fits &= batch.spatial[row].prod(axis=0) <= cluster.children
            if cluster.capacity is not None:
                tiles = [engine.tile(t, row) for t in batch.problem.spaces if engine.holds(t, row)]
                fits &= np.sum(tiles, axis=0) <= cluster.capacity
        return fits

    def evaluate(self, clusters: Clusters, batch: Batch, bypasses: Bypasses) -> Costs:
        """Return the costs of mappings."""
        engine = self.engine(batch, bypasses)
        return _costs(clusters, engine, engine.counts)

    def bound(self, clusters: Clusters, batch: Batch, bypasses: Bypasses) -> Costs:
        """Return costs that no order of these tilings' loops goes below."""
        engine = self.engine(batch, bypasses)
        return _costs(clusters, engine, engine.least)

    def cost(self, problem: Problem, clusters: Clusters, schedule: Schedule) -> Cost:
        """Return the cost of one mapping.

        Raises:
            InputError: it leaves rests, and the model is not read by loops (F233).
        """
        if leaves_rests(problem, schedule):
            if (refusal := self.refusal_of_rests) is not None:
                raise InputError("F233", refusal)
            return _cost_with_rests(problem, clusters, schedule, self.name)
        costs = self.evaluate(clusters, batch_of(problem, clusters, [schedule]), bypasses_of(clusters, schedule, problem))
        counters = {key: {name: int(c[0]) for name, c in counts.columns().items()} for key, counts in costs.counters.items()}
        energy = None if costs.energy is None else int(costs.energy[0])
        traffic = {name: int(c[0]) for name, c in costs.traffic.items()}
        share = Fraction(int(costs.units[0]), clusters.units)
        return Cost(int(costs.cycles[0]), energy, traffic, counters, share, self.name, clusters.source)


def _cost_with_rests(problem: Problem, clusters: Clusters, schedule: Schedule, name: str) -> Cost:
    """Return the cost of a mapping whose tiles leave rests, with counters of all instances of a memory that are those of one on average.

    The units take the steps of the first one; the busiest instance of a memory decides how long its link takes.
    """
    remainders = Remainders(problem, clusters, schedule, bypasses_of(clusters, schedule, problem))
    counters: dict[Key, Mapping[str, int]] = {}
    traffic: dict[str, int] = {}
    energy = problem.points * clusters.operations.get(problem.unit, 0)
    for c in clusters.levels:
        totals = {t: remainders.totals(t, clusters.row(c.name)) for t in problem.spaces if remainders.holds(t, clusters.row(c.name))}
        if not c.is_virtual:
            counters.update({(c.name, t): n.counters() for t, n in totals.items()})
            traffic[c.name] = sum(n.busiest for n in totals.values())
            energy += clusters.energies.get(c.name, 0) * sum(n.reads + n.updates + n.fills for n in totals.values())
    cycles = max([remainders.steps, *(-(-traffic[memory] // width) for memory, width in clusters.limited_links)])
    is_priced = clusters.missing_energy(problem) is None
    share = Fraction(problem.points, remainders.steps * clusters.units)
    return Cost(cycles, energy if is_priced else None, traffic, counters, share, name, clusters.source)


def _costs(clusters: Clusters, engine: Engine, counts: Callable[[str, int], Counts]) -> Costs:
    """Add up what counters give: cycles by the slowest link, energy by accesses."""
    problem, batch = engine.batch.problem, engine.batch
    counters: dict[Key, Counts] = {}
    traffic: dict[str, Column] = {}
    energy = np.full(batch.rows, problem.points * clusters.operations.get(problem.unit, 0), np.int64)
    for row in reversed(range(batch.levels)):
        cluster = clusters.cluster(row)
        if cluster.is_virtual:
            continue
        total = np.zeros(batch.rows, np.int64)
        for tensor in (t for t in problem.spaces if engine.holds(t, row)):
            c = counters[cluster.name, tensor] = counts(tensor, row)
            total = total + c.reads + c.updates
            energy = energy + (c.reads + c.updates + c.fills) * (c.instances * clusters.energies.get(cluster.name, 0))
        traffic[cluster.name] = total
    cycles = batch.steps
    for name, width in clusters.limited_links:
        cycles = np.maximum(cycles, -(-traffic[name] // width))
    is_priced = clusters.missing_energy(problem) is None
    return Costs(cycles, energy if is_priced else None, traffic, batch.instances[-1], counters)


def check_words(problem: Problem, clusters: Clusters) -> None:
    """Check that energies of every mapping are words of 64 bits.

    Raises:
        InputError: they may not be (F230).
    """
    dearest = max([0, *clusters.energies.values()])
    accesses = 3 * len(problem.spaces) * len(clusters.levels) * problem.points
    if accesses * dearest + problem.points * max([0, *clusters.operations.values()]) >= 2 * MAX_POINTS:
        raise InputError("F230", f"The energy of {problem.points:,} steps may exceed 2^63 femtojoules: map a part of the problem")


def _prices_all(_: Problem) -> str | None:
    return None


def _refuses_dilated_depthwise(problem: Problem) -> str | None:
    """Refuse a depthwise window with gaps, whose reuse the data-centric directives do not express."""
    windows = {d for t in problem.spaces if t != problem.output for axis in problem.spaces[t] if len(axis) == 1 for d in axis}
    dilated = any(axis[d] > 1 for axes in problem.spaces.values() for axis in axes if len(axis) > 1 for d in windows & axis.keys())
    if problem.tag == "depthwise" and dilated:
        return "maestro does not price depthwise convolution with dilation; timeloop does"
    return None


MODELS: Mapping[str, CostModel] = {
    "timeloop": MovementModel("timeloop", Reading.LOOPS, _prices_all),
    "maestro": MovementModel("maestro", Reading.DATA, _refuses_dilated_depthwise),
}


def model_named(name: str) -> CostModel:
    """Return a model by its name.

    Raises:
        InputError: there is no such model (F231).
    """
    if name not in MODELS:
        raise InputError("F231", f'The model must be one of {", ".join(MODELS)}, not "{name}"')
    return MODELS[name]
