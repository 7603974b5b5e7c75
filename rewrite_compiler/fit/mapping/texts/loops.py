"""Mappings as a listing of nested loops, printed and parsed."""

from __future__ import annotations

import re

from ....errors import InputError
from ...problems.problem import Problem
from ..clusters import Cluster, Clusters
from ..schedule import LevelMap, Schedule, counts_of

LOOP = re.compile(r"for (\S+) in 0\.\.([0-9]{1,18}) step ([0-9]{1,18})")
PART = re.compile(r"(\S+) over ([0-9]{1,18})")
Lines = list[tuple[int, str]]  # with their numbers


def listing(schedule: Schedule, problem: Problem, clusters: Clusters) -> list[str]:
    """Return the mapping as nested loops, one line each."""
    lines: list[str] = []
    depth = 0
    for m, (temporal, spatial), c in zip(schedule.levels, counts_of(schedule, problem, rests=True), clusters.levels, strict=True):
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


def loops_schedule(text: str, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping that a listing of loops describes; what follows the nest is not read.

    Raises:
        InputError: the text is no mapping of the problem on these clusters (F230).
    """
    heads: list[str] = []
    bodies: list[Lines] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith(f"{problem.output} += "):
            break
        if len(heads) < len(clusters.levels) and words.startswith(f"{clusters.names[len(heads)]}  "):
            heads.append(words)
            bodies.append([])
        elif bodies:
            bodies[-1].append((number, words))
        else:
            raise InputError("F230", f'Line {number} of the mapping must be the level {clusters.names[0]}, not "{words}"')
    if len(heads) < len(clusters.levels):
        raise InputError("F230", f"The mapping must have the level {clusters.names[len(heads)]} of {clusters.name}, which no line begins")
    size, levels = dict(problem.dimensions), list[LevelMap]()
    for c, head, body in zip(clusters.levels, heads, bodies, strict=True):
        levels.append(_level(c, head, body, size))
        size = dict(levels[-1].spatial)
    return Schedule(tuple(levels))


def _level(c: Cluster, head: str, body: Lines, size: dict[str, int]) -> LevelMap:
    temporal, order, share = dict(size), list[str](), None
    for number, words in body:
        loop = LOOP.fullmatch(words)
        if loop is not None and share is None:
            d, steps, step = loop[1], int(loop[2]) + 1, int(loop[3])
            _check_loop(number, d, temporal, steps * step, f"{steps:,} steps of {step:,}")
            temporal[d] = step
            order.append(d)
        elif words.startswith("parallel ") and share is None:
            share = _shares(number, words, temporal)
        else:
            example = 'a loop as "for k in 0..3 step 2", then one line as "parallel k over 4 on axis X"'
            raise InputError("F230", f'Line {number} of the mapping must be {example}, not "{words}"')
    passes = head.partition(", passes on ")[2]
    return LevelMap(c.name, tuple(order), temporal, share or temporal, frozenset(filter(None, passes.split(", "))))


def _shares(number: int, words: str, tiles: dict[str, int]) -> dict[str, int]:
    share = dict(tiles)
    for part in words.removeprefix("parallel ").partition(" on axis ")[0].split(", "):
        match = PART.fullmatch(part)
        if match is None:
            raise InputError("F230", f'Line {number} of the mapping must name parts as "k over 4", not "{part}"')
        d, parts = match[1], max(int(match[2]), 1)
        _check_loop(number, d, tiles, parts * (tiles.get(d, 0) // parts), f"{parts:,} parts")
        share[d] = tiles[d] // parts
    return share


def _check_loop(number: int, d: str, sizes: dict[str, int], covered: int, subject: str) -> None:
    if d not in sizes:
        raise InputError("F230", f"Line {number} of the mapping must use a dimension of the problem ({', '.join(sizes)}), not {d}")
    if covered != sizes[d] or not covered:
        raise InputError("F230", f"Line {number} of the mapping: {subject} do not cover the {sizes[d]:,} steps of {d} there (rule 4)")
