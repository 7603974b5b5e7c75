"""`explain` of whole models, and the ways to name a node: each kind of name against the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import flexmatch

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.schemas import schema_of

CONVOLUTIONS = ["conv_0", "conv_3"]
FIRST = ["conv_0", "batchnormalization_1", "relu_2"]
SECOND = ["conv_3", "batchnormalization_4", "relu_5"]
ALL = [*FIRST, *SECOND, "maxpool_6", "flatten_7", "gemm_8"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan of the digits network for FlexASR."""
    folder = tmp_path_factory.mktemp("digits")
    (folder / "digits.onnx").write_bytes(find_application("digits_cnn").model.read_bytes())  # type: ignore[union-attr]
    assert flexmatch(folder / "digits.onnx", "--accel", "flexasr", "-q", "-o", folder / "plan").code == 0
    return folder / "plan.json"


def explained(*arguments: object) -> Any:
    """Return the document of `explain`, which must be as its schema says."""
    answer = flexmatch("explain", *arguments, "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    jsonschema.validate(document, schema_of("explain"), jsonschema.Draft202012Validator)
    return document


def test_without_a_node_every_node_has_a_line_in_the_order_of_the_model(plan: Path) -> None:
    rows = explained(plan)["nodes"]
    assert [(r["number"], r["node"]) for r in rows] == list(enumerate(ALL))
    document = json.loads(plan.read_text("utf-8"))
    for r in rows:
        assert r["offloads"] == [o["id"] for o in document["offloads"] if r["node"] in o["nodes"]]
        assert r["place"] == ("offload" if r["offloads"] else "host")
    assert [r["why"] for r in rows if r["place"] == "host"] == [h["why_not"] for h in document["host"]] == ["only moves data"]
    lines = flexmatch("explain", plan).out.splitlines()
    assert sum(any(f" {name} " in line for name in ALL) for line in lines) >= len(ALL)
    assert any(line.split()[:3] == ["7", "flatten_7", "Flatten"] and line.endswith("host: only moves data") for line in lines)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("Conv", CONVOLUTIONS),
        ("conv", CONVOLUTIONS),
        ("*conv*", CONVOLUTIONS),
        ("*_[35]", ["conv_3", "relu_5"]),
        ("linear", [*FIRST, *SECOND, "gemm_8"]),
        ("flexasr.linear", [*FIRST, *SECOND, "gemm_8"]),
        ("linear_[01]", [*FIRST, *SECOND]),
    ],
)
def test_a_name_of_several_nodes_lists_them(plan: Path, text: str, nodes: list[str]) -> None:
    assert [r["node"] for r in explained(plan, text)["nodes"]] == nodes


@pytest.mark.parametrize(
    ("text", "node"), [("7", "flatten_7"), ("0", "conv_0"), ("Gemm", "gemm_8"), ("max_pool", "max_pool_0"), ("max*", "maxpool_6")]
)
def test_a_name_of_one_node_explains_it(plan: Path, text: str, node: str) -> None:
    assert explained(plan, text)["node"] == node


def test_a_tensor_is_the_node_that_gives_it_and_an_input_or_weight_those_that_read_it(folder: Path) -> None:
    assert {text: explained("ready.json", text)["node"] for text in ("y", "h0", "x", "w1")} == {
        "y": "gemm1", "h0": "gemm0", "x": "gemm0", "w1": "gemm1",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["9", "-0", "*dense*", "linear_7", ""])
def test_a_name_of_nothing_is_refused(plan: Path, text: str) -> None:
    answer = flexmatch("explain", plan, "--", text) if text.startswith("-") else flexmatch("explain", plan, text)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f'error[F203]: the model has no node, operator or tensor called "{text}"\n  help: ')


def test_a_host_node_of_a_model_named_by_its_number_has_its_counterfactuals(folder: Path) -> None:
    document = explained("app.onnx", "gemm0", "--accel", "hlscnn")
    assert (document["node"], document["place"]) == ("gemm0", "host")
    assert explained("app.onnx", "0", "--accel", "hlscnn") == document
