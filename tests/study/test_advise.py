"""advise: a planted best change comes first; what a change saves is what compiling with it saves."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from command import flexmatch

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.errors import UsageError
from rewrite_compiler.fit.host import SHIPPED, picoseconds_of
from rewrite_compiler.study.designs.advise import advice_document, advise
from rewrite_compiler.study.designs.diff import plan_totals
from rewrite_compiler.study.designs.totals import Totals, totals

CNN = find_application("digits_cnn").model
SHAPES = {"image": (1, 1, 8, 8)}


@cache
def advised(accel: str, objective: str) -> dict[str, Any]:
    return advice_document(advise([CNN], accel, Options(shapes=SHAPES, objective=objective)))


def test_a_planted_change_comes_first() -> None:
    """The buffer of weights is too small for two layers."""
    best = advised("vta:log_wgt_buffer=12", "bytes")["changes"][0]
    assert (best["rank"], best["kind"], best["name"], best["to"]) == (1, "parameter", "log_wgt_buffer", "13")


def test_what_a_change_saves_is_what_compiling_with_it_saves() -> None:
    document = advised("vta:log_wgt_buffer=12", "bytes")
    best = document["changes"][0]
    assert best["totals"] == plan_totals(compiled("vta:log_wgt_buffer=13")).document()
    assert best["saved_bytes"] == document["base"]["totals"]["bytes"] - best["totals"]["bytes"] > 0
    assert best["saved"]["moved_bytes"] == best["saved_bytes"] + best["saved_host_bytes"]
    for change in document["changes"]:
        assert change["saved"] == {level: n - change["cost"][level] for level, n in document["base"]["cost"].items()}


def test_totals_say_time_and_bytes_of_devices_and_host_together() -> None:
    document = Totals(bytes=5, device_nanoseconds=3, host_bytes=6, host_nanoseconds=4).document()
    assert (document["nanoseconds"], document["moved_bytes"]) == (7, 11)
    assert document.keys() == {*vars(Totals()), "nanoseconds", "moved_bytes"}
    p = compile_model(CNN, ["hlscnn"], Options(shapes=SHAPES)).program
    host = [n for n in p.nodes if n.operator is not None]
    alone = [totals(replace(p, nodes=(n,)), lambda _: None).host_nanoseconds for n in host]
    assert alone == [math.ceil(picoseconds_of(p, [n], SHIPPED) / 1000) for n in host]
    assert sum(alone) > 0


def compiled(accel: str) -> Any:
    return compile_model(CNN, [accel], Options(shapes=SHAPES, objective="bytes"))


@pytest.mark.parametrize("accel", ["hlscnn", "vta:log_wgt_buffer=12"])
def test_the_design_as_it_is_costs_what_its_plan_costs(accel: str) -> None:
    """With the lowerings that an objective uses which weighs host and device: HLSCNN computes the dense layer as a convolution."""
    assert advised(accel, "bytes")["base"]["totals"] == plan_totals(compiled(accel)).document()


def test_changes_are_ranked_by_the_objective_then_time_then_bytes() -> None:
    changes = advised("vta:log_wgt_buffer=12", "bytes")["changes"]
    assert [c["rank"] for c in changes] == list(range(1, len(changes) + 1))
    order = [(*c["cost"].values(), c["totals"]["nanoseconds"], c["totals"]["moved_bytes"]) for c in changes]
    assert order == sorted(order)
    assert {c["kind"] for c in changes} >= {"parameter", "capacity", "clock", "link"}


def test_a_faster_clock_halves_the_time_of_devices_only() -> None:
    document = advised("vta:log_wgt_buffer=12", "bytes")
    (clock,) = [c for c in document["changes"] if c["kind"] == "clock"]
    before, after = document["base"]["totals"], clock["totals"]
    assert after["host_nanoseconds"] == before["host_nanoseconds"]
    assert abs(2 * after["device_nanoseconds"] - before["device_nanoseconds"]) <= 2 * before["offloads"]
    assert after["device_cycles"] == before["device_cycles"]


def test_one_accelerator_and_one_model_are_needed() -> None:
    with pytest.raises(UsageError, match="Models must be at least one, not none"):
        advise([], "vta")
    answer = flexmatch("advise", CNN)
    assert (answer.code, answer.err.splitlines()[0]) == (2, "error[F201]: Accelerators must be exactly one, not 0")
