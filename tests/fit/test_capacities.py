"""Capacities: no stream of a tiled layer leaves a memory, at and around the limits; one tile more than fits, driven anyway, does."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.fit import Refusal, tile
from rewrite_compiler.ila import Ila
from rewrite_compiler.target import Mapping, Target, find_target, simulated_device

SMALL = "vta:log_wgt_buffer=12,log_inp_buffer=10,log_acc_buffer=12"  # 16 blocks of weights, 64 of inputs and accumulators
LAYERS = 40


@cache
def built(name: str) -> tuple[Target, Ila]:
    target = find_target(name)
    return target, target.ila()


def drive(m: Mapping, ila: Ila, sizes: dict[str, int]) -> None:
    """Send the commands of one tile to the strict simulator."""
    codes = {v.name: np.zeros([sizes[d] for d in m.axes.of[v.name]], np.int64) for v in m.operands}
    m.run_driver(simulated_device(ila, strict=True), codes, m.formats_for(dict.fromkeys(m.format_choices, 1.0)), {})


def edges(m: Mapping, start: dict[str, int]) -> list[dict[str, int]]:
    """One below, at and one above the largest size that fits along every dimension."""
    found = []
    for d in start:
        most = next(n for n in range(1, 1 << 14) if m.exceeded_limit({**start, d: n + 1}) is not None)
        found += [{**start, d: n} for n in (most - 1, most, most + 1) if n]
    return found


@pytest.mark.parametrize("variant", ["dense", "dense_bias_relu"])
def test_no_stream_of_a_layer_leaves_a_memory(variant: str) -> None:
    target, ila = built(SMALL)
    m, draw = target.mappings[variant], random.Random(7)
    layers = [{d: draw.randint(1, most) for d, most in (("t", 90), ("k", 300), ("n", 300))} for _ in range(LAYERS)]
    at_edges = edges(m, {"t": 1, "k": 16, "n": 16})
    split = 0
    for layer in (*layers, *at_edges):
        found = tile(m, layer)
        if isinstance(found, Refusal):  # a layer with an activation takes its sums undivided
            assert m.whole
            assert found.limit == m.exceeded_limit(m.unit_sizes(layer))
            continue
        split += found.calls > 1
        for one, _ in found.regions():
            assert m.exceeded_limit(one) is None
            drive(m, ila, one)
    assert split > LAYERS // 8
    beyond = [tile(m, layer) for layer in at_edges[2::3]]
    assert [None if isinstance(x, Refusal) else x.calls for x in beyond] == [2, None if m.whole else 2, 2]


@pytest.mark.parametrize("sizes", [{"t": 1, "k": 16 * 17, "n": 16}, {"t": 65, "k": 16, "n": 16}])
def test_a_tile_beyond_a_limit_leaves_a_memory(sizes: dict[str, int]) -> None:
    target, ila = built(SMALL)
    m = target.mappings["dense"]
    assert m.exceeded_limit(sizes) is not None
    with pytest.raises(FlexmatchError):
        drive(m, ila, sizes)
