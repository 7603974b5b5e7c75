"""Programs, plans, co-simulations and certificates as text and as HTML; names of a model never become markup."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from command import perceptron, samples
from test_report_views import parsed

import flexmatch
from rewrite_compiler.report.page import notebook
from rewrite_compiler.rewrite.ruleset import shipped_rules

ATTACK = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def nouns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of each, with the views installed."""
    import onnx

    folder = tmp_path_factory.mktemp("nouns")
    onnx.save(perceptron((16, 8, 4)), folder / "app.onnx")
    plan = flexmatch.compile(folder / "app.onnx", ["flexasr"])
    report = flexmatch.cosimulate(plan, samples(folder / "test.npz", 40, 16, classes=4))
    rule = next(r for r in shipped_rules() if r.name == "add-zero-bias")
    notebook.install()
    return {"plan": plan, "program": plan.program, "report": report, "certificate": flexmatch.prove([rule]).rules[0]}


def test_every_noun_is_shown_as_text_and_as_html(nouns: dict[str, Any]) -> None:
    shown = {name: noun.__rich__() for name, noun in nouns.items()}
    assert shown["plan"].startswith("app.onnx  3 ops · opset 17\n")
    assert "2 linear on flexasr" in shown["plan"]
    assert shown["program"].startswith("program app(x: float32[1, 16])\n")
    assert "flexasr.linear" in shown["program"]
    assert shown["report"].startswith("host       top1 ")
    assert shown["certificate"].startswith("add-zero-bias: proved, grade ")
    for name, noun in nouns.items():
        written: list[str] = []
        noun._repr_pretty_(type("Printer", (), {"text": staticmethod(written.append)}), False)
        assert written == [shown[name]]
    pages = {name: " ".join(parsed(noun._repr_html_()).words) for name, noun in nouns.items()}
    for name, word in {"plan": "linear_0", "program": "flexasr.linear", "report": "top1", "certificate": "proved"}.items():
        assert word in pages[name]


def test_names_of_a_model_are_text(nouns: dict[str, Any]) -> None:
    program = replace(nouns["program"], name=ATTACK, names=(ATTACK,) * len(nouns["program"].names))
    assert "script" not in parsed(notebook.program_html(program)).tags
    plan = replace(nouns["plan"], host=(replace_host(nouns["plan"]),), model={**nouns["plan"].model, "path": f"/{ATTACK}"})
    assert "script" not in parsed(notebook.plan_html(plan)).tags


def replace_host(plan: Any) -> Any:
    """Return a host node whose every word is markup."""
    from rewrite_compiler.compile.plan.plan import HostNode

    return HostNode(ATTACK, ATTACK, ATTACK)


def test_views_are_installed_in_notebooks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(notebook, "install", lambda: done.append(1))
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert flexmatch.__getattr__("cosimulate") is flexmatch.cosimulate
    assert not done
    monkeypatch.setitem(sys.modules, "IPython", sys)
    assert flexmatch.__getattr__("cosimulate") is flexmatch.cosimulate
    assert done


def test_long_programs_are_cut_and_say_so(nouns: dict[str, Any]) -> None:
    p = nouns["program"]
    long = replace(p, nodes=p.nodes * 200)
    hidden = len(long.nodes) - notebook.MAX_NODES
    assert f"{hidden} more are not shown" in notebook.program_html(long)
    assert f"… and {hidden} more" in notebook.program_lines(long)
