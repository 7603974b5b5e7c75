"""Work ahead: results in order, no more of them begun than there is room for."""

from __future__ import annotations

import threading
from pathlib import Path

import onnx
import pytest
from command import perceptron

from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim.prefetch import MOST_BYTES, in_order, prefetch_limit


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order(threads: int) -> None:
    assert [f.result() for f in in_order(lambda x: x * x, range(7), threads, 4)] == [n * n for n in range(7)]


def test_only_so_many_parts_begin_before_the_one_that_is_wanted() -> None:
    begun: list[int] = []
    found = in_order(begun.append, range(9), 1, 3)
    next(found).result()
    next(found).result()
    found.close()
    assert begun[:2] == [0, 1]
    assert set(begun) <= {0, 1, 2, 3}


def test_an_error_comes_in_its_turn_and_ends_the_rest() -> None:
    ran, may_go = [], threading.Event()

    def work(n: int) -> int:
        if n == 1:
            raise ValueError(n)
        if n > 1:
            may_go.wait(10)
        ran.append(n)
        return n

    found = in_order(work, range(100), 1, 100)
    assert next(found).result() == 0
    with pytest.raises(ValueError, match="1"):
        next(found).result()
    may_go.set()
    found.close()
    assert len(ran) < 100


def test_large_outputs_leave_room_for_few(tmp_path: Path) -> None:
    onnx.save(perceptron((16, 8, 4)), tmp_path / "app.onnx")
    program = compile_model(tmp_path / "app.onnx", ["flexasr"]).source
    assert prefetch_limit(program, 32, 2) == MOST_BYTES // (32 * 16)
    assert prefetch_limit(program, MOST_BYTES, 2) == 3
