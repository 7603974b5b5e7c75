"""Mappings in the text that Timeloop takes, printed and parsed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from ....errors import InputError
from ...problems.problem import Problem
from ..clusters import Clusters
from ..schedule import LevelMap, Schedule, counts_of

COUNT = re.compile(r"[0-9]{1,18}")
KINDS = ("temporal", "spatial", "bypass", "datatype")
Counts = Sequence[tuple[Mapping[str, int], Mapping[str, int]]]
Blocks = dict[tuple[str, str], dict[str, str]]  # by target and type


def timeloop_text(schedule: Schedule, problem: Problem, clusters: Clusters) -> str:
    """Return the mapping as Timeloop's YAML; sub-clusters on axis Y and X below a memory are one spatial level with a split.

    The text has one factor a dimension there. Where one lies on both axes, a virtual level is a target that every tensor passes by.
    """
    counts = counts_of(schedule, problem)
    has_targets = _needs_targets(counts, clusters)
    blocks: list[str] = ["mapping:"]
    memory = ""
    spatial: dict[str, dict[str, int]] = {}
    for m, (temporal, parts), c in zip(schedule.levels, counts, clusters.levels, strict=True):
        if has_targets or not c.is_virtual:
            _close(blocks, memory, spatial, problem)
            memory, spatial = m.cluster, {}
            order = [*reversed(m.order), *(d for d in problem.names if d not in m.order)]
            blocks += _block(memory, "temporal", temporal, order)
            blocks += _bypass_block(memory, tuple(problem.spaces) if c.is_virtual else tuple(sorted(m.bypass)), problem)
        if c.children > 1:
            spatial[c.axis or "X"] = parts
    _close(blocks, memory, spatial, problem)
    return "\n".join(blocks) + "\n"


def _needs_targets(counts: Counts, clusters: Clusters) -> bool:
    """Tell whether virtual levels must be targets: loops of theirs turn, or a dimension or an axis is twice below one memory."""
    dimensions, axes = set[str](), set[str]()
    for (temporal, parts), c in zip(counts, clusters.levels, strict=True):
        if not c.is_virtual:
            dimensions, axes = set(), set()
        elif any(n > 1 for n in temporal.values()):
            return True
        split = {d for d, n in parts.items() if n > 1}
        if split & dimensions or (c.children > 1 and (c.axis or "X") in axes):
            return True
        dimensions |= split
        axes |= {c.axis or "X"} if c.children > 1 else set()
    return False


def _bypass_block(target: str, bypass: Sequence[str], problem: Problem) -> list[str]:
    if not bypass:
        return []
    own_tensors = ", ".join(t for t in problem.spaces if t not in bypass)
    return [f"  - target: {target}", "    type: bypass", f"    keep: [{own_tensors}]", f"    bypass: [{', '.join(bypass)}]"]


def _close(blocks: list[str], memory: str, spatial: dict[str, dict[str, int]], problem: Problem) -> None:
    if not spatial:
        return
    on_x = [d for d, n in spatial.get("X", {}).items() if n > 1]
    on_y = [d for d, n in spatial.get("Y", {}).items() if n > 1]
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
    blocks = _blocks_by_target(text, clusters)
    size = dict(problem.dimensions)
    levels, memory = [], ""
    for c in clusters.levels:
        block = blocks.get((c.name, "temporal"), {})
        if not c.is_virtual or (c.name, "spatial") in blocks:
            memory = c.name
        tile = _divided(size, _factors(block, c.name, problem), c.name)
        parts = _parts(blocks.get((memory, "spatial"), {}), c.axis or "X", memory, problem) if c.children > 1 else {}
        share = _divided(tile, parts, c.name)
        order = tuple(d for d in reversed(_permutation(block, problem)) if tile[d] < size[d])
        bypass = () if c.is_virtual else re.findall(r"[^\s,\[\]]+", blocks.get((c.name, "bypass"), {}).get("bypass", ""))
        foreign = next((t for t in bypass if t not in problem.spaces), None)
        if foreign is not None:
            raise InputError("F230", f"The bypass of {c.name} must name tensors ({', '.join(problem.spaces)}), not {foreign}")
        levels.append(LevelMap(c.name, order, tile, share, frozenset(bypass)))
        size = share
    return Schedule(tuple(levels))


def _divided(size: Mapping[str, int], factors: Mapping[str, int], level: str) -> dict[str, int]:
    rest = next((d for d, n in factors.items() if size[d] % n), None)
    if rest is not None:
        sentence = f"The factor {factors[rest]:,} of {rest} at {level} must divide the {size[rest]:,} steps of its tile (rule 4)"
        raise InputError("F230", sentence)
    return {d: n // factors.get(d, 1) for d, n in size.items()}


def _blocks_by_target(text: str, clusters: Clusters) -> Blocks:
    by_target: Blocks = {}
    for b in _blocks(text):
        place = target, kind = b.get("target", ""), b.get("type", "")
        if target not in clusters.names or kind not in KINDS:
            raise InputError(
                "F230", f'A block of the mapping must have a target ({", ".join(clusters.names)}) and a type ({", ".join(KINDS)}), '
                f'not "{target}" and "{kind}"',
            )  # fmt: skip
        if place in by_target:
            raise InputError("F230", f"The mapping must have one {kind} block of {target}, not two")
        by_target[place] = b
    return by_target


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
        if d not in problem.dimensions or COUNT.fullmatch(number) is None or not int(number):
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
    split_text = block.get("split", str(len(order)))
    if COUNT.fullmatch(split_text) is None:
        raise InputError("F230", f'The split of {memory} must be a count of dimensions on axis X, not "{split_text}"')
    split = int(split_text)
    return {d: factors.get(d, 1) for d in (order[:split] if axis == "X" else order[split:])}
