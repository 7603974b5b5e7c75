"""The cheapest tiling: never dearer than any tiling that fits, by enumeration; a search that stops gives a bound."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rewrite_compiler.fit import Refusal, Tiling, tile
from rewrite_compiler.fit.cheapest_calls import TilingResult, cheapest_tiling
from rewrite_compiler.fit.cost import price
from rewrite_compiler.fit.mapping.calls import Tiling as Tiles
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import Resources, find_target

VTA = "vta:log_wgt_buffer=14,log_inp_buffer=10,log_acc_buffer=12"
CASES = ["flexasr.linear", f"{VTA}.dense_bias", f"{VTA},log_block=5,log_batch=2.dense", "hlscnn:revision=uni16.conv2d"]


def of(name: str) -> tuple[Operation, Resources]:
    target, _, variant = name.rpartition(".")
    found = find_target(target)
    resources = found.resources()
    assert resources is not None
    return found.mappings[variant], resources


def every_tile(m: Operation, sizes: Mapping[str, int], attributes: Mapping[str, Any]) -> Iterator[Tiling]:
    """Every tiling whose tiles are several units or whole, and fit."""
    units = m.unit_sizes(sizes)
    offered = [sorted({*range(units[d], n, max(units[d], 1)), n}) for d, n in sizes.items()]
    for chosen in itertools.product(*offered):
        tiles = dict(zip(sizes, chosen, strict=True))
        if m.exceeded_limit(tiles, attributes) is None:
            yield Tiles(dict(sizes), tiles)


def random_sizes(name: str, r: random.Random) -> tuple[dict[str, int], dict[str, Any]]:
    if name.startswith("hlscnn"):
        size, kernel = r.choice([(14, 3), (28, 1), (28, 3)]), (1, 1)
        i, k = size
        out = i - k + 1
        return {
            "b": 1, "c": r.randint(1, 40), "i": i, "j": i, "n": r.choice([8, 60, 200, 500]), "r": k, "s": k, "u": out, "v": out,
        }, {"strides": kernel, "pads": (0,) * 4}  # fmt: skip
    if name.startswith("flexasr"):
        return {"t": r.choice([1, 3, 2000, 20_000]), "k": r.randint(1, 6000), "n": r.randint(1, 9000)}, {}
    return {"t": r.randint(1, 60), "k": r.randint(1, 300), "n": r.randint(1, 300)}, {}


def small(name: str, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes whose tilings can be enumerated."""
    if name.startswith("flexasr"):
        return {"t": min(sizes["t"], 3), "k": min(sizes["k"], 16 * 300), "n": min(sizes["n"], 64 * 90)}
    return sizes


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by", ["bytes", "nanoseconds"])
def test_no_tiling_is_cheaper(name: str, by: str) -> None:
    m, resources = of(name)
    r = random.Random(f"{name} {by}")
    for _ in range(3):
        sizes, attributes = random_sizes(name, r)
        sizes = small(name, sizes)
        if math.prod(-(-n // max(m.unit_sizes(sizes)[d], 1)) for d, n in sizes.items() if d not in m.whole) > 2500:
            sizes = {d: n if d in m.whole else -(-n // 4) for d, n in sizes.items()}
        found = cheapest_tiling(m, sizes, attributes, resources, by)
        keys = []
        for tiling in itertools.islice(every_tile(m, sizes, attributes), 2500):
            paid = price(m, tiling, attributes, resources)
            assert paid is not None
            keys.append((paid.moved_bytes, paid.picoseconds) if by == "bytes" else (paid.picoseconds, paid.moved_bytes))
        if isinstance(found, Refusal):
            assert not keys
            continue
        best = (found.price.moved_bytes, found.price.picoseconds)
        assert found.is_optimal
        assert (best if by == "bytes" else best[::-1]) == min(keys)
        assert found.bound == min(keys)[0]
        assert m.exceeded_limit(found.tiling.tile, attributes) is None


def test_a_large_layer_moves_fewer_bytes_than_in_the_fewest_calls() -> None:
    m, resources = of("vta.dense")
    sizes = {"t": 512, "k": 3072, "n": 768}
    found, first = cheapest_tiling(m, sizes, {}, resources), tile(m, sizes)
    assert isinstance(found, TilingResult)
    assert isinstance(first, Tiling)
    greedy = price(m, first, {}, resources)
    whole = price(m, Tiling(sizes, sizes), {}, resources)  # each tensor once
    assert greedy is not None
    assert whole is not None
    assert found.is_optimal
    assert whole.moved_bytes <= found.bound == found.price.moved_bytes < greedy.moved_bytes


def test_a_search_that_stops_early_gives_a_bound() -> None:
    m, resources = of("vta.dense")
    sizes = {"t": 512, "k": 3072, "n": 768}
    full, stopped = cheapest_tiling(m, sizes, {}, resources), cheapest_tiling(m, sizes, {}, resources, nodes=5)
    assert isinstance(full, TilingResult)
    assert isinstance(stopped, TilingResult)
    assert stopped.bound <= full.price.moved_bytes <= stopped.price.moved_bytes
    assert stopped.nodes < full.nodes
    assert (full.tiling.bound, stopped.tiling.bound) == (None, stopped.bound)


def test_what_does_not_fit_is_refused_with_its_limit() -> None:
    m, resources = of("flexasr.lstm")
    found = cheapest_tiling(m, {"t": 1, "s": 1, "i": 16, "g": 4 * 4096, "e": 8 * 4096, "h": 4096}, {}, resources)
    assert found == Refusal(m.exceeded_limit({"t": 1, "s": 1, "i": 16, "g": 4 * 4096, "e": 8 * 4096, "h": 4096}))  # type: ignore[arg-type]


def test_patterns_that_cost_and_take_the_same_are_alike() -> None:
    hlscnn, flexasr = (find_target(name).mappings for name in ("hlscnn", "flexasr"))
    assert hlscnn["conv2d"].tiling_key == hlscnn["conv2d_relu"].tiling_key != hlscnn["conv2d_bias"].tiling_key
    assert (
        flexasr["linear_relu"].tiling_key == flexasr["linear_tanh"].tiling_key != flexasr["linear"].tiling_key
    )  # an activation takes a step
    assert find_target(VTA).mappings["dense"].tiling_key != find_target("vta").mappings["dense"].tiling_key
