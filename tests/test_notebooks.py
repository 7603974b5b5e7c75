"""Every notebook runs from top to bottom and prints what it shows; nouns are shown as tables."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rewrite_compiler.report.page.notebook import install

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell as a notebook does; return what it printed and the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # type: ignore[attr-defined]
    return out.getvalue(), value


def pretty(value: Any) -> str:
    """Return the text of a value as IPython prints it."""
    if not hasattr(value, "_repr_pretty_"):
        return repr(value)
    parts: list[str] = []
    value._repr_pretty_(SimpleNamespace(text=parts.append), False)
    return "".join(parts)


def test_there_are_three() -> None:
    assert [p.stem for p in NOTEBOOKS] == ["first-accelerator", "first-model", "first-rule"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_computes(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    install()
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in cells)
    for cell in cells:
        printed, value = run_cell("".join(cell["source"]), names)
        shown = {kind: "".join(text) for o in cell["outputs"] for kind, text in (o.get("data") or {"stream": o["text"]}).items()}
        assert printed == shown.get("stream", "")
        if value is not None:
            assert value._repr_html_().replace(f"{tmp_path}/", "").partition("</table>")[0] == shown["text/html"].partition("</table>")[0]
            assert pretty(value).replace(f"{tmp_path}/", "").split() == shown["text/plain"].split()
