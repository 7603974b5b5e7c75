"""Layout operators of a host part as one indexing: windows of a convolution, zeros around them, what is no movement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rewrite_compiler.compile.host import data_movement as moves
from rewrite_compiler.compile.host.data_movement import MovingProgram, moves_of
from rewrite_compiler.compile.host.host_program import HostProgram
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType


def windows(fill: float = 0.0) -> Program:
    """Return the rows of the 3 × 3 windows of relu(x), [1, 4, 6, 6], with zeros around it; and relu(x) plus itself."""
    made = Builder("windows")
    (x,) = made.apply("relu", [made.input("x", TensorType((1, 4, 6, 6)))])
    (around,) = made.apply("pad", [x], {"pads": (0, 0, 1, 1, 0, 0, 1, 1), "value": fill})
    taps = []
    for row in range(3):
        (rows,) = made.apply("slice", [around], {"axis": 2, "start": row, "stop": row + 6, "step": 1})
        taps += [made.apply("slice", [rows], {"axis": 3, "start": col, "stop": col + 6, "step": 1})[0] for col in range(3)]
    (joined,) = made.apply("concat", taps, {"axis": 1})
    (turned,) = made.apply("transpose", [joined], {"perm": (0, 2, 3, 1)})
    (flat,) = made.apply("reshape", [turned], {"shape": (36, 36)})
    return made.finish([flat, *made.apply("add", [x, x])])


@pytest.fixture(autouse=True)
def small_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "LEAST", 1)


def outputs(program: Any, x: np.ndarray) -> list[bytes]:
    return [y.tobytes() for y in program.run({program.program.inputs[0]: x}).values()]


def test_windows_are_one_indexing_with_the_bits_of_the_host() -> None:
    p = windows()
    found = moves_of(p)
    assert list(found) == [p.outputs[0]]
    assert found[p.outputs[0]].has_zeros
    x = np.random.default_rng(3).normal(0, 1, (5, 1, 4, 6, 6)).astype(np.float32)
    program = MovingProgram(p, found)
    assert program.remaining_program is not None
    assert len(program.remaining_program.program.nodes) == 2
    for part in (x, x[:3], x[::-1]):
        assert outputs(program, part) == outputs(HostProgram(p, p.inputs), part)
    assert program.moves


def test_what_another_number_is_put_around_is_the_root() -> None:
    p = windows(fill=1.5)
    (move,) = moves_of(p).values()
    assert not move.has_zeros
    assert p.nodes[1].outputs == (move.root,)
    x = np.random.default_rng(3).normal(0, 1, (2, 1, 4, 6, 6)).astype(np.float32)
    assert outputs(MovingProgram(p, moves_of(p)), x) == outputs(HostProgram(p, p.inputs), x)


def test_wrong_places_are_noticed_in_the_first_run() -> None:
    p = windows()
    found = moves_of(p)
    found[p.outputs[0]].places[7, 20] += 1
    x = np.random.default_rng(3).normal(0, 1, (4, 1, 4, 6, 6)).astype(np.float32)
    program = MovingProgram(p, found)
    assert outputs(program, x) == outputs(HostProgram(p, p.inputs), x)
    assert not program.moves
