"""Mappings in the form of Union: target cluster, temporal order, temporal and spatial tile sizes of every level."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ....errors import InputError
from ...problems.problem import Problem, check_dimension
from ..clusters import Clusters
from ..schedule import LevelMap, Schedule, counts_of

KEYS = ("target_cluster", "temporal_order", "temporal_tile_sizes", "spatial_tile_sizes", "bypass")
SIZE = re.compile(r"([^\s=,\[\]]+)=([0-9]{1,18})")


def union_text(schedule: Schedule, problem: Problem, clusters: Clusters) -> str:
    """Return the mapping in Union's form: target_cluster, temporal_order, temporal and spatial tile sizes of every level."""
    lines: list[str] = []
    for m in schedule.levels:
        sizes = (f"[{', '.join(f'{d}={tiles[d]}' for d in problem.names)}]" for tiles in (m.temporal, m.spatial))
        order = [*m.order, *(d for d in problem.names if d not in m.order)]
        temporal, spatial = sizes
        lines += [
            f"target_cluster: {m.cluster}", f"temporal_order: {', '.join(order)}", f"temporal_tile_sizes: {temporal}",
            f"spatial_tile_sizes: {spatial}", *([f"bypass: {', '.join(sorted(m.bypass))}"] if m.bypass else []), "",
        ]  # fmt: skip
    return "\n".join(lines)


def union_schedule(text: str, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping that a text in Union's form describes.

    Raises:
        InputError: the text is no mapping of the problem on these clusters (F230).
    """
    blocks: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = (part.strip() for part in line.partition(":"))
        if not line.strip():
            continue
        if key == KEYS[0]:
            blocks.append({})
        if key not in KEYS or not blocks or key in blocks[-1]:
            raise InputError("F230", f'Line {number} of the mapping must be a block of {", ".join(KEYS)}, each once, not "{line.strip()}"')
        blocks[-1][key] = value
    names = [b[KEYS[0]] for b in blocks]
    if names != list(clusters.names):
        raise InputError("F230", f"The levels of the mapping must be {', '.join(clusters.names)}, not {', '.join(names) or 'none'}")
    levels = tuple(_level(b, problem) for b in blocks)
    counts = counts_of(Schedule(levels), problem)
    turning = (tuple(d for d in m.order if temporal[d] != 1) for m, (temporal, _) in zip(levels, counts, strict=True))
    return Schedule(tuple(replace(m, order=order) for m, order in zip(levels, turning, strict=True)))


def _level(block: Mapping[str, str], problem: Problem) -> LevelMap:
    name = block[KEYS[0]]
    order = tuple(re.findall(r"[^\s,\[\]]+", block.get("temporal_order", "")))
    bypass = frozenset(re.findall(r"[^\s,\[\]]+", block.get("bypass", "")))
    temporal, spatial = (_sizes(block, key, name) for key in KEYS[2:4])
    for d in (*order, *temporal, *spatial):
        check_dimension(d, problem.dimensions, f"The level {name} of the mapping")
    foreign = next((t for t in sorted(bypass) if t not in problem.spaces), None)
    if foreign is not None:
        raise InputError("F230", f"The bypass of {name} must name tensors ({', '.join(problem.spaces)}), not {foreign}")
    return LevelMap(name, order, temporal, spatial, bypass)


def _sizes(block: Mapping[str, str], key: str, name: str) -> dict[str, int]:
    words = re.findall(r"[^\s,\[\]]+", block.get(key, ""))
    sizes = {}
    for word in words:
        match = SIZE.fullmatch(word)
        if match is None or not int(match[2]):
            raise InputError("F230", f'The {key} of {name} must be of the form [k=64, c=16], not "{word}"')
        sizes[match[1]] = int(match[2])
    return sizes
