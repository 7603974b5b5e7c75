"""Refusals keep their kind, sentence and remedy when they get a place, and when another process returns them."""

from __future__ import annotations

import pickle

import pytest

from rewrite_compiler.errors import FlexmatchError, UsageError
from rewrite_compiler.ila.simulation.simulator import DeviceHang


@pytest.mark.parametrize("refusal", [UsageError("F203", "no", help="yes"), DeviceHang("pe0", "was never started")], ids=["usual", "hang"])
def test_a_refusal_gets_a_place_and_comes_back_from_another_process(refusal: FlexmatchError) -> None:
    moved = pickle.loads(pickle.dumps(refusal.at("toy.py:7")))  # noqa: S301
    assert type(moved) is type(refusal)
    assert moved.problem.place == "toy.py:7"
    assert (moved.problem.sentence, moved.problem.help) == (refusal.problem.sentence, refusal.problem.help)
