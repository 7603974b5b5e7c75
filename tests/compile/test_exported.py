"""Models as exporters write them: what each accelerator takes is what a person counts, and the plan gives the model's numbers."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest
from plan_checks import check_account, check_semantics

from rewrite_compiler.compile import compile_model

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "exported"
FILES = {path.name.split(".")[0]: path for path in sorted(FOLDER.glob("*.onnx.xz"))}
TARGETS = ("flexasr", "vta", "hlscnn")


def by_hand() -> dict[tuple[str, str], dict[str, int]]:
    """Return the counts of the documentation's table by model and target."""
    text = (ROOT / "docs" / "explanation" / "flexible-matching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", text.split("## Counts by hand")[1].split("\n## ")[0], re.M)
    counts = {}
    for model, cells in rows:
        for target, cell in zip(TARGETS, cells.split("|")[1:], strict=True):
            counts[model, target] = {op: int(n) for n, op in re.findall(r"(\d+) (\w+)", cell)}
    return counts


BY_HAND = by_hand()
# what only has to come in with the numbers of the model: the loops of Keras, and activations that are quantised at run time
MORE = {
    ("gru_loop", "flexasr"): {"linear": 18, "rnn": 9},  # of each step two gates; the candidate is a step of an RNN from r·h
    ("gru_loop", "vta"): {"dense": 27},
    ("convlstm", "hlscnn"): {"conv2d": 20},
    ("residual_keras", "flexasr"): {"linear": 4, "mean_pool": 1},  # two of them convolutions
    ("autoencoder_dynamic", "vta"): {"conv2d": 5, "dense": 2},
}


@pytest.mark.parametrize(("model", "target"), [*BY_HAND, *MORE], ids=[" on ".join(case) for case in (*BY_HAND, *MORE)])
def test_a_person_counts_the_same(model: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / f"{model}.onnx"
    path.write_bytes(lzma.decompress(FILES[model].read_bytes()))
    plan = compile_model(path, [target])
    assert plan.counts[target] == {**BY_HAND, **MORE}[model, target]
    if (model, target) in BY_HAND:  # the others have several operations from one node
        check_account(plan)
    check_semantics(plan, path)


def test_every_file_is_counted() -> None:
    assert {model for model, _ in (*BY_HAND, *MORE)} == set(FILES)
    assert {target for _, target in BY_HAND} == set(TARGETS)
