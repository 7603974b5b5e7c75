"""The lines below the headline: work on the host, large errors, completeness of the search, each with a mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..terminal import count_text, inaccurate_text, plan_macs, share, uncounted_operators
from .headline import GOOD, LOOK, Mark

SATURATED = 0.01  # share of saturated results from which on an offload is named
Line = tuple[Mark, str, str]  # mark, what it is about, sentence


def verdict_lines(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> list[Line]:
    """Return the lines below the headline as (mark, label, sentence)."""
    return [*_coverage(plan), *([] if cosim is None else _accuracy(cosim)), *_completeness(plan)]


def _coverage(plan: Mapping[str, Any]) -> Iterator[Line]:
    host_macs, unknown = plan["extraction"]["cost"]["host_macs"], uncounted_operators(plan)
    compute_nodes = [h for h in plan["host"] if "only moves data" not in h["why_not"]]
    moves = len(plan["host"]) - len(compute_nodes)
    nodes_text = f"{count_text(len(compute_nodes), 'node')} that compute and {count_text(moves, 'node')} that only move data"
    macs_text = f"{'at least ' if unknown else ''}{share(host_macs, plan_macs(plan))} of the multiply-accumulates"
    yield (
        (LOOK if host_macs or unknown else GOOD),
        "on the host",
        f"{nodes_text}; {macs_text}{f', {unknown} not counted' if unknown else ''}",
    )


def _accuracy(cosim: Mapping[str, Any]) -> Iterator[Line]:
    if far_sentence := inaccurate_text(cosim["offloads"]):
        yield LOOK, "far off", far_sentence
    saturated_ids = [o["id"] for o in cosim["offloads"] if o["saturated"] >= SATURATED]
    if saturated_ids:
        yield (
            LOOK,
            "saturation",
            f"{count_text(len(saturated_ids), 'offload')} saturate at least 1% of their results: {_first_few(saturated_ids)}",
        )
    if cosim["offloads"] and not cosim["simulator"]["validated"]:
        yield LOOK, "audit", "no sample was computed again by commands on the simulator"


def _completeness(plan: Mapping[str, Any]) -> Iterator[Line]:
    for text in plan["limited"]:
        yield LOOK, "limited", text
    if not plan["limited"] and plan["extraction"]["status"] == "optimal":
        yield GOOD, "complete", "no limit stopped the search, and no program that the rules reach is better by the objective"
    for text in plan["notes"]:
        yield LOOK, "note", text


def _first_few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
