"""Tiling: every element is computed exactly once, every tile fits, no split has fewer calls, refusals name the capacity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler import Tensor
from rewrite_compiler import ops as o
from rewrite_compiler.fit import Refusal, Tiling, tile
from rewrite_compiler.target import Limit, find_target
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target.mapping import make_mapping

DIMENSIONS = ("t", "k", "n")


def layer(x: Tensor, w: Tensor) -> Tensor:
    """x·wᵀ"""
    return o.dense(x, w)


@dataclass(frozen=True)
class Memory:
    """One capacity: the product of some dimensions, each in steps of its unit, times a weight."""

    dimensions: tuple[str, ...]
    weight: int
    most: int

    def needs(self, sizes: Mapping[str, int]) -> int:
        return self.weight * math.prod(sizes[d] for d in self.dimensions)


def operation(memories: Sequence[Memory], units: Mapping[str, int], whole: str = "") -> Operation:
    made = make_mapping("made", layer, axes="x: t k; w: n k; y: t n", formats={}, units=units, whole=whole)

    def limits(**sizes: int) -> Iterator[Limit]:
        for m in memories:
            yield Limit(" x ".join(m.dimensions), m.needs(sizes), m.most)

    made.limits(limits)
    return made


sizes_of = st.fixed_dictionaries({d: st.integers(1, 24) for d in DIMENSIONS})
units_of = st.fixed_dictionaries({d: st.sampled_from((1, 1, 2, 4)) for d in DIMENSIONS})
memories_of = st.lists(
    st.builds(
        Memory, st.sets(st.sampled_from(DIMENSIONS), min_size=1).map(lambda s: tuple(sorted(s))), st.integers(1, 3), st.integers(1, 300)
    ),
    min_size=1,
    max_size=4,
)


def pieces(n: int, size: int) -> list[slice]:
    return [slice(at, min(at + size, n)) for at in range(0, n, size)]


@settings(max_examples=300)
@given(sizes_of, units_of, memories_of)
def test_tiles_fit_and_cover_every_element_once(sizes: dict[str, int], units: dict[str, int], memories: list[Memory]) -> None:
    found = tile(operation(memories, units), sizes)
    if isinstance(found, Refusal):
        return
    seen = np.zeros([sizes[d] for d in DIMENSIONS], int)
    parts = list(found.slices())
    for part in parts:
        seen[tuple(part[d] for d in DIMENSIONS)] += 1
        assert all(m.needs({d: part[d].stop - part[d].start for d in DIMENSIONS}) <= m.most for m in memories)
    assert (seen == 1).all()
    assert len(parts) == found.calls


def fewest(memories: Sequence[Memory], units: Mapping[str, int], sizes: Mapping[str, int]) -> int | None:
    """Try every tile whose sizes are units or whole dimensions."""
    offered = [sorted({*range(min(units[d], sizes[d]), sizes[d], units[d]), sizes[d]}) for d in DIMENSIONS]
    fitting = (
        math.prod(-(-sizes[d] // n) for d, n in zip(DIMENSIONS, chosen, strict=True))
        for chosen in itertools.product(*offered)
        if all(m.needs(dict(zip(DIMENSIONS, chosen, strict=True))) <= m.most for m in memories)
    )
    return min(fitting, default=None)


@settings(max_examples=300)
@given(sizes_of, units_of, memories_of)
def test_no_tile_has_fewer_calls(sizes: dict[str, int], units: dict[str, int], memories: list[Memory]) -> None:
    found, best = tile(operation(memories, units), sizes), fewest(memories, units, sizes)
    assert (None if isinstance(found, Refusal) else found.calls) == best


@settings(max_examples=100)
@given(sizes_of, units_of, memories_of)
def test_a_refusal_names_a_capacity_that_the_smallest_tile_exceeds(
    sizes: dict[str, int], units: dict[str, int], memories: list[Memory]
) -> None:
    m = operation(memories, units)
    found = tile(m, sizes)
    if isinstance(found, Refusal):
        assert not isinstance(found.limit, str)
        assert not found.limit.holds
        assert found.limit == m.exceeded_limit(m.unit_sizes(sizes))


def test_what_fits_is_one_call() -> None:
    m = operation([Memory(("t", "k"), 1, 100)], {})
    found = tile(m, {"t": 10, "k": 10, "n": 99})
    assert found == Tiling({"t": 10, "k": 10, "n": 99}, {"t": 10, "k": 10, "n": 99})
    assert isinstance(found, Tiling)
    assert found.calls == 1


def test_among_equal_calls_the_summed_dimension_stays_whole() -> None:
    """Splitting k gives partial sums that the host must add; splitting t or n does not."""
    found = tile(operation([Memory(("k", "n"), 1, 32)], {}), {"t": 1, "k": 8, "n": 8})
    assert isinstance(found, Tiling)
    assert found.calls == 2
    assert found.tile["k"] == 8


def test_a_whole_dimension_is_never_divided() -> None:
    memories = [Memory(("k",), 1, 8)]
    assert isinstance(tile(operation(memories, {}), {"t": 1, "k": 9, "n": 1}), Tiling)
    refused = tile(operation(memories, {}, whole="k"), {"t": 1, "k": 9, "n": 1})
    assert refused == Refusal(Limit("k", 9, 8))
    assert str(refused.limit) == "k 9, must be at most 8"


def test_an_operation_without_capacities_always_fits() -> None:
    m = replace(operation([], {}), capacities=None)
    assert tile(m, {"t": 10**9, "k": 10**9, "n": 1}) == Tiling({"t": 10**9, "k": 10**9, "n": 1}, {"t": 10**9, "k": 10**9, "n": 1})


@pytest.mark.parametrize(("sizes", "empty"), [({"t": 0, "k": 4, "n": 4}, "t"), ({"t": 3, "k": 0, "n": 4}, "k")])
def test_an_empty_operation_is_left_to_the_host(sizes: dict[str, int], empty: str) -> None:
    found = tile(operation([Memory(("t", "k"), 1, 4)], {}), sizes)
    assert found == Refusal(f"{empty} must be at least 1, not 0: there is nothing to compute")


# -- the shipped capacities, at their edges

LINEAR = find_target("flexasr").mappings["linear"]
LIMITS = [
    ({"t": 1, "k": 16 * 255, "n": 1}, None),
    ({"t": 1, "k": 16 * 255 + 1, "n": 1}, "input vectors of a timestep 256, must be at most 255"),
    ({"t": 1, "k": 16, "n": 64 * 63}, None),
    ({"t": 1, "k": 16, "n": 64 * 63 + 1}, "output vectors of a timestep 256, must be at most 255"),
    ({"t": 1, "k": 16 * 240, "n": 64 * 17}, "input and bias vectors of a processing element 257, must be at most 256"),
    ({"t": 1, "k": 16 * 240, "n": 64 * 18}, "weight vectors of a processing element 69,120, must be at most 65,536"),
    ({"t": 1, "k": 16 * 250, "n": 64 * 7}, "input and bias vectors of a processing element 257, must be at most 256"),
    ({"t": 13104, "k": 16, "n": 1}, None),
    ({"t": 13105, "k": 16, "n": 1}, "large-buffer vectors 65,600, must be at most 65,536"),
]


@pytest.mark.parametrize(("sizes", "sentence"), LIMITS)
def test_flexasr_capacities_at_their_edges(sizes: dict[str, int], sentence: str | None) -> None:
    violated = LINEAR.exceeded_limit(sizes)
    assert (violated and str(violated)) == sentence


def test_a_large_layer_is_split_without_partial_sums_where_possible() -> None:
    found = tile(LINEAR, {"t": 1, "k": 2048, "n": 8192})
    assert isinstance(found, Tiling)
    assert found.tile["k"] == 2048
    assert found.calls == -(-8192 // found.tile["n"]) == 4
    for part in found.slices():
        assert LINEAR.exceeded_limit({d: s.stop - s.start for d, s in part.items()}) is None
