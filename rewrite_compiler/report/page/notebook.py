"""Views of programs, plans, co-simulations and certificates in Jupyter and rich; installed once, from above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ...compile import Plan, to_json
from ...cosim import Report
from ...ir.program import Program
from ...prove.verdict import Proof
from ..terminal import cosim_lines, plan_lines
from .headline import Tile, tiles

MAX_NODES = 200  # nodes of a program
Row = Sequence[str]


def install() -> None:
    """Give each class of VIEWS its `__rich__`, `_repr_html_` and `_repr_pretty_`; idempotent."""
    for noun, lines, html in VIEWS:
        noun.__rich__ = lambda self, lines=lines: "\n".join(lines(self))
        noun._repr_html_ = lambda self, html=html: html(self)
        noun._repr_pretty_ = lambda self, printer, _, lines=lines: printer.text("\n".join(lines(self)))


def program_lines(p: Program) -> list[str]:
    """Return a program as lines: its inputs, each operation, its outputs."""
    rows = [f"{p.names[n.outputs[0]]}: {p.types[n.outputs[0]]} = {n.op}({', '.join(p.names[v] for v in n.inputs)})" for n in p.nodes]
    omission = [f"… and {len(rows) - MAX_NODES} more"] if len(rows) > MAX_NODES else []
    inputs = ", ".join(f"{p.names[v]}: {p.types[v]}" for v in p.inputs)
    return [
        f"program {p.name}({inputs})",
        *(f"  {r}" for r in rows[:MAX_NODES]),
        *omission,
        f"  gives {', '.join(p.names[v] for v in p.outputs)}",
    ]


def program_html(p: Program) -> str:
    """Return a program as a table."""
    rows = [(p.names[n.outputs[0]], n.op, ", ".join(p.names[v] for v in n.inputs), str(p.types[n.outputs[0]])) for n in p.nodes[:MAX_NODES]]
    omission = f"; {len(p.nodes) - MAX_NODES} more are not shown" if len(p.nodes) > MAX_NODES else ""
    return _table(f"{p.name}: {len(p.nodes)} operations{omission}", ("value", "operation", "reads", "type"), rows)


def plan_html(plan: Plan) -> str:
    """Return a plan as tables: offloads with their rules, and host nodes with the reasons."""
    d = to_json(plan)
    offloads = [
        (o["id"], f"{o['target']}.{o['operation']}", ", ".join(o["nodes"]), f"{o['macs']:,}", ", ".join(r["rule"] for r in o["because"]))
        for o in d["offloads"]
    ]
    host = [(h["node"], h["op"], h["why_not"]) for h in d["host"]]
    heads = ("offload", "operation", "stands for", "MACs", "rules")
    return _table(plan_lines(d)[0], heads, offloads) + _table("on the host", ("node", "operator", "why not"), host)


def report_html(report: Report) -> str:
    """Return a co-simulation as its figures with their reasons, then as text."""
    plan = {} if report.plan is None else to_json(report.plan)
    figures = "".join(map(_tile_html, tiles(plan, report.document))) if plan else ""
    return (
        f"<div style='display:flex;flex-wrap:wrap;gap:2em'>{figures}</div><pre>{escape(chr(10).join(cosim_lines(report.document)))}</pre>"
    )


def _tile_html(tile: Tile) -> str:
    """Return one figure with inline style, since a notebook has no style sheet of ours."""
    reasons = "".join(f"<div>{escape(r)}</div>" for r in tile.reasons)
    figure = f"<div style='font-size:2em'>{escape(tile.figure)} <small style='font-size:.5em'>{escape(tile.note)}</small></div>"
    return f"<div style='max-width:22em'><b>{tile.mark} {escape(tile.label)}</b>{figure}{reasons}</div>"


def proof_lines(p: Proof) -> list[str]:
    """Return a certificate as lines."""
    counterexample = [f"  {p.counterexample}"] if p.counterexample is not None else []
    return [f"{p.name}: {p.verdict}, grade {p.grade}", f"  {p.strength} · {p.evidence}", *counterexample]


def proof_html(p: Proof) -> str:
    """Return a certificate as a table."""
    rows = [("verdict", p.verdict), ("covers", p.strength), ("evidence", p.evidence), ("grade", p.grade), ("written at", p.at)]
    return _table(p.name, ("", ""), rows + ([("counter-example", str(p.counterexample))] if p.counterexample is not None else []))


def _table(caption: str, heads: Row, rows: Iterable[Row]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


VIEWS: tuple[tuple[Any, Any, Any], ...] = (
    (Program, program_lines, program_html),
    (Plan, lambda plan: plan_lines(to_json(plan)), plan_html),
    (Report, lambda report: cosim_lines(report.document), report_html),
    (Proof, proof_lines, proof_html),
)
