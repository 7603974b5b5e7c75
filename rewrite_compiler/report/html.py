"""The report as one HTML page: one script of our own, no network; every name from the model is escaped, and no attribute holds one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .graph import Graph, details, svg
from .terminal import change, counted, number, offload_texts, rule_table, share

HERE = Path(__file__).parent
HINT = "Click a node to see why it went where it did; drag to move, turn the wheel to zoom."
Cell = tuple[str, str]  # class, markup


def page(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None = None, graph: Graph | None = None) -> str:
    """Return the page of a plan, with the accuracy of a co-simulation and the graph of the model when they are given."""
    name = plan["model"]["path"].rsplit("/", 1)[-1]
    title = f"{name} on {', '.join(t['name'] for t in plan['targets'])}"
    accuracy = "" if cosim is None else _accuracy(cosim)
    drawing = "" if graph is None else _graph(graph, [t["name"] for t in plan["targets"]])
    top = [_summary(plan), _tools(), accuracy, drawing]
    parts = [*top, _offloads(plan), _host(plan), _absorbed(plan), _rules(plan), _origin(plan), _again(plan)]
    style, script = ((HERE / file).read_text("utf-8") for file in ("page.css", "page.js"))
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
        '<meta name="viewport" content="width=device-width">', f"<title>{escape(title)}</title><style>{style}</style></head>",
        f"<body><h1>{escape(title)}</h1>", *filter(None, parts), f"<script>{script}</script></body></html>\n",
    ])  # fmt: skip


def _policy(style: str, script: str) -> str:
    """Return the policy under which nothing is loaded and only our own script runs."""
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"


def _tools() -> str:
    return '<div class="tools"><input id="filter" type="search" placeholder="filter tables"><button id="theme">light / dark</button></div>'


def _graph(graph: Graph, targets: Sequence[str]) -> str:
    keys = [(f"t{n % 4}", t) for n, t in enumerate(targets)] + [("host", "host"), ("absorbed", "absorbed")]
    legend = " ".join(f'<span><i class="{kind}"></i> {escape(name)}</span>' for kind, name in keys)
    buttons = '<button id="in">+</button><button id="out">−</button><button id="fit">whole</button>'
    search = '<input id="search" type="search" placeholder="search nodes"><span id="hits"></span>'
    panel = f'<div id="panel"><p id="hint">{HINT}</p>{details(graph)}</div>'
    return section("Model", f'<div class="tools">{search}{buttons}{legend}</div><div class="map">{svg(graph, targets)}{panel}</div>')


def _again(plan: Mapping[str, Any]) -> str:
    """Say how to make this again."""
    model = plan["model"]["path"]
    accel = " ".join(f"--accel {t['name']}{_given(t['parameters'])}" for t in plan["targets"])
    steered = "".join(f" --shape {n}={','.join(map(str, s))}" for n, s in plan.get("settings", {}).get("shapes", {}).items())
    return section("How to make this again", f"<p><code>{escape(f'flexmatch {model} {accel}{steered}')}</code></p>")


def _given(parameters: Mapping[str, str]) -> str:
    return f":{','.join(f'{k}={v}' for k, v in parameters.items())}" if parameters else ""


def _summary(plan: Mapping[str, Any]) -> str:
    model = plan["model"]
    rows = [
        ("model", f"{counted(model['ops'], 'op')}, opset {model['opset']}"),
        *((f"plan{f' {n + 1}' if n else ''}", text) for n, text in enumerate(offload_texts(plan))),
        *(("limited", text) for text in plan["limited"]),
        *(("note", text) for text in plan["notes"]),
    ]
    return _definitions(rows)


def _accuracy(cosim: Mapping[str, Any]) -> str:
    metric = escape(cosim["metric"])
    total = table(
        f"{metric} over {counted(cosim['samples'], 'sample')} of {escape(cosim['data']['source'])}", ("where", metric),
        [
            (text("host, float32"), figure(number(cosim["reference"]["value"]))),
            (text(", ".join(cosim["targets"])), figure(number(cosim["accelerated"]["value"]) + change(cosim["paired"]))),
        ],
    )  # fmt: skip
    largest = max((o["relative_error"] or 0 for o in cosim["offloads"]), default=0) or 1
    rows = [
        (
            text(o["id"]), figure(_percent(o["relative_error"])), _bar((o["relative_error"] or 0) / largest),
            figure(_percent(o["saturated"])), figure(_range(o["range_in"])), figure(_range(o["range_out"])),
        )
        for o in cosim["offloads"]
    ]  # fmt: skip
    compared = f"error of each offload against its meaning, on {counted(cosim['compared_samples'], 'sample')}"
    errors = table(compared, ("offload", "relative error", "", "saturated", "inputs", "results"), rows)
    return section("Accuracy", total + errors) + _attribution(cosim.get("attribution"))


def _attribution(attribution: Mapping[str, Any] | None) -> str:
    """Return the picture of where the loss comes from: a bar for each offload alone and restored, and for each change of a format."""
    if attribution is None:
        return ""
    whole = attribution["accelerated"]
    most = max([t["output_error"] or 0 for t in (whole, *(o["alone"] for o in attribution["offloads"]))]) or 1

    def row(name: str, what: str, trial: Mapping[str, Any]) -> tuple[Cell, ...]:
        error = trial["output_error"] or 0
        return text(name), text(what), figure(number(trial["loss"])), figure(_percent(error)), _bar(min(1, error / most))

    rows = [row("all offloads", "on the device", whole)]
    for o in attribution["offloads"]:
        rows.append(row(o["id"], "alone on the device", o["alone"]))
        rows += [] if o["restored"] is None else [row("", "all but it", o["restored"])]
    rows += [
        row(f["offload"], f"{f['field']} of {f['tensor']}: {f.get('before')} → {f.get('after')}", f) for f in attribution["fields"]
    ]  # fmt: skip
    caption = f"loss of {escape(attribution['metric'])} and relative error of the outputs, on {counted(attribution['samples'], 'sample')}"
    return section("Where the loss comes from", table(caption, ("offload", "run", "loss", "output error", ""), rows))


def _percent(x: float | None) -> str:
    return "–" if x is None else f"{100 * x:.2g}%"


def _range(ends: Sequence[float | None]) -> str:
    return " … ".join(number(x) for x in ends)


def _bar(part: float) -> Cell:
    return "", f'<span class="bar" style="width:{100 * part:.1f}%"></span>'


def _offloads(plan: Mapping[str, Any]) -> str:
    total = sum(o["macs"] for o in plan["offloads"]) + plan["extraction"]["cost"]["host_macs"]
    rows = [
        (
            text(o["id"]), text(f"{o['target']}.{o['operation']}"), text(", ".join(o["nodes"])),
            text(", ".join(f"{d}={n}" for d, n in o["shape"].items())), figure(f"{o['macs']:,}"), figure(share(o["macs"], total)),
            figure(f"{o['device_calls']:,}"), text(", ".join(r["rule"] for r in o["because"])),
        )
        for o in plan["offloads"]
    ]  # fmt: skip
    heads = ("offload", "operation", "stands for", "shape", "MACs", "share", "calls", "rules")
    return section("Offloads", table(counted(len(rows), "offload"), heads, rows))


def _host(plan: Mapping[str, Any]) -> str:
    rows = [(text(h["node"]), text(h["op"]), text(h["why_not"])) for h in plan["host"]]
    return section("On the host, and why", table(counted(len(rows), "node"), ("node", "operator", "why not"), rows))


def _absorbed(plan: Mapping[str, Any]) -> str:
    rows = [(text(a["node"]), text(a["by"])) for a in plan["absorbed"]]
    return section("Absorbed", table(counted(len(rows), "node"), ("node", "by"), rows)) if rows else ""


def _rules(plan: Mapping[str, Any]) -> str:
    rows = [(text(name), text(at), text(grade), figure(str(n))) for (name, at, grade), n in rule_table(plan["offloads"]).items()]
    return section("Rules behind the offloads", table(counted(len(rows), "rule"), ("rule", "written at", "grade", "offloads"), rows))


def _origin(plan: Mapping[str, Any]) -> str:
    model, egraph, cost = plan["model"], plan["egraph"], plan["extraction"]
    calibration = plan["calibration"]
    source = "none"
    if calibration is not None:
        source = f"{calibration['source']}, {counted(calibration['samples'], 'sample')}: {calibration['method']}"
    rows = [
        ("model", f"{model['path']}, sha256 {model['sha256']}"),
        *((t["name"], f"{_parameters(t['parameters'])}sha256 {t['sha256']}") for t in plan["targets"]),
        ("rules", f"sha256 {plan['rules_sha256']}"),
        ("formats", source),
        ("e-graph", f"{egraph['stop']['reason']} after {counted(egraph['rounds'], 'round')}, {egraph['e_nodes']:,} e-nodes"),
        ("extraction", f"{cost['status']}, gap {number(cost['gap'])}"),
        ("schema", plan["schema"]),
    ]
    return section("Where this comes from", _definitions(rows))


def _parameters(parameters: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}, " for key, value in parameters.items())


def section(title: str, body: str) -> str:
    """Return a part of the page under a heading."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def text(words: str) -> Cell:
    """Return a cell of escaped text."""
    return "", escape(words)


def figure(words: str) -> Cell:
    """Return a cell with a number."""
    return "n", escape(words)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table; the caption is markup, heads are text."""
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "\n".join(f"<tr>{''.join(_cell(*cell) for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(kind: str, markup: str) -> str:
    return f'<td class="{kind}">{markup}</td>' if kind else f"<td>{markup}</td>"


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(label)}</dt><dd>{escape(words)}</dd>' for label, words in rows)}</dl>"
