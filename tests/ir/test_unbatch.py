"""Programs of a fixed batch are taken apart: one sample has the bits it has among others, or the program is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.placement import Place
from rewrite_compiler.ir.program import Builder, Node, OpaqueOp, Program
from rewrite_compiler.ir.rebatch import NotBatchable, Rebatched, rebatch
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.unbatch import unbatch, with_samples
from rewrite_compiler.ir.verify import verify

FIXED = 6


def built(make: Any, *shapes: tuple[int, ...]) -> Program:
    b = Builder("app")
    made = make(b, *(b.input(f"x{n}", TensorType(shape)) for n, shape in enumerate(shapes)))
    return b.finish([made])


def held(p: Program) -> Program:
    """Take a program apart and compare each sample with what it is among the others."""
    single = unbatch(p, FIXED)
    assert isinstance(single, Program), single
    verify(single)
    random = np.random.default_rng(3)
    values = {v: random.integers(-3, 4, p.types[v].shape).astype(np.float32) for v in p.inputs}
    whole = run(p, values)
    for n in range(FIXED):
        alone = run(single, {v: x[n * len(x) // FIXED : (n + 1) * len(x) // FIXED] for v, x in values.items()})
        for v in p.outputs:
            each = len(whole[v]) // FIXED
            assert np.array_equal(alone[v], whole[v][n * each : (n + 1) * each])
    return single


def constant(b: Builder, *shape: int) -> int:
    return b.constant(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 5 - 2)


def merged_rows(b: Builder, x: int) -> int:
    (flat,) = b.apply("reshape", [x], {"shape": (FIXED * 4, 3)})
    (y,) = b.apply("dense", [flat, constant(b, 5, 3)])
    return b.apply("reshape", [y], {"shape": (FIXED, 20)})[0]


def repeated_constant(b: Builder, x: int) -> int:
    table = b.constant(np.tile(np.arange(12, dtype=np.float32).reshape(1, 4, 3), (FIXED, 1, 1)))
    return b.apply("add", [x, table])[0]


def recurrent(b: Builder, x: int) -> int:
    (steps,) = b.apply("transpose", [x], {"perm": (1, 0, 2)})
    weights = [constant(b, 8, 3), constant(b, 8, 2), constant(b, 16)]
    states = [b.constant(np.zeros((FIXED, 2), np.float32)) for _ in range(2)]
    y, *_ = b.apply("lstm", [steps, *weights, *states])
    return b.apply("transpose", [y], {"perm": (1, 0, 2)})[0]


GOOD = {"rows": merged_rows, "constant": repeated_constant, "recurrent": recurrent}


@pytest.mark.parametrize("name", GOOD)
def test_one_sample_has_the_bits_it_has_among_others(name: str) -> None:
    held(built(GOOD[name], (FIXED, 4, 3)))


def test_constants_have_the_part_of_one_sample() -> None:
    single = held(built(repeated_constant, (FIXED, 4, 3)))
    assert [x.shape for x in single.constants.values()] == [(1, 4, 3)]


def mean_of_all(b: Builder, x: int) -> int:
    (mean,) = b.apply("reduce_mean", [x], {"axes": (0,), "keepdims": True})
    return b.apply("sub", [x, mean])[0]


def own_constants(b: Builder, x: int) -> int:
    return b.apply("add", [x, constant(b, FIXED, 4, 3)])[0]


def turned(b: Builder, x: int) -> int:
    return b.apply("transpose", [x], {"perm": (1, 0, 2)})[0]


BAD = {
    "mean": (mean_of_all, 'reduce_mean "v1" cannot be taken apart: it works along axis 0 of (1, 4, 3), which carries the samples'),
    "constants": (own_constants, 'add "v2" cannot be taken apart: axis 0 of its operand 0 carries the samples and is broadcast to 6'),
    "turned": (turned, 'output "v1" does not have the samples in its axis 0'),
}


@pytest.mark.parametrize("name", BAD)
def test_samples_that_meet_are_refused(name: str) -> None:
    make, reason = BAD[name]
    found = unbatch(built(make, (FIXED, 4, 3)), FIXED)
    assert isinstance(found, NotBatchable)
    assert found.reason == reason


def test_other_numbers_of_samples() -> None:
    p = built(merged_rows, (FIXED, 4, 3))
    wide = with_samples(p, FIXED, 2)
    assert isinstance(wide, Program)
    assert [wide.types[v].shape for v in (*wide.inputs, *wide.outputs)] == [(2, 4, 3), (2, 20)]


def test_it_undoes_rebatching() -> None:
    p = built(lambda b, x: b.apply("softmax", [b.apply("matmul", [x, constant(b, 3, 5)])[0]], {"axis": 2})[0], (1, 4, 3))
    wide = rebatch(p, FIXED, {v: Place(0) for v in p.inputs})
    assert isinstance(wide, Rebatched)
    single = unbatch(wide.program, FIXED)
    assert isinstance(single, Program)
    assert (single.types, single.nodes) == (p.types, p.nodes)


def test_operators_kept_whole_count_the_work_of_one_sample() -> None:
    b = Builder("app")
    x = b.input("x", TensorType((FIXED, 4, 3)))
    y = b.value(TensorType((FIXED, 4, 3)))
    b.opaque["k"] = OpaqueOp("Sin", "", b"", "unsupported operator: Sin", macs=60)
    b.node(Node("opaque", (x,), (y,), (("key", "k"),)))
    single = unbatch(b.finish([y]), FIXED)
    assert isinstance(single, Program)
    assert [o.macs for o in single.opaque.values()] == [10]
    assert single.types[y].shape == (1, 4, 3)
