"""Evidence of ways: sizes of a class that was tried need no trial; those of another class, or of longer sums, do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.sched.driver import generation
from rewrite_compiler.sched.driver.evidence import skeleton
from rewrite_compiler.sched.driver.generation import Request, program_of
from rewrite_compiler.sched.driver.program import Program
from rewrite_compiler.target import Target, load_target, simulated_device

ACCELERATORS = Path(__file__).parent / "accelerators"


def request(target: Target, largest: float = 40.0, **sizes: int) -> Request:
    m = next(iter(target.mappings.values()))
    shapes = {v.name: tuple(sizes[d] for d in m.axes.of[v.name]) for v in m.operands}
    return Request(m, shapes, m.formats_for(dict(zip(m.format_choices, (0.5, 3.0, largest, largest), strict=False))), {})


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """Return the list of programs that are run while streams are generated."""
    runs: list[Program] = []
    run = Program.run

    def counting(self: Program, *args: Any) -> Any:
        runs.append(self)
        return run(self, *args)

    monkeypatch.setattr(Program, "run", counting)
    return runs


def fresh(name: str) -> Target:
    """Return an accelerator of which nothing was tried."""
    generation._ways.cache_clear()
    return load_target(str(ACCELERATORS / f"{name}.py"))


@pytest.mark.parametrize(
    ("name", "tried", "covered"),
    [
        ("outer", {"t": 5, "k": 23, "n": 6}, [{"t": 7, "k": 11, "n": 5}, {"t": 2, "k": 19, "n": 9}]),
        ("stages", {"t": 3, "k": 18, "n": 6}, [{"t": 2, "k": 10, "n": 7}, {"t": 4, "k": 6, "n": 9}]),
        ("vector", {"t": 2, "n": 9}, [{"t": 2, "n": 13}, {"t": 3, "n": 4}]),
    ],
)
def test_sizes_of_a_class_are_tried_once(name: str, tried: dict[str, int], covered: list[dict[str, int]], trials: list[Program]) -> None:
    target = fresh(name)
    program_of(target.ila(), request(target, **tried))
    assert trials
    for sizes in covered:
        trials.clear()
        r = request(target, **sizes)
        program = program_of(target.ila(), r)
        assert not trials
        for codes, expected in r.samples:
            result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in r.shapes.items()})
            assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    "sizes",
    [
        {"t": 5, "k": 31, "n": 6},  # a longer sum
        {"t": 5, "k": 16, "n": 6},  # whose last part is full
        {"t": 5, "k": 6, "n": 6},  # of one part
        {"t": 1, "k": 11, "n": 6},  # lanes that take no loop
    ],
)
def test_other_classes_are_tried(sizes: dict[str, int], trials: list[Program]) -> None:
    target = fresh("outer")
    program_of(target.ila(), request(target, t=5, k=23, n=6))
    trials.clear()
    program_of(target.ila(), request(target, **sizes))
    assert trials


def test_other_numbers_in_numerics_are_tried(trials: list[Program]) -> None:
    """A result of another format is shifted by more places."""
    target = fresh("outer")
    program_of(target.ila(), request(target, t=5, k=23, n=6))
    trials.clear()
    program_of(target.ila(), request(target, largest=100.0, t=5, k=23, n=6))
    assert trials


def test_a_longer_sum_that_needs_another_way_gets_it(trials: list[Program]) -> None:
    """Sums that reach the clamp are done with it, though shorter ones of their form were done without."""
    target = fresh("stages")
    m = target.mappings["dense_bias_relu"]
    formats = m.formats_for({"x": 1.0, "w": 1.0, "b": 1.0, "y": 60.0})
    for k in (8, 60):
        r = Request(m, {"x": (2, k), "w": (6, k), "b": (6,)}, formats, {})
        program = program_of(target.ila(), r)
        codes = {leaf.name: np.full(leaf.shape, 127) for leaf in r.leaves}
        result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in r.shapes.items()})
        assert np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves}))


def test_skeletons_leave_out_lengths_and_nothing_else() -> None:
    toy = load_target(str(ACCELERATORS / "toy.py"))
    one, other = (skeleton(request(toy, **sizes).term) for sizes in ({"t": 1, "k": 24, "n": 5}, {"t": 3, "k": 64, "n": 7}))
    assert one == other
    assert one != skeleton(request(toy, 100.0, t=1, k=24, n=5).term)
