"""Mappings as tiled codelets: loops over tiles, transfers that bring each memory its tile, and one compute; printed and parsed.

A loop is named by its dimension and level: k_L2 runs over the tiles of L2, k_over_L2 over the shares of its sub-clusters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....errors import InputError, SpecError
from ....sched.codelet import Affine, Allocation, Codelet, Compute, Index, Loop, Node, Surrogate, Transfer, variable, walk
from ....sched.codelet_text import parse, text
from ...problems.problem import MAC, Problem
from ..clusters import Clusters
from ..schedule import LevelMap, Schedule, counts_of

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPERAND, RESULT = "i8", "i32"
UNIT = "PE"
Tiles = Mapping[str, int]


def codelet_text(schedule: Schedule, problem: Problem, clusters: Clusters) -> str:
    """Return a mapping as the text of its codelet; InputError F230 says which name a codelet cannot have."""
    return text(codelet_of(schedule, problem, clusters))


def codelet_of(schedule: Schedule, problem: Problem, clusters: Clusters) -> Codelet:
    """Return the tiled codelet of a mapping, operands of 8 bits and sums of 32.

    Raises:
        InputError: a name of the problem or of the architecture is none of a codelet (F230).
    """
    _check_names(problem, clusters)
    home = clusters.levels[0].name
    spans = {t: _span(problem, t, problem.dimensions) for t in problem.spaces}
    operands = [Surrogate(t, "inp", spans[t], OPERAND, home) for t in problem.spaces if t != problem.output]
    result = Surrogate(problem.output, "out", spans[problem.output], RESULT, home)
    body = _Writer(schedule, problem, clusters).body(0, problem.dimensions, {t: _Place(t) for t in problem.spaces})
    name = problem.tag if problem.tag and NAME.fullmatch(problem.tag) else "problem"
    return Codelet(name, (*operands, result), body)


def _check_names(problem: Problem, clusters: Clusters) -> None:
    names = (*problem.names, *problem.spaces, *clusters.names)
    wrong = next((n for n in names if not NAME.fullmatch(n)), None)
    if wrong is not None:
        raise InputError("F230", f'A codelet has names of letters, digits and _, not "{wrong}"', help="rename it, or show another form")
    loops, locals_ = _loop_names(problem, clusters), {_local(t, c) for t in problem.spaces for c in clusters.names}
    if len(loops) < 2 * len(problem.names) * len(clusters.levels) or locals_ & problem.spaces.keys():
        raise InputError("F230", "Two names of a codelet would be equal: no dimension ends with _over, no tensor with the name of a level")


def _local(tensor: str, level: str) -> str:
    return f"{tensor}_{level}"


def _loop_names(problem: Problem, clusters: Clusters) -> dict[str, tuple[str, str, bool]]:
    """Return level, dimension and whether it is parallel of each loop by its name."""
    return {
        f"{d}_{'over_' if parallel else ''}{level}": (level, d, parallel)
        for level in clusters.names for d in problem.names for parallel in (False, True)
    }  # fmt: skip


def _span(problem: Problem, tensor: str, sizes: Tiles) -> tuple[int, ...]:
    """Return the positions from first to last along each axis of a tile."""
    return tuple(1 + sum(c * (sizes[d] - 1) for d, c in axis.items()) for axis in problem.spaces[tensor])


@dataclass(frozen=True)
class _Place:
    """Where a tensor is: the surrogate or local that holds it, and the loops that move in it."""

    name: str
    moves: tuple[tuple[str, str], ...] = ()  # dimension and loop


@dataclass(frozen=True)
class _Writer:
    """The nest of a mapping, level by level from the outside."""

    schedule: Schedule
    problem: Problem
    clusters: Clusters

    def body(self, at: int, size: Tiles, places: Mapping[str, _Place]) -> tuple[Node, ...]:
        """Return what happens to tiles of a size: transfers into the level's memory, loops over what lies inside, results back."""
        if at == len(self.schedule.levels):
            return (self.compute(places),)
        m, c = self.schedule.levels[at], self.clusters.levels[at]
        tile = {d: m.temporal.get(d, n) for d, n in size.items()}
        share = {d: m.spatial.get(d, n) for d, n in tile.items()}
        loops = [(d, f"{d}_{c.name}", size[d], tile[d]) for d in m.order if tile[d] < size[d]]
        loops += [(d, f"{d}_over_{c.name}", tile[d], share[d]) for d in size if share[d] < tile[d]]
        own_tensors = [t for t in self.problem.spaces if at and not c.is_virtual and t not in m.bypass]
        inner = {**places, **{t: _Place(_local(t, c.name)) for t in own_tensors}}
        loop_moves = tuple((d, name) for d, name, _, _ in loops)
        nodes = self.body(at + 1, share, {t: replace(p, moves=p.moves + loop_moves) for t, p in inner.items()})
        for _, name, high, stride in reversed(loops):
            nodes = (Loop(name, 0, high, stride, nodes),)
        loads = [Transfer(self.block(t, places[t], size), Allocation(inner[t].name, c.name)) for t in own_tensors]
        stores = [Transfer(self.block(t, inner[t], size), self.block(t, places[t], size)) for t in own_tensors if t == self.problem.output]
        return (*loads, *nodes, *stores)

    def block(self, tensor: str, place: _Place, size: Tiles) -> Index:
        """Return the tile of a tensor in what holds it."""
        offsets = []
        for axis in self.problem.spaces[tensor]:
            total = Affine()
            for d, name in place.moves:
                total = total + variable(name, axis.get(d, 0))
            offsets.append(total)
        return Index(place.name, tuple(offsets), _span(self.problem, tensor, size))

    def compute(self, places: Mapping[str, _Place]) -> Compute:
        """Return the unit's operation on single elements."""
        ones = dict.fromkeys(self.problem.names, 1)
        blocks = {t: self.block(t, p, ones) for t, p in places.items()}
        operands = tuple(blocks[t] for t in self.problem.spaces if t != self.problem.output)
        capability = "MAC" if self.problem.unit == MAC else re.sub(r"\W", "_", self.problem.unit).upper()
        return Compute(capability, (*operands, blocks[self.problem.output]), blocks[self.problem.output], UNIT)


def codelet_schedule(source: str, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping of a tiled codelet.

    Raises:
        InputError: the text is no codelet, or not that of a mapping of the problem on these clusters (F230).
    """
    try:
        codelet = parse(source)
    except SpecError as error:
        raise InputError("F230", f"The codelet cannot be read: {error.problem.sentence}", help=error.problem.help) from None
    schedule = _schedule(codelet, problem, clusters)
    expected = codelet_of(schedule, problem, clusters)
    if replace(codelet, name=expected.name) != expected:
        lines = zip(text(codelet).splitlines()[1:], [*text(expected).splitlines()[1:], ""], strict=False)
        number, (line, other) = next(((k, pair) for k, pair in enumerate(lines, 2) if pair[0] != pair[1]), (1, ("", "")))
        subject = f'line {number} is "{line.strip()}", the mapping of its loops has "{other.strip()}"'
        if number == 1:
            subject = f"its operands are not {', '.join(problem.spaces)} of this problem, or a part is missing"
        raise InputError("F230", f"The codelet is no mapping of the problem on {clusters.name}: {subject}")
    return schedule


def _schedule(codelet: Codelet, problem: Problem, clusters: Clusters) -> Schedule:
    names = _loop_names(problem, clusters)
    loops: dict[tuple[str, bool], dict[str, int]] = {}
    locals_by_level: dict[str, set[str]] = {}
    for node in walk(codelet.body):
        if isinstance(node, Loop):
            if node.var not in names:
                remedy = f"a loop over tiles is k_{clusters.names[0]}, one over sub-clusters k_over_{clusters.names[0]}"
                raise InputError("F230", f'The loop "{node.var}" must name a dimension and a level of {clusters.name}', help=remedy)
            level, d, is_parallel = names[node.var]
            loops.setdefault((level, is_parallel), {})[d] = max(node.stride, 1)
        elif isinstance(node, Transfer) and isinstance(node.sink, Allocation):
            locals_by_level.setdefault(node.sink.loc, set()).add(node.sink.name)
    size, levels = dict(problem.dimensions), list[LevelMap]()
    for at, c in enumerate(clusters.levels):
        temporal = {**size, **loops.get((c.name, False), {})}
        share = {**temporal, **loops.get((c.name, True), {})}
        is_holder = at > 0 and not c.is_virtual
        passes = [t for t in problem.spaces if is_holder and _local(t, c.name) not in locals_by_level.get(c.name, ())]
        levels.append(LevelMap(c.name, tuple(loops.get((c.name, False), {})), temporal, share, frozenset(passes)))
        size = share
    schedule = Schedule(tuple(levels))
    if any(n == 0 for temporal, spatial in counts_of(schedule, problem) for n in (*temporal.values(), *spatial.values())):
        raise InputError("F230", "The loops of the codelet must get smaller from the outside to the inside (rule 1)")
    return schedule
