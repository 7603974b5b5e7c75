"""Objectives: lexicographic orders on the costs of programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING

from ...errors import InputError, SpecError, UsageError
from ...fit import Refusal, Tiling
from ...fit.host import SHIPPED, HostTable
from ...ir.types import TensorType
from ...ops.op import AttributeValue
from ...target import Mapping, Resources, Target, body_of

if TYPE_CHECKING:
    from ...fit.mapped_cost import MappedCost, MappedCosts
    from ...fit.mapping.clusters import Clusters

# a function of each element costs less than a device call: computing a layer twice to save one would be no gain
LEVELS = ("host_macs", "host_operators", "device_calls", "host_elementwise", "moved_elements")
# objective → its levels; those that are no level above are the time or the bytes of an operator, wherever it runs
OBJECTIVES: MappingOf[str, tuple[str, ...]] = {
    "offloads": LEVELS,
    "macs": ("host_macs", "device_calls", "host_operators", "host_elementwise", "moved_elements"),
    "cycles": ("nanoseconds", *LEVELS),
    "bytes": ("moved_bytes", *LEVELS),
    # devices give energies, the host none: what is left to it decides first
    "energy": ("host_macs", "host_operators", "femtojoules", "device_calls", "host_elementwise", "moved_elements"),
    # of the same work left to the host, the operations whose best mappings have the least product of energy and time
    "edp": ("host_macs", "host_operators", "picojoule_microseconds", "device_calls", "host_elementwise", "moved_elements"),
}
MAPPED, ENERGY = "picojoule_microseconds", "femtojoules"
PRICE_LEVELS = ("nanoseconds", "moved_bytes", ENERGY, MAPPED)  # moved: over the links and in the host's memory


@dataclass(frozen=True)
class Objective:
    """An objective with the resources of the targets by name, the host's costs, and memoised tilings."""

    name: str = "offloads"
    resources: MappingOf[str, Resources | None] = field(default_factory=dict)
    host: HostTable = SHIPPED
    unusable: MappingOf[str, str] = field(default_factory=dict)  # targets whose resources are inconsistent, with the reason
    runtime_weights: bool = False  # whether operations may write computed tensors as weights
    tilings: dict[Hashable, Tiling | Refusal] = field(default_factory=dict, compare=False, repr=False)  # memoised searches
    clusters: MappingOf[str, Clusters] = field(default_factory=dict)  # the architectures that mappers see, by target
    mapped_costs: dict[tuple[Hashable, ...], MappedCost | Refusal] = field(default_factory=dict, compare=False, repr=False)  # of operations
    lock: Lock = field(default_factory=Lock, compare=False, repr=False)

    @cached_property
    def mapped(self) -> MappedCosts:
        """The costs of products on targets at their best mappings."""
        from ...fit.mapped_cost import MappedCosts

        return MappedCosts()

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The names of the cost levels, the most significant first."""
        return OBJECTIVES[self.name]

    @cached_property
    def gives_energies(self) -> bool:
        """Whether every target states its energies with their source."""
        return all(r is not None and r.gives_energies for r in self.resources.values())

    def is_mapped(self, m: Mapping) -> bool:
        """Tell whether mappers price an operation: always for energy times time, else where a target does not say what it costs."""
        if self.price_level in ("", MAPPED):
            return bool(self.price_level)
        return m.price is None if self.price_level != ENERGY else not self.gives_energies or m.access_counts is None

    def mapped_cost(
        self, m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]
    ) -> MappedCost | Refusal:  # fmt: skip
        """Return what an operation on operands of these types costs at the best mappings of its products, or why it has none."""
        key = m.name, tuple(types), tuple(attributes.items())
        with self.lock:  # exact matching runs concurrently
            if key not in self.mapped_costs:
                try:
                    self.mapped_costs[key] = self.mapped.of(body_of(m, types, attributes), self.clusters[m.target], self.name)
                except InputError as error:
                    self.mapped_costs[key] = Refusal(f"no mapper prices it for the objective {self.name}: {error.problem.sentence}")
        return self.mapped_costs[key]

    @property
    def refusal_notes(self) -> tuple[str, ...]:
        """A note on each operation that no mapper priced, with the number of its cases."""
        cases = Counter((str(key[0]), str(cost.limit)) for key, cost in self.mapped_costs.items() if isinstance(cost, Refusal))
        return tuple(f"{name} is left out on {n} {'kind' if n == 1 else 'kinds'} of operands: {why}" for (name, why), n in cases.items())

    @cached_property
    def is_priced(self) -> bool:
        """Whether a level is the time, bytes or energy of operators."""
        return bool(self.price_level)

    @cached_property
    def price_level(self) -> str:
        """The level that is a price of operators, as nanoseconds or moved bytes, empty if all levels are counts."""
        return next((level for level in self.levels if level in PRICE_LEVELS), "")

    @property
    def is_placed(self) -> bool:
        """Whether residency on a device changes the most significant level: it is a price."""
        return self.levels[0] in PRICE_LEVELS

    def by_levels(self, counted: Sequence[int], price: int = 0) -> tuple[int, ...]:
        """Return counts in the order of LEVELS, and a price, reordered to the levels of this objective."""
        values = (*counted, price)
        return tuple([values[k] for k in self.order])

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The index of each level among LEVELS followed by the price."""
        return tuple(LEVELS.index(level) if level in LEVELS else len(LEVELS) for level in self.levels)


OFFLOADS = Objective()


def objective_for(name: str, targets: Sequence[Target], host: HostTable = SHIPPED) -> Objective:
    """Return the objective of a name for targets.

    Raises:
        UsageError: (F203) there is no such objective, or a target lacks the resources that it needs.
    """
    if name not in OBJECTIVES:
        raise UsageError("F203", f'Objective must be one of {", ".join(OBJECTIVES)}, not "{name}"')
    resources, unusable = _resources_of(targets)
    unknown = [n for n, r in resources.items() if r is None and n not in unusable]
    if {MAPPED, ENERGY} & {*OBJECTIVES[name]} and unknown:
        verb = "does" if len(unknown) == 1 else "do"
        raise UsageError("F203", f"Objective {name} needs memories and units, which {' and '.join(unknown)} {verb} not give")
    objective = Objective(name, resources, host, unusable)
    if not objective.price_level:
        return objective
    clusters, refusals = _clusters_of(resources)
    objective = replace(objective, clusters=clusters)
    needs_clusters = objective.price_level == MAPPED or (objective.price_level == ENERGY and not objective.gives_energies)
    return replace(objective, unusable={**unusable, **refusals}) if needs_clusters else objective


def _clusters_of(resources: MappingOf[str, Resources | None]) -> tuple[dict[str, Clusters], dict[str, str]]:
    """Return the architectures that mappers see, and why the others have none."""
    from ...fit.mapping.device import device_clusters

    clusters: dict[str, Clusters] = {}
    refusals: dict[str, str] = {}
    for name, r in resources.items():
        if r is not None:
            try:
                clusters[name] = device_clusters(name, r)
            except InputError as error:
                refusals[name] = error.problem.sentence
    return clusters, refusals


def _resources_of(targets: Sequence[Target]) -> tuple[dict[str, Resources | None], dict[str, str]]:
    """Return the resources of targets by name, and the refusals of inconsistent ones."""
    resources, refusals = dict[str, Resources | None](), dict[str, str]()
    for t in targets:
        try:
            resources[t.name] = t.resources()
        except SpecError as error:
            resources[t.name], refusals[t.name] = None, sentence_with_line(error)
    return resources, refusals


def sentence_with_line(error: SpecError) -> str:
    """Return a refusal's sentence, with the file and line of the function that is to blame; a plan does not depend on folders."""
    line = PurePath(error.problem.place).name
    return f"{error.problem.sentence} ({line})" if line else error.problem.sentence


def comparable_mappings(mappings: Sequence[Mapping], objective: Objective) -> tuple[list[Mapping], tuple[str, ...]]:
    """Return the mappings with the costs that an objective compares, and a note on each without."""
    notes = tuple(f"{name} is not used: {sentence}" for name, sentence in objective.unusable.items())
    mappings = [m for m in mappings if m.target not in objective.unusable]
    if not objective.is_priced:
        return list(mappings), notes
    comparable = [m for m in mappings if objective.resources[m.target] is not None and _is_priced_by(m, objective)]
    unpriced = [m for m in mappings if m not in comparable]
    why = f"objective {objective.name} needs its cost, which the target does not give"
    return comparable, (*notes, *(f"{m.name} is not used: {why}" for m in unpriced), *_mapper_notes(comparable, objective))


def _is_priced_by(m: Mapping, objective: Objective) -> bool:
    return m.target in objective.clusters if objective.is_mapped(m) else True


def _mapper_notes(mappings: Sequence[Mapping], objective: Objective) -> tuple[str, ...]:
    """Return a note on what mappers price because a target does not say what it costs."""
    mapped = [m for m in mappings if objective.is_mapped(m)]
    if objective.price_level == MAPPED or not mapped:
        return ()
    if objective.price_level == ENERGY and not objective.gives_energies:
        silent = [name for name, r in objective.resources.items() if r is not None and not r.gives_energies]
        subject = f"{' and '.join(silent)} {'gives' if len(silent) == 1 else 'give'} no energies"
    else:
        subject = f"the costs of {', '.join(m.name for m in mapped)} are not given"
    return (f"{subject}: mappers price operations for the objective {objective.name}",)
