"""The certificates of the steps behind an offload, as a plan states them."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass

from ..prove.shipped import Certificate, certificate_of_operation, certificate_of_rule
from ..rewrite.rule import Rule
from ..target import Mapping, Target


@dataclass(frozen=True)
class Certified:
    """Finds certificates: those that ship, of a rule from a file what its trial said when it came in."""

    targets: Sequence[Target]
    judged: MappingOf[str, Certificate]

    def of_rule(self, r: Rule) -> Certificate | None:
        """Return the certificate of a rule; None when it has none as it is written now."""
        return self.judged.get(r.name) or certificate_of_rule(r)

    def of_operation(self, m: Mapping) -> Certificate | None:
        """Return the certificate of an operation; None of targets that do not ship, and at other parameters."""
        return certificate_of_operation(next(t for t in self.targets if t.name == m.target), m.variant)
