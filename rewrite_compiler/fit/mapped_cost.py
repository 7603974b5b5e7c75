"""What a mapper says of an operation on an accelerator: cycles and energy of its products at their best mappings, memoised.

A product of the operation's meaning is a problem; elementwise work behind it is not counted. An operation without products moves each
element of its operands and results once. What mappers found, or that they found nothing, is kept between runs under the problem, the
architecture, the objective, the budget and the sources of this package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..disk_cache import DiskCache, private_cache_folder, sources_hash
from ..errors import InputError
from ..ir.program import Node, Program
from .mapping.clusters import Clusters
from .models.model import Objective
from .models.published import model_named
from .problems.meaning import problem_of
from .problems.problem import Problem

BUDGETS = (1_000, 20_000)  # evaluations; the second where no mapping of the first is legal
MODEL, SEED = "timeloop", 0
PICO = 10**12
MILLION = 10**6


@dataclass(frozen=True)
class ProductCost:
    """A product at its best mapping."""

    problem: Problem
    cycles: int
    energy_fj: int
    elements: int  # over the outermost link
    evaluated: int
    gap: float | None
    mapping: tuple[Mapping[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """Return the product as JSON."""
        return {
            "problem": self.problem.document(), "cycles": self.cycles, "energy_fj": self.energy_fj, "elements": self.elements,
            "evaluated": self.evaluated, "gap": self.gap, "levels": [dict(m) for m in self.mapping],
        }  # fmt: skip


@dataclass(frozen=True)
class MappedCost:
    """An operation on an architecture: its products, and cycles, energy and elements over the outermost link of all that it does."""

    architecture: Clusters
    products: tuple[ProductCost, ...]
    cycles: int
    energy_fj: int
    elements: int

    @property
    def picoseconds(self) -> int:
        """Time at the architecture's clock."""
        return -(-self.cycles * PICO // self.architecture.hertz)

    @property
    def picojoule_microseconds(self) -> int:
        """Energy times time, rounded up."""
        return -(-self.energy_fj * self.picoseconds // (1000 * MILLION))

    def amount(self, level: str) -> int:
        """Return the cost by the name of a level of an objective; an element is a byte."""
        return {
            "nanoseconds": -(-self.picoseconds // 1000), "moved_bytes": self.elements, "femtojoules": self.energy_fj,
            "picojoule_microseconds": self.picojoule_microseconds,
        }[level]  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Return the cost as JSON."""
        return {
            "model": MODEL, "cycles": self.cycles, "energy_fj": self.energy_fj, "energy_source": self.architecture.source,
            "elements": self.elements, "picojoule_microseconds": self.picojoule_microseconds,
            "products": [p.document() for p in self.products],
        }  # fmt: skip


@dataclass
class MappedCosts:
    """Costs by problem and architecture, kept between runs: `searched` of the products asked for were not there."""

    by_key: dict[str, ProductCost | str] = field(default_factory=dict)  # a sentence where there is none
    searched: int = 0

    @cached_property
    def store(self) -> DiskCache:
        """What mappers found in earlier runs; other objectives never open it."""
        return DiskCache(private_cache_folder("mappings"))

    @property
    def products(self) -> int:
        """Number of different products that were asked for."""
        return len(self.by_key)

    def of(self, meaning: Program, clusters: Clusters, objective: str) -> MappedCost:
        """Return what the meaning of an operation costs on an architecture at the mappings that are best by an objective.

        InputError F232 says why a product has no mapping, or none that can be counted.
        """
        problems = [problem for n in meaning.nodes if (problem := _problem(meaning, n)) is not None]
        costs = tuple(self._product(problem, clusters, Objective(objective)) for problem in problems)
        if costs:
            return MappedCost(
                clusters, costs, sum(p.cycles for p in costs), sum(p.energy_fj for p in costs), sum(p.elements for p in costs)
            )  # fmt: skip
        elements = sum(meaning.types[v].size for v in (*meaning.inputs, *meaning.outputs))
        outer, inner = (clusters.energies[c.name] for c in (clusters.levels[0], clusters.levels[-1]))
        width = next((c.width for c in clusters.levels if c.width is not None), 1)
        return MappedCost(clusters, (), max(-(-elements // width), 1), elements * (outer + inner), elements)

    def _product(self, problem: Problem, clusters: Clusters, objective: Objective) -> ProductCost:
        question = json.dumps([problem.document(), clusters.document(), MODEL, objective, BUDGETS, SEED], sort_keys=True)
        key = hashlib.sha256(f"{_sources()}\n{question}".encode()).hexdigest()
        if key not in self.by_key:
            stored_answer = self.store.get(key)
            if stored_answer is None:
                self.searched += 1
                stored_answer = json.dumps(_searched(problem, clusters, objective)).encode()
                self.store.put(key, stored_answer)
            self.by_key[key] = _answer(problem, json.loads(stored_answer))
        product = self.by_key[key]
        if isinstance(product, str):
            raise InputError("F232", product)
        return product


def _answer(problem: Problem, stored: list[Any] | str) -> ProductCost | str:
    """Return what a search found, or the sentence on why it found nothing."""
    if isinstance(stored, str):
        return stored
    cycles, energy, elements, evaluated, gap, mapping = stored
    return ProductCost(problem, cycles, energy, elements, evaluated, gap, tuple(mapping))


def _searched(problem: Problem, clusters: Clusters, objective: Objective) -> list[Any] | str:
    """Return the figures of a product at its best mapping, or a sentence on why it has none."""
    from .mappers.run import best_mapping

    sentence = ""
    for budget in BUDGETS:
        try:
            result = best_mapping(problem, clusters, model_named(MODEL), objective, budget=budget, seed=SEED)
        except InputError as error:
            sentence = error.problem.sentence
            continue
        cost = result.cost
        return [
            cost.cycles, cost.energy_fj, cost.value(Objective.BYTES), result.evaluated, result.gap, result.best.document(),
        ]  # fmt: skip
    return sentence


def _problem(meaning: Program, n: Node) -> Problem | None:
    """Return the product that a node is; None of any other."""
    op = n.operator
    if op is None or op.macs is None:
        return None
    try:
        return problem_of(op.name, [meaning.types[v].shape for v in n.inputs], **dict(n.attributes))
    except InputError as error:
        if error.problem.code != "F233":
            raise
        return None


@cache
def _sources() -> str:
    package = Path(__file__).parent
    return sources_hash([package / name for name in ("mappers", "mapping", "models", "problems")], [])
