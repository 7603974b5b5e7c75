"""check PLAN --symbolic: every call of a plan is judged as it is issued; an edited driver is found; verdicts are cached."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from command import flexmatch, perceptron, refused
from known_wrong.drivers import Fault, planted

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import compile_model
from rewrite_compiler.compile.plan import validation
from rewrite_compiler.compile.plan.validation import problems_of, validated_calls, validation_document
from rewrite_compiler.prove.calls.call_validation import CallCourt, CallVerdict, Method
from rewrite_compiler.prove.certificates.cache import Cache, court_cache
from rewrite_compiler.prove.mappings.mappings import with_results
from rewrite_compiler.target import Stay, find_target
from rewrite_compiler.targets.vta.conv2d import _trial

UNSTRIDED = Fault("vta.conv2d", "vta.conv2d", "_load", "x_stride=m.channels * m.taps", "x_stride=count * m.taps")
SMALL, IN_PASSES = "vta:log_wgt_buffer=14", _trial(32, 96, 3, 3, 1, 1)  # its channels do not fit in one pass


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that is empty at first: the command finds what the first test had judged."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def model(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEXMATCH_CACHE", str(cache))
    path = tmp_path / "layers.onnx"
    onnx.save(perceptron([40, 600, 48, 20]), str(path))
    return path


def test_an_edited_instruction_is_found() -> None:
    vta = find_target(SMALL)
    court = CallCourt(vta)
    court.covered["conv2d"] = None  # classes of control are another question
    assert court.verdict(vta.mappings["conv2d"], IN_PASSES).method == Method.BLOCKS
    with planted(UNSTRIDED):
        verdict = court.verdict(vta.mappings["conv2d"], IN_PASSES)
    assert verdict.method == Method.NONE
    assert verdict.reason.startswith("driver and numerics differ: driver ")


def test_control_that_no_certificate_shows_is_named() -> None:
    vta = find_target("vta")
    court = CallCourt(vta)
    m = vta.mappings["dense"]
    assert court.unproved_control(m, {"t": 1, "k": 16, "n": 16}, None) == ()
    court.covered["dense"] = frozenset()
    assert any("dense.py:" in x for x in court.unproved_control(m, {"t": 1, "k": 16, "n": 16}, None))
    flexasr = replace(find_target("flexasr"), small=())
    assert CallCourt(flexasr).unproved_control(flexasr.mappings["linear"], {"t": 1, "k": 16, "n": 16}, None)


def test_calls_are_one_term_or_blocks_and_a_cached_verdict_is_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, cache = compile_model(model, ["vta"]), court_cache()
    calls = validated_calls(plan, cache)
    assert sorted(c.verdict.method for c in calls) == sorted([Method.BLOCKS, Method.BLOCKS, Method.TERM])
    assert all(c.verdict.reason == "" and c.verdict.is_symbolic for c in calls)
    assert problems_of(calls, "plan") == []
    assert {o for c in calls for o in c.offloads} == {o.id for o in plan.offloads}

    def forbidden(*_: Any) -> None:
        raise AssertionError("a cached call is judged again")

    monkeypatch.setattr(CallCourt, "verdict", forbidden)
    assert validation_document(validated_calls(plan, cache)) == validation_document(calls)


@pytest.mark.parametrize(
    ("pops", "reason"),
    [
        (0, r"instruction \d+ \(store\) gives a token of s2g that nothing takes"),
        (2, "operand pop_next of finish must be in 0…1, not 2"),
    ],
)
def test_an_edit_of_the_order_is_found(model: Path, pops: int, reason: str) -> None:
    """Both sides stay one term in the one order in which a proof runs the instructions."""
    plan = compile_model(model, ["vta"])
    with planted(Fault("vta.dense", "vta.results", "store_bytes", '"finish", pop_next=1', f'"finish", pop_next={pops}')):
        problems = problems_of(validated_calls(plan, Cache(None)), "plan")
    assert len(problems) == 3
    assert all(re.search(f"the device refuses the stream: {reason}", p.sentence) for p in problems)


ORDERS = {  # of calls of a quantised model: module, function, what is edited
    "requantise_uint8_2": ("requantise", "_run", "push_next=int(is_last)", "push_next=0"),
    "quantized_add_uint8_2": ("sums", "_run", "push_next=int(k == len(m.program) - 1)", "push_next=1"),
    "dense_bias_uint8": ("results", "store_bytes", "pop_prev=1, push_prev=1,", "pop_prev=0, push_prev=1,"),
    "depthwise_bias_uint8": ("conv2d", "_pass", "pop_prev=waits", "pop_prev=0"),
}


@pytest.mark.parametrize("operation", ORDERS)
def test_an_edit_of_the_order_of_a_call_of_codes_is_found(operation: str) -> None:
    vta = find_target("vta")
    m, court, (module, function, old, new) = vta.mappings[operation], CallCourt(vta), ORDERS[operation]
    sizes = with_results(m, dict(m.trials[0]))
    court.covered[m.variant] = None
    assert validation._in_every_order(court, m, sizes, None).is_symbolic
    with planted(Fault("", f"vta.{module}", function, old, new)):
        assert validation._in_every_order(court, m, sizes, None).method == Method.NONE


def test_the_command_enters_verdicts_in_the_plan(model: Path) -> None:
    assert flexmatch("compile", model, "--accel", "vta", "-o", "p").code == 0
    first = flexmatch("check", "p.json", "--symbolic", "--json", "found.json", "--junit", "found.xml")
    assert first.code == 0, first
    assert first.out.startswith("rounding  ≤ 1.0× the model's error bound on one random input\n")
    assert "\ncalls     3 distinct: 1 by one term, 2 by one term of elements (block lemma)\ncontrol   3 of 3 " in first.out
    plan, found = (json.loads(Path(name).read_text()) for name in ("p.json", "found.json"))
    assert plan["validated"] == found["validated"]
    assert (found["kind"], found["good"]) == ("plan", True)
    assert 'failures="0"' in Path("found.xml").read_text()
    again = flexmatch("check", "p.json", "--symbolic")
    assert again.out == first.out
    assert json.loads(Path("p.json").read_text()) == plan
    assert flexmatch("cosim", "p.json", "--data", "none.npz").code == 2  # the plan is still one: the data are what is missing


def test_a_model_is_no_plan(model: Path) -> None:
    refused(
        flexmatch("check", model, "--symbolic"), 2,
        f"error[F203]: --symbolic is for plans, and {model} is none\n  help: write one with flexmatch compile MODEL --accel NAME",
    )  # fmt: skip


def test_calls_of_one_size_are_judged_once_for_each_place_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(find_application("digits_mlp").model, ["flexasr"])
    o, judged = plan.offloads[0], list[Stay | None]()
    at = {"a": Stay({"x": 0}), "b": Stay({"x": 64}), "c": None, "d": Stay({"x": 0}), "e": Stay({"x": 0}, frozenset("x"))}

    def cached(court: Any, m: Any, sizes: Any, stay: Stay | None, cache: Any) -> CallVerdict:
        judged.append(stay)
        return CallVerdict(Method.TERM)

    monkeypatch.setattr(validation, "_cached", cached)
    monkeypatch.setattr(validation, "_calls", lambda plan, o: iter([({"n": 8}, at[o.id])]))
    found = validation.validated_calls(replace(plan, offloads=tuple(replace(o, id=name) for name in at)), Cache(None))
    assert [c.offloads for c in found] == [("a", "d"), ("b",), ("c",), ("e",)]
    assert judged == [at["a"], at["b"], None, at["e"]]
