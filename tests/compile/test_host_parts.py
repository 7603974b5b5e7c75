"""Host parts on the fast path: what is overwritten, what one pass may not compute, and that a difference in one bit ends it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.compile.host import host_program
from rewrite_compiler.compile.host.fused_elementwise import _is_known
from rewrite_compiler.compile.host.host_program import HostProgram
from rewrite_compiler.compile.host.lazy_host import FastHostProgram, has_fast_path
from rewrite_compiler.ir.program import Builder, Node, Program
from rewrite_compiler.ir.types import TensorType

RNG = np.random.default_rng(0)
SHAPE = (4, 5)


def sum_and_limit(*, is_sum_an_output: bool = True) -> Program:
    b = Builder("part")
    x, y = (b.input(name, TensorType(SHAPE)) for name in "xy")
    (s,) = b.apply("add", (x, y))
    (r,) = b.apply("relu", (s,))
    return b.finish([s, r] if is_sum_an_output else [r])


def values_of(p: Program, samples: int = 3) -> dict[int, Any]:
    return {v: RNG.normal(size=(samples, *p.types[v].shape)).astype(np.float32) for v in p.inputs}


@pytest.mark.parametrize("is_output", [True, False])
def test_a_sum_that_is_an_output_is_not_overwritten(is_output: bool) -> None:
    p = sum_and_limit(is_sum_an_output=is_output)
    fast, values = FastHostProgram(p), values_of(p)
    assert bool(fast.passing) is not is_output
    found = fast.run(values)
    assert fast.is_used
    total = values[p.inputs[0]] + values[p.inputs[1]]
    for v, expected in zip(p.outputs, [total, np.maximum(total, 0)][-len(p.outputs) :], strict=True):
        assert np.array_equal(found[v], expected)


@pytest.mark.parametrize("wrong", [(), (0,), (1,), (0, 1)])
def test_a_bit_of_any_output_leaves_the_part_to_the_host_engine(wrong: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    p = sum_and_limit()
    plain = FastHostProgram._plain

    def almost(self: FastHostProgram, values: Any) -> Any:
        found = dict(plain(self, values))
        for k in wrong:
            found[p.outputs[k]] = np.array(found[p.outputs[k]])
            found[p.outputs[k]].reshape(-1).view(np.uint32)[7] ^= 1
        return found

    monkeypatch.setattr(FastHostProgram, "_plain", almost)
    fast, values = FastHostProgram(p), values_of(p)
    found = fast.run(values)
    assert fast.is_used is not bool(wrong)
    assert np.array_equal(found[p.outputs[0]], values[p.inputs[0]] + values[p.inputs[1]])


def limits(low: float, high: float) -> Node:
    return Node("clip", (0,), (1,), (("low", low), ("high", high)))


@pytest.mark.parametrize(
    ("node", "is_known"),
    [
        (Node("relu", (0,), (1,)), True), (Node("add", (0, 1), (2,)), True), (Node("mul", (0, 1), (2,)), False), (limits(0.0, 6.0), True),
        (limits(-1.0, 1.0), True), (limits(-1.0, 0.0), False), (limits(-1.0, -0.0), False), (limits(-0.0, 6.0), False),
        (limits(math.nan, 6.0), False), (limits(0.0, math.nan), False), (limits(-math.inf, 3.0), True),
    ],
)  # fmt: skip
def test_a_limit_whose_zero_has_no_certain_sign_is_not_fused(node: Node, is_known: bool) -> None:
    assert _is_known(Builder("part").finish([]), node) is is_known


@pytest.mark.parametrize("change", ["none", "a factor", "a constant", "another shape", "another type", "another operator", "nothing"])
def test_what_has_a_fast_path(change: str) -> None:
    b = Builder("part")
    x = b.input("x", TensorType(SHAPE, "float64" if change == "another type" else "float32"))
    shape = (1, 5) if change == "another shape" else SHAPE
    y = b.constant(np.ones(SHAPE, np.float32)) if change == "a constant" else b.input("y", TensorType(shape, str(b.types[x].dtype)))
    z = x if change == "nothing" else b.apply("mul" if change == "another operator" else "add", (x, y))[0]
    if change == "a factor":
        (z,) = b.apply("mul", (z, b.constant(np.array([0.1], np.float32))))
    assert has_fast_path(b.finish([z])) is (change in ("none", "a factor"))


def test_axes_that_do_not_batch_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first axes are said to give other bits: the session of the second ones runs all batches after that."""
    p = sum_and_limit()
    answers = iter([False, False])
    equal = host_program.are_equal
    monkeypatch.setattr(host_program, "are_equal", lambda a, b, tolerance: next(answers, None) is None and equal(a, b, tolerance))
    host, values = HostProgram(p, p.inputs), values_of(p)
    found = host.run(values)
    assert host.batching is not None
    assert host.batching.places is not None
    assert {place.axis for place in host.batching.places.values()} != {0}
    assert {place.axis for place in host.sessions[2][1].values()} != {0}
    assert np.array_equal(found[p.outputs[0]], values[p.inputs[0]] + values[p.inputs[1]])
