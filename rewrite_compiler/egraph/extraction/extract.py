"""Exact extraction under a lexicographic cost: split, forced levels, bucket elimination, else an integer program solved by HiGHS.

In the integer program x_n chooses an e-node, y_c says that class c is built, and t_c orders the classes of a cycle topologically, so
that no choice contains itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...errors import BudgetError
from ..graph.graph import ClassId, EGraph, ENode
from .bound import within_bound
from .bucket_elimination import cheapest_by_elimination
from .dominator_split import Part, parts
from .forced_levels import Key, forced_candidates, key_of
from .prune import Candidate, Candidates, Cost, CostOf, components, pruned

BINARY_THRESHOLD = 0.5  # threshold between the two values of a binary variable
LARGEST_EXACT_SUM = 1 << 30  # the solver tells sums of costs up to here apart
DIGIT = 1 << 10  # larger sums are compared digit by digit in this base
# parts of one form are solved once: index of the candidate of each class, bound, status
Solutions = dict[Key, tuple[dict[int, int], Cost, "ExtractionStatus"]]


class ExtractionStatus(StrEnum):
    """How far an extraction is proved; plans show the value; of several parts the first in this order counts."""

    GREEDY = "greedy"
    """The solver gave nothing better in time than the cheapest trees, which count shared classes more than once."""

    LIMITED = "limited"
    """The time limit ended the search: the cost is that of the best choice found, the bound lies below it."""

    OPTIMAL = "optimal"
    """The choice is proved cheapest."""


@dataclass(frozen=True)
class Extraction:
    """The chosen e-node of each class that is built, its cost and the proved lower bound by levels, and how far it is proved."""

    choice: Mapping[ClassId, ENode]
    cost: Cost
    bound: Cost
    status: ExtractionStatus

    @property
    def gap(self) -> float:
        """Relative distance of cost and bound at the first level where they differ; 0 when optimal."""
        return next(((c - b) / max(abs(c), 1) for c, b in zip(self.cost, self.bound, strict=True) if c != b), 0.0)


def extract(graph: EGraph, roots: Sequence[ClassId], cost_of: CostOf, seconds: float = 60.0) -> Extraction:
    """Return the cheapest acyclic choice below the roots by a lexicographic cost, within a time limit in seconds.

    Compile-time constants cost nothing and are chosen apart, by the fewest operators.

    Raises:
        BudgetError: (F211) a root has no choice of finite cost.
    """
    constants = constant_choices(graph, cost_of)
    computed_roots = [r for r in roots if r not in constants]
    options = pruned(within_bound(graph, cost_of, frozenset(constants), computed_roots), computed_roots)
    if any(r not in options for r in computed_roots):
        raise BudgetError("F211", "extraction found no way to build an output of the program", help="report this: every program has itself")
    choice, bound, status = _solved(options, computed_roots, time.monotonic() + seconds, {})
    with_constants = {c: Candidate(o.node, frozenset(o.node.children), o.cost) for c, o in choice.items()}  # constants are operands again
    reachable = topological_choice({**constants, **with_constants}, roots)
    cost = _total(reachable, roots, len(next(iter(reachable.values())).cost))
    bound = bound or cost  # all outputs are constants
    if cost != bound and status is ExtractionStatus.OPTIMAL:
        status = ExtractionStatus.LIMITED
    return Extraction({c: o.node for c, o in reachable.items()}, cost, tuple(min(b, c) for b, c in zip(bound, cost, strict=True)), status)


def _solved(
    options: Candidates, roots: Sequence[ClassId], deadline: float, solutions: Solutions, first: int = 0
) -> tuple[dict[ClassId, Candidate], Cost, ExtractionStatus]:
    """Return the choice, a bound and the worst status over all parts of the problem; all choices tie at the levels before `first`."""
    choice: dict[ClassId, Candidate] = {}
    bounds: list[Cost] = []
    statuses = {ExtractionStatus.OPTIMAL}
    for part in parts(options, roots):
        part_choice, bound, status = _solved_part(part, deadline, solutions, first)
        choice.update(part_choice)
        bounds.append(bound)
        statuses.add(status)
    return choice, tuple(map(sum, zip(*bounds, strict=True))), next(s for s in ExtractionStatus if s in statuses)


def _solved_part(part: Part, deadline: float, solutions: Solutions, first: int) -> tuple[dict[ClassId, Candidate], Cost, ExtractionStatus]:
    levels = len(next(iter(part.options.values()))[0].cost)
    if all(len(candidates) == 1 for candidates in part.options.values()):
        choice = {c: candidates[0] for c, candidates in part.options.items()}
        return choice, tuple(sum(o.cost[k] for o in choice.values()) for k in range(levels)), ExtractionStatus.OPTIMAL
    key = key_of(part, first)
    if key not in solutions:
        decided, bound, status = _decided(part, deadline, solutions, first, levels)
        places = enumerate(part.options.items())
        indices = {
            n: next(k for k, o in enumerate(candidates) if o.node is decided[c].node) for n, (c, candidates) in places if c in decided
        }
        solutions[key] = indices, bound[first:], status
    indices, bound, status = solutions[key]
    choice = {c: candidates[indices[n]] for n, (c, candidates) in enumerate(part.options.items()) if n in indices}
    return choice, (*_total(choice, part.roots, levels)[:first], *bound), status


def _decided(
    part: Part, deadline: float, solutions: Solutions, first: int, levels: int
) -> tuple[dict[ClassId, Candidate], Cost, ExtractionStatus]:
    """Return the cheapest choice of a part: by forced levels, then by a further split, else by search."""
    options, open_level = forced_candidates(part.options, part.roots, first, levels)
    if open_level == levels:
        choice = cheapest_trees(options)
        return choice, _total(choice, part.roots, levels), ExtractionStatus.OPTIMAL
    if open_level > first:
        return _solved(options, part.roots, deadline, solutions, open_level)
    return _searched(part, deadline, first, levels)


def _searched(part: Part, deadline: float, first: int, levels: int) -> tuple[dict[ClassId, Candidate], Cost, ExtractionStatus]:
    """Return what elimination or the solver finds for the levels from `first` on, the cheapest trees if those are better."""
    exact = cheapest_by_elimination(part.options, part.roots, first)
    if exact is not None:
        return exact, _total(exact, part.roots, levels), ExtractionStatus.OPTIMAL
    solved, bound, status = _Problem(part.options, frozenset(part.roots)).solve(first, levels, deadline)
    if status is ExtractionStatus.OPTIMAL and solved is not None:
        return solved, bound, status
    trees = cheapest_trees(part.options)
    if solved is None or _total(trees, part.roots, levels) < _total(solved, part.roots, levels):
        return trees, bound, ExtractionStatus.GREEDY
    return solved, bound, status


def _total(choice: Mapping[ClassId, Candidate], roots: Sequence[ClassId], levels: int) -> Cost:
    candidates = topological_choice(choice, roots).values()
    return tuple(sum(o.cost[k] for o in candidates) for k in range(levels))


def constant_choices(graph: EGraph, cost_of: CostOf) -> dict[ClassId, Candidate]:
    """Return the cheapest tree of each compile-time constant; constants cost nothing and are never part of the problem."""
    fixed = [c for c, e_class in graph.classes.items() if e_class.fixed]
    options = {}
    for c in fixed:
        costed = [(n, cost_of(c, n)) for n in graph.classes[c].nodes]
        options[c] = [Candidate(n, frozenset(n.children), cost) for n, cost in costed if cost is not None]
    return cheapest_trees(options)


def topological_choice(choice: Mapping[ClassId, Candidate], roots: Iterable[ClassId]) -> dict[ClassId, Candidate]:
    """Return the choices below the roots in topological order, operands first; the choice must be acyclic."""
    order: dict[ClassId, Candidate] = {}
    open_: set[ClassId] = set()
    for root in roots:
        work = [(root, iter(sorted(choice[root].children)))] if root not in order else []
        while work:
            current, unvisited = work[-1]
            open_.add(current)
            child = next((d for d in unvisited if d not in order), None)
            if child is None:
                order[current] = choice[current]
                open_.discard(current)
                work.pop()
            elif child in open_:
                raise AssertionError("extraction chose a cycle")
            else:
                work.append((child, iter(sorted(choice[child].children))))
    return order


def cheapest_trees(options: Candidates) -> dict[ClassId, Candidate]:
    """Return for each class the candidate with the cheapest tree, shared parts counted each time they are used."""
    cheapest: dict[ClassId, tuple[Cost, Candidate]] = {}
    changed = True
    while changed:
        changed = False
        for c, candidates in options.items():
            for o in candidates:
                if all(d in cheapest for d in o.children):
                    # one more level that every e-node pays makes all costs positive, so no choice contains itself
                    parts = [(*o.cost, 1), *(cheapest[d][0] for d in o.children)]
                    total = tuple(map(sum, zip(*parts, strict=True)))
                    if c not in cheapest or total < cheapest[c][0]:
                        cheapest[c] = (total, o)
                        changed = True
    return {c: o for c, (_, o) in cheapest.items()}


@dataclass
class _Rows:
    """Constraints, row by row."""

    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, terms: Mapping[int, float], lower: float, upper: float) -> None:
        self.index.extend(terms)
        self.value.extend(terms.values())
        self.start.append(len(self.index))
        self.lower.append(lower)
        self.upper.append(upper)


class _Problem:
    def __init__(self, options: Candidates, roots: frozenset[ClassId]) -> None:
        self.options = options
        self.roots = roots
        self.candidates = [(c, o) for c, candidates in options.items() for o in candidates]
        count = len(self.candidates)
        self.y = {c: count + n for n, c in enumerate(options)}
        self.cyclic = {c: component for component in components(options) for c in component}
        self.t = {c: count + len(options) + n for n, c in enumerate(self.cyclic)}
        self.columns = self.plain_columns = count + len(options) + len(self.cyclic)  # carries of `hold` come after the plain ones
        self.rows = _Rows()
        self.forbidden: set[int] = set()
        self.of_class: dict[ClassId, list[int]] = {}
        for n, (c, _) in enumerate(self.candidates):
            self.of_class.setdefault(c, []).append(n)
        self.constrain()

    def constrain(self) -> None:
        infinity = math.inf
        for c, nodes in self.of_class.items():
            self.rows.add({**dict.fromkeys(nodes, 1.0), self.y[c]: -1.0}, 0.0, 0.0)
            for d, users in self.needs(c).items():
                z = dict.fromkeys(users, 1.0)
                self.rows.add({**z, self.y[d]: -1.0}, -infinity, 0.0)
                if self.cyclic.get(c) is not None and d in self.cyclic[c]:
                    m = float(len(self.cyclic[c]))
                    self.rows.add({self.t[c]: 1.0, self.t[d]: -1.0, **dict.fromkeys(users, -m)}, 1.0 - m, infinity)
                    self.forbid_mutual(c, d, z)

    def forbid_mutual(self, c: ClassId, d: ClassId, z: Mapping[int, float]) -> None:
        """Forbid that two classes are built from each other."""
        back = self.needs(d).get(c) if c < d else None
        if back:
            mutual = {**z, **dict.fromkeys(back, 1.0)}
            self.rows.add({**mutual, self.y[c]: -1.0}, -math.inf, 0.0)
            self.rows.add({**mutual, self.y[d]: -1.0}, -math.inf, 0.0)

    def needs(self, c: ClassId) -> dict[ClassId, list[int]]:
        """Return for each operand class of `c` the columns of the candidates that need it."""
        choices: dict[ClassId, list[int]] = {}
        for n in self.of_class[c]:
            for d in sorted(self.candidates[n][1].children):
                choices.setdefault(d, []).append(n)
        return choices

    def solve(self, first: int, levels: int, deadline: float) -> tuple[dict[ClassId, Candidate] | None, Cost, ExtractionStatus]:
        """Return the choice, a bound for each level from `first` on (0 before), and a status.

        A level is joined to the levels before by a weight that its incumbent's cost justifies: whoever spends one more
        unit before can save less here. Constraints for earlier levels instead make HiGHS slower; they are used only where
        the weights would become too large for it to tell costs apart.
        """
        objective = [0] * len(self.candidates)
        solution: list[float] | None = None
        optima: list[int] = [0] * first
        for level in range(first, levels):
            costs = [o.cost[level] for _, o in self.candidates]
            unit = math.gcd(*costs)
            if not unit:
                optima.append(0)
                continue
            costs = [c // unit for c in costs]
            weight = 1 + (sum(costs) if solution is None else _cost_of_solution(costs, solution))
            weighted_costs = [w * weight + c for w, c in zip(objective, costs, strict=True)]
            if sum(weighted_costs) > LARGEST_EXACT_SUM:
                self.fix_optimum(objective, solution)
                weighted_costs = costs
            incumbent, status = self.solve_level(weighted_costs, deadline)
            solution = incumbent or solution
            if incumbent is None or status is not ExtractionStatus.OPTIMAL:
                return self.choice_of(solution), (*optima, *[0] * (levels - len(optima))), ExtractionStatus.LIMITED
            optima.append(_cost_of_solution(costs, incumbent) * unit)
            objective = weighted_costs if optima[-1] or any(objective) else self.forbid_costly(costs)
        if solution is None:
            solution = self.solve_level([0] * len(self.candidates), deadline)[0]
        return self.choice_of(solution), tuple(optima), ExtractionStatus.OPTIMAL

    def fix_optimum(self, costs: Sequence[int], solution: Sequence[float] | None) -> None:
        """Constrain the weighted levels so far to their optimum, digit by digit with carries: small coefficients stay exact."""
        if solution is None or not any(costs):
            return
        remaining_costs, remaining_sum = list(costs), _cost_of_solution(costs, solution)
        carry_in: dict[int, float] = {}
        while max(remaining_costs) >= DIGIT:
            carry = self.columns
            self.columns += 1
            digits = {n: float(c % DIGIT) for n, c in enumerate(remaining_costs) if c % DIGIT}
            self.rows.add({**digits, **carry_in, carry: -float(DIGIT)}, remaining_sum % DIGIT, remaining_sum % DIGIT)
            remaining_costs, remaining_sum, carry_in = [c // DIGIT for c in remaining_costs], remaining_sum // DIGIT, {carry: 1.0}
        self.rows.add({**{n: float(c) for n, c in enumerate(remaining_costs) if c}, **carry_in}, remaining_sum, remaining_sum)

    def forbid_costly(self, costs: Sequence[int]) -> list[int]:
        """Forbid every choice that costs anything, and return costs of 0: an optimum of 0 needs no weight."""
        self.forbidden.update(n for n, c in enumerate(costs) if c)
        return [0] * len(costs)

    def choice_of(self, solution: list[float] | None) -> dict[ClassId, Candidate] | None:
        if solution is None:
            return None
        return {c: o for (c, o), x in zip(self.candidates, solution, strict=False) if x > BINARY_THRESHOLD}

    def solve_level(self, costs: Sequence[int], deadline: float) -> tuple[list[float] | None, ExtractionStatus]:
        """Minimise one cost; return the values of all columns, and whether they are proved optimal."""
        import highspy

        solver = highspy.Highs()
        for option, value in OPTIONS.items():
            solver.setOptionValue(option, value)
        solver.setOptionValue("time_limit", max(deadline - time.monotonic(), 0.1))
        divisor = math.gcd(*costs) or 1
        solver.passModel(self.model(highspy, [c / divisor for c in costs]))
        solver.run()
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None, ExtractionStatus.LIMITED
        optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return list(solver.getSolution().col_value), ExtractionStatus.OPTIMAL if optimal else ExtractionStatus.LIMITED

    def model(self, highspy: Any, costs: Sequence[float]) -> Any:
        count = len(self.candidates)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(self.rows.lower)
        lp.col_cost_ = [*costs, *[0.0] * (self.columns - count)]
        lower, upper = [0.0] * self.columns, [1.0] * self.columns
        for n in self.forbidden:
            upper[n] = 0.0
        for r in self.roots:
            lower[self.y[r]] = 1.0
        for c, column in self.t.items():
            upper[column] = float(len(self.cyclic[c]) - 1)
        carries = self.columns - self.plain_columns
        upper[self.plain_columns :] = [math.inf] * carries
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.row_lower_, lp.row_upper_ = self.rows.lower, self.rows.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = self.rows.start, self.rows.index, self.rows.value
        integer, continuous = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [integer] * count + [continuous] * (self.plain_columns - count) + [integer] * carries
        return lp


def _cost_of_solution(costs: Sequence[int], solution: Sequence[float]) -> int:
    """Return the cost of a solution of the integer program."""
    return sum(cost for cost, x in zip(costs, solution, strict=False) if x > BINARY_THRESHOLD)


OPTIONS: dict[str, Any] = {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0, "random_seed": 0}
