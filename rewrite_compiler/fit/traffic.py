"""Traffic: reads, fills and updates of each memory for each tensor of a loop nest, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..public_calls import public
from .mapping.engine import Engine, Halo, Reading
from .mapping.loops import Level, batch_of, levels_from
from .problems.documents import check_keys, checked_object, positive_integer
from .problems.problem import problem_from

LIMITS = ("elements", "fanout")
Counts = dict[str, dict[str, dict[str, int]]]
Limits = Mapping[str, Mapping[str, int]]


@public("traffic")
def traffic(problem: Mapping[str, Any], mapping: Sequence[Any], limits: Mapping[str, Any] | None = None) -> Counts:
    """Return {memory: {tensor: {tile, instances, reads, fills, updates}}} for a problem and a mapping of it, both JSON documents.

    Counts are elements per instance of the memory. A multicast is one read at its source. Of the output, `updates` are
    partial sums from below, `reads` those read back (none for the first step of a sum), `fills` tiles as they are switched,
    the first included. The outermost memory holds everything from the start: its fills are 0. `limits` may bound memories:
    {memory: {elements, fanout}}. InputError F230 says what is not legal.
    """
    parsed_problem = problem_from(problem)
    levels = levels_from(mapping, parsed_problem)
    batch, ends = batch_of(parsed_problem, levels)
    tensors = frozenset(parsed_problem.spaces)
    bypasses = tuple(frozenset() if row in ends else tensors for row in range(batch.levels))
    engine = Engine(batch, Reading.LOOPS, Halo.TILE, bypasses)
    if limits is not None:
        _check_limits(engine, levels, ends, limits)
    names = ("tile", "instances", "reads", "fills", "updates")
    counts: Counts = {}
    for level, row in zip(levels, ends, strict=True):
        by_tensor = {tensor: engine.counts(tensor, row).columns() for tensor in parsed_problem.spaces}
        counts[level.memory] = {tensor: {name: int(columns[name][0]) for name in names} for tensor, columns in by_tensor.items()}
    return counts


def _check_limits(engine: Engine, levels: Sequence[Level], ends: Sequence[int], limits: Any) -> None:
    """Refuse tiles that exceed a memory, and more parallel instances than there are."""
    bounds = _limits_from(limits, levels)
    for level, row in zip(levels, ends, strict=True):
        bound = bounds.get(level.memory, {})
        tile_elements = sum(int(engine.tile(t, row)[0]) for t in engine.batch.problem.spaces)
        fanout = 1
        for _, n in level.spatial:
            fanout *= n
        for subject, needed, key in (
            (f"Tiles in {level.memory}", tile_elements, "elements"),
            (f"Instances below {level.memory}", fanout, "fanout"),
        ):
            if needed > bound.get(key, needed):
                raise InputError(
                    "F230", f"{subject} must be at most {bound[key]:,}{' elements' if key == 'elements' else ''}, not {needed:,}"
                )


def _limits_from(limits: Any, levels: Sequence[Level]) -> Limits:
    names = [level.memory for level in levels]
    limits_by_memory: dict[str, Mapping[str, int]] = {}
    for memory, bound in checked_object(limits, "limits").items():
        if memory not in names:
            raise InputError("F230", f'Limits must be of memories of the mapping ({", ".join(names)}), not of "{memory}"')
        check_keys(bound, f"The bound of {memory}", (), LIMITS)
        limits_by_memory[memory] = {key: positive_integer(n, f"The bound of {memory} on {key}") for key, n in bound.items()}
    return limits_by_memory
