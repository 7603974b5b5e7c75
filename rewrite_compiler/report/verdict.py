"""Verdict: what a reader should take away first — coverage, accuracy, cost, completeness — each as good, or as something to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .figures import outwards
from .terminal import change, compared_costs, counted, far_text, macs_in_all, number, offload_texts, share, uncounted_operators

GOOD, LOOK = "✓", "!"
SATURATED = 0.01  # share of saturated results from which on an offload is named
Line = tuple[str, str, str]  # mark, what it is about, sentence


def verdict(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> list[Line]:
    """Return the lines of the first screen."""
    return [*_coverage(plan), *_accuracy(plan, cosim), *_cost(plan), *_completeness(plan)]


def _coverage(plan: Mapping[str, Any]) -> Iterator[Line]:
    host_macs, unknown = plan["extraction"]["cost"]["host_macs"], uncounted_operators(plan)
    for text in offload_texts(plan):
        yield (GOOD if plan["offloads"] else LOOK), "offloaded", text
    busy = [h for h in plan["host"] if "only moves data" not in h["why_not"]]
    left = f"{counted(len(busy), 'node')} that compute and {counted(len(plan['host']) - len(busy), 'node')} that only move data"
    part = f"{'at least ' if unknown else ''}{share(host_macs, macs_in_all(plan))} of the multiply-accumulates"
    yield (LOOK if host_macs or unknown else GOOD), "on the host", f"{left}; {part}{f', {unknown} not counted' if unknown else ''}"


def _accuracy(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> Iterator[Line]:
    if cosim is None:
        how = "flexmatch cosim PLAN --data FILE measures it"
        yield LOOK, "accuracy", f"not measured: {how}" if plan["offloads"] else "as on the host: nothing is offloaded"
        return
    paired, metric = cosim["paired"], cosim["metric"]
    found = f"{metric} {number(cosim['accelerated']['value'])}, on the host in float32 {number(cosim['reference']['value'])}"
    yield _mark(cosim), "accuracy", f"{found}{change(paired)}: {_said(cosim)}, on {counted(cosim['samples'], 'sample')}"
    if far := far_text(cosim["offloads"]):
        yield LOOK, "far off", far
    full = [o["id"] for o in cosim["offloads"] if o["saturated"] >= SATURATED]
    if full:
        yield LOOK, "saturation", f"{counted(len(full), 'offload')} saturate at least 1% of their results: {_few(full)}"
    if cosim["offloads"] and not cosim["simulator"]["validated"]:
        yield LOOK, "audit", "no sample was computed again by commands on the simulator"


def _loss(cosim: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the interval of what is lost, from the least to the most."""
    ends = cosim["paired"]["interval"]
    if ends is None or None in ends:
        return None
    low, high = ends if cosim.get("lower_is_better") else (-ends[1], -ends[0])
    return low, high


def _mark(cosim: Mapping[str, Any]) -> str:
    lost = _loss(cosim)
    return GOOD if lost is not None and lost[0] <= 0 and not far_text(cosim["offloads"]) else LOOK


def _said(cosim: Mapping[str, Any]) -> str:
    lost = _loss(cosim)
    if lost is None:
        return "no interval, so a difference may be chance"
    if lost[0] > 0:
        return f"a loss of at least {outwards(lost)[0]} is shown"
    return "a gain is shown" if lost[1] < 0 else f"no loss is shown; it may be up to {outwards(lost)[1]}"


def _cost(plan: Mapping[str, Any]) -> Iterator[Line]:
    for text, gains in compared_costs(plan["offloads"]):
        yield (GOOD if gains else LOOK), "cost", text
    if plan["offloads"] and not any(o.get("cost") for o in plan["offloads"]):
        yield LOOK, "cost", "not known: the target does not say what its operations take"


def _completeness(plan: Mapping[str, Any]) -> Iterator[Line]:
    for text in plan["limited"]:
        yield LOOK, "limited", text
    if not plan["limited"] and plan["extraction"]["status"] == "optimal":
        yield GOOD, "complete", "no limit stopped the search, and no program that the rules reach is better by the objective"
    for text in plan["notes"]:
        yield LOOK, "note", text


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
