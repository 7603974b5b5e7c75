"""The certificates of the steps behind an offload, as a plan states them."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass

from ...prove.certificates.shipped import Certificate, certificate_of_rule
from ...rewrite.rule import Rule
from ...target import Mapping


@dataclass(frozen=True)
class Certified:
    """Finds certificates: those that ship, of a rule from a file and of an operation what its trial said when it came in."""

    judged: MappingOf[str, Certificate]

    def of_rule(self, r: Rule) -> Certificate | None:
        """Return the certificate of a rule; None when it has none as it is written now."""
        return self.judged.get(r.name) or certificate_of_rule(r)

    def of_operation(self, m: Mapping) -> Certificate | None:
        """Return the certificate of an operation that the program uses."""
        return self.judged.get(m.name)
