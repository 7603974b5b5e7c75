"""Finds the unsound rule behind a plan that differs from its model, by bisecting the rules on the input that shows it.

E-nodes of one class are evaluated on the input in float64; the last rule of the shortest prefix of rules under which two of them
differ does not hold there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...egraph.graph.graph import ClassId, EGraph, ENode
from ...egraph.graph.term_rows import operator_named
from ...egraph.saturation.saturate import shipped_rule_names
from ...errors import FlexmatchError
from ...ir.evaluate import run, run_op
from ...ir.program import Data, Program
from ...limits import Limits
from ...rewrite.rule import Rule
from ..matching.match import saturate_program
from .plan import Plan
from .user_rules import rules_of

TOLERANCE = 1e-6  # of the largest value: rounding in float64 is far below


@dataclass(frozen=True)
class Gap:
    """A counterexample to an equality of two terms: the element where they differ most, and both values there."""

    index: tuple[int, ...]
    left: float
    right: float

    def __str__(self) -> str:
        return f"its sides are {self.left:.6g} and {self.right:.6g} at {list(self.index)}"


@dataclass(frozen=True)
class Suspect:
    """A rule that does not hold on an input, and its counterexample."""

    rule: Rule
    gap: Gap

    @property
    def is_shipped(self) -> bool:
        """Whether the rule is a shipped one."""
        return self.rule.name in shipped_rule_names()


def suspect(plan: Plan, values: Mapping[str, Data], limits: Limits) -> Suspect | None:
    """Return a rule that does not hold on `values`, inputs by name; None where none is found or nothing can be computed."""
    p = plan.source
    try:
        return _bisected(p, rules_of(plan, limits), _values_of_program(p, values), limits)
    except FlexmatchError:  # a model that cannot be computed here, or whose saturation reaches a limit
        return None


def _values_of_program(p: Program, values: Mapping[str, Data]) -> dict[int, Data]:
    """Return every value of a program."""
    inputs = {v: values[p.names[v]] for v in p.inputs}
    exact = {v: x.astype(np.float64) if x.dtype.kind == "f" else x for v, x in inputs.items()}
    with np.errstate(all="ignore"):
        results = run(p, exact, keep=[v for n in p.nodes for v in n.outputs])
    return {**p.constants, **exact, **results}


def _bisected(p: Program, rules: Sequence[Rule], values: Mapping[int, Data], limits: Limits) -> Suspect | None:
    """Return the last rule of the shortest prefix of `rules` under which a gap appears."""

    def gap_under(some: Sequence[Rule]) -> Gap | None:
        return gap_of(saturate_program(p, some, [], limits).graph, values)

    first, last = 0, len(rules)
    gap = gap_under(rules)
    if gap is None:
        return None
    while first + 1 < last:
        middle = (first + last) // 2
        prefix_gap = gap_under(rules[:middle])
        if prefix_gap is None:
            first = middle
        else:
            last, gap = middle, prefix_gap
    culprit = rules[last - 1]
    return Suspect(culprit, gap_under([culprit]) or gap)


def gap_of(graph: EGraph, program_values: Mapping[int, Data]) -> Gap | None:
    """Return where two e-nodes of a class differ, given values of a program by number; evaluated bottom-up, first difference."""
    values: dict[ClassId, Data] = {}
    for v, c in graph.values.items():
        if v in program_values:
            gap = _gap(values[c], program_values[v]) if c in values else None
            if gap is not None:
                return gap
            values.setdefault(c, program_values[v])
    pending = [
        (c, n) for c, e in graph.classes.items() for n in e.nodes if n.op not in ("Input", "Constant", "Opaque", "Result") and e.type
    ]
    while ready := [(c, n) for c, n in pending if all(d in values for d in n.children)]:
        for c, n in ready:
            result = _value(n, [values[d] for d in n.children])
            gap = None if result is None or c not in values else _gap(values[c], result)
            if gap is not None:
                return gap
            if result is not None:
                values.setdefault(c, result)
        evaluated = {id(n) for _, n in ready}
        pending = [(c, n) for c, n in pending if id(n) not in evaluated]
    return None


def _value(n: ENode, operands: Sequence[Data]) -> Data | None:
    """Return the value of an e-node of a core operator in float64, None for others."""
    op = operator_named(n.op)
    if op is None or op.outputs > 1:
        return None
    attributes = {a.name: v for a, v in zip(op.attributes, n.attributes, strict=True)}
    with np.errstate(all="ignore"):
        return run_op(op, operands, attributes, np.float64)[0]


def _gap(a: Data, b: Data) -> Gap | None:
    if a.shape != b.shape or a.dtype.kind not in "fiu" or not a.size:
        return None
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    difference = np.where(finite, np.abs(np.where(finite, x, 0) - np.where(finite, y, 0)), 0)
    scale = max(1.0, float(np.max(np.abs(x[finite]), initial=0.0)))
    if float(np.max(difference)) <= TOLERANCE * scale:
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))
    return Gap(at, float(x[at]), float(y[at]))
