"""Certificates of the rules and operations behind an offload."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass

from ...prove.certificates.shipped_certificates import Certificate, certificate_of_rule
from ...rewrite.rule import Rule
from ...target import Mapping


@dataclass(frozen=True)
class CertificateLookup:
    """Looks certificates up: shipped ones, and those of rules from files and of operations that were judged in this compilation."""

    judged_certificates: MappingOf[str, Certificate]

    def of_rule(self, r: Rule) -> Certificate | None:
        """Return the certificate of a rule; None when its present text has none."""
        return self.judged_certificates.get(r.name) or certificate_of_rule(r)

    def of_operation(self, m: Mapping) -> Certificate | None:
        """Return the certificate of an operation that the program uses, None for others."""
        return self.judged_certificates.get(m.name)
