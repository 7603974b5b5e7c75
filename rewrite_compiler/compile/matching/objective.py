"""Objectives: lexicographic orders on the costs of programs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from threading import Lock

from ...errors import SpecError, UsageError
from ...fit import Refusal, Tiling
from ...fit.host import SHIPPED, HostTable
from ...fit.mapped_cost import MappedCost, MappedCosts
from ...fit.mapping.clusters import Clusters
from ...fit.mapping.device import device_clusters
from ...ir.types import TensorType
from ...ops.op import AttributeValue
from ...target import Mapping, Resources, Target, body_of

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
MAPPED = "picojoule_microseconds"
PRICE_LEVELS = ("nanoseconds", "moved_bytes", "femtojoules", MAPPED)  # moved: over the links and in the host's memory


@dataclass(frozen=True)
class Objective:
    """An objective with the resources of the targets by name, the host's costs, and memoised tilings."""

    name: str = "offloads"
    resources: MappingOf[str, Resources | None] = field(default_factory=dict)
    host: HostTable = SHIPPED
    unusable: MappingOf[str, str] = field(default_factory=dict)  # targets whose resources are inconsistent, with the reason
    runtime_weights: bool = False  # whether operations may write computed tensors as weights
    tilings: dict[Hashable, Tiling | Refusal] = field(default_factory=dict, compare=False, repr=False)  # memoised searches
    mapped_costs: dict[Hashable, MappedCost] = field(default_factory=dict, compare=False, repr=False)  # of operations
    mapped: MappedCosts = field(default_factory=MappedCosts, compare=False, repr=False)  # of products on targets
    lock: Lock = field(default_factory=Lock, compare=False, repr=False)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The names of the cost levels, the most significant first."""
        return OBJECTIVES[self.name]

    @cached_property
    def clusters(self) -> MappingOf[str, Clusters]:
        """The architectures that mappers see, by target."""
        return {name: device_clusters(name, r) for name, r in self.resources.items() if r is not None}

    @property
    def is_mapped(self) -> bool:
        """Whether mappers price operations."""
        return self.price_level == MAPPED

    def mapped_cost(self, m: Mapping, types: Sequence[TensorType], attributes: MappingOf[str, AttributeValue]) -> MappedCost:
        """Return what an operation on operands of these types costs at the best mappings of its products."""
        key = m.name, tuple(types), tuple(attributes.items())
        with self.lock:  # exact matching runs concurrently
            if key not in self.mapped_costs:
                self.mapped_costs[key] = self.mapped.of(body_of(m, types, attributes), self.clusters[m.target])
        return self.mapped_costs[key]

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
        UsageError: (F203) there is no such objective, or a target lacks the energies or resources that it needs.
    """
    if name not in OBJECTIVES:
        raise UsageError("F203", f'Objective must be one of {", ".join(OBJECTIVES)}, not "{name}"')
    resources, unusable = _resources_of(targets)
    if name == "energy":
        unpriced = [n for n, r in resources.items() if r is None or not r.gives_energies]
        if unpriced:
            verb = "does" if len(unpriced) == 1 else "do"
            raise UsageError("F203", f"Objective energy needs energies with their source, which {' and '.join(unpriced)} {verb} not give")
    unknown = [n for n, r in resources.items() if r is None and n not in unusable]
    if OBJECTIVES[name].count(MAPPED) and unknown:
        verb = "does" if len(unknown) == 1 else "do"
        raise UsageError("F203", f"Objective {name} needs memories and units, which {' and '.join(unknown)} {verb} not give")
    return Objective(name, resources, host, unusable)


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
    return comparable, (*notes, *(f"{m.name} is not used: {why}" for m in unpriced))


def _is_priced_by(m: Mapping, objective: Objective) -> bool:
    return objective.is_mapped or (m.access_counts if objective.price_level == "femtojoules" else m.price) is not None
