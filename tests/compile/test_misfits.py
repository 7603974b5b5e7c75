"""What does not fit: the plan has the layer on the host, and the reason names the limit with its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper, numpy_helper

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.plan.plan import to_json
from rewrite_compiler.target import Clock, Energy, Limit, Memory, Resources, Target, find_target

SHAPES = {"image": (1, 1, 8, 8)}
CLOCK = Clock(1_000, "assumed")


def planned(target: Target, objective: str = "offloads") -> Plan:
    return compile_model(find_application("digits_mlp").model, [target], Options(shapes=SHAPES, only=("dense",), objective=objective))


def with_limits(limits: Callable[..., Iterator[Limit]]) -> Target:
    vta = find_target("vta")
    return replace(vta, mappings={name: replace(m, capacities=limits) for name, m in vta.mappings.items()})


def with_resources(describe: Callable[..., Resources]) -> Target:
    return replace(find_target("vta"), describe=describe)


def too_small(t: int, k: int, n: int) -> Iterator[Limit]:
    yield Limit("weights of a block", min(k, 16) * min(n, 16), 100)


def contradictory(t: int, k: int, n: int) -> Iterator[Limit]:
    yield Limit("input elements", t, 1)
    yield Limit("columns", n, 0)


def not_a_number(t: int, k: int, n: int) -> Iterator[Limit]:
    yield Limit("weights", k * n, "32 KiB")  # type: ignore[arg-type]


def failing(t: int, k: int, n: int) -> Iterator[Limit]:
    yield Limit("weights", k * n // (t - t), 1)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (too_small, "weights of a block 160, must be at most 100"),
        (contradictory, "columns 10, must be at most 0"),
        (not_a_number, "Most of the capacity weights must be a whole number, not '32 KiB'"),
        (failing, "The limits of vta.dense must return Limits (at t=1, k=32, n=10), not end with ZeroDivisionError"),
    ],
)
def test_a_layer_that_cannot_fit_stays_on_the_host(limits: Callable[..., Iterator[Limit]], why: str) -> None:
    plan = planned(with_limits(limits))
    assert plan.offloads == ()
    assert why in {h.node: h.why_not for h in plan.host}["gemm_5"]


def graph(memory: Callable[[], Memory]) -> Callable[..., Resources]:
    return lambda ila, parameters: Resources(CLOCK, (memory(),), (), ())


def joules() -> Memory:
    return Memory("a", 8, 4, read_energy=Energy(1.0, "J/s", "x"))


RESOURCES: list[tuple[Callable[..., Any], str]] = [
    (graph(lambda: Memory("a", 8, 0)), "Depth of memory a must be a positive integer, not 0"),
    (graph(lambda: Memory("a", 8, "4 KiB")), "Depth of memory a must be a positive integer, not 4 KiB"),  # type: ignore[arg-type]
    (graph(lambda: Memory("a", 8, None)), "Depth of memory a must be a positive integer, not None"),  # type: ignore[arg-type]
    (graph(joules), 'Unit of an energy must be one of fJ, pJ, nJ, µJ, not "J/s"'),
]


@pytest.mark.parametrize(("describe", "sentence"), RESOURCES, ids=[s for _, s in RESOURCES])
@pytest.mark.parametrize("objective", ["offloads", "cycles"])
def test_resources_that_make_no_sense_keep_layers_on_the_host(describe: Callable[..., Resources], sentence: str, objective: str) -> None:
    plan = planned(with_resources(describe), objective)
    assert plan.offloads == ()
    (note,) = (n for n in plan.notes if n.startswith("vta is not used: "))
    assert re.fullmatch(rf"vta is not used: {re.escape(sentence)} \(test_misfits\.py:\d+\)", note)
    assert all(sentence in h.why_not for h in plan.host if h.op == "Gemm")


@pytest.mark.parametrize("target", ["flexasr", "vta"])
@pytest.mark.parametrize("shape", [(0, 16), (2, 0)])
def test_a_layer_without_elements_stays_on_the_host(shape: tuple[int, int], target: str, tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.ones((shape[1], 4), np.float32), "w"), numpy_helper.from_array(np.ones(4, np.float32), "b")]
    model = onnx_model([helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="fc")], {"x": shape}, {"y": (shape[0], 4)}, weights)
    onnx.save(model, tmp_path / "app.onnx")
    plan = compile_model(tmp_path / "app.onnx", [target])
    assert plan.offloads == ()
    (row,) = to_json(plan)["host"]
    assert "must be at least 1, not 0: there is nothing to compute" in row["why_not"]
