"""Views of plans and co-simulations: figures, grouping, columns; the page holds nothing of the model's but escaped text."""

from __future__ import annotations

import copy
import io
import random
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.emit.mmio.listing import Row
from rewrite_compiler.prove.certificates.shipped_certificates import Certificate
from rewrite_compiler.report import tables
from rewrite_compiler.report.graphics.graph import ABSORBED, HOST, OFFLOAD, Box, Graph, layers_of
from rewrite_compiler.report.page.html import Extras, page
from rewrite_compiler.report.page.timeline import Timeline
from rewrite_compiler.report.tables import WIDTH, grid
from rewrite_compiler.report.terminal import cosim_lines, plan_lines, rule_grid, table

REASON = {"rule": "conv2d-as-dense-of-windows", "at": "rules/convolution.py:14", "grade": "A"}
LINEAR = {"rule": "flexasr.linear", "at": "flexasr/linear.py:24", "grade": "E"}


def offload(n: int, target: str = "flexasr", *, calls: int = 1, because: Any = (LINEAR,)) -> dict[str, Any]:
    tiles = {"t": 1, "k": 4080 if calls > 1 else 9000, "n": 16}
    return {
        "id": f"linear_{n}", "target": target, "operation": "linear", "nodes": [f"gemm{n}"], "shape": {"t": 1, "k": 9000, "n": 16},
        "macs": 144_000, "because": list(because), "device_calls": calls, "tiles": tiles,
    }  # fmt: skip


PLAN: dict[str, Any] = {
    "schema": "flexmatch.plan/1", "model": {"path": "models/app.onnx", "sha256": "ab" * 32, "ops": 12, "opset": 13},
    "targets": [{"name": "flexasr", "parameters": {"sigmoid": "3.2"}, "sha256": "cd" * 32}],
    "rules_sha256": "ef" * 32, "calibration": None,
    "counts": {"flexasr": {"linear": 3}, "other": {"linear": 1}}, "exact_counts": {"flexasr": {"linear": 1}, "other": {}},
    "offloads": [
        offload(0, because=[REASON, LINEAR]), offload(1, calls=3), offload(2, calls=3), offload(3, "other", because=[REASON]),
    ],
    "host": [
        {"node": "s1", "op": "Softmax", "why_not": "no mapping for softmax; offered: flexasr.linear"},
        {"node": "s2", "op": "Softmax", "why_not": "no mapping for softmax; offered: flexasr.linear"},
        {"node": "r", "op": "Relu", "why_not": "flexasr.relu (flexasr/linear.py:30): " + "the guard on shapes fails with x (3, 4), " * 4},
    ],
    "absorbed": [{"node": "t", "by": "linear_0"}],
    "egraph": {
        "rounds": 1, "e_nodes": 1234, "e_classes": 99, "growth": [800, 1200], "rules": 70,
        "fired": [
            {"rule": "conv2d-as-dense-of-windows", "at": "rules/convolution.py:14", "matches": 2, "new_nodes": 6},
            {"rule": "flexasr.linear", "at": "flexasr/linear.py:24", "matches": 9, "new_nodes": 3},
        ],
        "stop": {"reason": "saturated", "detail": ""},
    },
    "extraction": {"cost": {"host_macs": 144_000}, "status": "optimal", "gap": 0.0}, "limited": [], "notes": ["dimension 0 was set to 1"],
}  # fmt: skip
COSIM: dict[str, Any] = {
    "metric": "top1", "samples": 500, "targets": ["flexasr"], "data": {"source": "test.npz"}, "compared_samples": 8,
    "reference": {"value": 0.992}, "accelerated": {"value": 0.99},
    "paired": {"difference": -0.002, "interval": [-0.0076, 0.0041], "same_predictions": 0.998},
    "offloads": [
        {"id": f"linear_{n}", "relative_error": e, "saturated": s, "range_in": [0.0, 1.0], "range_out": [-2.0, 2.5],
         "validated_samples": 1, "certified": n > 0}
        for n, (e, s) in enumerate([(0.011, 0.0), (0.052, 0.001), (None, 0.0), (0.03, 0.0), (0.002, 0.0)])
    ],
    "simulator": {"tier": "arrays", "engine": "numerics", "instructions": 63120, "audited": 40, "validated": 5}, "notes": [],
    "run": {"wall_seconds": 5.94, "fallbacks": [{"offload": "linear_2", "why": ["it is wide"], "cpu_seconds": 1.25}]},
}  # fmt: skip


def test_a_plan_in_the_terminal() -> None:
    lines = plan_lines(PLAN, ["app.onnx", "app.json"], "flexmatch cosim app.json --data FILE")
    assert lines == [
        "app.onnx  12 ops · opset 13",
        "matching  saturated after 1 round · 1,234 e-nodes",
        "plan      3 linear on flexasr (as written: 1 linear) · 60.0% of 720,000 MACs",
        "          1 linear on other (as written: none) · 20.0% of 720,000 MACs",
        "tiled     linear_1 and 1 more, each into 3 calls: k=9000; one call takes k=4080",
        "not sent  2 Softmax: no mapping for softmax",
        "          1 Relu: flexasr.relu (flexasr/linear.py:30): the guard on shapes fails with x (3, 4), the",
        "          guard on shapes fails with x (3, 4), the guard on shapes fails with x (3, 4), the guard on",
        "          shapes fails with x (3, 4),",
        "offered   flexasr.linear",
        "note      dimension 0 was set to 1",
        "wrote     app.onnx, app.json",
        "next      flexmatch cosim app.json --data FILE",
    ]


@pytest.mark.parametrize(("count", "names"), [(0, ""), (1, "1 node left out"), (7, "7 nodes left out")])
def test_nodes_that_nothing_reads_are_named(count: int, names: str) -> None:
    absorbed = [{"node": f"n{n}", "by": "nothing reads its result"} for n in range(count)]
    lines = [line for line in plan_lines({**PLAN, "absorbed": [*PLAN["absorbed"], *absorbed]}) if line.startswith("unread")]
    shown = ", ".join(f"n{n}" for n in range(min(count, 5))) + (", …" if count > 5 else "")
    assert lines == ([f"unread    {names}, whose results nothing reads: {shown}"] if count else [])


def test_a_plan_says_what_the_check_against_its_model_found() -> None:
    def notes(**check: Any) -> list[str]:
        return [line for line in plan_lines({**PLAN, "notes": [], "run": {"check": check}}) if line.startswith("note")]

    assert notes() == notes(against="model", defaults="") == []
    assert notes(against="model", defaults="the defaults differ") == ["note      the defaults differ"]
    assert notes(against="not compared", defaults="") == ["note      not compared"]


def test_the_rules_of_a_plan_and_how_many_offloads_they_enabled() -> None:
    assert rule_grid(PLAN) == [
        "  rule                     written at               grade   matches   new nodes   seconds   offloads",
        "  ──────────────────────────────────────────────────────────────────────────────────────────────────",
        "  flexasr.linear           flexasr/linear.py:24     E             9           3         –          3",
        "  conv2d-as-dense-of-win   rules/convolution.py:1   A             2           6         –          2",
        "  dows                     4",
    ]
    assert rule_grid({**PLAN, "egraph": {}}) == []
    assert [line for line in plan_lines(PLAN, verbose=True) if line.split()[:1] == ["rule"]]
    assert not [line for line in plan_lines(PLAN) if line.split()[:1] == ["rule"]]


def test_cells_of_a_table_cannot_steer_a_terminal_and_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = grid(("name", "n"), [("\x1b[31mred[bold]\n" + "x" * 40, "1")], ("n",))
    assert lines == [
        "  name                                 n",
        "  " + "─" * 38,
        "  \\x1b[31mred[bold]\\nxxxxxxxxxxxxxxx   1",
        "  " + "x" * 25,
    ]


def test_a_table_in_a_locale_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    lines = grid(("change", "µs"), [("a → b", "±1"), ("é", "–")], ("µs",))
    assert lines == ["  change     ?s", "  -------------", "  a -> b   +/-1", "  ?           -"]


def test_a_co_simulation_in_the_terminal() -> None:
    assert cosim_lines(COSIM) == [
        "host       top1 0.992  (float32, onnxruntime)",
        "flexasr    top1 0.99  (-0.002, 95% interval -0.008 … +0.005)",
        "samples    500 · 99.8% same predictions",
        "simulator  numerics · arrays · 63,120 instructions · 5.9 s",
        "audited    1 sample of each offload computed again by its driver on the simulator; 40 codes by",
        "           oracle and plain numerics; 4 of 5 proved at these parameters",
        "slow       1 offload without machine code of numerics, of the processor: linear_2 1.2 s",
        "worst      linear_1: relative error 5.2% · 0.1% of outputs saturated",
        "           linear_3: relative error 3.0%",
        "           linear_0: relative error 1.1%",
        "           measured on the first 8 samples",
    ]
    bare = copy.deepcopy(COSIM)
    bare["reference"]["value"] = None
    bare["paired"] = {"difference": None, "interval": None}
    assert cosim_lines(bare)[:2] == ["flexasr    top1 0.99", "samples    500"]


def test_rows_are_aligned_and_wrapped() -> None:
    lines = table([("a", "one"), ("a long label indeed", "two"), ("", "three " * 40), ("empty", "")])
    assert {line.index(word) for line, word in zip(lines, ("one", "two", "three", "three", "three"), strict=False)} == {21}
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if line != line.rstrip()]


class Strict(HTMLParser):
    """Collects elements, attributes and text; every element must be closed by its own end tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.words: list[str] = []
        self.is_inside_word = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update((k, v or "") for k, v in attrs)
        self.is_inside_word = tag == "wbr"
        if tag not in ("meta", "input", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.is_inside_word = False
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.is_inside_word:
            self.words[-1] += data
        else:
            self.words.append(data)


def parsed(text: str) -> Strict:
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser


KNOWN = {
    "html", "head", "header", "main", "nav", "a", "pre", "h3", "meta", "title", "style", "body", "h1", "h2",
    "section", "details", "summary", "small", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "dl", "dt", "dd", "span", "div", "p", "i", "input", "button", "code", "script", "svg", "g", "path", "rect", "text", "defs", "marker",
    "wbr",
}  # fmt: skip
HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</table></html>", "' onload='x", "&lt;b&gt;", "<!--", "`${x}`",
    "]]>", "javascript:alert(1)", "http://example.org/x", "\u202eabc", "\ud800",
]  # fmt: skip


def drawn(name: str) -> Graph:
    """Return a graph with a name in every place."""
    boxes = [Box(name, name, place, name, ((name, name), ("shape", name)), name, ((name, name),)) for place in (OFFLOAD, HOST, ABSORBED)]
    return Graph(tuple(boxes), ((0, 1),))


def extras(name: str) -> Extras:
    """Return what a plan adds to its document, with a name in every place."""
    shown = Timeline(name, 2, "cycles", 30.0, {name: [(0.0, 10.0), (20.0, 30.0)], "run": [(10.0, 20.0)]}, 3, (Row(name, name, name, 4),))
    return Extras(drawn(name), shown, (Certificate(name, name, name, name, name),))


COST = {
    "cycles": 30, "compute_cycles": 10, "transfer_cycles": 20, "bytes": 640, "nanoseconds": 60, "host_nanoseconds": 90, "bound": "transfer",
    "estimated": True, "traffic": {"w": 320, "commands": 320}, "unit": "core", "utilisation": 0.5,
}  # fmt: skip


def tensor(name: str, first: int | None = -3) -> dict[str, Any]:
    """Return what a co-simulation says of a tensor."""
    return {
        "tensor": name, "format": "fixed", "values": 9, "zeros": 1, "saturated": 2, "underflowed": 0, "range": [-1.0, 9.0],
        "largest": 1.984375, "relative_error": 0.25, "histogram": {"first_exponent": first, "counts": [1, 2, 3, 1, 0, 2] if first else []},
    }  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_markup(name: str) -> None:
    plan, cosim = copy.deepcopy(PLAN), copy.deepcopy(COSIM)
    plan["model"]["path"] = plan["targets"][0]["name"] = plan["offloads"][0]["id"] = name
    plan["offloads"][0]["nodes"] = [name]
    plan["offloads"][0]["because"] = [{"rule": name, "at": name, "grade": name}]
    plan["host"][0] = {"node": name, "op": name, "why_not": name}
    plan["absorbed"][0] = {"node": name, "by": name}
    plan["notes"] = plan["limited"] = [name]
    plan["egraph"]["fired"] = [{"rule": name, "at": name, "matches": 3}]
    plan["inserted"] = [{"op": name, "bytes": 8, "for": [name]}]
    plan["offloads"][0]["cost"] = {**COST, "traffic": {name: 640}, "bound": name}
    plan["settings"] = {"shapes": {name: [1, 2]}, "rules": [name], "only": [name]}
    cosim["offloads"][0]["tensors"] = [{**tensor(name), "format": name}, tensor(name, None)]
    cosim["metric"] = cosim["data"]["source"] = cosim["offloads"][0]["id"] = name
    cosim["targets"] = [name]
    found, plain = (
        parsed(page(plan, cosim, extras=extras(name))),
        parsed(page(*plain_documents(), extras=extras("a"))),
    )
    assert found.tags == plain.tags <= KNOWN
    assert found.attributes == plain.attributes
    assert sum(name in words for words in found.words) >= 25


def plain_documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return documents of the same form with harmless names."""
    plan, cosim = copy.deepcopy(PLAN), copy.deepcopy(COSIM)
    plan["targets"][0]["name"] = "a"
    plan["offloads"][0] |= {"cost": {**COST, "traffic": {"w": 640}}, "because": [LINEAR]}
    plan["inserted"] = [{"op": "pad", "bytes": 8, "for": []}]
    plan["limited"] = ["a limit"]
    plan["egraph"]["fired"][0]["matches"] = 3
    cosim["offloads"][0]["tensors"] = [tensor("x"), tensor("y", None)]
    return plan, cosim


def test_the_page_asks_for_nothing_and_shows_the_figures() -> None:
    text = page(PLAN, COSIM)
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    words = " ".join(parsed(text).words)
    for figure in (
        "60.0% of 720,000 MACs",
        "80.0%",
        "20.0%",
        "5.2%",
        "0.992",
        "-0.008 … +0.005",
        "ab" * 32,
        "saturated after 1 round",
        "sigmoid=3.2",
    ):
        assert figure in words
    without = parsed(page(PLAN))
    assert "Accuracy" not in without.words
    assert page(PLAN) == page(copy.deepcopy(PLAN))


def test_a_thousand_nodes_stay_below_two_megabytes() -> None:
    because = [LINEAR, *[REASON] * 12]
    name = "model/encoder/layer_{}/attention/self/output/dense"
    plan = {**PLAN, "offloads": [{**offload(n, because=because), "nodes": [name.format(n)], "cost": COST} for n in range(1000)]}
    seen = [
        {**COSIM["offloads"][0], "cumulative_error": 0.1, "id": f"linear_{n}", "tensors": [tensor(t) for t in "xwby"]} for n in range(1000)
    ]
    rows = tuple(("because", f"{r['rule']} ({r['at']}), grade {r['grade']}") for r in because)
    boxes = tuple(
        Box(name.format(n), "Conv", OFFLOAD, "flexasr", (("offload", name.format(n // 2)), *rows[:5]), "float32[1, 64]", rows[n % 3 :])
        for n in range(1000)
    )
    graph = Graph(boxes, tuple((n, m) for n in range(999) for m in (n + 1, min(n + 7, 999))))
    text = page(plan, {**COSIM, "offloads": seen}, extras=Extras(graph, extras("a").timeline, extras("a").certificates))
    assert len(text.encode("utf-8")) < 2_000_000
    assert "These are the 24 offloads with the largest errors of 1000" in text


def test_what_the_first_screen_says() -> None:
    words = " ".join(parsed(page(PLAN, COSIM)).words)
    assert "no loss is shown; it may be up to 0.008" in words
    lost = {**COSIM, "paired": {**COSIM["paired"], "interval": [-0.02, -0.01]}, "offloads": [{**COSIM["offloads"][0], "saturated": 0.5}]}
    words = " ".join(parsed(page({**PLAN, "limited": ["saturation stopped"]}, lost)).words)
    for said in ("a loss of at least 0.010 is shown", "1 offload saturate at least 1% of their results: linear_0", "saturation stopped"):
        assert said in words
    better = {**COSIM, "lower_is_better": True, "paired": {**COSIM["paired"], "interval": [-0.02, -0.01]}}
    assert "a gain is shown" in page(PLAN, better)
    assert "not measured: flexmatch cosim PLAN --data FILE measures it" in page(PLAN)
    assert "not known: the target does not say" in page(PLAN)


def test_a_histogram_shows_what_the_format_holds() -> None:
    cosim = {**COSIM, "offloads": [{**COSIM["offloads"][0], "tensors": [tensor("x")]}]}
    formats = {"x": {"format": "fixed", "width": 8, "fraction": 6, "signed": True, "rounding": "half_even"}}
    plan = {**PLAN, "offloads": [{**offload(0), "formats": formats}]}
    found = parsed(page(plan, cosim))
    held = [v for k, v in found.attributes if k == "class" and v == "held"]
    assert held
    words = " ".join(found.words)
    assert "largest 1.984; 2 of 9 saturated, 0 become zero; error 25%" in words


def test_layers_follow_the_edges_and_leave_nothing_out() -> None:
    box = Box("n", "Relu", HOST, "", ())
    graph = Graph((box,) * 7, ((0, 2), (1, 2), (2, 3), (0, 3), (5, 4)))
    layers = layers_of(graph)
    depth = {n: k for k, layer in enumerate(layers) for n in layer}
    assert sorted(depth) == list(range(7))
    assert all(depth[a] < depth[b] for a, b in graph.edges)
    assert layers[-1] == [6]
    around = Graph((box,) * 3, ((0, 1), (1, 2), (2, 1)))
    assert sorted(n for layer in layers_of(around) for n in layer) == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.booleans(), st.sampled_from((0, 2)), st.randoms(use_true_random=False))
def test_short_tables_are_laid_out_as_rich_does(count: int, is_narrow: bool, indent: int, r: random.Random) -> None:
    """Tables that fit as they are need no library; cells with spaces at their ends, or that do not fit, go to it."""
    texts = ["", "a", " b", "c ", "×–·…", "1,234", "x" * 30, "long words " * 3 + "end", "ü"]
    heads = [f"{k} {r.choice(texts).strip()}" for k in range(count)]
    rows = [[r.choice(texts) for _ in heads] for _ in range(r.randint(1, 4))]
    figures = [head for head in heads if r.random() < 0.5]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60" if is_narrow else "100")
        lines = grid(heads, rows, figures, indent)
        patch.setattr(tables, "NARROW", frozenset())
        assert lines == grid(heads, rows, figures, indent)
