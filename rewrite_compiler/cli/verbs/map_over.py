"""flexmatch map --over: the best mappings at every value of a parameter of the architecture, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...fit.mapping.clusters import Clusters

SCHEMA = "flexmatch.variation/1"
Answer = Callable[["Clusters"], list[dict[str, Any]]]  # of an architecture: the layers' documents


def over_document(text: str, base: Clusters, objective: str, answer: Answer) -> dict[str, Any]:
    """Return the answers at every value of a parameter, and the totals of all layers with their repetitions.

    UsageError F203 says that there is no such parameter or value.
    """
    from ...fit.mapping.variation import variants

    name, rows = variants(text, base)
    points = [_point(v.value, answer(v.clusters)) for v in rows]
    return {"schema": SCHEMA, "architecture": base.name, "parameter": name, "objective": objective, "points": points}


def _point(value: str, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a value with the layers' answers and sums; the objective of several layers is the sum over them."""
    energies = [d["cost"]["energy_fj"] for d in layers]
    cycles = sum(d["repeats"] * d["cost"]["cycles"] for d in layers)
    joules = None if None in energies else sum(d["repeats"] * e for d, e in zip(layers, energies, strict=True))
    bounds = [d["bound"] for d in layers]
    total = sum(d["repeats"] * d["value"] for d in layers)
    least = None if None in bounds else sum(d["repeats"] * d["bound"] for d in layers)
    return {"at": value, "cycles": cycles, "energy_fj": joules, "value": total, "bound": least, "layers": layers}


def over_lines(document: Mapping[str, Any], energy_text: Callable[[int | None], str]) -> list[str]:
    """Return the points as a table: the objective beside the best one, and what a better mapping could save at most."""
    from ...report.tables import grid

    objective, points = document["objective"], document["points"]
    best = min(p["value"] for p in points)
    heads = (document["parameter"], "cycles", "energy", f"{objective} / least", "units", "at most saved")
    rows = [
        (p["at"], f"{p['cycles']:,}", energy_text(p["energy_fj"]), _ratio(p["value"], best), _units(p["layers"]), _saved(p))
        for p in points
    ]  # fmt: skip
    return grid(heads, rows, heads[1:], 0)


def _ratio(value: int, best: int) -> str:
    return f"{value / best:.3g}" if best else "1"


def _units(layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the share of units at work, weighted by cycles."""
    cycles = [d["repeats"] * d["cost"]["cycles"] for d in layers]
    return f"{100 * sum(c * d['cost']['utilisation'] for c, d in zip(cycles, layers, strict=True)) / sum(cycles):.0f}%"


def _saved(point: Mapping[str, Any]) -> str:
    if point["bound"] is None or not point["value"]:
        return "–"
    return f"{100 * max(0.0, 1 - point['bound'] / point['value']):.1f}%"
