"""Which algorithm is best: every way to compute a problem, mapped by one mapper and priced with the layouts around it."""

from __future__ import annotations

from typing import Any

from .api import map as mapping_of
from .mapping.clusters import Clusters
from .models.model import Objective
from .problems.algorithms import Algorithm, algorithms
from .problems.problem import Problem


def algorithm_documents(problem: Problem, clusters: Clusters, objective: str, free_layout: bool, **search: Any) -> list[dict[str, Any]]:
    """Return what each way to compute a problem costs, itself first.

    A layout reads or writes each element that it moves once at the outermost memory, at the rate of the narrowest link; with
    `free_layout` it costs nothing. InputError F231, F232 or F233 says why a way cannot be priced.
    """
    return [
        _document(a, clusters, objective, free_layout, mapping_of(a.problem, clusters, objective=objective, **search))
        for a in algorithms(problem)
    ]


def _document(a: Algorithm, clusters: Clusters, objective: str, free_layout: bool, mapping: dict[str, Any]) -> dict[str, Any]:
    outermost = clusters.levels[0].name
    layout_elements = 0 if free_layout else a.layout_elements
    width = min((level.width for level in clusters.levels[1:] if level.width is not None), default=None)
    layout_cycles = 0 if width is None else -(-layout_elements // width)
    cost = mapping["cost"]
    cycles = cost["cycles"] + layout_cycles
    energy = None if cost["energy_fj"] is None else cost["energy_fj"] + layout_elements * clusters.energies.get(outermost, 0)
    values = {
        Objective.CYCLES: cycles, Objective.ENERGY: energy, Objective.BYTES: cost["traffic"][outermost] + layout_elements,
        Objective.EDP: None if energy is None else energy * cycles,
    }  # fmt: skip
    return {
        "name": a.name, "problem": a.problem.document(), "layout_elements": a.layout_elements,
        "layout_cycles": layout_cycles, "cycles": cycles, "energy_fj": energy, "value": values[Objective(objective)], "mapping": mapping,
    }  # fmt: skip
