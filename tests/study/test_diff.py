"""diff: what appears, vanishes or changes between two targets, and what that does to the sums."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import flexmatch

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verbs.diff import lines
from rewrite_compiler.compile import Options, Plan, compile_model, to_json
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import assign, wrap
from rewrite_compiler.study.designs.diff import Sides, compile_both, diff_document, is_changed
from rewrite_compiler.study.designs.specification import changes, word_differences

APP, MLP = find_application("digits_cnn"), find_application("digits_mlp")
SHAPES = {"image": (1, 1, 8, 8)}
SMALL, LARGE = "vta:log_wgt_buffer=12", "vta:log_wgt_buffer=13"


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


def test_bytes_are_those_of_the_plans_over_the_links_by_link() -> None:
    """Those in the host's memory are counted apart."""
    found = document(SMALL, LARGE)
    for side, compiled in (("old", plan(SMALL)), ("new", plan(LARGE))):
        costs = [o["cost"] for o in to_json(compiled)["offloads"]]
        assert found["totals"][side]["bytes"] == sum(c["bytes"] for c in costs) == sum(found["links"][side].values())
        assert found["totals"][side]["host_bytes"] >= sum(c["host_bytes"] for c in costs)
        assert set(found["links"][side]) >= {"host → inp", "host → wgt", "host → acc", "acc → host"}
    said = "\n".join(lines(found))
    assert "host → wgt" in said


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
    assert accuracy["interval"][0] <= accuracy["difference"] <= accuracy["interval"][1]
    changed = round(accuracy["samples"] * accuracy["difference"])
    assert accuracy["better"] - accuracy["worse"] == changed


def test_a_side_without_offloads_is_compared_on_the_same_samples() -> None:
    """HLSCNN takes no product of matrices, so its plan needs no samples to calibrate on."""
    found = diff_document(compile_both("hlscnn", "vta", MLP.model, Options(shapes=SHAPES)), MLP.data, samples=16)
    assert (found["totals"]["old"]["offloads"], found["totals"]["new"]["offloads"]) == (0, 3)
    accuracy = found["accuracy"]
    assert (accuracy["samples"], accuracy["old"]) == (16, accuracy["host"])
    assert accuracy["interval"][0] <= accuracy["difference"] <= accuracy["interval"][1]


def test_targets_are_old_and_new_only() -> None:
    wrong = flexmatch("diff", SMALL, LARGE, APP.model, "--accel", "vta")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error[F203]: --accel has no place here: diff takes its two targets as OLD and NEW\n")
    refused = flexmatch("diff", "hlscnn", "vta", MLP.model, "--only", "dense")
    assert (refused.code, refused.err.splitlines()[0]) == (2, 'error[F203]: there is no mapping or rule called "dense"')


def model(bits: int, *, more: bool = False) -> Ila:
    """Return a device that adds to a register of some bits."""
    m = Ila("adder", "")
    bus = mmio(m, address_bits=8, data_bytes=4)
    total = m.register("total", bits)
    m.instruction("add", bus.write(0), bit_fields("7:0 x"))(lambda x: assign(total, wrap(total[()] + x[()], bits, False)))
    if more:
        m.instruction("clear", bus.write(4))(lambda: assign(total, 0))
    return m


def test_what_differs_between_two_specifications_is_said_in_words() -> None:
    assert changes(model(12), model(12)) == []
    found = {c.subject: word_differences(c.old, c.new) for c in changes(model(12), model(10, more=True))}
    assert found["state total"] == ["12 → 10"]
    assert found["instruction add"] == ["unsigned12 → unsigned10"]
    assert found["instruction clear"][-1] == "only in new: total := 0"
    back = {c.subject: word_differences(c.old, c.new) for c in changes(model(10, more=True), model(12))}
    assert back["instruction clear"][-1] == "only in old: total := 0"


def test_targets_are_told_apart_by_parameters_and_hashes() -> None:
    found = document(SMALL, LARGE)
    assert {c["subject"] for c in found["specification"]} >= {"state wgt"}
    assert found["targets"]["old"]["sha256"] != found["targets"]["new"]["sha256"]
    said = "\n".join(lines(found))
    assert "state wgt: 16 → 32" in said
    assert "log_wgt_buffer=12" in said
    assert found["targets"]["new"]["sha256"][:12] in said
    same = "\n".join(lines(document(SMALL, SMALL)))
    assert "model     the same states and instructions" in same


def test_samples_of_their_own_calibrate_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples of the data are left to the metric; without them the first ones calibrate, of which there must be enough."""
    monkeypatch.chdir(tmp_path)
    data = dict(np.load(MLP.data))
    np.savez("few.npz", **{name: a[:8] for name, a in data.items()})
    given = ("diff", "vta", "vta:log_block=5", MLP.model, "--shape", "image=1,1,8,8")
    refused = flexmatch(*given, "--data", "few.npz")
    assert (refused.code, "help: give more samples, or --calibrate FILE" in refused.err) == (3, True)
    answer = flexmatch(*given, "--data", "few.npz", "--calibrate", MLP.calibration, "--json", "found.json")
    assert answer.code == 0, answer.err
    assert json.loads(Path("found.json").read_text("utf-8"))["accuracy"]["samples"] == 8
    alone = flexmatch(*given, "--calibrate", MLP.calibration)
    assert (alone.code, alone.err) == (
        2, "error[F203]: --calibrate and --calibration-method need --data, whose samples diff runs\n  help: add --data FILE\n"
    )  # fmt: skip
