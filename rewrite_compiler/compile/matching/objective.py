"""Objectives: what makes one program cheaper than another, level by level."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

from ...errors import SpecError, UsageError
from ...fit import Refusal, Tiling
from ...fit.host import SHIPPED, HostTable
from ...target import Mapping, Resources, Target

# a function of each element costs less than a device call: computing a layer twice to save one would be no gain
LEVELS = ("host_macs", "host_operators", "device_calls", "host_elementwise", "moved_elements")
# objective → its levels; those that are no level above are the time or the bytes of an operator, wherever it runs
OBJECTIVES: MappingOf[str, tuple[str, ...]] = {
    "offloads": LEVELS,
    "macs": ("host_macs", "device_calls", "host_operators", "host_elementwise", "moved_elements"),
    "cycles": ("nanoseconds", *LEVELS),
    "bytes": ("bytes", *LEVELS),
    # devices give energies, the host none: what is left to it decides first
    "energy": ("host_macs", "host_operators", "femtojoules", "device_calls", "host_elementwise", "moved_elements"),
}
SPENT = ("nanoseconds", "bytes", "femtojoules")


@dataclass(frozen=True)
class Objective:
    """An objective, and the resources of the targets by name where it needs them."""

    name: str = "offloads"
    resources: MappingOf[str, Resources | None] = field(default_factory=dict)
    host: HostTable = SHIPPED
    unusable: MappingOf[str, str] = field(default_factory=dict)  # targets whose resources are refused, and why
    tilings: dict[Hashable, Tiling | Refusal] = field(default_factory=dict, compare=False, repr=False)  # what was searched before
    searching: Lock = field(default_factory=Lock, compare=False, repr=False)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The names of what is counted, the most important first."""
        return OBJECTIVES[self.name]

    @cached_property
    def is_priced(self) -> bool:
        """Tell whether an operator's time, bytes or energy are among what decides."""
        return bool(self.spends)

    @cached_property
    def spends(self) -> str:
        """The level that operators spend, nothing where only their number counts."""
        return next((level for level in self.levels if level in SPENT), "")

    @property
    def is_placed(self) -> bool:
        """Tell whether what stays on a device is cheaper: where time or bytes come first."""
        return self.levels[0] in SPENT

    def ordered(self, counted: Sequence[int], spent: int = 0) -> tuple[int, ...]:
        """Return counts that stand as LEVELS in the order of this objective, behind what is spent."""
        every = (*counted, spent)
        return tuple([every[k] for k in self.order])

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The place of each level among LEVELS and, after them, what is spent."""
        return tuple(LEVELS.index(level) if level in LEVELS else len(LEVELS) for level in self.levels)


OFFLOADS = Objective()


def objective_for(name: str, targets: Sequence[Target], host: HostTable = SHIPPED) -> Objective:
    """Return an objective for targets; UsageError when there is none of the name, or a figure that it needs is missing."""
    if name not in OBJECTIVES:
        raise UsageError("F203", f'Objective must be one of {", ".join(OBJECTIVES)}, not "{name}"')
    resources, unusable = _described(targets)
    if name == "energy":
        missing = [n for n, r in resources.items() if r is None or not r.gives_energies]
        if missing:
            verb = "does" if len(missing) == 1 else "do"
            raise UsageError("F203", f"Objective energy needs energies with their source, which {' and '.join(missing)} {verb} not give")
    return Objective(name, resources, host, unusable)


def _described(targets: Sequence[Target]) -> tuple[dict[str, Resources | None], dict[str, str]]:
    """Return the resources of targets, and what is wrong with those that cannot be used."""
    found, refused = dict[str, Resources | None](), dict[str, str]()
    for t in targets:
        try:
            found[t.name] = t.resources()
        except SpecError as error:
            found[t.name], refused[t.name] = None, error.problem.sentence
    return found, refused


def priced(mappings: Sequence[Mapping], objective: Objective) -> tuple[list[Mapping], tuple[str, ...]]:
    """Return the mappings that an objective can compare, and a note about each that it cannot."""
    refused = tuple(f"{name} is not used: {sentence}" for name, sentence in objective.unusable.items())
    mappings = [m for m in mappings if m.target not in objective.unusable]
    if not objective.is_priced:
        return list(mappings), refused
    by_energy = objective.spends == "femtojoules"
    known = [m for m in mappings if (m.inside if by_energy else m.price) is not None and objective.resources[m.target] is not None]
    left = [m for m in mappings if m not in known]
    why = f"objective {objective.name} needs its cost, which the target does not give"
    return known, (*refused, *(f"{m.name} is not used: {why}" for m in left))
