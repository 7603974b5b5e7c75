"""The architectures of the gallery: what flexible matching finds in each, and the verb that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from rewrite_compiler.apps import GALLERY, Architecture
from rewrite_compiler.cli.main import main
from rewrite_compiler.compile import compile_model


def closed_form(model: onnx.ModelProto) -> int:
    """Count what a linear layer can take one to one: convolutions that are not grouped, products with a weight."""
    weights = {w.name for w in model.graph.initializer}
    found = 0
    for n in model.graph.node:
        groups = next((a.i for a in n.attribute if a.name == "group"), 1)
        found += (n.op_type == "Conv" and groups == 1) or (n.op_type in ("Gemm", "MatMul") and n.input[1] in weights)
    return found


@pytest.mark.parametrize("a", GALLERY, ids=lambda a: a.name)
def test_what_is_found_in_an_architecture(a: Architecture, tmp_path: Path) -> None:
    model = a.build()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    plan = compile_model(path, ["flexasr"])
    assert plan.counts["flexasr"] == a.offloads
    assert a.offloads["linear"] == closed_form(model)
    assert (plan.extraction["status"], plan.extraction["gap"], plan.limited) == ("optimal", 0, ())


@pytest.mark.parametrize("a", GALLERY, ids=lambda a: a.name)
def test_the_linear_layers_of_an_architecture(a: Architecture) -> None:
    first, second = a.build(), a.build()
    assert first.SerializeToString() == second.SerializeToString()
    assert a.offloads["linear"] == closed_form(first)


def test_a_demo_of_an_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "language_model", "-o", "lm.onnx", "--json", "demo.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "language_model: 35 words: an LSTM and a linear layer"
    assert lines[-2:] == [
        "note      the weights are drawn: no accuracy to compare, nothing is co-simulated",
        "wrote     lm.onnx",
    ]
    document = json.loads(Path("demo.json").read_text())
    assert document["cosim"] is None
    assert document["plan"]["model"]["path"] == "lm.onnx"
    assert document["plan"]["counts"] == {"flexasr": {"linear": 1, "lstm": 1}}
