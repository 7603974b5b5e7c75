"""Products abstracted to an uninterpreted function, for questions about nonlinear integers that z3 leaves open.

A product of terms that are no numbers becomes an application of a function that is commutative and associative, its value
within the products of the operands' bounds. What holds for every such function holds for multiplication. A model of the
abstraction is checked with real multiplication; a spurious one adds the tangent planes of the product at its operands, and
the question is asked again (incremental linearisation: Cimatti et al., TACAS 2017).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import z3

from ...lang import intervals as iv
from ...lang.intervals import Interval
from .solver import Outcome, Verdict, limited_solver, model_values, solve
from .subterms import Subterm, parts_of
from .term_bounds import Bounds

NAME, ROUNDS = "product", 8
MOST_SECONDS = 10.0  # of an idle processor; what it decides it decides soon
SPURIOUS_SOLUTION = "a solution where products are any numbers in their ranges, none for these operands"
LIMITS = {z3.Z3_OP_GE: "low", z3.Z3_OP_LE: "high"}


def refute_by_ranges(constraints: Sequence[z3.BoolRef], seconds: float) -> Verdict:
    """Prove that the constraints have no solution for any products within their bounds; a solution is one of real multiplication."""
    if not any(_has_product(c) for c in constraints):
        return Verdict(Outcome.UNKNOWN, reason="no product of two unknown integers")
    seconds, products = min(seconds, MOST_SECONDS), _Products(constraints)
    abstractions = [products.abstraction_of(c) for c in constraints]
    for n in range(ROUNDS):
        budget = seconds / 2 if n == 0 else seconds / (2 * ROUNDS)
        solver = limited_solver([*abstractions, *products.axioms], budget)
        answer = solver.check()
        if answer != z3.sat:
            return Verdict(Outcome.PROVED) if answer == z3.unsat else Verdict(Outcome.UNKNOWN, reason=solver.reason_unknown())
        model = solver.model()
        values = [z3.Int(name) == value for name, value in model_values(model).items() if isinstance(value, int)]
        verdict = solve([*constraints, *values], budget)
        if verdict.outcome == Outcome.REFUTED:
            return verdict
        products.learn(model)
    return Verdict(Outcome.UNKNOWN, reason=SPURIOUS_SOLUTION)


def _has_product(constraint: z3.BoolRef) -> bool:
    work, visited = [parts_of(constraint)], set[int]()
    while work:
        t = work.pop()
        if t.number in visited:
            continue
        visited.add(t.number)
        if _is_product(t.term) and sum(not z3.is_int_value(p.term) for p in t.parts) > 1:
            return True
        work.extend(t.parts)
    return False


def _is_product(term: z3.ExprRef) -> bool:
    return bool(z3.is_mul(term) and z3.is_int(term))


class _Products:
    """The abstraction of constraints: applications in place of products, with axioms about them."""

    def __init__(self, constraints: Sequence[z3.BoolRef]) -> None:
        self.function = z3.Function(NAME, z3.IntSort(), z3.IntSort(), z3.IntSort())
        self.bounds = Bounds({})
        self.axioms: list[z3.BoolRef] = []
        self.applications: list[z3.ExprRef] = []
        self.rewritten: dict[int, z3.ExprRef] = {}
        self.retained_terms: list[z3.ExprRef] = []
        for term, interval in _limits(constraints):
            self._tighten(term, interval)

    def abstraction_of(self, constraint: z3.BoolRef) -> z3.ExprRef:
        """Return a constraint with applications in place of its products."""
        expanded = z3.simplify(constraint, som=True)
        self.retained_terms.append(expanded)
        work = [parts_of(expanded)]
        while work:
            node = work[-1]
            pending = [p for p in node.parts if p.number not in self.rewritten]
            work.extend(pending)
            if not pending:
                work.pop()
                self.rewritten.setdefault(node.number, self._rebuild(node))
        return self.rewritten[expanded.get_id()]

    def learn(self, model: z3.ModelRef) -> None:
        """Add the tangent planes of products at the operands for which the model's function is not multiplication."""
        for f in self.applications:
            a, b = f.children()
            x, y = (model.eval(t, model_completion=True).as_long() for t in (a, b))
            if model.eval(f, model_completion=True).as_long() == x * y:
                continue
            plane = y * a + x * b - x * y
            upper_right, lower_left = z3.And(a > x, b > y), z3.And(a < x, b < y)
            lower_right, upper_left = z3.And(a > x, b < y), z3.And(a < x, b > y)
            self.axioms += [z3.Implies(a == x, f == x * b), z3.Implies(b == y, f == y * a)]
            self.axioms += [z3.Implies(z3.Or(upper_right, lower_left), f > plane), z3.Implies(z3.Or(lower_right, upper_left), f < plane)]

    def _tighten(self, term: z3.ExprRef, interval: Interval) -> None:
        stored = self.bounds.intervals.get(term.get_id(), iv.EVERYTHING)
        lows, highs = ([x for x in ends if x is not None] for ends in zip(stored, interval, strict=True))
        self.bounds.intervals[term.get_id()] = max(lows, default=None), min(highs, default=None)
        self.bounds.retained_terms.append(term)

    def _rebuild(self, node: Subterm) -> z3.ExprRef:
        self.retained_terms.append(node.term)
        parts = [self.rewritten[p.number] for p in node.parts]
        if _is_product(node.term):
            return self._product(parts)
        is_unchanged = all(a.eq(p.term) for a, p in zip(parts, node.parts, strict=True))
        return node.term if is_unchanged else node.term.update(*parts)

    def _product(self, parts: Sequence[z3.ExprRef]) -> z3.ExprRef:
        numbers = [p for p in parts if z3.is_int_value(p)]
        factors = sorted((f for p in parts if not z3.is_int_value(p) for f in self._factors(p)), key=lambda f: f.get_id())
        product: z3.ExprRef | None = None
        for f in factors:
            product = f if product is None else self._application(product, f)
        for n in numbers:
            product = n if product is None else n * product
        assert product is not None
        return product

    def _factors(self, p: z3.ExprRef) -> Iterator[z3.ExprRef]:
        """Yield the factors of a nested product."""
        if p.decl().name() == NAME and p.num_args() == 2:
            for a in p.children():
                yield from self._factors(a)
        else:
            yield p

    def _application(self, a: z3.ExprRef, b: z3.ExprRef) -> z3.ExprRef:
        application = self.function(a, b)
        if application.get_id() in self.bounds.intervals:
            return application
        self.applications.append(application)
        first, second = self.bounds.of(a), self.bounds.of(b)
        low, high = iv.mul(first, second)
        if a.eq(b):
            low = max(low or 0, 0)
        self._tighten(application, (low, high))
        self.axioms += [
            c for c in (None if low is None else application >= low, None if high is None else application <= high) if c is not None
        ]
        return application


def _limits(constraints: Iterable[z3.BoolRef]) -> Iterator[tuple[z3.ExprRef, Interval]]:
    """Yield the terms that constraints bound, each with its interval."""
    for c in constraints:
        if z3.is_and(c):
            yield from _limits(c.children())
        elif z3.is_app(c) and c.decl().kind() in LIMITS and z3.is_int_value(c.arg(1)):
            n = c.arg(1).as_long()
            yield c.arg(0), (n, None) if LIMITS[c.decl().kind()] == "low" else (None, n)
