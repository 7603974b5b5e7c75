"""flexmatch show target: resources of shipped targets and of one's own, drawn and as a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import flexmatch

BARE = """
from rewrite_compiler.ila import Ila
from rewrite_compiler.target import Target

target = Target("bare", lambda: Ila("bare", "nothing"))
"""


def test_a_target_is_shown_with_its_parameters() -> None:
    answer = flexmatch("show", "target", "vta:log_wgt_buffer=17", "--json", "-")
    document = json.loads(answer.out)
    assert (answer.code, answer.err, document["parameters"]["log_wgt_buffer"]) == (0, "", "17")
    sizes = {m["name"]: m["capacity_bytes"] for m in document["resources"]["memories"]}
    assert sizes == {"inp": 32 << 10, "wgt": 128 << 10, "acc": 128 << 10, "uop": 32 << 10}
    assert {o["operation"] for o in document["operations"]} >= {"dense"}


def test_a_graph_is_written_for_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = flexmatch("show", "target", "flexasr", "--dot", "graph.dot")
    assert (answer.code, answer.err) == (0, "")
    assert (tmp_path / "graph.dot").read_text("utf-8").startswith('digraph "flexasr" {\n')
    assert "memory large 1,048,576 bytes: 16 banks × 4,096 × 128 bits" in " ".join(answer.out.split())


def test_a_target_without_resources_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.py").write_text(BARE, "utf-8")
    answer = flexmatch("show", "target", "./bare.py")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "bare  no parameters\nresources  none declared: no cost is known\n"


def test_an_unknown_target_is_refused() -> None:
    answer = flexmatch("show", "target", "vtb")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith('error[F201]: there is no accelerator called "vtb"\n  help: did you mean "vta"?')
