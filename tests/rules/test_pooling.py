"""Pools of any window fall apart into those that an engine takes; pools of pools are one."""

from __future__ import annotations

from pathlib import Path

import pytest
import unrolled as u
from offloaded import MAPPINGS, agree, matched, offloads

SIZE = 12


def pool(op: str, *windows: tuple[tuple[int, int], tuple[int, int]]) -> object:
    """Return the model of pools after each other: of each the kernel and the strides."""
    g, x = u.Graph(), "x"
    for kernel, strides in windows:
        x = g(op, x, kernel_shape=kernel, strides=strides)
    return u.model_of(g, {"x": (1, 16, SIZE, SIZE)}, [x])


WINDOWS = (((4, 4), (4, 4), 1), ((2, 2), (2, 2), 1), ((3, 3), (2, 2), 3), ((5, 2), (1, 2), 3), ((6, 1), (3, 1), 3))


@pytest.mark.parametrize(("kernel", "strides", "calls"), WINDOWS)
def test_a_maximum_of_any_window_is_offloaded(kernel: tuple[int, int], strides: tuple[int, int], calls: int, tmp_path: Path) -> None:
    """Windows of powers of two are one call; others are made of overlapping halves, along one axis after the other."""
    source, chosen = matched(pool("MaxPool", (kernel, strides)), tmp_path)
    assert offloads(chosen) == {"flexasr.max_pool": calls}
    assert not any(n.op == "max_pool" for n in chosen.nodes)
    agree(source, chosen)


def test_a_maximum_of_a_whole_image_is_offloaded(tmp_path: Path) -> None:
    g = u.Graph()
    source, chosen = matched(u.model_of(g, {"x": (1, 16, 7, 7)}, [g("GlobalMaxPool", "x")]), tmp_path)
    assert set(offloads(chosen)) == {"flexasr.max_pool"}
    assert not {n.op for n in chosen.nodes} & {"max_pool", "reduce_max"}
    agree(source, chosen)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools_of_pools_are_one(op: str, tmp_path: Path) -> None:
    source, chosen = matched(pool(op, ((2, 2), (2, 2)), ((2, 2), (2, 2))), tmp_path)
    assert sum(offloads(chosen).values()) == 1
    agree(source, chosen)


def test_means_that_overlap_are_not_one(tmp_path: Path) -> None:
    source, chosen = matched(pool("AveragePool", ((2, 2), (1, 1)), ((2, 2), (1, 1))), tmp_path)
    assert offloads(chosen) == {"flexasr.mean_pool": 2}
    assert {n.op for n in chosen.nodes} & MAPPINGS.keys()
    agree(source, chosen)
