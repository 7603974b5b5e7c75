"""Cause of traffic: what each loop outside of a tile does to it, and how much would come if no loop brought tiles again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UsageError, did_you_mean
from ..mapping.clusters import Clusters
from ..mapping.schedule import LevelMap, Schedule, counts_of
from ..problems.problem import Problem
from .opinion import loops_outside


@dataclass(frozen=True)
class LoopEffect:
    """A loop outside of a tile: where it turns, how often, and what its steps do."""

    level: str
    dimension: str
    steps: int
    effect: str  # "another tile", "the same tile" or "again"

    def document(self) -> dict[str, Any]:
        """Return the loop as JSON."""
        return {"level": self.level, "dimension": self.dimension, "steps": self.steps, "effect": self.effect}


ANOTHER, SAME, AGAIN = "another tile", "the same tile", "again"


def effects(problem: Problem, clusters: Clusters, schedule: Schedule, level: str, tensor: str) -> list[LoopEffect]:
    """Return what the loops outside of a tensor's tile at a level do to it, innermost first.

    A loop that indexes the tensor brings another tile with each step. One that does not keeps the tile if no loop inside of it changes
    it, and otherwise brings all that comes inside of it again with each step.

    Raises:
        UsageError: F203, there is no such memory or tensor, or the level holds everything from the start.
    """
    _check_place(problem, clusters, schedule, level, tensor)
    counts = dict(zip((m.cluster for m in schedule.levels), counts_of(schedule, problem), strict=True))
    relevant, has_changed, rows = problem.relevant(tensor), False, []
    for name, d in loops_outside(clusters, schedule, clusters.row(level)):
        steps = counts[name][0][d]
        if steps > 1:
            rows.append(LoopEffect(name, d, steps, ANOTHER if d in relevant else AGAIN if has_changed else SAME))
            has_changed |= d in relevant
    return rows


def _check_place(problem: Problem, clusters: Clusters, schedule: Schedule, level: str, tensor: str) -> None:
    memories = [c.name for c in clusters.levels[1:] if not c.is_virtual]
    if level not in memories:
        remedy = " ".join(filter(None, (did_you_mean(level, memories), f"memories that something fills: {', '.join(memories)}")))
        raise UsageError("F203", f'{clusters.name} fills no memory "{level}"', help=remedy)
    if tensor not in problem.spaces:
        raise UsageError("F203", f'The problem has no tensor "{tensor}"', help=f"it has {', '.join(problem.spaces)}")
    if tensor in _map_of(schedule, level).bypass:
        raise UsageError("F203", f"{level} does not hold {tensor} in this mapping", help="name a memory that holds it")


def _map_of(schedule: Schedule, level: str) -> LevelMap:
    return next(m for m in schedule.levels if m.cluster == level)


def cause_document(
    problem: Problem, clusters: Clusters, schedule: Schedule, cost: dict[str, Any], place: tuple[str, str]
) -> dict[str, Any]:  # fmt: skip
    """Return the loops with their effects, and what comes in all beside what would come if no loop brought tiles again."""
    level, tensor = place
    rows = effects(problem, clusters, schedule, level, tensor)
    counters = cost["counters"][level][tensor]
    return {
        "level": level, "tensor": tensor, "tile": counters["tile"], "fills": counters["fills"], "instances": counters["instances"],
        "loops": [r.document() for r in rows],
    }  # fmt: skip


def cause_lines(document: dict[str, Any]) -> list[str]:
    """Return the cause as text, innermost loop first, and the loops that bring tiles again, largest first."""
    place = f"{document['tensor']} at {document['level']}"
    lines = [f"{place}: a tile of {document['tile']:,} elements, {document['fills']:,} come to each of {document['instances']:,}"]
    lines += [f"  {r['dimension']} at {r['level']}, {r['steps']:,} steps: {_said(r['effect'])}" for r in document["loops"]]
    repeats = sorted((r for r in document["loops"] if r["effect"] == AGAIN), key=lambda r: -r["steps"])
    if not repeats:
        return [*lines, "no loop brings anything again: every element comes once to each"]
    names = ", then ".join(f"{r['dimension']} at {r['level']} ({r['steps']:,} times)" for r in repeats)
    return [*lines, f"what brings elements again: {names}; a larger tile or an order with it further inside avoids that"]


def _said(effect: str) -> str:
    return {ANOTHER: "another tile each", SAME: "the tile stays", AGAIN: "all that comes inside comes again each"}[effect]
