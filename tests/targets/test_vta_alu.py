"""VTA's elementwise operations: proved at every rank, cut into runs, refused where a design has no multiplication; a model uses them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper

from rewrite_compiler.compile import compile_model
from rewrite_compiler.ila import Ila
from rewrite_compiler.prove.mappings.mappings import code_difference, prove_mapping
from rewrite_compiler.target import Target, find_target, simulated_device
from rewrite_compiler.targets.vta.alu import Sweep
from rewrite_compiler.targets.vta.base import config

KINDS = ("add", "mul", "relu", "clip")


@cache
def design(text: str) -> tuple[Target, Ila]:
    target = find_target(text)
    return target, target.ila()


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_operations_are_proved(kind: str, rank: int) -> None:
    target, ila = design("vta")
    proof = prove_mapping(target.mappings[f"{kind}_{rank}"], ila)
    assert (proof.verdict, proof.counterexample) == ("proved", None)
    assert "random codes at 3 sizes" in proof.strength


@pytest.mark.parametrize("text", ["vta:behaviour=hls", "vta:behaviour=ila", "vta:log_batch=1", "vta:log_inp_buffer=11,log_acc_buffer=12"])
@pytest.mark.parametrize("kind", ["add", "clip"])
def test_every_design_gives_the_numerics(kind: str, text: str) -> None:
    target, ila = design(text)
    m = target.mappings[f"{kind}_2"]
    assert code_difference(m, ila, {**m.trials[1], "a": 9, "b": 333}) is None


def test_a_tensor_is_cut_into_runs_that_the_buffer_holds() -> None:
    c = config(design("vta")[0].configured({}).values)
    assert [len(r) for r in Sweep(c, 2, 2500, 2).runs] == [1024, 1024, 452]
    assert [len(r) for r in Sweep(c, 1, 2500, 1).runs] == [2047, 453]


def test_results_are_those_of_integers() -> None:
    target, ila = design("vta")
    random = np.random.default_rng(2)
    x, z = random.integers(-128, 128, (2, 3, 50))
    for kind, expected in (("add", x + z), ("mul", x * z)):
        m = target.mappings[f"{kind}_2"]
        found = m.run_driver(simulated_device(ila), {"x": x, "z": z}, m.formats_for({"x": 1.0, "z": 1.0}), {})
        assert np.array_equal(found, expected), kind


@pytest.mark.parametrize("text", ["vta:behaviour=hls", "vta:encoding=old"])
def test_a_design_without_multiplication_is_not_given_one(text: str) -> None:
    target, _ = design(text)
    chosen = target.configured({}) if text == "vta" else target
    assert str(chosen.mappings["mul_2"].exceeded_limit({"a": 1, "b": 1})) == "multiplications of the ALU 1, must be at most 0"
    assert chosen.mappings["add_2"].exceeded_limit({"a": 1, "b": 1}) is None


def test_elementwise_work_alone_is_not_worth_a_call(tmp_path: Path) -> None:
    """The default objective leaves it on the host and says so; the device could do all of it."""
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Relu", ["s"], ["r"]), helper.make_node("Mul", ["r", "y"], ["z"])]
    onnx.save(onnx_model(nodes, {"x": [4, 20], "y": [4, 20]}, ["z"]), tmp_path / "chain.onnx")
    plan = compile_model(tmp_path / "chain.onnx", ["vta"])
    assert not plan.offloads
    for node, kind in zip(plan.host, ("add", "relu", "mul"), strict=True):
        assert f"the chosen program is no dearer with {kind} on the host" in node.why_not
