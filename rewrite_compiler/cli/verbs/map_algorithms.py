"""flexmatch map --algorithms: native loops, a product on windows, or a product between transposes, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...fit.mapping.clusters import Clusters
    from ...fit.problems.problem import Problem

SCHEMA = "flexmatch.algorithms/1"


def algorithms_document(
    args: argparse.Namespace, layers: Sequence[tuple[str, int, Problem]], clusters: Clusters, constraints: Any
) -> dict[str, Any]:  # fmt: skip
    """Return what every way to compute each layer costs, and the name of the best; InputError says why a layer has no other way."""
    from ...fit.algorithm_choice import algorithm_documents

    answers = []
    for name, repeats, problem in layers:
        ways = algorithm_documents(
            problem, clusters, args.objective, args.free_layout, model=args.model, mapper=args.mapper, budget=args.budget,
            seed=args.seed, constraints=constraints,
        )  # fmt: skip
        best = min(ways, key=lambda way: way["value"])["name"]
        answers.append({"name": name, "repeats": repeats, "best": best, "algorithms": ways})
    layout = "free" if args.free_layout else "priced"
    return {"schema": SCHEMA, "architecture": clusters.name, "objective": args.objective, "layout": layout, "layers": answers}


def algorithms_lines(document: Mapping[str, Any], energy_text: Callable[[int | None], str]) -> list[str]:
    """Return the ways as a table, one row a way of a layer, and the best of each layer named."""
    from ...report.tables import grid

    objective = document["objective"]
    heads = ("layer", "algorithm", "units run", "cycles", "energy", "layout moves", f"{objective} / least", "units")
    rows = []
    for layer in document["layers"]:
        least = min(way["value"] for way in layer["algorithms"])
        for way in layer["algorithms"]:
            sizes = " ".join(f"{d} {n:,}" for d, n in way["problem"]["dimensions"].items() if n > 1)
            ratio = f"{way['value'] / least:.3g}" if least else "1"
            units = f"{100 * way['mapping']['cost']['utilisation']:.0f}%"
            energy = energy_text(way["energy_fj"])
            rows.append((layer["name"], way["name"], sizes, f"{way['cycles']:,}", energy, f"{way['layout_elements']:,}", ratio, units))
    best = [f"{layer['name']}: {layer['best']} has the least {objective}, layouts {document['layout']}" for layer in document["layers"]]
    return [*grid(heads, rows, heads[3:], 0), "", *best]
