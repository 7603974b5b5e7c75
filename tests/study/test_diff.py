"""diff: what appears, vanishes or changes between two targets, and what that does to the sums."""

from __future__ import annotations

import json
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


def test_the_command_compares_accuracy_and_answers_no_to_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--shape", "image=1,1,8,8", "--data", MLP.data, "--samples", "20", "--json", "found.json", "--fail-on-change")
    answer = flexmatch("diff", "vta", "vta:log_block=5", MLP.model, *given)
    assert answer.code == 1
    assert answer.err.splitlines()[0].endswith("error[F213]: Plans of vta and vta:log_block=5 must be equal, not different")
    assert "device calls" in answer.out
    accuracy = json.loads(Path("found.json").read_text("utf-8"))["accuracy"]
    assert (accuracy["metric"], accuracy["samples"] > 0) == ("top1", True)
    assert accuracy["difference"] == accuracy["new"] - accuracy["old"]


def test_targets_are_old_and_new_only() -> None:
    wrong = flexmatch("diff", SMALL, LARGE, APP.model, "--accel", "vta")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error[F203]: --accel has no place here: diff takes its two targets as OLD and NEW\n")
    refused = flexmatch("diff", "hlscnn", "vta", MLP.model, "--only", "dense")
    assert (refused.code, refused.err.splitlines()[0]) == (2, 'error[F203]: there is no mapping or rule called "dense"')
