"""Certificates: rules proved at all shapes, drivers against numerics, accelerator models checked."""

from ..callable_module import make_callable
from .certificates.document import Verdicts, prove, to_json
from .mappings.mappings import prove_mapping
from .mappings.small_designs import prove_mappings
from .rules.rules import prove_rule, prove_rules
from .verdict import Counterexample, Proof

__all__ = ["Counterexample", "Proof", "Verdicts", "prove", "prove_mapping", "prove_mappings", "prove_rule", "prove_rules", "to_json"]

make_callable(__name__, prove)
