"""FlexASR's attention and sums of pooled rows: certificates, errors, limits, and models that use them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper

from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.ila import Ila
from rewrite_compiler.prove.mappings.mappings import code_difference, prove_mapping
from rewrite_compiler.study.checks.accuracy import accuracy
from rewrite_compiler.target import find_target
from rewrite_compiler.targets.flexasr.attention import is_usable

TARGET = find_target("flexasr")
ATTENTION, ADD = TARGET.mappings["attention"], TARGET.mappings["add_pool"]


@cache
def model() -> Ila:
    return TARGET.ila()


@pytest.mark.parametrize("name", ["attention", "add_pool"])
def test_operations_are_proved(name: str) -> None:
    proof = prove_mapping(TARGET.mappings[name], model())
    assert (proof.verdict, proof.counterexample) == ("proved", None)


@pytest.mark.parametrize("sizes", [(1, 16, 16), (2, 17, 33), (1, 48, 7)])
def test_attention_gives_its_numerics(sizes: tuple[int, int, int]) -> None:
    """Blocks that are not whole, ragged vectors, several queries."""
    assert code_difference(ATTENTION, model(), dict(zip("mtd", sizes, strict=True)), seed=3) is None


def test_attention_is_near_its_meaning_where_scores_are_peaky() -> None:
    found = accuracy(ATTENTION, model(), {"m": 2, "t": 20, "d": 64}, groups=1)
    assert found.drawn_errors.mean < 0.12


def test_sums_of_shares_of_four_and_more_are_told() -> None:
    """Equal scores add up to the number of rows, and the engine divides modulo 4."""
    f = ATTENTION.formats_for(dict.fromkeys("qey", 1.0))
    q, e = np.zeros((1, 16), np.int64), np.ones((8, 16), np.int64)
    assert is_usable(q, e[:3], f).tolist() == [True]
    assert is_usable(q, e, f).tolist() == [False]


LIMITS = {
    (1025, 16): "rows of the matrix 1,025, must be at most 1,024",
    (16, 4096): "vectors of a timestep 256, must be at most 255",
    (1024, 1040): "large-buffer vectors 66,560, must be at most 65,536",
}


@pytest.mark.parametrize("t", LIMITS)
def test_limits(t: tuple[int, int]) -> None:
    assert str(ATTENTION.exceeded_limit({"m": 1, "t": t[0], "d": t[1]})) == LIMITS[t]


def test_a_model_with_attention_and_sums_is_offloaded(tmp_path: Path) -> None:
    """Two queries against a matrix of 18 rows, whose pairs of rows are summed, too."""
    nodes = [
        helper.make_node("Transpose", ["e"], ["k"], perm=[1, 0]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "e"], ["y"]),
    ]
    onnx.save(onnx_model(nodes, {"q": [2, 32], "e": [18, 32]}, ["y"]), tmp_path / "attention.onnx")
    plan = compile_model(tmp_path / "attention.onnx", ["flexasr"])
    assert [o.mapping.name for o in plan.offloads] == ["flexasr.attention"]
    random = np.random.default_rng(4)
    data = {"q": random.normal(0, 1, (2, 2, 32)), "e": random.normal(0, 1, (2, 18, 32))}
    np.savez(tmp_path / "x.npz", **{n: x.astype(np.float32) for n, x in data.items()})
    report = cosimulate(plan, tmp_path / "x.npz", calibrate=tmp_path / "x.npz")
    assert all(o["relative_error"] < 0.15 for o in report.document["offloads"])
    summed = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    constants = [onnx.numpy_helper.from_array(np.array([1], np.int64), "axes")]
    onnx.save(onnx_model(summed, {"x": [5, 4, 32]}, ["y"], constants), tmp_path / "sums.onnx")
    assert [o.mapping.name for o in compile_model(tmp_path / "sums.onnx", ["flexasr"]).offloads] == ["flexasr.add_pool"]
