"""Certificates: rules proved at all shapes, drivers against numerics, accelerator models checked."""

from typing import TYPE_CHECKING

from ..callable_module import import_on_use

if TYPE_CHECKING:
    from .certificates.document import Verdicts, prove, to_json
    from .mappings.mappings import prove_mapping
    from .mappings.small_designs import prove_mappings
    from .rules.rules import prove_rule, prove_rules
    from .verdict import Counterexample, Proof

__all__ = ["Counterexample", "Proof", "Verdicts", "prove", "prove_mapping", "prove_mappings", "prove_rule", "prove_rules", "to_json"]

DEFINED_IN = {
    "Counterexample": "verdict",
    "Proof": "verdict",
    "Verdicts": "certificates.document",
    "prove": "certificates.document",
    "prove_mapping": "mappings.mappings",
    "prove_mappings": "mappings.small_designs",
    "prove_rule": "rules.rules",
    "prove_rules": "rules.rules",
    "to_json": "certificates.document",
}

import_on_use(__name__, DEFINED_IN, principal="prove")
