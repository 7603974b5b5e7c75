"""Feasibility: whether any mapping keeps the constraints, and which few of them forbid it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import InputError
from ..mapping.constraints import Constraints
from ..mapping.space import Genomes, Index, Space
from ..models.model import CostModel
from ..problems.problem import Projection

PROBE = 4096  # mappings that are drawn when the smallest tiles do not decide


def obstacle(space: Space, model: CostModel) -> str | None:
    """Return why no mapping is legal, None when one is."""
    for d, table in zip(space.problem.names, space.tables, strict=True):
        if not len(table):
            return f"no split of the {space.problem.dimensions[d]:,} steps of {d} keeps them"
    if not space.legal_tilings:
        return "their parts exceed the sub-clusters"
    oversize = _oversize(space)
    if oversize is not None:
        return oversize
    smallest = smallest_tiling(space)
    if space.keeps_rules(smallest).all() and _fits(space, model, smallest):
        return None
    drawn = space.sample(PROBE, np.random.default_rng(0)).factors
    if drawn.shape[1] and _fits(space, model, drawn):
        return None
    if space.tilings <= PROBE * 100 and any(t.shape[1] and _fits(space, model, t) for t in space.every_tiling()):
        return None
    return "no tiling that keeps them is legal" if space.tilings <= PROBE * 100 else f"none of {PROBE:,} tilings that were drawn is legal"


def _oversize(space: Space) -> str | None:
    """Return the memory that one tensor's constrained tile exceeds alone."""
    problem = space.problem
    for row, cluster in enumerate(reversed(space.clusters.levels)):
        if cluster.capacity is None:
            continue
        inside = [k for k, slot in enumerate(space.slots) if slot.row <= row]
        least = {d: int(t[:, inside].prod(axis=1).min()) for d, t in zip(problem.names, space.tables, strict=True)}
        bypassed = space.constraints.bypass.get(cluster.name, ())
        needs = {t: _span(problem.spaces[t], least) for t in problem.spaces if t not in bypassed}
        largest = max(needs, key=lambda t: needs[t], default=None)
        if largest is not None and sum(needs.values()) > cluster.capacity:
            subject = f"{largest} alone takes" if needs[largest] > cluster.capacity else "tiles take"
            need = needs[largest] if needs[largest] > cluster.capacity else sum(needs.values())
            return f"at {cluster.name} {subject} {need:,} of {cluster.capacity:,} elements"
    return None


def _span(axes: tuple[Projection, ...], extent: dict[str, int]) -> int:
    total = 1
    for axis in axes:
        total *= sum(c * (extent[d] - 1) for d, c in axis.items()) + 1
    return total


def smallest_tiling(space: Space) -> Index:
    """Return the tiling whose inner loops are smallest: if no tiling is smaller in a memory, it fits where any does."""
    return np.array([_smallest(space, d) for d in range(len(space.tables))], np.intp).reshape(-1, 1)


def _smallest(space: Space, d: int) -> int:
    """Return the factorisation whose inner loops are smallest."""
    table = space.tables[d]
    return int(np.lexsort([table[:, k] for k in range(table.shape[1])][::-1])[0]) if len(table) else 0


def _fits(space: Space, model: CostModel, factors: np.ndarray) -> bool:
    genomes = Genomes(factors, np.zeros((len(space.ordered_rows), factors.shape[1]), np.intp))
    bypasses = space.constraints.bypasses(space.problem, space.clusters)
    return bool((model.fits(space.clusters, space.batch(genomes), bypasses) & space.keeps_rules(factors)).any())


def check_feasible(space: Space, model: CostModel) -> None:
    """Check that a mapping is legal.

    Raises:
        InputError: none is; the sentence names a minimal set of constraints that forbid it (F232).
    """
    reason = obstacle(space, model)
    if reason is None:
        return
    atoms = space.constraints.atoms()
    if not atoms or obstacle(replace(space, constraints=Constraints()), model) is not None:
        raise InputError(
            "F232", f"No mapping is legal on {space.clusters.name}: {obstacle(replace(space, constraints=Constraints()), model)}"
        )
    names, remaining = _minimal(space, model)
    reason = obstacle(replace(space, constraints=remaining), model)
    relaxed = next(lacking for _, lacking in remaining.atoms())
    count = replace(space, constraints=relaxed).count
    relief = f"relaxing {'this one constraint' if len(names) == 1 else names[0]} leaves {count:,} mappings"
    raise InputError("F232", f"No mapping satisfies the constraints: with {' and '.join(names)}, {reason}; {relief}")


def _minimal(space: Space, model: CostModel) -> tuple[list[str], Constraints]:
    """Drop constraints one by one as long as none is legal without them."""
    constraints, names = space.constraints, []
    while True:
        for name, lacking in constraints.atoms():
            if name not in names and obstacle(replace(space, constraints=lacking), model) is not None:
                constraints = lacking
                break
            if name not in names:
                names.append(name)
        else:
            return names, constraints
