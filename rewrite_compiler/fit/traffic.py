"""Traffic: reads, fills and updates of each memory for each tensor of a loop nest, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from .nest import Level, Limits, Nest, check_keys, checked_object, levels_from, positive_integer, problem_from

LIMITS = ("elements", "fanout")


def traffic(
    problem: Mapping[str, Any], mapping: Sequence[Any], limits: Mapping[str, Any] | None = None
) -> dict[str, dict[str, dict[str, int]]]:
    """Return {memory: {tensor: {tile, instances, reads, fills, updates}}} for a problem and a mapping of it, both JSON documents.

    Counts are elements per instance of the memory. A multicast is one read at its source. Of the output, `updates` are
    partial sums from below, `reads` those read back (none for the first step of a sum), `fills` tiles as they are switched,
    the first included. The outermost memory holds everything from the start: its fills are 0. `limits` may bound memories:
    {memory: {elements, fanout}}. InputError F230 says what is not legal.
    """
    parsed_problem = problem_from(problem)
    nest = Nest(parsed_problem, levels_from(mapping, parsed_problem))
    if limits is not None:
        _check_limits(nest, limits)
    return {level.memory: {t: counts(nest, t, at) for t in parsed_problem.tensors} for at, level in enumerate(nest.levels)}


def counts(nest: Nest, tensor: str, level: int) -> dict[str, int]:
    """Return tile, instances, reads, fills and updates of one tensor at one level, in elements per instance."""
    tile = nest.tile(tensor, level)
    transferred = nest.tile_changes(tensor, level - 1) * nest.union_tile(tensor, level)
    fills = nest.tile_changes(tensor, level) * tile if level < len(nest.levels) - 1 else 0
    is_output = tensor == nest.problem.output
    reads = transferred - nest.partition(tensor, level) if is_output else transferred
    return {"tile": tile, "instances": nest.instances(level), "reads": reads, "fills": fills, "updates": transferred if is_output else 0}


def _check_limits(nest: Nest, limits: Any) -> None:
    """Refuse tiles that exceed a memory, and more parallel instances than there are."""
    bounds = _limits_from(limits, nest.levels)
    for at, level in enumerate(nest.levels):
        bound = bounds.get(level.memory, {})
        tile_elements = sum(nest.tile(t, at) for t in nest.problem.tensors)
        fanout = nest.instances(at - 1) // nest.instances(at)
        for subject, needed, key in (
            (f"Tiles in {level.memory}", tile_elements, "elements"),
            (f"Instances below {level.memory}", fanout, "fanout"),
        ):
            if needed > bound.get(key, needed):
                raise InputError(
                    "F230", f"{subject} must be at most {bound[key]:,}{' elements' if key == 'elements' else ''}, not {needed:,}"
                )


def _limits_from(limits: Any, levels: tuple[Level, ...]) -> Limits:
    names = [level.memory for level in levels]
    limits_by_memory: dict[str, Mapping[str, int]] = {}
    for memory, bound in checked_object(limits, "limits").items():
        if memory not in names:
            raise InputError("F230", f'Limits must be of memories of the mapping ({", ".join(names)}), not of "{memory}"')
        check_keys(bound, f"The bound of {memory}", (), LIMITS)
        limits_by_memory[memory] = {key: positive_integer(n, f"The bound of {memory} on {key}") for key, n in bound.items()}
    return limits_by_memory
