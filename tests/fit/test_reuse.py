"""Reuse: both readings of the engine equal a nest that is run step by step, and the counters of the two published models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.fit.mapping.columns import Batch
from rewrite_compiler.fit.mapping.engine import Engine, Halo, Reading
from rewrite_compiler.fit.mapping.sums import distinct, distinct_sums, sliding
from rewrite_compiler.fit.problems.problem import Problem

Element = tuple[int, ...]
AXES = {
    "product": {"A": ({"m": 1}, {"k": 1}), "B": ({"k": 1}, {"n": 1}), "Z": ({"m": 1}, {"n": 1})},
    "row": {"W": ({"k": 1}, {"r": 1}), "I": ({"p": 1, "r": 1},), "O": ({"k": 1}, {"p": 1})},
    "strided": {"W": ({"k": 1}, {"r": 1}), "I": ({"p": 2, "r": 1},), "O": ({"k": 1}, {"p": 1})},
    "dilated": {"W": ({"k": 1}, {"r": 1}), "I": ({"p": 2, "r": 3},), "O": ({"k": 1}, {"p": 1})},
    "image": {"W": ({"r": 1}, {"s": 1}), "I": ({"p": 1, "r": 1}, {"q": 2, "s": 1}), "O": ({"p": 1}, {"q": 1})},
    "three": {"I": ({"p": 1, "r": 2, "t": 3},), "O": ({"p": 1},)},
}


@st.composite
def batches(draw: Any) -> Batch:
    """One mapping: every prime factor of every size is a loop of some level, orders are random."""
    spaces: dict[str, Any] = AXES[draw(st.sampled_from(sorted(AXES)))]
    names = sorted({d for axes in spaces.values() for axis in axes for d in axis})
    sizes = {d: draw(st.sampled_from((1, 2, 3, 4, 6))) for d in names}
    levels = draw(st.integers(2, 3))
    temporal, spatial = np.ones((levels, len(names), 1), np.int64), np.ones((levels, len(names), 1), np.int64)
    budget = 6
    for k, (d, n) in enumerate(sizes.items()):
        remaining = n
        for p in (2, 2, 3):
            if remaining % p == 0:
                remaining //= p
                budget -= 1
                kind = draw(st.sampled_from((spatial, temporal, temporal)))
                kind[draw(st.integers(0, levels - 1)), k, 0] *= p if budget >= 0 else 1
                sizes[d] = n if budget >= 0 else sizes[d] // p
    sizes = {d: int(math.prod((temporal * spatial)[:, k, 0].tolist())) for k, d in enumerate(names)}
    order = np.array([draw(st.permutations(range(len(names)))) for _ in range(levels)], np.intp)[:, :, None]
    output = "Z" if "Z" in spaces else "O"
    return Batch(Problem(sizes, spaces, output), temporal, spatial, order)


class Machine:
    """Runs a nest: instances of a level hold sets of elements, and what they lack is counted as it comes."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.problem = batch, batch.problem
        self.sizes = (batch.temporal[:, :, 0].tolist(), batch.spatial[:, :, 0].tolist())
        self.steps = (batch.temporal_step[:, :, 0].tolist(), batch.spatial_step[:, :, 0].tolist())

    def sums(self, loops: list[tuple[int, int, int]]) -> list[list[int]]:
        """Positions of every dimension that (dimension, step, count) loops run through."""
        positions = []
        for index in itertools.product(*(range(n) for *_, n in loops)):
            at = [0] * len(self.problem.names)
            for i, (d, step, _) in zip(index, loops, strict=True):
                at[d] += i * step
            positions.append(at)
        return positions

    def loops(self, kinds: tuple[int, ...], levels: Iterator[int] | range) -> list[tuple[int, int, int]]:
        return [
            (d, self.steps[kind][level][d], n) for level in levels for kind in kinds for d, n in enumerate(self.sizes[kind][level]) if n > 1
        ]

    def elements(self, tensor: str, base: list[int], inner: list[list[int]]) -> frozenset[Element]:
        names, axes = self.problem.names, self.problem.spaces[tensor]
        return frozenset(
            tuple(sum(c * (base[k] + at[k]) for k, d in enumerate(names) for c in [axis.get(d, 0)]) for axis in axes) for at in inner
        )

    def moments(self, child: int) -> Iterator[tuple[list[int], int | None, set[int]]]:
        """Positions of the temporal loops outside a level, the dimension that advanced, and which dimensions wrapped."""
        outer = [
            (d, self.steps[0][level][d], self.sizes[0][level][d])
            for level in reversed(range(child + 1, self.batch.levels))
            for d in self.batch.order[level, ::-1, 0].tolist()
        ]
        before: tuple[int, ...] | None = None
        for index in itertools.product(*(range(n) for *_, n in outer)):
            at = [0] * len(self.problem.names)
            for i, (d, step, _) in zip(index, outer, strict=True):
                at[d] += i * step
            if before is None:
                yield at, None, set()
            else:
                k = next(k for k, (a, b) in enumerate(zip(before, index, strict=True)) if a != b)
                yield at, outer[k][0], {d for d, _, n in outer[k + 1 :] if n > 1}
            before = index

    def deliveries(self, tensor: str, child: int, level: int, reading: Reading, halo: Halo, always: bool = False) -> int:
        """Run the temporal loops; every instance of the child compares what it needs with what it had a moment ago."""
        relevant = {k for k, d in enumerate(self.problem.names) if d in self.problem.relevant(tensor)}
        inner = self.sums(self.loops((0, 1), range(child + 1)))
        copies = self.sums(self.loops((1,), range(child + 1, level + 1)))
        had: list[frozenset[Element]] = [frozenset()] * len(copies)
        total = 0
        for base, dimension, wrapped in self.moments(child):
            needs = [self.elements(tensor, [a + b for a, b in zip(base, copy, strict=True)], inner) for copy in copies]
            is_first, is_own = dimension is None, dimension in relevant
            is_wrapped = bool(wrapped & relevant)
            sends_all = is_first or always or child < 0 or (reading is Reading.DATA and is_own and is_wrapped)
            sends_all = sends_all or (halo is Halo.TILE and (is_own or is_wrapped))
            parts = needs if sends_all else [n - h for n, h in zip(needs, had, strict=True)]
            if reading is Reading.LOOPS or child < 0 or is_first or is_own:
                total += len(frozenset().union(*parts))
            had = needs
        return total


@settings(max_examples=150, deadline=None)
@given(batches(), st.sampled_from(list(Reading)), st.sampled_from(list(Halo)))
def test_both_readings_count_as_if_the_nest_ran(batch: Batch, reading: Reading, halo: Halo) -> None:
    machine, engine = Machine(batch), Engine(batch, reading, halo)
    for tensor in batch.problem.spaces:
        is_output = tensor == batch.problem.output
        for level in range(batch.levels):
            counts = engine.counts(tensor, level)
            way = (Reading.LOOPS, Halo.TILE, reading is Reading.DATA) if is_output else (reading, halo)
            delivered = machine.deliveries(tensor, level - 1, level, *way)
            if level < batch.levels - 1:
                assert counts.fills[0] == machine.deliveries(tensor, level, level, *way), (tensor, level)
            distinct_elements = len(machine.elements(tensor, [0] * len(batch.problem.names), machine.sums(
                machine.loops((0, 1), range(level + 1)) + machine.loops((0,), range(level + 1, batch.levels))
            )))  # fmt: skip
            assert counts.reads[0] == delivered - (distinct_elements if is_output else 0), (tensor, level)
            assert counts.updates[0] == (delivered if is_output else 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 12), st.integers(1, 2))
def test_sets_of_sums_are_counted_like_one_by_one(digits: list[tuple[int, int]], shift: int, tile_digits: int) -> None:
    columns = [(np.array([step]), np.array([n])) for step, n in digits]
    assert distinct(columns, 1)[0] == distinct_sums(digits)
    tile, copies = digits[:tile_digits], digits[tile_digits:]
    members = {sum(s * i for (s, _), i in zip(tile, at, strict=True)) for at in itertools.product(*(range(n) for _, n in tile))}
    fresh = {m for m in members if m - shift not in members} if shift else set()
    fresh = {m + shift for m in members} - members if shift else fresh
    places = {sum(s * i for (s, _), i in zip(copies, at, strict=True)) for at in itertools.product(*(range(n) for _, n in copies))}
    one, every = sliding(columns[:tile_digits], columns[tile_digits:], 1, False).arrivals(np.array([shift]), np.array([0]))
    assert (one[0], every[0]) == (len(fresh), len({m + place for m in fresh for place in places}))


def test_a_row_of_outputs_slides_over_its_inputs() -> None:
    """Eight outputs of a window of three: eight inputs come once, two more for the first window; as whole tiles, 24."""
    problem = Problem({"p": 8, "r": 3}, {"W": ({"r": 1},), "I": ({"p": 1, "r": 1},), "O": ({"p": 1},)}, "O")
    temporal = np.array([[[1], [3]], [[8], [1]]], np.int64)
    batch = Batch(problem, temporal, np.ones_like(temporal), np.array([[[0], [1]], [[0], [1]]], np.intp))
    assert Engine(batch).counts("I", 0).fills[0] == 10
    assert Engine(batch, halo=Halo.TILE).counts("I", 0).fills[0] == 24
