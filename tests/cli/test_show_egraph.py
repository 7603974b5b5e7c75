"""show egraph: the classes around a node, the rules that made their e-nodes, and what is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import flexmatch, refused

SHOW = ("show", "egraph", "app.onnx", "--accel", "flexasr")


def test_a_neighbourhood_has_every_class_in_reach_and_counts_the_rest(folder: Path) -> None:
    answer = flexmatch(*SHOW, "--around", "gemm0", "--steps", "1", "--json", "part.json")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(Path("part.json").read_text())
    shown, cut = ({row["e_class"]: row for row in document[key]} for key in ("shown", "cut"))
    start = shown[document["e_class"]]
    assert start["distance"] == 0
    assert not shown.keys() & cut.keys()
    operands = {c for row in shown.values() for n in row["e_nodes"] for c in n["operands"]}
    assert operands <= shown.keys() | cut.keys()  # nothing beside what is shown is left out silently
    assert all(row["beside"] in shown for row in cut.values())
    rules = {n["rule"] for row in shown.values() for n in row["e_nodes"]}
    assert {"", "add-zero-bias", "flexasr.linear"} <= rules
    assert sum(n["chosen"] for row in shown.values() for n in row["e_nodes"]) >= 1
    assert f"{document['e_nodes']:,} e-nodes in {document['e_classes']:,} e-classes" in answer.out
    assert "add-zero-bias (rules/linear.py:" in answer.out
    whole = json.loads(flexmatch(*SHOW, "--around", "gemm0", "--steps", "99", "--json", "-").out)
    assert (len(whole["shown"]), whole["cut"]) == (document["e_classes"], [])


def test_the_rounds_of_saturation_can_be_few(folder: Path) -> None:
    none = json.loads(flexmatch(*SHOW, "--around", "gemm0", "--rounds", "0", "--json", "-").out)
    late = {"add-zero-bias", "flexasr.linear", "flexasr.linear_relu"}  # zero biases and mappings come after the rounds
    assert {n["rule"] for row in none["shown"] for n in row["e_nodes"]} == {"", *late}
    assert (none["rounds"], none["stop"]["reason"]) == (0, "rounds")


def test_a_page_and_a_graph_for_graphviz(folder: Path) -> None:
    answer = flexmatch(*SHOW, "--around", "gemm0", "--html", "part.html", "--dot", "part.dot")
    assert (answer.code, answer.out.split()) == (0, ["wrote", "part.html", "wrote", "part.dot"])
    page, dot = Path("part.html").read_text(), Path("part.dot").read_text()
    assert "http" not in page.replace("http-equiv", "")
    assert "e-classes around gemm0" in page
    assert dot.count("{") == dot.count("}")
    assert "subgraph cluster_" in dot
    assert "style=dotted" in dot  # what is cut off


@pytest.mark.parametrize(("name", "remedy"), [("gem0", 'did you mean "gemm0"?'), ("nobody", "nodes: ")])
def test_a_node_that_is_not_there(name: str, remedy: str, folder: Path) -> None:
    answer = flexmatch(*SHOW, "--around", name)
    assert answer.code == 2
    assert answer.err.startswith(f'error[F203]: the model has no node or value called "{name}"\n  help: {remedy}')


def test_a_node_must_be_named() -> None:
    refused(flexmatch(*SHOW), 2, "error[F203]: --around is missing\n  help: --around NODE: a node or value of the model")
