"""Rules of installed packages are found by the name of their entry point, judged, and used like those of a file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from command import flexmatch, onnx_model
from onnx import helper

from rewrite_compiler.rewrite.installed_rules import installed_names, installed_rules
from rewrite_compiler.rewrite.ruleset import rules_at

PACKAGE = '''from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o

@rule(grade="A")
def negate_weights(x: Tensor, w: Tensor) -> Law:
    """−(x·wᵀ) = x·(−w)ᵀ"""
    return o.neg(o.dense(x, w)), o.dense(x, o.neg(w))

rules = (negate_weights,)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with an entry point, as pip leaves it."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "algebra_of_mine.py").write_text(PACKAGE, "utf-8")
    about = tmp_path / "site" / "algebra_of_mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: algebra-of-mine\nVersion: 1.0\n", "utf-8")
    (about / "entry_points.txt").write_text("[rewrite_compiler.rules]\nmine = algebra_of_mine\nalso = algebra_of_mine:rules\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("algebra_of_mine", None)


def test_rules_are_found_by_entry_point(installed: Path) -> None:
    assert installed_names() == ["also", "mine"]
    for name in installed_names():
        assert [r.name for r in installed_rules(name)] == ["negate-weights"]
        assert [r.name for r in rules_at(Path(name))] == ["negate-weights"]
    assert isinstance(sys.modules["algebra_of_mine"], ModuleType)


def test_a_package_that_is_installed_or_removed_later_is_noticed(installed: Path) -> None:
    """Into a folder that was read before, as pip does beside a running notebook."""
    assert installed_names() == ["also", "mine"]
    about = installed / "site" / "another-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n", "utf-8")
    (about / "entry_points.txt").write_text("[rewrite_compiler.rules]\nlater = algebra_of_mine\n", "utf-8")
    assert installed_names() == ["also", "later", "mine"]
    shutil.rmtree(about)
    assert installed_names() == ["also", "mine"]


def test_installed_rules_are_judged_and_used(installed: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    weights = onnx.numpy_helper.from_array(np.eye(16, dtype=np.float32), "w")
    onnx.save(onnx_model(nodes, {"x": [1, 16]}, ["y"], [weights]), "neg.onnx")
    answer = flexmatch("neg.onnx", "--accel", "flexasr", "--rules", "mine", "-v")
    assert (answer.code, answer.err) == (0, "")
    assert "negate-weights" in answer.out
    assert "not sent" not in answer.out
    proved = flexmatch("prove", "mine")
    assert proved.code == 0
    assert proved.out.startswith("rules     1 of 1 proved")


def test_a_file_of_the_name_comes_first_and_unknown_names_are_refused(installed: Path) -> None:
    missing = flexmatch("prove", "nothing")
    assert missing.code == 2
    assert missing.err.startswith("error[F101]: there is no rule file nothing")
