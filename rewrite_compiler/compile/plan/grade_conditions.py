"""Conditions that a plan's laws have their grade under: shown by ranges of operators and constants, on data, or not at all.

A law with a condition such as `abs(x) < 2^126` gives the model's bits where it holds. Each operand that it matched in the e-graph is
bounded by what operators give whatever numbers their inputs are (a sigmoid is within 0 … 1), else by its values on data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ...egraph.graph.graph import ClassId, EGraph, ENode
from ...egraph.graph.term_rows import operator_named
from ...egraph.saturation.explanation import operand_classes
from ...errors import FlexmatchError
from ...ir.evaluate import run, run_op
from ...ir.program import Data, Program
from ...ir.types import TensorType, interval_of
from ...lang.binders import Leaf
from ...limits import DEFAULT, Limits
from ...ops.op import Op
from ...readings.rounding.real_ranges import EVERYTHING, Range, ranges_of
from ...rewrite.float_condition import OperandBound
from ...rewrite.rule import Rule, short_place
from ..matching.match import saturate_program
from .plan import Plan
from .user_rules import rules_of


class Evidence(StrEnum):
    """How a condition is shown to hold in a plan."""

    BY_RANGES = "by ranges"
    """Whatever numbers the inputs are."""
    ON_DATA = "on data"
    """On the samples that were run, and nothing is known of others."""
    VIOLATED = "does not hold"
    """A sample is outside: the plan may give other bits there."""
    NOT_SHOWN = "not shown"
    """Neither ranges nor data say anything."""


@dataclass(frozen=True)
class GradeCondition:
    """A bound of a law's grade, at how many places of the model's e-graph the law matched, and the least that shows it there."""

    rule: str
    at: str
    grade: str
    bound: str
    places: int
    evidence: Evidence
    range: Range  # of the operand at all these places, as far as it is known

    def __str__(self) -> str:
        values = "" if self.range == EVERYTHING else f" ({self.range[0]:.3g} … {self.range[1]:.3g})"
        count = f"{self.places} place{'s' * (self.places != 1)}"
        return f"{self.rule}: grade {self.grade}; {self.bound} at {count}: {self.evidence}{values}"


def grade_conditions(plan: Plan, samples: Sequence[Mapping[str, Data]], limits: Limits = DEFAULT) -> tuple[GradeCondition, ...]:
    """Return the conditions under which laws that matched in a plan's model have their grade; samples are inputs by name."""
    rules = rules_of(plan, limits)
    conditional_rules = [r for r in rules if r.bounds]
    if not conditional_rules:
        return ()
    saturation = saturate_program(plan.source, rules, [], limits)
    graph = saturation.graph
    ranges = _class_ranges(plan.source, graph)
    values = [_class_values(plan.source, graph, sample) for sample in samples]
    conditions = []
    for r in conditional_rules:
        if saturation.matches.get(r.name):
            matched = [*operand_classes(graph, r.left)]
            conditions += [_condition(r, b, [m[b.name] for m in matched], graph, ranges, values) for b in r.bounds]
    return tuple(conditions)


def _condition(
    r: Rule, b: OperandBound, places: Sequence[ClassId], graph: EGraph, ranges: Mapping[ClassId, Range],
    values: Sequence[Mapping[ClassId, Data]],
) -> GradeCondition:  # fmt: skip
    verdicts = [_shown(b, graph.classes[c].type, ranges.get(c, EVERYTHING), [v[c] for v in values if c in v]) for c in places]
    weakest = max((evidence for evidence, _ in verdicts), key=[*Evidence].index, default=Evidence.NOT_SHOWN)
    if Evidence.VIOLATED in {evidence for evidence, _ in verdicts}:
        weakest = Evidence.VIOLATED
    spans = [span for _, span in verdicts]
    span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else EVERYTHING
    return GradeCondition(r.name, short_place(r.place), r.full_grade, str(b), len(set(places)), weakest, span)


def _shown(b: OperandBound, t: TensorType | None, span: Range, data: Sequence[Data]) -> tuple[Evidence, Range]:
    """Return how a bound is shown at one class, and between which numbers its elements are."""
    if t is None or t.dtype != "float32":  # a condition is about float32
        return Evidence.NOT_SHOWN, EVERYTHING
    ends = (0.0, max(map(abs, span))) if b.is_magnitude and span[0] <= 0 <= span[1] else span
    if all(b.holds(x) for x in ends):
        return Evidence.BY_RANGES, span
    if not data:
        return Evidence.NOT_SHOWN, span
    measured_span = min(float(np.min(x, initial=np.inf)) for x in data), max(float(np.max(x, initial=-np.inf)) for x in data)
    return Evidence.ON_DATA if all(bool(np.all(b.holds(x))) for x in data) else Evidence.VIOLATED, measured_span


def _class_values(p: Program, graph: EGraph, sample: Mapping[str, Data]) -> dict[ClassId, Data]:
    """Return the value of each class that can be computed on one sample, in double precision."""
    inputs = {v: sample[p.names[v]] for v in p.inputs}
    exact = {v: x.astype(np.float64) if x.dtype.kind == "f" else x for v, x in inputs.items()}
    try:
        with np.errstate(all="ignore"):
            results = run(p, exact, keep=[v for n in p.nodes for v in n.outputs])
    except FlexmatchError:  # the reference evaluator does not know an operator
        results = {}
    program_values = {**p.constants, **exact, **results}

    def computed(op: Op, n: ENode, operands: Sequence[Data]) -> Data:
        attributes = {a.name: v for a, v in zip(op.attributes, n.attributes, strict=True)}
        with np.errstate(all="ignore"):
            return run_op(op, operands, attributes, np.float64)[0]

    values = {c: program_values[v] for v, c in graph.values.items() if v in program_values}
    for c, n, op in _in_order(graph, values):
        if c not in values:
            values[c] = computed(op, n, [values[d] for d in n.children])
    return values


def _class_ranges(p: Program, graph: EGraph) -> dict[ClassId, Range]:
    """Return between which numbers each class lies: within the range of each of its e-nodes."""
    ranges = {c: _type_range(graph.classes[c].type) for c in graph.values.values()}
    for v, c in graph.values.items():
        data = p.constants.get(v)
        if data is not None and data.dtype.kind in "fiu" and data.size:
            ranges[c] = float(np.min(data)), float(np.max(data))
    for c, n, op in _in_order(graph, ranges):
        low, high = _node_range(graph, n, op, ranges)
        widest = ranges.get(c, EVERYTHING)
        ranges[c] = max(low, widest[0]), min(high, widest[1])
    return ranges


def _node_range(graph: EGraph, n: ENode, op: Op, ranges: Mapping[ClassId, Range]) -> Range:
    leaves: list[Leaf] = []
    for d in n.children:
        t = graph.classes[d].type
        if t is None:
            return EVERYTHING
        leaves.append(Leaf(t.shape, (None, None) if t.is_float else interval_of(t.dtype), t.is_float, f"x{len(leaves)}"))
    meaning = op.meaning(*leaves, **{a.name: v for a, v in zip(op.attributes, n.attributes, strict=True)})
    results = meaning if isinstance(meaning, tuple) else (meaning,)
    return ranges_of(op.name, results, dict(zip(leaves, (ranges[d] for d in n.children), strict=True)))[0]


def _in_order(graph: EGraph, known: Mapping[ClassId, object]) -> Iterator[tuple[ClassId, ENode, Op]]:
    """Yield the e-nodes of operators with one result once their operands are known, which the caller enters for their classes."""
    pending = [(c, n, op) for c, e in graph.classes.items() for n in e.nodes if (op := operator_named(n.op)) and op.outputs == 1 and e.type]
    while ready := [entry for entry in pending if all(d in known for d in entry[1].children)]:
        yield from ready
        evaluated = {id(n) for _, n, _ in ready}
        pending = [entry for entry in pending if id(entry[1]) not in evaluated]


def _type_range(t: TensorType | None) -> Range:
    if t is None or t.is_float or t.dtype == "string":
        return EVERYTHING
    low, high = interval_of(t.dtype)
    return (-np.inf if low is None else float(low), np.inf if high is None else float(high))
