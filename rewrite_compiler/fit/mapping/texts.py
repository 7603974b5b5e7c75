"""Mappings as texts: a listing of loops, and the text that Timeloop takes, printed and parsed."""

from __future__ import annotations

import math
import re

from ...errors import InputError
from ..problems.problem import Problem
from .clusters import Clusters
from .schedule import LevelMap, Schedule, counts_of


def listing(schedule: Schedule, problem: Problem, clusters: Clusters) -> list[str]:
    """Return the mapping as nested loops, one line each."""
    lines: list[str] = []
    depth = 0
    for m, (temporal, spatial), c in zip(schedule.levels, counts_of(schedule, problem), clusters.levels, strict=True):
        holds = "virtual" if c.is_virtual else f"holds {c.capacity:,} elements" if c.capacity else "holds all"
        lines.append(f"{'  ' * depth}{m.cluster}  {holds}{', passes on ' + ', '.join(sorted(m.bypass)) if m.bypass else ''}")
        depth += 1
        for d in m.order:
            if temporal[d] > 1:
                lines.append(f"{'  ' * depth}for {d} in 0..{temporal[d] - 1} step {m.temporal.get(d, problem.dimensions[d])}")
                depth += 1
        parts = [f"{d} over {n}" for d, n in spatial.items() if n > 1]
        if parts:
            axis = f" on axis {c.axis}" if c.axis else ""
            lines.append(f"{'  ' * depth}parallel {', '.join(parts)}{axis}")
            depth += 1
    operands = ", ".join(t for t in problem.spaces if t != problem.output)
    return [*lines, f"{'  ' * depth}{problem.output} += {problem.unit} of {operands}"]


def timeloop_text(schedule: Schedule, problem: Problem, clusters: Clusters) -> str:
    """Return the mapping as Timeloop's YAML; sub-clusters on axis Y and X below a memory are one spatial level with a split.

    Raises:
        InputError: a dimension lies on both axes, for which the text has one factor (F230).
    """
    blocks: list[str] = ["mapping:"]
    counts = counts_of(schedule, problem)
    memory = ""
    spatial: dict[str, dict[str, int]] = {}
    for m, (temporal, parts), c in zip(schedule.levels, counts, clusters.levels, strict=True):
        if not c.is_virtual:
            _close(blocks, memory, spatial, problem)
            memory, spatial = m.cluster, {}
            order = [*reversed(m.order), *(d for d in problem.names if d not in m.order)]
            blocks += _block(memory, "temporal", temporal, order)
            if m.bypass:
                tensors = ", ".join(t for t in problem.spaces if t not in m.bypass)
                blocks += [
                    f"  - target: {memory}",
                    "    type: bypass",
                    f"    keep: [{tensors}]",
                    f"    bypass: [{', '.join(sorted(m.bypass))}]",
                ]
        if c.children > 1:
            spatial[c.axis or "X"] = parts
    _close(blocks, memory, spatial, problem)
    return "\n".join(blocks) + "\n"


def _close(blocks: list[str], memory: str, spatial: dict[str, dict[str, int]], problem: Problem) -> None:
    if not spatial:
        return
    on_x = [d for d, n in spatial.get("X", {}).items() if n > 1]
    on_y = [d for d, n in spatial.get("Y", {}).items() if n > 1]
    twice = next((d for d in on_x if d in on_y), None)
    if twice is not None:
        raise InputError(
            "F230", f"Dimension {twice} lies on both axes below {memory}: Timeloop's text has one factor a dimension; constrain `parallel`"
        )
    order = [*on_x, *on_y, *(d for d in problem.names if d not in (*on_x, *on_y))]
    factors = {d: math.prod(table.get(d, 1) for table in spatial.values()) for d in problem.names}
    blocks += [*_block(memory, "spatial", factors, order), f"    split: {len(on_x)}"]


def _block(target: str, kind: str, factors: dict[str, int], order: list[str]) -> list[str]:
    joint = "" if all(len(d) == 1 for d in order) else " "
    words = " ".join(f"{d}={factors[d]}" for d in factors)
    return [f"  - target: {target}", f"    type: {kind}", f"    factors: {words}", f"    permutation: {joint.join(order)}"]


def timeloop_schedule(text: str, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping that a text in Timeloop's form describes.

    Raises:
        InputError: the text is no mapping of the problem on these clusters (F230).
    """
    blocks = {(b.get("target", ""), b.get("type", "")): b for b in _blocks(text)}
    size = dict(problem.dimensions)
    levels, memory = [], ""
    for c in clusters.levels:
        block = blocks.get((c.name, "temporal"), {})
        if not c.is_virtual:
            memory = c.name
        temporal = _factors(block, c.name, problem)
        tile = {d: size[d] // temporal.get(d, 1) for d in size}
        parts = _parts(blocks.get((memory, "spatial"), {}), c.axis or "X", memory, problem) if c.children > 1 else {}
        share = {d: tile[d] // parts.get(d, 1) for d in tile}
        inner_first = _permutation(block, problem)
        order = tuple(d for d in reversed(inner_first) if temporal.get(d, 1) > 1)
        bypass = frozenset(re.findall(r"[^\s,\[\]]+", blocks.get((c.name, "bypass"), {}).get("bypass", "")))
        levels.append(LevelMap(c.name, order, tile, share, bypass))
        size = share
    return Schedule(tuple(levels))


def _blocks(text: str) -> list[dict[str, str]]:
    blocks: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words or words == "mapping:":
            continue
        if words.startswith("- "):
            blocks.append({})
            words = words[2:]
        key, colon, value = words.partition(":")
        if not colon or not blocks:
            raise InputError("F230", f'Line {number} of the mapping must be "key: value", not "{words}"')
        blocks[-1][key.strip()] = value.strip()
    return blocks


def _factors(block: dict[str, str], target: str, problem: Problem) -> dict[str, int]:
    factors = {}
    for word in block.get("factors", "").replace(",", " ").split():
        d, _, number = word.partition("=")
        if d not in problem.dimensions or not number.isdigit() or not int(number):
            raise InputError("F230", f'A factor of {target} must be a dimension ({" ".join(problem.names)}) and a count, not "{word}"')
        factors[d] = int(number)
    return factors


def _permutation(block: dict[str, str], problem: Problem) -> list[str]:
    """Return the order of loops, innermost first; dimensions that it leaves out come last."""
    text = block.get("permutation", "")
    words = text.replace(",", " ").split()
    names = words if len(words) != 1 else [text] if text in problem.dimensions else list(text)
    foreign = next((d for d in names if d not in problem.dimensions), None)
    if foreign is not None:
        raise InputError("F230", f'The permutation "{text}" must name dimensions of the problem ({" ".join(problem.names)}), not {foreign}')
    return [*names, *(d for d in problem.names if d not in names)]


def _parts(block: dict[str, str], axis: str, memory: str, problem: Problem) -> dict[str, int]:
    """Return the parts of a spatial level on one axis: the first dimensions of its order lie on X, the others on Y."""
    factors = _factors(block, memory, problem)
    order = _permutation(block, problem)
    split = int(block["split"]) if block.get("split", "").isdigit() else len(order)
    return {d: factors.get(d, 1) for d in (order[:split] if axis == "X" else order[split:])}


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
