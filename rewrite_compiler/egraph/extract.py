"""Exact extraction: one integer program over the e-graph, solved by HiGHS level by level of a lexicographic cost.

x_n chooses an e-node, y_c says that class c is built, t_c orders the classes of a cycle so that no choice contains itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BudgetError
from .graph import ClassId, EGraph, ENode
from .prune import Candidate, Candidates, Cost, CostOf, candidates, components

SPARE = 0.5  # costs are integers: half a unit above an optimum admits only optima


@dataclass(frozen=True)
class Extraction:
    """The chosen e-node of each class that is built, its cost, the proven bound, and how it was found."""

    choice: Mapping[ClassId, ENode]
    cost: Cost
    bound: Cost
    status: str

    @property
    def gap(self) -> float:
        """Relative distance of cost and bound at the first level where they differ; 0 when optimal."""
        return next(((c - b) / max(abs(c), 1) for c, b in zip(self.cost, self.bound, strict=True) if c != b), 0.0)


def extract(graph: EGraph, roots: Sequence[ClassId], cost_of: CostOf, seconds: float = 60.0) -> Extraction:
    """Return the cheapest acyclic choice below the roots; each level of the cost matters only among equals of the levels before.

    Falls back to the cheapest tree (status `greedy`) when the solver gives no solution in time; BudgetError when a root
    has no choice at all.
    """
    options = candidates(graph, roots, cost_of)
    if any(r not in options for r in roots):
        raise BudgetError("F211", "extraction found no way to build an output of the program", help="report this: every program has itself")
    levels = len(next(iter(options.values()))[0].cost)
    problem = _Problem(options, frozenset(roots))
    choice, bound, status = problem.solve(levels, time.monotonic() + seconds)
    if choice is None:
        choice, status = cheapest_trees(options), "greedy"
    used = reached(choice, roots)
    cost = tuple(sum(used[c].cost[k] for c in used) for k in range(levels))
    if status == "optimal":
        bound = cost
    return Extraction({c: o.node for c, o in used.items()}, cost, tuple(min(b, c) for b, c in zip(bound, cost, strict=True)), status)


def reached(choice: Mapping[ClassId, Candidate], roots: Iterable[ClassId]) -> dict[ClassId, Candidate]:
    """Return the choices below the roots, operands first; AssertionError when a choice contains itself."""
    order: dict[ClassId, Candidate] = {}
    open_: set[ClassId] = set()
    for root in roots:
        work = [(root, iter(sorted(choice[root].children)))] if root not in order else []
        while work:
            here, rest = work[-1]
            open_.add(here)
            following = next((d for d in rest if d not in order), None)
            if following is None:
                order[here] = choice[here]
                open_.discard(here)
                work.pop()
            elif following in open_:
                raise AssertionError("extraction chose a cycle")
            else:
                work.append((following, iter(sorted(choice[following].children))))
    return order


def cheapest_trees(options: Candidates) -> dict[ClassId, Candidate]:
    """Return for each class the candidate with the cheapest tree, shared parts counted each time they are used."""
    best: dict[ClassId, tuple[Cost, Candidate]] = {}
    changed = True
    while changed:
        changed = False
        for c, candidates_ in options.items():
            for o in candidates_:
                if all(d in best for d in o.children):
                    # one more level that every e-node pays makes all costs positive, so no choice contains itself
                    parts = [(*o.cost, 1), *(best[d][0] for d in o.children)]
                    total = tuple(map(sum, zip(*parts, strict=True)))
                    if c not in best or total < best[c][0]:
                        best[c] = (total, o)
                        changed = True
    return {c: o for c, (_, o) in best.items()}


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
        self.flat = [(c, o) for c, found in options.items() for o in found]
        count = len(self.flat)
        self.y = {c: count + n for n, c in enumerate(options)}
        self.cyclic = {c: component for component in components(options) for c in component}
        self.t = {c: count + len(options) + n for n, c in enumerate(self.cyclic)}
        self.columns = count + len(options) + len(self.cyclic)
        self.rows = _Rows()
        self.of_class: dict[ClassId, list[int]] = {}
        for n, (c, _) in enumerate(self.flat):
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
                    self.rows.add({self.t[c]: 1.0, self.t[d]: -1.0, **{n: -m for n in users}}, 1.0 - m, infinity)
                    self.cut(c, d, z)

    def cut(self, c: ClassId, d: ClassId, z: Mapping[int, float]) -> None:
        """Two classes cannot both be built from each other."""
        back = self.needs(d).get(c) if c < d else None
        if back:
            both = {**z, **dict.fromkeys(back, 1.0)}
            self.rows.add({**both, self.y[c]: -1.0}, -math.inf, 0.0)
            self.rows.add({**both, self.y[d]: -1.0}, -math.inf, 0.0)

    def needs(self, c: ClassId) -> dict[ClassId, list[int]]:
        """Return for each operand class of `c` the choices that need it."""
        found: dict[ClassId, list[int]] = {}
        for n in self.of_class[c]:
            for d in sorted(self.flat[n][1].children):
                found.setdefault(d, []).append(n)
        return found

    def solve(self, levels: int, deadline: float) -> tuple[dict[ClassId, Candidate] | None, Cost, str]:
        """Return the choice, a bound for each level, and a status."""
        solution: list[float] | None = None
        bound: list[int] = []
        for level in range(levels):
            costs = [o.cost[level] for _, o in self.flat]
            if not any(costs):
                bound.append(0)
                continue
            made, status, proven = self.solve_level(costs, deadline)
            solution = made or solution
            bound.append(max(proven, 0))
            if made is None or status != "optimal":
                return self.chosen(solution), (*bound, *[0] * (levels - len(bound))), "limited"
            best = sum(cost for cost, x in zip(costs, made, strict=False) if x > SPARE)
            scale = max(costs)
            self.rows.add({n: cost / scale for n, cost in enumerate(costs) if cost}, -math.inf, (best + SPARE) / scale)
        if solution is None:
            solution = self.solve_level([0] * len(self.flat), deadline)[0]
        return self.chosen(solution), tuple(bound), "optimal"

    def chosen(self, solution: list[float] | None) -> dict[ClassId, Candidate] | None:
        if solution is None:
            return None
        return {c: o for (c, o), x in zip(self.flat, solution, strict=False) if x > SPARE}

    def solve_level(self, costs: Sequence[int], deadline: float) -> tuple[list[float] | None, str, int]:
        """Minimise one level; return column values, `optimal` or `limited`, and the proven bound."""
        import highspy

        solver = highspy.Highs()
        for option, value in OPTIONS.items():
            solver.setOptionValue(option, value)
        solver.setOptionValue("time_limit", max(deadline - time.monotonic(), 0.1))
        divisor = math.gcd(*costs) or 1
        solver.passModel(self.model(highspy, [c / divisor for c in costs]))
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None, "limited", 0
        optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        bound = info.objective_function_value if optimal else info.mip_dual_bound
        return list(solver.getSolution().col_value), "optimal" if optimal else "limited", math.floor(bound * divisor + SPARE)

    def model(self, highspy: Any, costs: Sequence[float]) -> Any:
        count = len(self.flat)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(self.rows.lower)
        lp.col_cost_ = [*costs, *[0.0] * (self.columns - count)]
        lower, upper = [0.0] * self.columns, [1.0] * self.columns
        for r in self.roots:
            lower[self.y[r]] = 1.0
        for c, column in self.t.items():
            upper[column] = float(len(self.cyclic[c]) - 1)
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.row_lower_, lp.row_upper_ = self.rows.lower, self.rows.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = self.rows.start, self.rows.index, self.rows.value
        integer, continuous = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [integer] * count + [continuous] * (self.columns - count)
        return lp


OPTIONS: dict[str, Any] = {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0, "random_seed": 0}
