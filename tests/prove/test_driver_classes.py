"""Drivers on small designs: what is drawn shows every control class, and faults that are right at most sizes are found."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping as Sizes
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from known_wrong.devices import target_of
from known_wrong.drivers import FAR_FAULTS, FAULTS, Fault, code_of, planted

from rewrite_compiler.errors import FlexmatchError, SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.prove.certificates.cache import Cache
from rewrite_compiler.prove.certificates.judge import judge_cases, model_case
from rewrite_compiler.prove.mappings.control_classes import Call, control_facts
from rewrite_compiler.prove.mappings.draws import Invocation, _Drawn
from rewrite_compiler.prove.mappings.limit_edges import LARGEST_DRAWN, capacity_edges, literal_edges
from rewrite_compiler.prove.mappings.mappings import code_difference, numeric_sizes
from rewrite_compiler.prove.mappings.small_designs import drawn_design_calls, edge_failure, operation_classes, prove_operation, verdict_at
from rewrite_compiler.target import Mapping, Small, Stay, Target, find_target, target_names


@cache
def calls(of: str) -> tuple[Call, ...]:
    target, _, variant = of.partition(".")
    found = find_target(target)
    return operation_classes(found, found.mappings[variant]).calls


def test_every_fault_changes_its_driver() -> None:
    for fault in (*FAULTS.values(), *FAR_FAULTS.values()):
        code_of(fault)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refuted_or_refused(name: str) -> None:
    target, _, variant = FAULTS[name].of.partition(".")
    owner = find_target(target)
    m = owner.mappings[variant]
    drawn_calls = calls(FAULTS[name].of)
    with planted(FAULTS[name]):
        failed = next((verdict for verdict, _ in map(verdict_at, drawn_calls) if verdict is not None), None)
        failed = failed or edge_failure(owner, m, [*capacity_edges(m), *literal_edges(m, LARGEST_DRAWN)])
        is_seen = failed is not None or any(differs(owner, m, sizes) for sizes in numeric_sizes(m))
    assert is_seen
    assert failed is None or failed["verdict"] in ("refuted", "unproved")


@pytest.mark.parametrize("name", FAR_FAULTS)
def test_a_fault_beyond_all_drawn_sizes_is_refuted_where_capacities_are_used_up(name: str) -> None:
    target, _, variant = FAR_FAULTS[name].of.partition(".")
    owner = find_target(target)
    m = owner.mappings[variant]
    edges = list(capacity_edges(m))
    with planted(FAR_FAULTS[name]):
        failed = edge_failure(owner, m, edges)
    assert failed is not None
    assert failed["verdict"] == "refuted"


def differs(owner: Target, m: Mapping, sizes: Sizes[str, int]) -> bool:
    """Tell whether codes at a trial show a difference, or the device refuses what the driver sends, as the court asks first."""
    try:
        return code_difference(m, owner.ila(), sizes) is not None
    except FlexmatchError:
        return True


def test_the_court_asks_small_designs() -> None:
    vta = find_target("vta")
    proof = prove_operation(vta, vta.mappings["relu_2"])
    assert proof.is_proved, proof
    assert proof.strength.endswith(" calls of all control classes on small designs")
    with planted(FAULTS["micro-ops ignore where kept weights lie"]):
        wrong = prove_operation(vta, vta.mappings["dense"])
    assert (wrong.verdict, wrong.code) == ("refuted", "I105")
    assert " on the design log_batch=" in wrong.evidence


def refusing(allowed: str) -> Target:
    """Return an accelerator that is made with one width only, whose miniature is made with another."""
    toy = target_of((), Path(tempfile.mkdtemp()))

    def build(width: str) -> Ila:
        if width != allowed:
            raise SpecError("I101", f"a width of {width} is none of a command", place="toy.py:1")
        return toy.build()

    design = replace(toy, build=build, parameters={"width": ("8", "9")}, small=(Small({"width": "9"}),))
    return replace(design, mappings={name: replace(m, parameters=design.values) for name, m in toy.mappings.items()})


@pytest.mark.parametrize(("allowed", "made"), [("8", "toy with width=9"), ("9", "toy")])
def test_a_design_that_cannot_be_made_leaves_the_operation_open(allowed: str, made: str) -> None:
    target = refusing(allowed)
    proof = prove_operation(target, target.mappings["dense"])
    width = {"8": "9", "9": "8"}[allowed]
    assert (proof.verdict, proof.code, proof.strength) == ("unproved", "I101", "")
    assert proof.evidence == f"{made} cannot be made: a width of {width} is none of a command at toy.py:1"
    assert proof.problem is not None


def test_a_model_that_cannot_be_made_has_a_problem() -> None:
    (record,) = judge_cases([model_case(refusing("9"), "toy")], Cache(None))
    assert record["problems"] == ["toy cannot be made: a width of 8 is none of a command at toy.py:1"]


def test_a_call_shows_loops_branches_and_fields() -> None:
    call = calls("vta.dense")[0]
    assert call.invocation.stay is None or call.invocation.stay.at
    found = control_facts(call)
    assert any(isinstance(x, tuple) and x[0] == "load_inp" and "x_size" in x for x in found)
    kept = Stay({"w": 3}, frozenset("w"))
    other = control_facts(Call(call.design, call.mapping, Invocation(call.invocation.sizes, kept)))
    assert ("stay", frozenset("w"), True) in other


def test_draws_are_the_same_each_time_and_are_taken() -> None:
    vta = find_target("vta")
    first, again = (
        [str(call) for call, _ in zip(drawn_design_calls(vta, vta.mappings["conv2d"]), range(200), strict=False)] for _ in range(2)
    )
    assert first == again
    assert any("from the call before" in x for x in first)


@pytest.mark.parametrize(
    ("pops", "reason"), [(0, "gives a token of s2g that nothing takes"), (2, "operand pop_next of finish must be in 0…1, not 2")]
)
def test_what_depends_on_the_order_of_queues_is_found_beside_one_term(pops: int, reason: str) -> None:
    """Both sides stay one term in the order in which the instructions are executed on terms."""
    call = calls("vta.dense")[0]
    assert verdict_at(call) == (None, True)
    with planted(Fault("vta.dense", "vta.results", "store_bytes", '"finish", pop_next=1', f'"finish", pop_next={pops}')):
        failed, _ = verdict_at(call)
    assert failed is not None
    assert (failed["verdict"], reason in failed["evidence"]) == ("unproved", True)


@pytest.mark.parametrize("name", target_names())
def test_strides_and_pads_are_drawn_anew(name: str) -> None:
    """Beside one trial with an entry that is too large, pads of all calls would be those of the trials."""
    for m in find_target(name).mappings.values():
        lists = {n for n, _ in m.statics} & {"strides", "pads", "kernel"}
        assert lists <= set(_Drawn.of(m).lists), m.name
