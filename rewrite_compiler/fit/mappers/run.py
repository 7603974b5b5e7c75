"""The best mapping of a problem on clusters: the table of mappers, and what is checked before one starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import InputError
from ..mapping.clusters import Clusters
from ..mapping.constraints import Constraints
from ..mapping.schedule import Schedule
from ..mapping.space import Space
from ..models.model import CostModel, Objective
from ..models.published import check_words
from ..problems.problem import Problem, check_size
from .constructive import decoupled, heuristic
from .exhaustive import exhaustive
from .feasibility import check_feasible
from .lower_bound import split_bounds
from .outer_tiles import outer_tiles
from .search import Front, Mapper, Point, Scatter, Search, SearchResult, Stop
from .stochastic import anytime, genetic, random

MAPPERS: Mapping[str, Mapper] = {
    "exhaustive": exhaustive,
    "random": random,
    "decoupled": decoupled,
    "genetic": genetic,
    "heuristic": heuristic,
    "anytime": anytime,
}
BUDGET = 20_000
GRAINS = (1, 2, 4, 8, 16, 32)  # multiples that dimensions are rounded up to where tiles may leave rests
DEFAULT = "anytime"


def best_mapping(
    problem: Problem, clusters: Clusters, model: CostModel, objective: Objective = Objective.EDP, mapper: str = DEFAULT,
    budget: int = BUDGET, seed: int = 0, constraints: Constraints | None = None, points: int = 0,
) -> SearchResult:  # fmt: skip
    """Return the best mapping that a mapper finds within a budget of evaluations.

    Raises:
        InputError: there is no such mapper (F231), the model does not price the problem or the objective needs energies that the
            architecture lacks (F233), or no mapping is legal (F232).
    """
    if mapper not in MAPPERS:
        raise InputError("F231", f'The mapper must be one of {", ".join(MAPPERS)}, not "{mapper}"')
    if budget < 1:
        raise InputError("F231", f"The budget must be at least 1 evaluation, not {budget:,}")
    check_size(problem)
    check_words(problem, clusters)
    refusal = model.conforms(problem, clusters) or (clusters.missing_energy(problem) if objective.needs_energy else None)
    if refusal is not None:
        raise InputError("F233", refusal)
    space = Space(problem, clusters, constraints or Constraints(), model.reading)
    check_feasible(space, model)
    search = Search(space, model, objective, budget, seed)
    search.splits = split_bounds(space, objective, outer_tiles(space, model))
    front = Front()
    scatter = Scatter(points)
    search.listeners += [front, scatter]
    search.tolerance = 0.0 if points else search.tolerance  # a picture shows the whole budget
    stop = MAPPERS[mapper](search)
    search.bound = search.splits.least if search.bound is None and search.splits is not None else search.bound
    if search.best is None:
        raise InputError("F232", f"No legal mapping is among the {search.evaluated:,} that {mapper} priced: raise the budget of {budget:,}")
    return _result(search, front, scatter, stop)


def best_with_rests(
    problem: Problem, clusters: Clusters, model: CostModel, objective: Objective = Objective.EDP, mapper: str = DEFAULT,
    budget: int = BUDGET, seed: int = 0, constraints: Constraints | None = None,
) -> SearchResult:  # fmt: skip
    """Return the best of what a mapper finds for a problem and for larger ones, their tiles cut to it; the budget is shared evenly.

    Larger ones have dimensions rounded up to multiples of a power of two: more divisors, and rests where the problem ends. Each is
    priced at its own best mapping exactly; there is no bound below all mappings with rests.

    Raises:
        InputError: as `best_mapping` says, of all of them, or the model does not price rests (F233).
    """
    if model.refusal_of_rests is not None:
        raise InputError("F233", model.refusal_of_rests)
    larger = _larger(problem)
    share = max(budget // len(larger), 1)
    results: list[SearchResult] = []
    refusal: InputError | None = None
    for p in larger:
        try:
            result = best_mapping(p, clusters, model, objective, mapper, share, seed, constraints)
        except InputError as error:
            refusal = refusal or error
            continue
        schedule = _cut(result.best, problem)
        cost = model.cost(problem, clusters, schedule)
        results.append(replace(result, best=schedule, cost=cost, bound=None, front=(), may_leave_rests=True))
    if not results:
        assert refusal is not None
        raise refusal
    best = min(results, key=lambda r: r.cost.value(objective))
    return replace(best, evaluated=sum(r.evaluated for r in results), legal=sum(r.legal for r in results))


def _larger(problem: Problem) -> list[Problem]:
    """Return a problem, and it with every dimension from a power of two on rounded up to a multiple of that, each once."""
    sizes = [{d: -(-n // grain) * grain if n >= grain else n for d, n in problem.dimensions.items()} for grain in GRAINS]
    return [replace(problem, dimensions=s) for k, s in enumerate(sizes) if s not in sizes[:k]]


def _cut(schedule: Schedule, problem: Problem) -> Schedule:
    """Return a mapping of a larger problem with no tile larger than this one."""

    def cut(tiles: Mapping[str, int]) -> dict[str, int]:
        return {d: min(n, problem.dimensions[d]) for d, n in tiles.items()}

    return Schedule(tuple(replace(m, temporal=cut(m.temporal), spatial=cut(m.spatial)) for m in schedule.levels))


def _result(search: Search, front: Front, scatter: Scatter, stop: Stop) -> SearchResult:
    assert search.best is not None
    schedule = search.schedule(search.best)
    cost = search.model.cost(search.space.problem, search.space.clusters, schedule)
    front_points = () if front.genomes is None else tuple(
        Point(int(c), int(e), search.schedule(front.genomes, k)) for k, (c, e) in enumerate(zip(front.cycles, front.energy, strict=True))
    )  # fmt: skip
    places = [(genomes, k) for genomes in scatter.genomes for k in range(genomes.count)]
    scattered = tuple(Point(c, e, search.schedule(g, k)) for (c, e), (g, k) in zip(scatter.costs, places, strict=True))
    return SearchResult(schedule, cost, search.objective, search.bound, search.evaluated, search.legal, stop, front_points, scattered)
