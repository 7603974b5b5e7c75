"""Explanation of a mapping: where each tensor lives, what decides its time and energy, and what would help, each answer searched for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..mapping.clusters import Clusters, clusters_from
from ..mapping.schedule import Schedule, counts_of, schedule_from, violations
from ..mapping.variation import resized, sizes_in
from ..models.model import Cost, CostModel, Objective
from ..models.published import model_named
from ..problems.documents import checked_object
from ..problems.problem import Problem, problem_from
from .cause import cause_document
from .document import limits
from .run import best_mapping

FACTOR = 2  # by which a size grows
BUDGET = 2_000  # evaluations for each change


@dataclass(frozen=True)
class MappedLayer:
    """A layer of a document of mappings, read again: what runs where, in which way, and what it costs by which model."""

    name: str
    repeats: int
    problem: Problem
    clusters: Clusters
    schedule: Schedule
    model: CostModel
    objective: Objective

    @property
    def cost(self) -> Cost:
        """What the mapping costs."""
        return self.model.cost(self.problem, self.clusters, self.schedule)


def mapped_layers(document: Mapping[str, Any]) -> list[MappedLayer]:
    """Return the layers of a document of mappings; costs in it are not read, for they follow from the mapping.

    Raises:
        InputError: it holds no layers, or one of them is not a legal mapping of its problem on its architecture (F230, F231, F233).
    """
    layers = document.get("layers")
    if not isinstance(layers, list) or not layers:
        raise InputError("F230", "The document must hold layers with their mappings, as flexmatch map --json writes them")
    return [_layer(checked_object(layer, "a layer of the document")) for layer in layers]


def _layer(layer: Mapping[str, Any]) -> MappedLayer:
    missing = next((key for key in ("name", "problem", "clusters", "mapping", "cost") if key not in layer), None)
    if missing is not None:
        raise InputError("F230", f"A layer of the document lacks {missing}: flexmatch map --json writes it")
    problem, clusters = problem_from(layer["problem"]), clusters_from(layer["clusters"])
    schedule = schedule_from(layer["mapping"], problem, clusters)
    model = model_named(str(checked_object(layer["cost"], "cost").get("model")))
    broken, refusal = violations(problem, clusters, schedule, spans=True), model.conforms(problem, clusters)
    if broken or refusal:
        raise InputError("F230", broken[0].sentence) if broken else InputError("F233", str(refusal))
    goal = Objective.CYCLES if clusters.missing_energy(problem) else Objective.EDP
    objective = layer.get("objective", goal.value)
    if objective not in list(Objective) or (Objective(objective).needs_energy and goal is Objective.CYCLES):
        raise InputError("F231", f'The objective of the document must be one that {clusters.name} can price, not "{objective}"')
    repeats = layer.get("repeats", 1)
    if not isinstance(repeats, int) or repeats < 1:
        raise InputError("F230", f"A layer of the document must be there once or more, not {repeats!r} times")
    return MappedLayer(str(layer["name"]), repeats, problem, clusters, schedule, model, Objective(objective))


def summary(layer: MappedLayer) -> dict[str, Any]:
    """Return what a mapping costs, what decides its time, where its energy goes, most of it first, its loops, and where tensors live."""
    cost = layer.cost
    return {
        "name": layer.name, "repeats": layer.repeats, "architecture": layer.clusters.name, "model": cost.model,
        "objective": layer.objective.value, "cycles": cost.cycles, "energy_fj": cost.energy_fj,
        "utilisation": round(float(cost.utilisation), 6), "limits": limits(layer.problem, layer.clusters, layer.schedule, cost),
        "energy": sorted(_energies(layer, cost), key=lambda row: -row["energy_fj"]),
        "nest": list(_nest(layer)), "residence": list(_residence(layer)),
    }  # fmt: skip


def explanation(layer: MappedLayer, place: tuple[str, str] | None = None) -> dict[str, Any]:
    """Return the summary of a mapping with what other sizes would save; with a place, what brings a tensor there.

    UsageError F203 says that there is no such place.
    """
    why = {} if place is None else {"why": cause_document(layer.problem, layer.clusters, layer.schedule, layer.cost.document(), place)}
    return {**summary(layer), "widths": list(_widths(layer)), "changes": list(_changes(layer)), **why}


def _energies(layer: MappedLayer, cost: Cost) -> Iterator[dict[str, Any]]:
    """Yield the femtojoules of each tensor at each memory and of the units' operations, none where the architecture has no energies."""
    if cost.energy_fj is None:
        return
    yield {"at": "units", "tensor": "", "energy_fj": layer.problem.points * layer.clusters.operations[layer.problem.unit]}
    for (level, tensor), c in cost.counters.items():
        accesses = (c["reads"] + c["updates"] + c["fills"]) * c["instances"]
        yield {"at": level, "tensor": tensor, "energy_fj": accesses * layer.clusters.energies[level]}


def _nest(layer: MappedLayer) -> Iterator[dict[str, Any]]:
    """Yield the loops of each level, outermost first: its temporal ones with their steps, and what its sub-clusters share."""
    for m, (temporal, spatial) in zip(layer.schedule.levels, counts_of(layer.schedule, layer.problem), strict=True):
        yield {
            "level": m.cluster, "loops": [{"dimension": d, "steps": temporal[d]} for d in m.order if temporal[d] > 1],
            "parallel": [{"dimension": d, "parts": n} for d, n in spatial.items() if n > 1],
        }  # fmt: skip


def _residence(layer: MappedLayer) -> Iterator[dict[str, Any]]:
    """Yield how much of each tensor a memory holds at a time, what comes to all its instances, and accesses of each element that comes."""
    capacities = {c.name: c.capacity for c in layer.clusters.levels}
    for (level, tensor), c in layer.cost.counters.items():
        uses = (c["reads"] + c["updates"]) / c["fills"] if c["fills"] else None
        yield {
            "level": level, "tensor": tensor, "tile": c["tile"], "capacity": capacities[level], "arrivals": c["fills"] * c["instances"],
            "instances": c["instances"], "uses": None if uses is None else round(uses, 3),
        }  # fmt: skip


def _widths(layer: MappedLayer) -> Iterator[dict[str, Any]]:
    """Yield of each link that is slower than the units the width at which it no longer is, with this mapping."""
    cost = layer.cost
    steps = next(row["cycles"] for row in limits(layer.problem, layer.clusters, layer.schedule, cost) if row["part"] == "units")
    for name, width in layer.clusters.limited_links:
        enough = -(-cost.traffic[name] // steps)
        if enough > width:
            yield {"link": f"link below {name}", "width": width, "enough": enough}


def _changes(layer: MappedLayer) -> Iterator[dict[str, Any]]:
    """Yield the best that is found on the same architecture, and with one size doubled, or all links; the mapping itself stays a choice."""
    before = layer.cost.value(layer.objective)
    for sizes in _sizes(layer.clusters):
        clusters = resized(layer.clusters, sizes)
        unchanged_cost = layer.model.cost(layer.problem, clusters, layer.schedule)
        cost = min(unchanged_cost, *_searched(layer, clusters), key=lambda c: c.value(layer.objective))
        saved = 1 - cost.value(layer.objective) / before if before else 0.0
        parameters = {f"{level}.{size}": n for (level, size), n in sizes.items()}
        yield {"parameters": parameters, "cycles": cost.cycles, "energy_fj": cost.energy_fj, "saved": round(saved, 6)}


def _searched(layer: MappedLayer, clusters: Clusters) -> list[Cost]:
    """Return the cost of the best mapping that is found, none where none of those that are priced is legal."""
    try:
        return [best_mapping(layer.problem, clusters, layer.model, layer.objective, budget=BUDGET).cost]
    except InputError:
        return []


def _sizes(clusters: Clusters) -> Iterator[dict[tuple[str, str], int]]:
    """Yield sets of sizes that are changed together."""
    doubled = {(level, size): FACTOR * n for level, size, n in sizes_in(clusters)}
    links = {key: n for key, n in doubled.items() if key[1] == "width"}
    yield {}
    yield from ({key: n} for key, n in doubled.items())
    if len(links) > 1:
        yield links
