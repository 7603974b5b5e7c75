"""Pins: nodes run where the user says, or the refusal says what is in the way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plan_checks import check_semantics
from small_models import IMAGE, SPELLINGS, node, weight, written

from rewrite_compiler.compile import Options, Plan, compile_model, plan_files, read_plan
from rewrite_compiler.errors import AnswerNo, UsageError

LAYERS = SPELLINGS["two layers and a shortcut"][0]
FIRST, SECOND = "Gemm_h", "Gemm_i"


def on(path: Path, *pins: str, accel: tuple[str, ...] = ("flexasr", "vta")) -> Plan:
    return compile_model(path, accel, Options(on=pins))


def places(plan: Plan) -> dict[str, str]:
    return {n: o.target.name for o in plan.offloads for n in o.nodes} | {h.node: "host" for h in plan.host}


def test_each_node_runs_where_it_is_pinned(model: Path) -> None:
    path = LAYERS(model)
    plan = on(path, f"host={FIRST}", f"vta={SECOND}")
    assert (places(plan)[FIRST], places(plan)[SECOND]) == ("host", "vta")
    assert plan.settings["on"] == [f"host={FIRST}", f"vta={SECOND}"]
    assert plan.extraction["status"] == "optimal"
    check_semantics(plan, path)
    other = places(on(path, f"flexasr={FIRST}", f"flexasr={SECOND}"))
    assert (other[FIRST], other[SECOND]) == ("flexasr", "flexasr")


def test_a_written_plan_keeps_its_pins(model: Path, tmp_path: Path) -> None:
    plan = on(LAYERS(model), f"vta={FIRST}")
    files = plan_files(plan)
    stem = tmp_path / "plan"
    stem.with_suffix(".json").write_text(json.dumps(files.document), "utf-8")
    stem.with_suffix(".onnx").write_bytes(files.onnx)
    assert places(read_plan(stem.with_suffix(".json")))[FIRST] == "vta"


@pytest.mark.parametrize(
    ("pin", "sentence"),
    [
        ("moon=Gemm_h", 'Place of a node must be one of host, flexasr, vta, not "moon"'),
        ("vta=Gemm_none", 'the model has no node called "Gemm_none"'),
    ],
)
def test_a_pin_that_names_nothing_is_refused(pin: str, sentence: str, model: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        on(LAYERS(model), pin)


def test_a_node_has_one_place(model: Path) -> None:
    with pytest.raises(UsageError, match='node "Gemm_h" cannot be both on vta and on host'):
        on(LAYERS(model), f"vta={FIRST}", f"host={FIRST}")


def test_a_pin_that_cannot_be_met_says_why(model: Path) -> None:
    path = written(model, [node("Conv", "x w", "y", group=3)], IMAGE, ["y"], w=weight(3, 1, 3, 3))
    with pytest.raises(AnswerNo) as caught:
        on(path, "hlscnn=Conv_y", accel=("hlscnn",))
    assert caught.value.problem.code == "F216"
    assert caught.value.problem.sentence.startswith('node "Conv_y" cannot be on hlscnn: hlscnn.conv2d')
