"""Two opinions on one mapping: counters that the models count differently, and the wrap of a loop that makes them differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..mapping.clusters import Clusters
from ..mapping.remainders import leaves_rests
from ..mapping.schedule import Schedule, batch_of, bypasses_of, counts_of
from ..models.published import MODELS
from ..problems.problem import Problem


@dataclass(frozen=True)
class Difference:
    """A counter of a tensor at a level that two models give two values, and why."""

    level: str
    tensor: str
    counter: str
    values: dict[str, int]
    because: str

    def document(self) -> dict[str, Any]:
        """Return the difference as JSON."""
        return {"level": self.level, "tensor": self.tensor, "counter": self.counter, "values": dict(self.values), "because": self.because}


def differences(problem: Problem, clusters: Clusters, schedule: Schedule) -> list[Difference]:
    """Return every counter that the published models count differently, with the loop that causes it."""
    batch, bypasses = batch_of(problem, clusters, [schedule]), bypasses_of(clusters, schedule, problem)
    costs = {name: model.evaluate(clusters, batch, bypasses) for name, model in MODELS.items()}
    first = next(iter(costs))
    found_differences = []
    for key, counts in costs[first].counters.items():
        for counter in counts.columns():
            values = {name: int(cost.counters[key].columns()[counter][0]) for name, cost in costs.items()}
            if len(set(values.values())) > 1:
                because = _because(problem, clusters, schedule, key[0], key[1], counter)
                found_differences.append(Difference(*key, counter, values, because))
    return found_differences


def _because(problem: Problem, clusters: Clusters, schedule: Schedule, level: str, tensor: str, counter: str) -> str:
    """Say which wrap the data-centric reading forgets; of a result, when its partial sums go out."""
    if tensor == problem.output:
        return "timeloop sends partial sums when their tile changes, maestro at every step"
    relevant = problem.relevant(tensor)
    inside: list[str] = []
    row = clusters.row(level)
    below = [r for r in range(row) if not clusters.cluster(r).is_virtual]
    tile_row = row if counter == "fills" else (below[-1] if below else -1)
    for name, d in loops_outside(clusters, schedule, tile_row):
        if d not in relevant and inside:
            wrapped = ", ".join(inside)
            return f"each step of {d} at {name} wraps {wrapped}: timeloop brings the first tile back, maestro takes it as still there"
        if d in relevant and d not in inside:
            inside.append(d)
    return "where several loops of an overlapping tile wrap together, maestro brings the whole tile, timeloop what is new"


def loops_outside(clusters: Clusters, schedule: Schedule, tile_row: int) -> list[tuple[str, str]]:
    """Return level and dimension of the temporal loops outside of the tiles of a row, innermost first."""
    loops = []
    for m in reversed(schedule.levels):
        if clusters.row(m.cluster) > tile_row:
            loops += [(m.cluster, d) for d in reversed(m.order)]
    return loops


def notes(problem: Problem, schedule: Schedule) -> list[str]:
    """Return where the program of a model itself prints other counters: Timeloop's of inputs under windows."""
    if leaves_rests(problem, schedule):
        return ["Tiles leave rests: reads, fills and updates are of all instances together; Timeloop v2.0 itself takes no such mapping"]
    loops = {d: sum(n > 1 for pair in counts_of(schedule, problem) for n in (pair[0][d], pair[1][d])) for d in problem.names}
    sentences = []
    for tensor, axes in problem.spaces.items():
        for axis in axes:
            cut = [d for d in axis if loops[d]]
            wide = next((d for d in axis if axis[d] > 1 and problem.dimensions[d] > 1), None)
            if tensor == problem.output or len(axis) < 2:  # noqa: PLR2004 -- a place and a tap
                continue
            if wide is not None:
                reason = f"a step of {wide} is {axis[wide]} elements"
            elif len(cut) > 1 and sum(loops[d] for d in cut) > len(cut):
                reason = f"{' and '.join(cut)} are cut at more than one place"
            else:
                continue
            sentences.append(
                f"Timeloop v2.0 itself may print other reads and fills of {tensor}: {reason}, and it counts no set differences"
            )
            break
    return sentences
