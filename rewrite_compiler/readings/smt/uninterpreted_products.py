"""Products as an unknown function: the second engine for questions about integers that z3 leaves open.

A product of terms that are no numbers becomes an application of a function of which three things are known: the order of
its operands does not matter, how they are nested does not matter, and its value lies between the products of their bounds.
What holds for every such function holds for multiplication. Where the question has an answer only for some of them, the
values of its variables are tried with real multiplication, and count only if they are an answer then, too; else the lines
through the operands at which the function was wrong are learnt, and the question is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import z3

from ...lang import intervals as iv
from ...lang.intervals import Interval
from .solver import Verdict, limited, numbers_of, solved
from .subterms import Term, parts_of
from .term_bounds import Bounds

NAME, ROUNDS = "product", 8
MOST_SECONDS = 10.0  # of an idle processor; what it decides it decides soon
OTHERS = "a solution where products are any numbers in their ranges, none for these operands"
LIMITS = {z3.Z3_OP_GE: "low", z3.Z3_OP_LE: "high"}


def refute_by_ranges(constraints: Sequence[z3.BoolRef], seconds: float) -> Verdict:
    """Prove that the constraints have no solution whatever products are between their bounds; a solution is one of real products."""
    if not any(_has_product(c) for c in constraints):
        return Verdict("unknown", reason="no product of two unknown integers")
    seconds, made = min(seconds, MOST_SECONDS), _Products(constraints)
    weaker = [made.without(c) for c in constraints]
    for n in range(ROUNDS):
        given = seconds / 2 if n == 0 else seconds / (2 * ROUNDS)
        solver = limited([*weaker, *made.axioms], given)
        answer = solver.check()
        if answer != z3.sat:
            return Verdict("proved") if answer == z3.unsat else Verdict("unknown", reason=solver.reason_unknown())
        model = solver.model()
        values = [z3.Int(name) == value for name, value in numbers_of(model).items() if isinstance(value, int)]
        real = solved([*constraints, *values], given)
        if real.outcome == "refuted":
            return real
        made.learn(model)
    return Verdict("unknown", reason=OTHERS)


def _has_product(constraint: z3.BoolRef) -> bool:
    work, seen = [parts_of(constraint)], set[int]()
    while work:
        t = work.pop()
        if t.number in seen:
            continue
        seen.add(t.number)
        if _is_product(t.term) and sum(not z3.is_int_value(p.term) for p in t.parts) > 1:
            return True
        work.extend(t.parts)
    return False


def _is_product(term: z3.ExprRef) -> bool:
    return bool(z3.is_mul(term) and z3.is_int(term))


class _Products:
    """Terms without products, and what is known of the applications in their places."""

    def __init__(self, constraints: Sequence[z3.BoolRef]) -> None:
        self.function = z3.Function(NAME, z3.IntSort(), z3.IntSort(), z3.IntSort())
        self.bounds = Bounds({})
        self.axioms: list[z3.BoolRef] = []
        self.applications: list[z3.ExprRef] = []
        self.made: dict[int, z3.ExprRef] = {}
        self.held: list[z3.ExprRef] = []
        for term, interval in _limits(constraints):
            self._bound(term, interval)

    def without(self, constraint: z3.BoolRef) -> z3.ExprRef:
        """Return a constraint with applications in the places of its products."""
        whole = z3.simplify(constraint, som=True)
        self.held.append(whole)
        work = [parts_of(whole)]
        while work:
            here = work[-1]
            waiting = [p for p in here.parts if p.number not in self.made]
            work.extend(waiting)
            if not waiting:
                work.pop()
                self.made.setdefault(here.number, self._rebuilt(here))
        return self.made[whole.get_id()]

    def learn(self, model: z3.ModelRef) -> None:
        """Note what products are along the lines through the operands for which the function was wrong."""
        for f in self.applications:
            a, b = f.children()
            x, y = (model.eval(t, model_completion=True).as_long() for t in (a, b))
            if model.eval(f, model_completion=True).as_long() == x * y:
                continue
            plane = y * a + x * b - x * y
            above, below = z3.And(a > x, b > y), z3.And(a < x, b < y)
            left, right = z3.And(a > x, b < y), z3.And(a < x, b > y)
            self.axioms += [z3.Implies(a == x, f == x * b), z3.Implies(b == y, f == y * a)]
            self.axioms += [z3.Implies(z3.Or(above, below), f > plane), z3.Implies(z3.Or(left, right), f < plane)]

    def _bound(self, term: z3.ExprRef, interval: Interval) -> None:
        known = self.bounds.found.get(term.get_id(), iv.EVERYTHING)
        lows, highs = ([x for x in ends if x is not None] for ends in zip(known, interval, strict=True))
        self.bounds.found[term.get_id()] = max(lows, default=None), min(highs, default=None)
        self.bounds.kept.append(term)

    def _rebuilt(self, here: Term) -> z3.ExprRef:
        self.held.append(here.term)
        parts = [self.made[p.number] for p in here.parts]
        if _is_product(here.term):
            return self._product(parts)
        is_same = all(a.eq(p.term) for a, p in zip(parts, here.parts, strict=True))
        return here.term if is_same else here.term.update(*parts)

    def _product(self, parts: Sequence[z3.ExprRef]) -> z3.ExprRef:
        numbers = [p for p in parts if z3.is_int_value(p)]
        factors = sorted((f for p in parts if not z3.is_int_value(p) for f in self._factors(p)), key=lambda f: f.get_id())
        found: z3.ExprRef | None = None
        for f in factors:
            found = f if found is None else self._application(found, f)
        for n in numbers:
            found = n if found is None else n * found
        assert found is not None
        return found

    def _factors(self, p: z3.ExprRef) -> Iterator[z3.ExprRef]:
        """Yield what a product of products multiplies."""
        if p.decl().name() == NAME and p.num_args() == 2:
            for a in p.children():
                yield from self._factors(a)
        else:
            yield p

    def _application(self, a: z3.ExprRef, b: z3.ExprRef) -> z3.ExprRef:
        found = self.function(a, b)
        if found.get_id() in self.bounds.found:
            return found
        self.applications.append(found)
        first, second = self.bounds.of(a), self.bounds.of(b)
        low, high = iv.mul(first, second)
        if a.eq(b):
            low = max(low or 0, 0)
        self._bound(found, (low, high))
        self.axioms += [c for c in (None if low is None else found >= low, None if high is None else found <= high) if c is not None]
        return found


def _limits(constraints: Iterable[z3.BoolRef]) -> Iterator[tuple[z3.ExprRef, Interval]]:
    """Yield the terms that constraints limit to an interval."""
    for c in constraints:
        if z3.is_and(c):
            yield from _limits(c.children())
        elif z3.is_app(c) and c.decl().kind() in LIMITS and z3.is_int_value(c.arg(1)):
            n = c.arg(1).as_long()
            yield c.arg(0), (n, None) if LIMITS[c.decl().kind()] == "low" else (None, n)
