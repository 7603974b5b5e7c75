"""The front of a whole model: sums of cycles and of energy over its layers, one mapping for each distinct layer, that no other is below.

The product of energy and cycles is not a sum over layers: its least value lies on this front, not in each layer's own least product.
Layers are added one after the other. Where more sums than `MOST` remain, of those within one share of cycles the one of least energy stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST = 512  # sums that are kept from layer to layer
Costs = tuple[int, int]  # cycles, femtojoules


@dataclass(frozen=True)
class ModelPoint:
    """Cycles and energy of a model, and the number of the mapping of each layer on the layer's own front."""

    cycles: int = 0
    energy_fj: int = 0
    choices: tuple[int, ...] = ()

    @property
    def edp(self) -> int:
        """Energy times cycles of the whole model."""
        return self.cycles * self.energy_fj

    def document(self) -> dict[str, Any]:
        """Return the point as JSON."""
        return {"cycles": self.cycles, "energy_fj": self.energy_fj, "choices": list(self.choices)}


@dataclass(frozen=True)
class ModelFront:
    """Points by rising cycles, and whether all that no other sum is below are there."""

    points: tuple[ModelPoint, ...]
    is_complete: bool = True

    def document(self) -> dict[str, Any]:
        """Return the front as JSON."""
        return {"points": [p.document() for p in self.points], "is_complete": self.is_complete}


def model_front(layers: Sequence[tuple[int, Sequence[Costs]]]) -> ModelFront:
    """Return the front of layers: how often each comes, and the costs of the mappings on its own front."""
    front = ModelFront((ModelPoint(),))
    for repeats, costs in layers:
        sums = [
            ModelPoint(p.cycles + repeats * cycles, p.energy_fj + repeats * energy, (*p.choices, number))
            for p in front.points
            for number, (cycles, energy) in enumerate(costs)
        ]
        front = _thinned(replace(front, points=tuple(_undominated(sums))))
    return front


def _undominated(sums: list[ModelPoint]) -> list[ModelPoint]:
    """Return points by rising cycles and falling energy."""
    points: list[ModelPoint] = []
    for p in sorted(sums, key=lambda p: (p.cycles, p.energy_fj)):
        if not points or p.energy_fj < points[-1].energy_fj:
            points.append(p)
    return points


def _thinned(front: ModelFront) -> ModelFront:
    """Keep the first and last point, and the last one in each of equal shares of cycles between them."""
    points = front.points
    if len(points) <= MOST:
        return front
    low, high = math.log(points[0].cycles), math.log(points[-1].cycles)
    shares = {int((math.log(p.cycles) - low) / (high - low) * (MOST - 2)): p for p in points[1:]}
    return ModelFront((points[0], *shares.values()), is_complete=False)
