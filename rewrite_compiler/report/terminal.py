"""Terminal views: a plan and a co-simulation as lines of at most 100 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

WIDTH = 100


def plan_lines(document: Mapping[str, Any], written: Iterable[str] = (), following: str = "") -> list[str]:
    """Return a plan for people: sizes, matching, offloads by operation, what stays and why."""
    model, egraph = document["model"], document["egraph"]
    lines = [_row(_short(model["path"]), f"{model['ops']} ops · opset {model['opset']}")]
    stop = egraph["stop"]["reason"] if egraph["stop"]["reason"] == "saturated" else f"stopped: {egraph['stop']['detail']}"
    lines.append(_row("matching", f"{stop} after {egraph['rounds']} rounds · {egraph['e_nodes']:,} e-nodes"))
    lines += _offload_lines(document)
    lines += [_row("tiled", text) for text in _tiled(document)]
    lines += _reason_lines(document["host"])
    lines += [_row("limited", text) for text in document["limited"]]
    lines += [_row("note", text) for text in document["notes"]]
    if written:
        lines.append(_row("wrote", ", ".join(written)))
    if following:
        lines.append(_row("next", following))
    return lines


def _offload_lines(document: Mapping[str, Any]) -> list[str]:
    macs = sum(o["macs"] for o in document["offloads"])
    total = macs + document["extraction"]["cost"]["host_macs"]
    lines = []
    for target, counts in document["counts"].items():
        found = ", ".join(f"{n} {operation}" for operation, n in counts.items()) or "no operation"
        exact = ", ".join(f"{n} {operation}" for operation, n in document["exact_counts"][target].items()) or "none"
        lines.append(_row("plan", f"{found} on {target} (as written: {exact}) · {share(macs, total)} of {total:,} MACs"))
    return lines


def share(part: float, whole: float) -> str:
    """Return a percentage, or a dash of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "–"


def _tiled(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{o['id']} into {o['device_calls']} calls of at most {', '.join(f'{d}={n}' for d, n in o['tiles'].items())}"
        for o in document["offloads"] if o["device_calls"] > 1
    ]  # fmt: skip


def _reason_lines(host: Iterable[Mapping[str, str]]) -> list[str]:
    groups = Counter((h["op"], h["why_not"]) for h in host)
    return [_row("not sent" if first else "", f"{n} {op}: {why}") for (op, why), n, first in _numbered(groups)]


def _numbered(groups: Counter[tuple[str, str]]) -> Iterable[tuple[tuple[str, str], int, bool]]:
    for index, (key, n) in enumerate(sorted(groups.items(), key=lambda item: (-item[1], item[0]))):
        yield key, n, index == 0


def _short(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _row(label: str, text: str) -> str:
    """Return one line, a label and what it says, wrapped under the text."""
    pad = max(10, len(label) + 2)
    wrapped = textwrap.wrap(text, WIDTH - pad, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([f"{label:<{pad}}{wrapped[0]}", *(" " * pad + line for line in wrapped[1:])])


def cosim_lines(document: Mapping[str, Any]) -> list[str]:
    """Return a co-simulation for people: the metric on host and accelerator, the paired difference, the worst offloads."""
    reference, accelerated, paired = document["reference"], document["accelerated"], document["paired"]
    metric = document["metric"]
    lines = [_row("host", f"{metric} {_number(reference['value'])}  (float32, onnxruntime)")] if reference["value"] is not None else []
    targets = ", ".join(document["targets"]) or "host"
    change = _number(paired["difference"], signed=True)
    interval = ""
    if paired["interval"] is not None:
        low, high = paired["interval"]
        interval = f", 95% interval {_number(low, signed=True)} … {_number(high, signed=True)}"
    lines.append(_row(targets, f"{metric} {_number(accelerated['value'])}  ({change}{interval})"))
    lines.append(_row("samples", f"{document['samples']}" + _agreement(document)))
    run, simulator = document["run"], document["simulator"]
    lines.append(_row("simulator", f"{simulator['tier']} · {simulator['instructions']:,} instructions · {run['wall_seconds']:.1f} s"))
    worst = sorted((o for o in document["offloads"] if o["relative_error"] is not None), key=lambda o: -o["relative_error"])[:3]
    for n, o in enumerate(worst):
        saturated = f" · {100 * o['saturated']:.2g}% of outputs saturated" if o["saturated"] else ""
        lines.append(_row("worst" if n == 0 else "", f"{o['id']}: relative error {100 * o['relative_error']:.1f}%{saturated}"))
    lines += [_row("note", text) for text in document["notes"]]
    return lines


def _agreement(document: Mapping[str, Any]) -> str:
    same = document["paired"].get("same_predictions")
    return "" if same is None else f" · {100 * same:.1f}% same predictions"


def _number(x: float | None, *, signed: bool = False) -> str:
    if x is None:
        return "–"
    return f"{x:+.4g}" if signed else f"{x:.4g}"
