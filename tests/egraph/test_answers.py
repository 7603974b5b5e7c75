"""Tests of kept answers of saturation: the same as the child's, only of what came to its end, never one that is damaged."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_saturate import EXPLOSIVE, linear_program

from rewrite_compiler.egraph.graph.graph import EGraph
from rewrite_compiler.egraph.graph.outcome import Saturation, StopReason
from rewrite_compiler.egraph.saturation.saturate import saturate_regions
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules

MODULE = importlib.import_module("rewrite_compiler.egraph.saturation.saturate")  # the package has a function of that name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    return tmp_path / "saturation"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that a child process answers."""
    requests, run = [], MODULE._run_worker

    def told(request: dict[str, Any], limits: Any) -> Any:
        requests.append(request)
        return run(request, limits)

    monkeypatch.setattr(MODULE, "_run_worker", told)
    return requests


def test_an_equal_request_is_not_asked_again(folder: Path, asked: list[dict[str, Any]]) -> None:
    p, rules = linear_program(), shipped_rules()
    first = saturate_regions(p, rules, [])
    again = saturate_regions(p, rules, [])
    assert (first.is_cached, again.is_cached, len(asked)) == (False, True, 1)
    assert first == again
    assert again.matches == first.matches
    other = saturate_regions(p, rules[:1], [])
    limited = saturate_regions(p, rules, [], replace(DEFAULT, rounds=DEFAULT.rounds - 1))
    assert (other.is_cached, limited.is_cached, len(asked)) == (False, False, 3)
    assert len([*folder.iterdir()]) == 3


def test_a_damaged_answer_is_asked_for_again(folder: Path, asked: list[dict[str, Any]]) -> None:
    p, rules = linear_program(), shipped_rules()
    first = saturate_regions(p, rules, [])
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes().replace(b'"rounds"', b'"rouNds"'))
    again = saturate_regions(p, rules, [])
    assert (again.is_cached, len(asked)) == (False, 2)
    assert again == first


def test_what_a_limit_ended_is_not_kept(folder: Path, asked: list[dict[str, Any]]) -> None:
    limits = replace(DEFAULT, rounds=2)
    found = [saturate_regions(linear_program(), EXPLOSIVE, [], limits) for _ in range(2)]
    assert [(s.reason, s.is_cached) for s in found] == [("rounds", False)] * 2
    assert len(asked) == 2
    assert not [*folder.iterdir()]


@pytest.mark.parametrize("layers", ["saturated", "rounds"])
@pytest.mark.parametrize("steps", ["saturated", "seconds"])
def test_two_saturations_are_as_complete_as_the_less_complete_one(layers: str, steps: str) -> None:
    """Of steps written as layers, and of the layers; counts add up, and both must have been kept."""

    def ended(reason: str, rounds: int, is_cached: bool) -> Saturation:
        graph = EGraph({}, {})
        return Saturation(graph, rounds, StopReason(reason), reason, (), {"rule": rounds, reason: 1}, {}, seconds=0.5, is_cached=is_cached)

    for cached in ((True, True), (True, False), (False, True)):
        found = MODULE._combined(ended(layers, 3, cached[0]), ended(steps, 5, cached[1]))
        expected = layers if layers != "saturated" else steps
        assert (found.reason, found.detail, found.rounds, found.seconds) == (expected, expected, 5, 1.0)
        assert (found.matches["rule"], found.matches[layers], found.matches[steps]) == (8, 1 + (layers == steps), 1 + (layers == steps))
        assert found.is_cached is all(cached)
