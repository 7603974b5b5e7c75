"""A model whose every name attacks: terminal, JSON, page, SVG and Graphviz show it as text, in every locale and width."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as Xml
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch, process
from onnx import helper, numpy_helper

ATTACK = '\x1b[31m"]; a -> b;\nnext      rm -rf /<script>alert(1)</script>\r\u202e\x07\x9b\\'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the model."""
    monkeypatch.chdir(tmp_path)
    weight = numpy_helper.from_array(np.eye(16, dtype=np.float32), f"w{ATTACK}")
    nodes = [
        helper.make_node("MatMul", ["x", f"w{ATTACK}"], [f"a{ATTACK}"], name=f"product{ATTACK}"),
        helper.make_node("Softmax", [f"a{ATTACK}"], ["s"], name=f"softmax{ATTACK}"),
        helper.make_node(f"Odd{ATTACK}", ["s"], ["y"], name=f"odd{ATTACK}", domain="mine"),
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 16]) for name in ("x", "y", "s")]
    graph = helper.make_graph(nodes, f"g{ATTACK}", ends[:1], ends[1:2], [weight], value_info=ends[2:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "app.onnx")
    return tmp_path


def harmless(text: str) -> bool:
    """Tell whether nothing in a text steers a terminal and no line of it is the attack's own."""
    return all(c.isprintable() or c == "\n" for c in text) and not re.search(r"^next      rm", text, re.MULTILINE)


def test_every_surface_shows_names_as_text(here: Path) -> None:
    made = flexmatch("app.onnx", "--accel", "flexasr", "-v", "--html", "page.html")
    assert made.code == 0
    assert "Odd\\x1b[31m" in made.out
    shown = flexmatch("show", "app.flexasr.json", "--svg", "graph.svg", "--dot", "graph.dot", "-v")
    node = json.loads(Path("app.flexasr.json").read_text("utf-8"))["offloads"][0]["nodes"][0]
    assert node == f"product{ATTACK}"
    told = [flexmatch("explain", "app.flexasr.json", n) for n in (node, f"softmax{ATTACK}", "nothing")]
    assert [t.code for t in told] == [0, 0, 2]
    assert all(harmless(x.out + x.err) for x in (made, shown, *told))
    drawn = Xml.fromstring(Path("graph.svg").read_bytes())
    assert not list(drawn.iter("{http://www.w3.org/2000/svg}script"))
    assert "<script>" not in Path("page.html").read_text("utf-8").partition("<script>")[2].partition("</script>")[2]
    dot = Path("graph.dot").read_text("utf-8")
    assert harmless(dot)
    assert re.fullmatch(
        r'digraph "[^"]*" \{\n  node [^\n]*\n(  n\d+ \[label="(?:[^"\\]|\\.)*", fillcolor="#\w+"\];\n)+(  n\d+ -> n\d+;\n)+\}\n', dot
    )
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg", "graph.dot", "-o", "dot.svg"], check=True)


def test_the_classes_around_a_node_are_shown_as_text(here: Path) -> None:
    around = ("show", "egraph", "app.onnx", "--accel", "flexasr", "--around", f"product{ATTACK}")
    shown, written = flexmatch(*around), flexmatch(*around, "--html", "page.html", "--dot", "graph.dot")
    assert (shown.code, written.code) == (0, 0)
    assert "Odd" in shown.out
    dot = Path("graph.dot").read_text("utf-8")
    assert all(map(harmless, (shown.out, written.out, dot)))
    words = re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot)  # what is not quoted is ours
    assert not set(re.findall(r"\w+", words)) & {"a", "b", "script", "next"}
    assert "<script>" not in Path("page.html").read_text("utf-8").partition("<script>")[2].partition("</script>")[2]
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg", "graph.dot", "-o", "dot.svg"], check=True)
    timed = flexmatch("bench", "app.onnx", "--accel", "flexasr", "--runs", "1", "-v", "--json", "bench.json")
    assert timed.code == 0
    assert harmless(timed.out + timed.err)


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "ja_JP.SJIS"])
def test_no_home_a_narrow_terminal_and_a_locale_without_unicode(locale: str, here: Path) -> None:
    plain = {"LC_ALL": locale, "LANG": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "80", "HOME": "/nonexistent"}
    run = process(
        "app.onnx",
        "--accel",
        "flexasr",
        "-o",
        "plan",
        env={**plain, "PYTHONIOENCODING": "ascii:strict", "FLEXMATCH_CACHE": "/nonexistent/cache"},
    )
    assert (run.returncode, run.stderr) == (0, b"")
    text = run.stdout.decode("ascii")
    assert harmless(text)
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(process("show", "plan.json", "--json", "-", env=plain).stdout.decode("utf-8"))
    assert document["offloads"][0]["nodes"] == [f"product{ATTACK}"]


def test_a_folder_that_cannot_be_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    answer = flexmatch("app.onnx", "--accel", "flexasr", "--html", "page.html")
    assert (answer.code, answer.out, answer.new) == (2, "", ())
    assert answer.err == "error[F100]: page.html cannot be written: no permission to write in .\n  help: choose another folder\n"
