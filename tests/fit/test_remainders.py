"""Tiles that leave rests: counters equal a nest that is run step by step, and those of whole tiles where none leaves any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.errors import InputError
from rewrite_compiler.fit.api import map as mapping_of
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.engine import Engine
from rewrite_compiler.fit.mapping.remainders import Remainders, leaves_rests
from rewrite_compiler.fit.mapping.schedule import LevelMap, Schedule, batch_of, bypasses_of, violations
from rewrite_compiler.fit.mapping.sums import Runs, common, joined, run_size, runs_of, shifted, without
from rewrite_compiler.fit.models.published import MODELS
from rewrite_compiler.fit.problems.problem import Problem

Element = tuple[int, ...]
Box = tuple[tuple[int, int], ...]  # offset and size by dimension
SPACES: dict[str, Any] = {
    "product": {"A": ({"m": 1}, {"k": 1}), "B": ({"k": 1}, {"n": 1}), "Z": ({"m": 1}, {"n": 1})},
    "row": {"W": ({"k": 1}, {"r": 1}), "I": ({"p": 1, "r": 1},), "Z": ({"k": 1}, {"p": 1})},
    "strided": {"W": ({"k": 1}, {"r": 1}), "I": ({"p": 2, "r": 1},), "Z": ({"k": 1}, {"p": 1})},
    "dilated": {"W": ({"r": 1},), "I": ({"p": 2, "r": 3},), "Z": ({"p": 1},)},
    "scattered": {"W": ({"r": 1},), "I": ({"p": 1},), "Z": ({"p": 1, "r": 1},)},
    "image": {"W": ({"r": 1}, {"s": 1}), "I": ({"p": 1, "r": 1}, {"q": 2, "s": 1}), "Z": ({"p": 1}, {"q": 1})},
}
CHIPS = Clusters(
    "chips",
    (Cluster("DRAM", None, 2, "Y"), Cluster("L2", None, 3, "X"), Cluster("row", None, 2, "Y", is_virtual=True), Cluster("L1", None, 2)),
    10**9,
)


@st.composite
def nests(draw: Any) -> tuple[Problem, Schedule]:
    """A mapping whose tiles have any size within what they are cut from, the parts of a level as many as its sub-clusters."""
    spaces = SPACES[draw(st.sampled_from(sorted(SPACES)))]
    names = sorted({d for axes in spaces.values() for axis in axes for d in axis})
    sizes = {d: draw(st.integers(1, 7 if len(names) < 4 else 4)) for d in names}
    problem, levels = Problem(sizes, spaces, "Z"), []
    for k, c in enumerate(CHIPS.levels):
        is_last = k == len(CHIPS.levels) - 1
        temporal = {
            d: n if c.is_virtual else draw(st.sampled_from([n, n, max(n - 1, 1), max(n // 2, 1), min(n, 2)])) for d, n in sizes.items()
        }
        spatial, room = dict(temporal), c.children
        for d in draw(st.permutations(names)):
            parts = draw(st.integers(1, room))
            spatial[d] = -(-temporal[d] // parts)
            room //= -(-temporal[d] // spatial[d])
        if is_last:
            temporal = {d: min(temporal[d], c.children if spatial[d] < temporal[d] else 1) for d in names}
            spatial = dict.fromkeys(names, 1)
            while math.prod(temporal.values()) > c.children:
                temporal[max(names, key=lambda d: temporal[d])] = 1
        order = draw(st.permutations(names))[: draw(st.integers(0, 2 * len(names)))]
        bypass = frozenset(t for t in spaces if c.name == "L2" and draw(st.integers(0, 4)) == 0)
        levels.append(LevelMap(c.name, tuple(order), temporal, spatial, bypass))
        sizes = spatial
    return problem, Schedule(tuple(levels))


class Walk:
    """Runs a nest: at every moment every instance has a box of the steps, or none."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.schedule, self.names = problem, schedule, problem.names

    def loops(self) -> Iterator[tuple[int, bool, str, int]]:
        for level, m in enumerate(self.schedule.levels):
            row = len(self.schedule.levels) - 1 - level
            rest = [d for d in reversed(self.names) if d not in m.order]
            for is_spatial, tiles in ((False, m.temporal), (True, m.spatial)):
                for d in (*rest, *m.order):
                    yield row, is_spatial, d, tiles[d]

    def boxes(self, row: int) -> list[dict[tuple[int, ...], Box]]:
        """By moment of the temporal loops of the rows outside of one: the boxes of instances of the row by their parts, all in order."""
        moments: list[tuple[tuple[int, ...], dict[tuple[int, ...], dict[str, tuple[int, int]]]]] = [
            ((), {(): {d: (0, n) for d, n in self.problem.dimensions.items()}})
        ]
        most = dict(self.problem.dimensions)
        for at, is_spatial, d, tile in self.loops():
            if at <= row:
                continue
            steps = -(-most[d] // tile)
            grown = []
            for moment, instances in moments:
                cut = {
                    k: {(*parts, k) if is_spatial else parts: {**box, d: (box[d][0] + k * tile, min(tile, box[d][1] - k * tile))}
                        for parts, box in instances.items() if box[d][1] > k * tile}
                    for k in range(steps)
                }  # fmt: skip
                if is_spatial:
                    grown.append((moment, {parts: box for k in range(steps) for parts, box in cut[k].items()}))
                else:
                    grown += [((*moment, k), cut[k]) for k in range(steps) if cut[k]]
            moments, most[d] = grown, tile
        return [{parts: tuple(box[d] for d in self.names) for parts, box in instances.items()} for _, instances in moments]

    def elements(self, tensor: str, box: Box) -> frozenset[Element]:
        spans = dict(zip(self.names, box, strict=True))
        axes = self.problem.spaces[tensor]
        points = itertools.product(*(range(spans[d][0], spans[d][0] + spans[d][1]) for d in self.names))
        return frozenset(tuple(sum(c * dict(zip(self.names, p, strict=True))[d] for d, c in axis.items()) for axis in axes) for p in points)

    def tile_of(self, tensor: str, box: Box | None) -> Box | None:
        if box is None:
            return None
        relevant = {d for axis in self.problem.spaces[tensor] for d in axis}
        return tuple(part for d, part in zip(self.names, box, strict=True) if d in relevant)

    def deliveries(self, tensor: str, child: int, level: int, whole: bool) -> tuple[dict[tuple[int, ...], int], int]:
        """Elements that leave each instance of a level, each once at a moment, and those that all children get."""
        depth = sum(1 for row, is_spatial, *_ in self.loops() if is_spatial and row > level)
        had: dict[tuple[int, ...], Box] = {}
        sent, received = dict[tuple[int, ...], int](), 0
        for boxes in self.boxes(child):
            unions: dict[tuple[int, ...], set[Element]] = {}
            for parts, box in boxes.items():
                needs, before = self.elements(tensor, box), had.get(parts)
                if child < 0 or (whole and self.tile_of(tensor, box) != self.tile_of(tensor, before)) or before is None:
                    gets = needs
                else:
                    gets = frozenset() if whole else needs - self.elements(tensor, before)
                unions.setdefault(parts[:depth], set()).update(gets)
                received += len(gets)
            for parent, elements in unions.items():
                sent[parent] = sent.get(parent, 0) + len(elements)
            had.update(boxes)
        return sent, received

    def distinct(self, tensor: str, level: int) -> dict[tuple[int, ...], int]:
        seen: dict[tuple[int, ...], set[Element]] = {}
        for boxes in self.boxes(level):
            for parts, box in boxes.items():
                seen.setdefault(parts, set()).update(self.elements(tensor, box))
        return {parts: len(elements) for parts, elements in seen.items()}


@settings(max_examples=35, deadline=None)
@given(nests())
def test_counters_are_those_of_a_nest_that_runs(nest: tuple[Problem, Schedule]) -> None:
    problem, schedule = nest
    bypasses = bypasses_of(CHIPS, schedule, problem)
    remainders, walk = Remainders(problem, CHIPS, schedule, bypasses), Walk(problem, schedule)
    assert remainders.steps == len(walk.boxes(-1))
    points = [frozenset(walk.elements("Z", b)) for boxes in walk.boxes(-1) for b in boxes.values()]
    assert len(points) == problem.points
    for tensor in problem.spaces:
        is_output = tensor == problem.output
        holders = [row for row in range(len(CHIPS.levels)) if tensor not in bypasses[row]]
        for level in holders:
            child = max((row for row in holders if row < level), default=-1)
            parent = min((row for row in holders if row > level), default=None)
            sent, _ = walk.deliveries(tensor, child, level, is_output)
            fills = 0 if parent is None else walk.deliveries(tensor, level, parent, is_output)[1]
            totals = remainders.totals(tensor, level)
            first = walk.distinct(tensor, level) if is_output else dict.fromkeys(sent, 0)
            reads = {parts: n - first[parts] for parts, n in sent.items()}
            updates = sent if is_output else dict.fromkeys(sent, 0)
            expected = (len(sent), sum(reads.values()), fills, sum(updates.values()))
            assert (totals.instances, totals.reads, totals.fills, totals.updates) == expected, (tensor, level)
            assert totals.busiest == max(reads[parts] + updates[parts] for parts in sent)


@settings(max_examples=60, deadline=None)
@given(nests())
def test_whole_tiles_count_as_in_closed_form(nest: tuple[Problem, Schedule]) -> None:
    problem, schedule = nest
    if leaves_rests(problem, schedule):
        return
    bypasses = bypasses_of(CHIPS, schedule, problem)
    engine, remainders = (
        Engine(batch_of(problem, CHIPS, [schedule]), bypasses=bypasses, spans=True),
        Remainders(problem, CHIPS, schedule, bypasses),
    )
    assert remainders.steps == int(engine.batch.steps[0])
    for tensor in problem.spaces:
        for row in range(len(CHIPS.levels)):
            if engine.holds(tensor, row):
                closed = {name: int(column[0]) for name, column in engine.counts(tensor, row).columns().items()}
                instances = closed["instances"]
                totals = remainders.totals(tensor, row)
                assert totals.counters() == {**closed, **{k: instances * closed[k] for k in ("reads", "fills", "updates")}}
                assert totals.busiest == closed["reads"] + closed["updates"]


@settings(max_examples=100, deadline=None)
@given(nests(), st.integers(1, 60), st.integers(0, 3))
def test_a_mapping_with_rests_is_legal_iff_a_walk_visits_every_point_once_within_the_memories(
    nest: tuple[Problem, Schedule], capacity: int, spoiled: int
) -> None:
    """Too few sub-clusters at a level, or points that stand in no loop, are not legal, either."""
    problem, schedule = nest
    levels = [Cluster(c.name, capacity if c.name == "L2" else None, c.children, c.axis, is_virtual=c.is_virtual) for c in CHIPS.levels]
    if spoiled == 1:
        levels = [Cluster(c.name, c.capacity, 1, c.axis, is_virtual=c.is_virtual) for c in levels]
    if spoiled == 2:
        last = schedule.levels[-1]
        schedule = Schedule((*schedule.levels[:-1], LevelMap(last.cluster, last.order, last.temporal, last.temporal)))
    clusters, walk = Clusters("spoiled", tuple(levels), 10**9), Walk(problem, schedule)
    units = [box for boxes in walk.boxes(-1) for box in boxes.values()]
    is_legal = len(units) == problem.points == len({tuple(offset for offset, _ in box) for box in units})
    is_legal &= all(size == 1 for box in units for _, size in box)
    size = dict(problem.dimensions)
    for m, c in zip(schedule.levels, levels, strict=True):
        parts = math.prod(-(-m.temporal[d] // m.spatial[d]) for d in size)
        spans = {
            t: math.prod(1 + sum(k * (size[d] - 1) for d, k in axis.items()) for axis in axes)
            for t, axes in problem.spaces.items() if t not in m.bypass
        }  # fmt: skip
        is_legal &= parts <= c.children and (c.capacity is None or sum(spans.values()) <= c.capacity)
        size = dict(m.spatial)
    assert (violations(problem, clusters, schedule, spans=True, rests=True) == ()) == is_legal
    if is_legal and leaves_rests(problem, schedule):
        assert {v.rule for v in violations(problem, clusters, schedule, spans=True)} == {4}


@settings(max_examples=40, deadline=None)
@given(nests())
def test_energy_and_time_follow_from_the_counters(nest: tuple[Problem, Schedule]) -> None:
    problem, schedule = nest
    energies = {"DRAM": 1000, "L2": 30, "L1": 5}
    levels = tuple(Cluster(c.name, None, c.children, c.axis, 2 if c.name == "L2" else None, c.is_virtual) for c in CHIPS.levels)
    clusters = Clusters("priced", levels, 10**9, energies, {"mac2": 2}, "this test")
    cost = MODELS["timeloop"].cost(problem, clusters, schedule)
    scale = {key: 1 if leaves_rests(problem, schedule) else c["instances"] for key, c in cost.counters.items()}
    accesses = sum(energies[level] * scale[level, t] * (c["reads"] + c["updates"] + c["fills"]) for (level, t), c in cost.counters.items())
    assert cost.energy_fj == accesses + 2 * problem.points
    assert cost.traffic["DRAM"] == sum(c["reads"] + c["updates"] for (level, _), c in cost.counters.items() if level == "DRAM")
    assert cost.cycles == max(len(Walk(problem, schedule).boxes(-1)), -(-cost.traffic["DRAM"] // 2))
    if leaves_rests(problem, schedule):
        with pytest.raises(InputError, match="maestro does not price tiles that leave rests; timeloop does"):
            MODELS["maestro"].cost(problem, clusters, schedule)


@pytest.mark.parametrize("layer", ["gemm:m=61,n=127,k=3", "conv:k=61,c=37,p=5,q=3,r=3,s=1", "gemm:m=16,n=4,k=8"])
@pytest.mark.parametrize("objective", ["edp", "cycles"])
def test_tiles_that_may_leave_rests_cost_no_more(layer: str, objective: str) -> None:
    """Of prime dimensions much less; the document goes back in."""
    divided = mapping_of(layer, "edge", objective=objective, budget=600)
    free = mapping_of(layer, "edge", objective=objective, budget=3_600, remainders=True)
    assert (free["value"] < 0.5 * divided["value"]) == ("61" in layer)
    assert free["value"] <= divided["value"]
    assert (free["bound"], free["gap"], free["front"]) == (None, None, [])
    assert free["evaluated"] <= 3_600
    assert mapping_of(layer, "edge", objective=objective, budget=3_600, remainders=True) == free
    back = mapping_of(layer, "edge", objective=objective, mapping=free["mapping"], remainders=True)
    assert (back["cost"], back["leaves_rests"]) == (free["cost"], free["leaves_rests"])
    if free["leaves_rests"]:
        with pytest.raises(InputError, match=r"is cut into tiles that leave a rest.*\(rule 4\)"):
            mapping_of(layer, "edge", mapping=free["mapping"])


def test_what_is_not_said_of_rests_is_refused() -> None:
    for options in ({"model": "maestro"}, {"points": 5}):
        with pytest.raises(InputError, match=r"does not price tiles that leave rests|is of tiles without rests"):
            mapping_of("gemm:m=7,n=1,k=1", "edge", remainders=True, **options)
    with pytest.raises(InputError) as caught:
        mapping_of("gemm:m=7,n=1,k=1", "edge", remainders=True, constraints={"tiles": {"L1": {"m": 5}}})
    assert caught.value.problem.code == "F232"


@given(st.lists(st.tuples(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=3), st.integers(1, 7)),
                min_size=2, max_size=3), st.integers(0, 9))  # fmt: skip
def test_runs_are_sets(axes: list[tuple[list[tuple[int, int]], int]], distance: int) -> None:
    sets = [(joined([((start, start + n),) for start, n in runs]), c) for runs, c in axes]

    def members(runs: Runs) -> set[int]:
        return {k for start, stop in runs for k in range(start, stop)}

    total, (first, _), (other, _) = runs_of(sets), *sets[:2]
    assert members(total) == {sum(p) for p in itertools.product(*({c * k for k in members(runs)} for runs, c in sets))}
    for runs in (total, first, common(first, other), without(first, other), joined([first, other])):
        assert all(a < b for a, b in runs)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(runs))
        assert run_size(runs) == len(members(runs))
    assert members(common(first, other)) == members(first) & members(other)
    assert members(without(first, other)) == members(first) - members(other)
    assert members(joined([first, other])) == members(first) | members(other)
    assert members(shifted(first, distance)) == {k + distance for k in members(first)}
    with pytest.raises(InputError, match="An axis with gaps must have at most 1,048,576 runs of positions"):
        runs_of([(((0, 1),), 1), (((0, 1 << 21),), 2)])
