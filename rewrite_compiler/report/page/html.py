"""The report as one HTML page: one inline script, nothing loaded; model names are escaped, and no attribute holds one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from ...compile import Plan, to_json
from ...prove.certificates.shipped_certificates import Certificate
from ..graphics.graph import Graph, detail_panels, graph_of, svg
from ..graphics.markup import Cell, figure, folded, note, section, table, text
from ..terminal import count_text, plan_macs, rule_table, share, uncounted_operators, upper_share
from .accuracy import accuracy_section, attribution_section, percent, value_histograms
from .cost import cost_section
from .evidence import certificates_of, certificates_section, saturation_section
from .headline import CSS_CLASSES, headline
from .reproduction import reproduction_section
from .timeline import Timeline, timeline_of, timeline_section
from .verdict import verdict_lines

FOLDER = Path(__file__).parent
STEPS = {"why": "Why these figures", "where": "Where the nodes went", "how": "How, in detail"}
HINT = "Click a node to see why it went where it did; drag to move, turn the wheel to zoom. With the keyboard: Tab and Enter, or search."


@dataclass(frozen=True)
class Extras:
    """What the page shows beyond the plan's document: graph, timeline of one offload, certificates."""

    graph: Graph | None = None
    timeline: Timeline | None = None
    certificates: tuple[Certificate, ...] = ()


def report_page(plan: Plan, cosim: Mapping[str, Any] | None = None, document: Mapping[str, Any] | None = None) -> str:
    """Return the page of a plan, with its co-simulation when there is one."""
    document = document or to_json(plan)
    return page(document, cosim, extras=Extras(graph_of(plan, document, cosim), timeline_of(plan), certificates_of(plan)))


def page(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None = None, graph: Graph | None = None, extras: Extras | None = None) -> str:
    """Return the page of a plan's and a co-simulation's documents, with `extras` or at least a graph."""
    extras = extras or Extras(graph)
    name = plan["model"]["path"].rsplit("/", 1)[-1]
    title = f"{name} on {', '.join(t['name'] for t in plan['targets'])}"
    cosim_sections = (
        [] if cosim is None else [accuracy_section(cosim), value_histograms(cosim, plan), attribution_section(cosim.get("attribution"))]
    )
    drawing = "" if extras.graph is None else _graph(extras.graph, [t["name"] for t in plan["targets"]])
    parts = [
        _step("why"), _host(plan), _absorbed(plan), *cosim_sections[:1], *cosim_sections[2:],
        _step("where"), drawing, _offloads(plan, cosim),
        _step("how"), *cosim_sections[1:2], cost_section(plan),
        "" if extras.graph is None else timeline_section(extras.timeline, bool(plan.get("calibrated"))),
        saturation_section(plan), _rules(plan), certificates_section(extras.certificates), reproduction_section(plan, cosim),
    ]  # fmt: skip
    return document_page(title, _summary(plan, cosim), [p for p in parts if p])


def _step(question: str) -> str:
    """Return the question that the sections below answer."""
    return f'<p class="step">{STEPS[question]}</p>'


def drawing_page(title: str, about: str, graph: Graph, noun: str) -> str:
    """Return a page that is one drawing, with the details of each box at a click."""
    legend = [("t0", "chosen"), ("host", "not chosen"), ("absorbed", "cut off here")]
    drawing = _map(graph, ("chosen",), noun, legend, HINT.replace("a node to see why it went where it did", "a box to see what is in it"))
    return document_page(title, note(about), [section(noun, drawing, "model")])


def document_page(title: str, summary: str, parts: Sequence[str]) -> str:
    """Return a page of sections under a summary."""
    style, script = ((FOLDER / file).read_text("utf-8") for file in ("page.css", "page.js"))
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
        '<meta name="viewport" content="width=device-width">', f"<title>{escape(title)}</title><style>{style}</style></head>",
        f'<body><a class="skip" href="#main">to the report</a><header><h1>{escape(title)}</h1>', summary,
        f'{_tools()}{_contents(parts)}</header><main id="main">', *parts, f"</main><script>{script}</script></body></html>\n",
    ])  # fmt: skip


def _policy(style: str, script: str) -> str:
    """Return the policy under which nothing is loaded and only our own script runs."""
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"


def _summary(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> str:
    """Return the first screen: the three figures, and what else a reader should know before relying on them."""
    model = plan["model"]
    rows = "".join(
        f"<dt>{escape(label)}</dt><dd><span class='mark {CSS_CLASSES[mark]}'>{mark}</span> {escape(words)}</dd>"
        for mark, label, words in verdict_lines(plan, cosim)
    )
    about = escape(f"{count_text(model['ops'], 'op')}, opset {model['opset']}")
    return f"<p class='about'>{about}</p><div class='verdict'>{headline(plan, cosim)}<dl>{rows}</dl></div>"


def _tools() -> str:
    filtering = '<input id="filter" type="search" placeholder="filter all tables" aria-label="filter all tables">'
    return f'<div class="tools">{filtering}<button type="button" id="theme">light / dark</button></div>'


def _contents(parts: Sequence[str]) -> str:
    """Return links to the sections; their addresses and titles are this program's words."""
    links = []
    for part in parts:
        address, _, content = part.removeprefix('<section id="').partition('">')
        if part.startswith('<section id="'):
            links.append(f'<a href="#{address}">{content.partition("<h2>")[2].partition("</h2>")[0]}</a>')
    return f'<nav aria-label="sections">{" ".join(links)}</nav>'


def _graph(graph: Graph, targets: Sequence[str]) -> str:
    keys = [(f"t{n % 4}", t) for n, t in enumerate(targets)] + [("host", "host"), ("absorbed", "absorbed")]
    return section("Model", _map(graph, targets, "nodes", keys, HINT), "model")


def _map(graph: Graph, targets: Sequence[str], noun: str, keys: Sequence[tuple[str, str]], hint: str) -> str:
    """Return a drawing with its tools, its legend, and the panel that says what is chosen."""
    legend = " ".join(f'<span><i class="{kind}"></i> {escape(name)}</span>' for kind, name in keys)
    controls = (("in", "+", "closer"), ("out", "−", "further away"), ("fit", "whole", "the whole drawing"))
    buttons = "".join(f'<button type="button" id="{key}" aria-label="{label}">{sign}</button>' for key, sign, label in controls)
    search_ = (
        f'<input id="search" type="search" placeholder="search {noun}" aria-label="search {noun}"><span id="hits" role="status"></span>'
    )
    panel = f'<div id="panel" aria-live="polite"><p id="hint">{hint}</p>{detail_panels(graph)}</div>'
    return f'<div class="tools">{search_}{buttons}{legend}</div><div class="map">{svg(graph, targets, noun)}{panel}</div>'


def _offloads(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> str:
    part_of = partial(upper_share if uncounted_operators(plan) else share, whole=plan_macs(plan))
    errors = {} if cosim is None else {o["id"]: o for o in cosim["offloads"]}
    rows = [
        (*_offload(o, part_of), *([] if cosim is None else _error(errors.get(o["id"]))), text(_chain(o["because"])))
        for o in plan["offloads"]
    ]
    heads = ("offload", "operation", "stands for", "shape", "MACs", "share", "calls", "cycles", "bytes")
    columns = (*heads, *(() if cosim is None else ("error", "saturated")), "rules")
    offload_table = table(count_text(len(rows), "offload"), columns, rows)
    return section("Offloads", offload_table if rows else note("Nothing is offloaded."), "offloads")


def _offload(o: Mapping[str, Any], part_of: Callable[[float], str]) -> tuple[Cell, ...]:
    cost = o.get("cost")
    cost_cells = [figure("–" if cost is None else f"{cost[key]:,}") for key in ("cycles", "bytes")]
    return (
        ("", f'<button type="button" class="go">{escape(o["id"])}</button>'),
        text(f"{o['target']}.{o['operation']}"), text(", ".join(o["nodes"])),
        text(", ".join(f"{d}={n}" for d, n in o["shape"].items())), figure(f"{o['macs']:,}"), figure(part_of(o["macs"])),
        figure(f"{o['device_calls']:,}"), *cost_cells,
    )  # fmt: skip


def _chain(because: Sequence[Mapping[str, Any]]) -> str:
    """Return the pattern of an offload and how many rules are behind it; the node's own panel lists them."""
    first = because[0]["rule"] if because else ""
    return first if len(because) < 2 else f"{first} and {len(because) - 1} more"


def _error(offload: Mapping[str, Any] | None) -> tuple[Cell, Cell]:
    return (
        (figure("–"), figure("–"))
        if offload is None
        else (figure(percent(offload["relative_error"])), figure(percent(offload["saturated"])))
    )


def _host(plan: Mapping[str, Any]) -> str:
    rows = [(text(h["node"]), text(h["op"]), text(h["why_not"])) for h in plan["host"]]
    return section("On the host, and why", table(count_text(len(rows), "node"), ("node", "operator", "why not"), rows), "host")


def _absorbed(plan: Mapping[str, Any]) -> str:
    rows = [(text(a["node"]), text(a["by"])) for a in plan["absorbed"]]
    return section("Absorbed", table(count_text(len(rows), "node"), ("node", "by"), rows), "absorbed") if rows else ""


def _rules(plan: Mapping[str, Any]) -> str:
    rows = [(text(name), text(at), text(grade), figure(str(n))) for (name, at, grade), n in rule_table(plan["offloads"]).items()]
    heads = ("rule", "written at", "grade", "offloads")
    return folded("Rules behind the offloads", table(count_text(len(rows), "rule"), heads, rows), "rules") if rows else ""
