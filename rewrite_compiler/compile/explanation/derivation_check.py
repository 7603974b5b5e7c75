"""Checks the derivation of an offload: derives it again from its source nodes by its rules alone, and evaluates every e-node.

The e-graph is not trusted: a class has the value of its first e-node that can be evaluated, on random operands in float64,
and every other e-node of the class must give that value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...egraph.graph.graph import EClass, EGraph, ENode
from ...egraph.graph.term_rows import operator_named
from ...errors import AnswerNo, BudgetError
from ...ir.evaluate import random_tensor, run, run_op
from ...ir.program import OPAQUE, Data, Node, Program, Value
from ...limits import DEFAULT, Limits
from ...ops.op import LAYOUT, AttributeValue, Op
from ...rewrite.rule import Rule
from ...rewrite.ruleset import every_rule, rules_at
from ...target import Mapping as Operation
from ...target import body_of
from ..matching.match import MatchResult, constructor_of, match
from ..plan.plan import Offload, Plan

TOLERANCE = 1e-9  # of the largest value of a class
SEED = 5
ClassValue = Data | tuple[Data, ...]
Edges = tuple[tuple[Value, ...], tuple[Value, ...]]  # the values a node reads and defines, or in reverse


@dataclass(frozen=True)
class DerivationCheck:
    """The result of a derivation check: a minimal list of rules, the e-nodes evaluated, and the largest relative difference in a class.

    `rules` is None where the offload cannot be derived from its source nodes alone.
    """

    rules: tuple[str, ...] | None
    e_nodes: int = 0
    compared: int = 0
    difference: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether the offload was derived again and no e-node differs from its class beyond rounding."""
        return self.rules is not None and self.difference <= TOLERANCE

    def __str__(self) -> str:
        if self.rules is None:
            return "not checked: its source nodes alone do not lead to it"
        difference = f"{self.difference:.1e}" if self.difference else "0"
        verdict = (
            f"of {self.e_nodes} e-nodes evaluated on random operands, {self.compared} are other forms of a value and "
            f"differ from it by at most {difference}"
        )
        return f"checked: derived again by {', '.join(self.rules) or 'the mapping alone'}; {verdict}"


def check_derivation(plan: Plan, offload: Offload, limits: Limits = DEFAULT) -> DerivationCheck:
    """Derive an offload again from its source nodes and evaluate every e-node on random operands."""
    p = subprogram_of(plan.source, offload.node.origins)
    rules_by_name = {r.name: r for r in (*every_rule(), *(r for f in plan.settings["rules"] for r in rules_at(Path(f))))}
    chain = [rules_by_name[r.rule] for r in offload.because if r.rule in rules_by_name]
    match_result = _derived(p, chain, offload.mapping, limits)
    if match_result is None:  # the explanation left a rule out
        candidate_rules = [r for r in rules_by_name.values() if r.name not in plan.settings["without"]]
        match_result = _derived(p, candidate_rules, offload.mapping, limits)
        chain = [r for r in candidate_rules if match_result is not None and match_result.saturation.matches.get(r.name)]
    if match_result is None:
        return DerivationCheck(None)
    needed_rules, match_result = _minimal(p, chain, offload.mapping, limits, match_result)
    e_nodes, compared, difference = _Check(p, match_result.saturation.graph, offload.mapping).result()
    return DerivationCheck(tuple(r.name for r in needed_rules), e_nodes, compared, difference)


def _derived(p: Program, rules: Sequence[Rule], m: Operation, limits: Limits) -> MatchResult | None:
    """Return the match of a program under rules and one mapping; None where the operation is not used."""
    try:
        match_result = match(p, rules, [m], limits)
    except (AnswerNo, BudgetError):
        return None
    return match_result if any(n.op == m.name for n in match_result.program.nodes) else None


def _minimal(p: Program, rules: Sequence[Rule], m: Operation, limits: Limits, match_result: MatchResult) -> tuple[list[Rule], MatchResult]:
    """Return a minimal list of rules that derives the operation at no higher cost, by leaving out one rule after another."""
    needed_rules, cost = list(rules), match_result.extraction.cost
    for r in rules:
        candidate_rules = [x for x in needed_rules if x is not r]
        trial = _derived(p, candidate_rules, m, limits)
        if trial is not None and trial.extraction.cost <= cost:
            needed_rules, match_result = candidate_rules, trial
    return needed_rules, match_result


# -- the part of a program that an offload stands for


def subprogram_of(p: Program, origins: frozenset[int]) -> Program:
    """Return the subprogram of some source nodes, with adjacent layout operators and the computation of its constants."""
    members = {id(n) for n in p.nodes if n.origins & origins and n.op != OPAQUE}
    members |= _nodes_between(p, members)
    members |= _adjacent_layouts(p, members)
    members |= _makers(p, members)
    nodes = tuple(n for n in p.nodes if id(n) in members)
    defined = {v for n in nodes for v in n.outputs}
    read = dict.fromkeys(v for n in nodes for v in n.inputs)
    outside_reads = {v for n in p.nodes if id(n) not in members for v in n.inputs} | set(p.outputs)
    outputs = tuple(v for n in nodes for v in n.outputs if v in outside_reads)
    inputs = tuple(v for v in read if v not in defined and v not in p.constants)
    return replace(p, inputs=inputs, outputs=outputs, nodes=nodes, constants={v: p.constants[v] for v in read if v in p.constants})


def _nodes_between(p: Program, members: set[int]) -> set[int]:
    """Return the nodes on a path between two members."""
    descendants = _reachable(p.nodes, members, _forwards)
    ancestors = _reachable(reversed(p.nodes), members, _backwards)
    return {id(n) for n in p.nodes if id(n) in descendants & ancestors and n.op != OPAQUE}


def _forwards(n: Node) -> Edges:
    return n.inputs, n.outputs


def _backwards(n: Node) -> Edges:
    return n.outputs, n.inputs


def _reachable(nodes: Iterable[Node], members: set[int], ends: Callable[[Node], Edges]) -> set[int]:
    """Return the members and the nodes reachable from them along the edges that `ends` gives, (values read, values defined)."""
    values: set[Value] = set()
    reached_nodes: set[int] = set()
    for n in nodes:
        reads, defines = ends(n)
        if id(n) in members or values.intersection(reads):
            values.update(defines)
            reached_nodes.add(id(n))
    return reached_nodes


def _adjacent_layouts(p: Program, members: set[int]) -> set[int]:
    """Return the layout operators directly before or after members."""
    layout_nodes: set[int] = set()
    for nodes, ends in ((p.nodes, _forwards), (p.nodes[::-1], _backwards)):
        values = {v for n in p.nodes if id(n) in members for v in ends(n)[1]}
        for n in nodes:
            reads, defines = ends(n)
            if n.operator is not None and n.operator.kind == LAYOUT and values.intersection(reads):
                values.update(defines)
                layout_nodes.add(id(n))
    return layout_nodes


def _makers(p: Program, members: set[int]) -> set[int]:
    """Return the nodes that compute the constants which members read."""
    fixed, producer = set(p.constants), p.producer()
    for n in p.nodes:
        if n.operator is not None and all(v in fixed for v in n.inputs):
            fixed.update(n.outputs)
    work = [v for n in p.nodes if id(n) in members for v in n.inputs]
    makers: set[int] = set()
    while work:
        maker = producer.get(v := work.pop())
        if maker is not None and v in fixed and id(maker) not in makers:
            makers.add(id(maker))
            work.extend(maker.inputs)
    return makers


# -- the check


class _Check:
    """Evaluates the e-nodes of an e-graph bottom-up and compares them within each class."""

    def __init__(self, p: Program, graph: EGraph, m: Operation) -> None:
        self.p, self.graph, self.m, self.device = p, graph, m, constructor_of(m).name
        self.random = np.random.default_rng(SEED)
        self.values: dict[int, ClassValue] = {}

    def result(self) -> tuple[int, int, float]:
        """Return the number of e-nodes, how many were compared with their class, and the largest relative difference."""
        self.draw_inputs()
        pending = [(c, n) for c, e_class in self.graph.classes.items() for n in e_class.nodes if n.op != "Input"]
        count, compared, largest_difference = len(pending), 0, 0.0
        while ready := [(c, n) for c, n in pending if all(d in self.values for d in n.children)]:
            for c, n in ready:
                value = self.value_of(self.graph.classes[c], n)
                if c in self.values:
                    compared, largest_difference = compared + 1, max(largest_difference, _difference(self.values[c], value))
                self.values.setdefault(c, value)
            evaluated = {(c, id(n)) for c, n in ready}
            pending = [(c, n) for c, n in pending if (c, id(n)) not in evaluated]
        return count, compared, largest_difference

    def draw_inputs(self) -> None:
        """Draw random values of the inputs."""
        for v in self.p.inputs:
            sample = random_tensor(self.p.types[v], self.random)
            self.values[self.graph.values[v]] = sample.astype(np.float64) if self.p.types[v].is_float else sample

    def value_of(self, e_class: EClass, n: ENode) -> ClassValue:
        """Return the value of an e-node on the values of its operands."""
        if n.op == "Constant":
            data = self.p.constants[int(n.attributes[0])]  # type: ignore[arg-type]
            return data.astype(np.float64) if np.issubdtype(data.dtype, np.floating) else data
        operands = [self.values[d] for d in n.children]
        if n.op == "Result":
            return operands[0][int(n.attributes[0])]  # type: ignore[arg-type]
        arrays = [x for x in operands if not isinstance(x, tuple)]
        op = operator_named(n.op)
        results = self.device_results(n, arrays) if op is None else run_op(op, arrays, _attributes(op, n), np.float64)
        return results[0] if e_class.type is not None else tuple(results)

    def device_results(self, n: ENode, operands: Sequence[Data]) -> list[Data]:
        """Return the results of the mapping's meaning on operands."""
        assert n.op == self.device
        types = [t for d in n.children if (t := self.graph.classes[d].type) is not None]
        body = body_of(self.m, types, dict(zip((name for name, _ in self.m.statics), n.attributes, strict=True)))
        results = run(body, dict(zip(body.inputs, operands, strict=True)))
        return [results[v] for v in body.outputs]


def _attributes(op: Op, n: ENode) -> Mapping[str, AttributeValue]:
    return {a.name: v for a, v in zip(op.attributes, n.attributes, strict=True)}


def _difference(expected: ClassValue, actual: ClassValue) -> float:
    return max((_distance(a, b) for a, b in _paired(expected, actual)), default=0.0)


def _paired(expected: ClassValue, actual: ClassValue) -> Iterator[tuple[Data, Data]]:
    left, right = (x if isinstance(x, tuple) else (x,) for x in (expected, actual))
    yield from zip(left, right, strict=True)


def _distance(a: Data, b: Data) -> float:
    if a.shape != b.shape:
        return float("inf")
    finite = np.isfinite(a) & np.isfinite(b)
    scale = max(1.0, float(np.max(np.abs(a[finite]), initial=0.0)))
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale
