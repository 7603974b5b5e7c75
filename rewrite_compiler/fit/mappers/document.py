"""The answer of a search as JSON: the mapping, its cost, what the other model says of it, and how sure the search is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..mapping.clusters import Clusters
from ..mapping.remainders import Remainders, leaves_rests
from ..mapping.schedule import Schedule
from ..mapping.texts.loops import listing
from ..models.model import Cost, CostModel, Objective
from ..models.published import MODELS
from ..problems.problem import Problem
from .opinion import differences, notes
from .search import Point, SearchResult


def mapping_document(problem: Problem, clusters: Clusters, result: SearchResult) -> dict[str, Any]:
    """Return what a search found."""
    value = result.cost.value(result.objective)
    return {
        **schedule_document(problem, clusters, result.best, result.cost),
        "objective": result.objective.value, "value": value, "bound": result.bound, "gap": result.gap,
        **({"remainders": True} if result.may_leave_rests else {}),
        "evaluated": result.evaluated, "legal": result.legal, "stop": result.stop.value,
        "front": [{"cycles": p.cycles, "energy_fj": p.energy_fj} for p in result.front],
        **({"points": [_point(p) for p in result.points]} if result.points else {}),
    }  # fmt: skip


def schedule_document(problem: Problem, clusters: Clusters, schedule: Schedule, cost: Cost) -> dict[str, Any]:
    """Return a mapping with its cost, and beside it the opinions of the other models."""
    has_rests = leaves_rests(problem, schedule)
    is_compared = _all_conform(problem, clusters) and not has_rests
    return {
        "problem": problem.document(), "architecture": clusters.name, "clusters": clusters.document(), "mapping": schedule.document(),
        "loops": listing(schedule, problem, clusters), "cost": cost.document(), "limits": limits(problem, clusters, schedule, cost),
        "opinions": opinions(problem, clusters, schedule, cost.model),
        "differences": [d.document() for d in differences(problem, clusters, schedule)] if is_compared else [],
        "notes": notes(problem, schedule), "leaves_rests": has_rests,
    }  # fmt: skip


def limits(problem: Problem, clusters: Clusters, schedule: Schedule, cost: Cost) -> list[dict[str, Any]]:
    """Return the cycles that units and limited links take, the slowest first: a faster one of the others saves no cycle."""
    steps = Remainders(problem, clusters, schedule, ()).steps
    links = [(f"link below {name}", -(-cost.traffic[name] // width)) for name, width in clusters.limited_links]
    return [{"part": part, "cycles": n} for part, n in sorted([("units", steps), *links], key=lambda limit: -limit[1])]


def _point(p: Point) -> dict[str, Any]:
    """Return a priced mapping with its tiles in a line."""
    tiles = " · ".join(f"{m.cluster} {', '.join(f'{d} {n}' for d, n in m.temporal.items() if n > 1) or '1'}" for m in p.schedule.levels)
    return {"cycles": p.cycles, "energy_fj": p.energy_fj, "tiles": tiles}


def _all_conform(problem: Problem, clusters: Clusters) -> bool:
    return all(model.conforms(problem, clusters) is None for model in MODELS.values())


def opinions(problem: Problem, clusters: Clusters, schedule: Schedule, name: str) -> list[Mapping[str, Any]]:
    """Return what the other models say of a mapping: cycles and energy, or why they do not price it."""
    documents = []
    for model in MODELS.values():
        if model.name != name:
            documents.append(_opinion(problem, clusters, schedule, model))
    return documents


def _opinion(problem: Problem, clusters: Clusters, schedule: Schedule, model: CostModel) -> Mapping[str, Any]:
    refusal = model.conforms(problem, clusters) or (model.refusal_of_rests if leaves_rests(problem, schedule) else None)
    if refusal is not None:
        return {"model": model.name, "why_not": refusal}
    cost = model.cost(problem, clusters, schedule)
    edp = None if cost.energy_fj is None else cost.value(Objective.EDP)
    return {"model": model.name, "cycles": cost.cycles, "energy_fj": cost.energy_fj, "edp": edp}
