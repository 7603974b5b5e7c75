"""Machine code that several threads ask for at once, or that is forgotten by a table, lives as long as what calls it."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rewrite_compiler.readings.kernels import layout_conversion
from rewrite_compiler.readings.kernels.layout_conversion import copy_layout
from rewrite_compiler.readings.kernels.selection import machine_code_refusal
from rewrite_compiler.readings.native import elementwise_nest, jit

SHAPES = [(rows, 4096) for rows in range(3, 11)]


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Forget functions, so that threads compile at the same time."""
    assert not machine_code_refusal()
    for table in (layout_conversion._launch, elementwise_nest.grid_function, jit.compile_text):
        table.cache_clear()


def transposed(shape: tuple[int, int], seed: int) -> bool:
    """Copy a matrix into one that lies the other way, several times."""
    source = np.random.default_rng(seed).integers(-9, 9, shape, np.int32)
    target = np.zeros(shape[::-1], np.int32).T
    for _ in range(3):
        gc.collect(0)
        copy_layout(target, source)
    return bool(np.array_equal(target, source))


def test_threads_that_compile_one_function_at_once_run_it() -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda n: transposed(SHAPES[n // 8 % len(SHAPES)], n), range(64)))


def test_a_function_outlives_the_table_it_was_kept_in() -> None:
    source, target = np.arange(1 << 16, dtype=np.int32).reshape(256, 256), np.zeros((256, 256), np.int32).T
    run = layout_conversion.copier(target, source)
    assert run is not None
    for table in (layout_conversion._launch, elementwise_nest.grid_function, jit.compile_text):
        table.cache_clear()
    gc.collect()
    run()
    assert np.array_equal(target, source)
