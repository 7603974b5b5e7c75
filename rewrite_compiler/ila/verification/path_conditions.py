"""Path conditions: whether the conditions on the path to a term imply a claim, and where they do not, decided by z3."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import SpecError
from ...lang.binders import Leaf, static_shape
from ...lang.expr import Expr
from ...lang.substitution import substitute
from ...readings.smt.bitvector_evaluator import evaluator_for
from ...readings.smt.evaluator import refute, truth
from ...readings.smt.solver import Verdict

SECONDS = 2.0
ELEMENTS = 1 << 10  # a guard reads registers, not memories


def implies(premises: Sequence[Expr], claim: Expr) -> bool:
    """Tell whether all of the given conditions together imply a claim; False where the solver does not decide it."""
    verdict = _verdict(premises, claim)
    return verdict is not None and verdict.outcome == "proved"


def counterexample(premises: Sequence[Expr], claim: Expr) -> dict[str, int] | None:
    """Return values at which all premises hold and a claim does not, None where the solver finds none."""
    verdict = _verdict(premises, claim)
    return {n: int(x) for n, x in verdict.model.items()} if verdict is not None and verdict.outcome == "refuted" else None


def _verdict(premises: Sequence[Expr], claim: Expr) -> Verdict | None:
    free = frozenset[Expr]().union(claim.free, *(c.free for c in premises))
    variables = {v: Leaf((), v.interval, False, f"{v.data[0]}_{v.data[1]}")[()] for v in free}
    try:
        conditions, negated_claim = [substitute(c, variables) for c in premises], substitute(~claim, variables)
        leaves = sorted({leaf for e in (*conditions, negated_claim) for leaf in e.reads}, key=lambda leaf: str(leaf.name))
        if any(math.prod(static_shape(leaf)) > ELEMENTS for leaf in leaves):
            return None
        reading, limits = evaluator_for([*conditions, negated_claim], leaves)
        return refute([*(truth(reading.value(e)) for e in (*conditions, negated_claim)), *limits], SECONDS)
    except SpecError:  # a term that the solver's reading does not have
        return None
