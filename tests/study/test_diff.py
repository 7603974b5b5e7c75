"""diff: what appears, vanishes or changes between two targets, and what that does to the sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch

from rewrite_compiler.apps import named
from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.study.diff import Sides, diff_document, is_changed

APP, MLP = named("digits_cnn"), named("digits_mlp")
SHAPES = {"image": (1, 1, 8, 8)}
SMALL, LARGE = "vta:log_wgt_buffer=12", "vta:log_wgt_buffer=14"


@cache
def plan(accel: str) -> Plan:
    return compile_model(APP.model, [accel], Options(shapes=SHAPES))


def document(old: str, new: str) -> dict[str, Any]:
    return diff_document(Sides(plan(old), plan(new)))


def test_a_target_is_equal_to_itself() -> None:
    found = document(SMALL, SMALL)
    assert not is_changed(found)
    assert found["same"] == 3
    assert set(found["totals"]["difference"].values()) == {0}
    assert found["accuracy"] is None


def test_a_larger_buffer_changes_calls_cycles_and_bytes() -> None:
    found = document(SMALL, LARGE)
    assert is_changed(found)
    assert (found["appeared"], found["vanished"]) == ([], [])
    assert found["targets"]["old"]["parameters"]["log_wgt_buffer"] == "12"
    for pair in found["changed"]:
        assert pair["old"]["nodes"] == pair["new"]["nodes"]
        assert pair["old"]["device_calls"] > pair["new"]["device_calls"]
        assert pair["old"]["cost"]["bytes"] > pair["new"]["cost"]["bytes"]
    old, new, difference = (found["totals"][key] for key in ("old", "new", "difference"))
    assert difference == {key: new[key] - old[key] for key in old}
    assert difference["device_calls"] == sum(p["new"]["device_calls"] - p["old"]["device_calls"] for p in found["changed"]) < 0


def test_the_other_way_round_is_the_negative() -> None:
    there, back = document(SMALL, LARGE), document(LARGE, SMALL)
    assert there["totals"]["difference"] == {key: -n for key, n in back["totals"]["difference"].items()}
    assert [(p["old"], p["new"]) for p in there["changed"]] == [(p["new"], p["old"]) for p in back["changed"]]


def shown(answer: Any) -> Mapping[str, Any]:
    assert answer.err == ""
    return json.loads(answer.out)  # type: ignore[no-any-return]


def test_offloads_appear_on_another_target_with_their_accuracy() -> None:
    arguments = ("diff", "hlscnn", "vta", MLP.model, "--shape", "image=1,1,8,8", "--only", "dense", "--data", MLP.data, "--samples", "20")
    refused = flexmatch(*arguments)
    assert (refused.code, refused.err.splitlines()[0]) == (2, 'error[F203]: there is no mapping or rule called "dense"')
    found = shown(flexmatch("diff", "vta", "vta:log_block=5", MLP.model, *arguments[4:6], *arguments[8:], "--json", "-"))
    assert found["accuracy"]["metric"] == "top1"
    assert found["accuracy"]["samples"] > 0
    assert found["accuracy"]["difference"] == found["accuracy"]["new"] - found["accuracy"]["old"]


def test_a_change_can_be_an_answer_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = flexmatch("diff", "vta", "vta:log_block=5", MLP.model, "--shape", "image=1,1,8,8", "--fail-on-change")
    assert answer.code == 1
    assert answer.err.splitlines()[0].endswith("error[F213]: Plans of vta and vta:log_block=5 must be equal, not different")
    assert "device calls" in answer.out
    wrong = flexmatch("diff", SMALL, LARGE, APP.model, "--accel", "vta")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error[F203]: --accel has no place here: diff takes its two targets as OLD and NEW\n")
