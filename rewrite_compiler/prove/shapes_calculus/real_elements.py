"""Real elements at symbolic indices: normal forms with conditions on the index and sums of unknown length.

An element is a sum of terms; a term is a number, conditions (integers that are not negative) and atoms: what is read from
an operand at a place, applications of functions, sums and extrema over ranges. A sum is split where a condition cuts its
range, and its index into digits where it is divided; its bound variables are renamed canonically.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ...ops.order import Order
from .atom_keys import height_of, integer_atoms, renamed
from .image_lemma import Range, merge_indices, open_range, rising
from .polynomials import ZERO, Facts, Poly, atom, atom_number, atom_of, key_of, long_division, product

Conditions = frozenset[Poly]
Term = tuple[Conditions, tuple[int, ...]]  # conditions, and the numbers of its atoms in order
MAX_TERMS = 4_000  # terms
SPLITS = 8  # nested cases of one comparison
MAX_VARIABLES = 4  # of one sum, whose order is normalised


class NotProved(Exception):
    """An element has no normal form here: the proof stops without a verdict."""


class ShapeMismatch(NotProved):
    """A shape rule is not satisfied: a left side has no instance, and of a right side nothing is proved."""


@dataclass(frozen=True)
class Real:
    """A sum of terms with rational coefficients."""

    terms: Mapping[Term, Fraction]

    @property
    def frozen(self) -> frozenset[Any]:
        """The value as a part of a key."""
        return frozenset(self.terms.items())

    @property
    def number(self) -> Fraction | None:
        """The value of a constant, None of anything else."""
        if not self.terms:
            return Fraction(0)
        (first, *rest) = self.terms.items()
        return first[1] if not rest and first[0] == UNIT_TERM else None


UNIT_TERM: Term = (frozenset(), ())
EXPONENTS = {"call sqrt": (2, 1), "rdiv": (1, -1)}  # of a factor 2^step in the last operand: 2^power outside
ZERO_ELEMENT = Real({})
Element = Callable[..., Real]


def number(x: Fraction | int) -> Real:
    """Return a number."""
    return Real({UNIT_TERM: Fraction(x)}) if x else ZERO_ELEMENT


@dataclass
class Reals:
    """Builds and compares elements under the facts assumed of integers."""

    facts: Facts
    fresh: Any = field(default_factory=itertools.count)
    order: Order = field(default_factory=Order)  # what the guard says of float attributes

    def atom(self, *key: Any) -> Real:
        """Return the element that is one atom."""
        return Real({(frozenset(), (atom_number(key),)): Fraction(1)})

    def read(self, name: str, place: Poly) -> Real:
        """Return an operand's element at a row-major place."""
        return self.atom("read", name, self.facts.norm(place))

    def add(self, *parts: Real) -> Real:
        """Return a sum."""
        return self._collect((t, c) for p in parts for t, c in p.terms.items())

    def scaled(self, x: Real, factor: Fraction | int) -> Real:
        """Return the product with a number."""
        return Real({t: c * factor for t, c in x.terms.items()}) if factor else ZERO_ELEMENT

    def multiply(self, a: Real, b: Real) -> Real:
        """Return a product."""
        pairs = itertools.product(a.terms.items(), b.terms.items())
        return self._collect(((s[0] | t[0], tuple(sorted(s[1] + t[1]))), c * d) for (s, c), (t, d) in pairs)

    def _collect(self, terms: Iterable[tuple[Term, Fraction]]) -> Real:
        coefficients: dict[Term, Fraction] = {}
        for (conditions, atoms), c in terms:
            reduced = self.consistent_conditions(conditions)
            if reduced is not None:
                coefficients[reduced, atoms] = coefficients.get((reduced, atoms), Fraction(0)) + c
            if len(coefficients) > MAX_TERMS:
                raise NotProved
        return Real({t: c for t, c in coefficients.items() if c})

    def consistent_conditions(self, conditions: Conditions) -> Conditions | None:
        """Return conditions without those that the others imply, None where they contradict each other."""
        if not conditions:
            return conditions
        independent: list[Poly] = []
        for p in sorted({self.facts.norm(p) for p in conditions}, key=lambda p: p.terms):
            if self.facts.nonnegative(p):
                continue
            if self.facts.nonnegative(p.times(-1) - 1) or any(self.facts.nonnegative((p + q).times(-1) - 1) for q in independent):
                return None
            if not any(self.facts.nonnegative(p - q) for q in independent):
                independent = [*(q for q in independent if not self.facts.nonnegative(q - p)), p]
        return frozenset(independent)

    def choose(self, conditions: Sequence[Poly], a: Real, b: Real) -> Real:
        """Return a where no condition is negative, else b, as a sum of disjoint cases."""
        parts = [self._restrict(a, frozenset(conditions))]
        for n, p in enumerate(conditions):
            parts.append(self._restrict(b, frozenset((*conditions[:n], p.times(-1) - 1))))
        return self.add(*parts)

    def _restrict(self, x: Real, conditions: Conditions) -> Real:
        return self._collect(((c | conditions, atoms), factor) for (c, atoms), factor in x.terms.items())

    def under_condition(self, x: Real, p: Poly) -> Real:
        """Return an element restricted to where a condition holds."""
        terms = []
        for (conditions, atoms), c in x.terms.items():
            if self.consistent_conditions(conditions | {p}) is not None:
                terms.append(((frozenset(q for q in conditions if not self.facts.nonnegative(q - p)), atoms), c))
        return self._collect(terms)

    def apply(self, function: str, *operands: Real) -> Real:
        """Return the application of a function, distributed over the cases of its operands."""
        condition = next((p for x in operands for conditions, _ in x.terms for p in sorted(conditions, key=lambda p: p.terms)), None)
        if condition is None:
            return self._applied(function, operands)
        opposite = condition.times(-1) - 1
        yes, no = (self.apply(function, *(self.under_condition(x, p) for x in operands)) for p in (condition, opposite))
        return self.add(self._restrict(yes, frozenset((condition,))), self._restrict(no, frozenset((opposite,))))

    def _applied(self, function: str, operands: Sequence[Real]) -> Real:
        if function == "rdiv" and operands[1].number:
            return self.scaled(operands[0], 1 / Fraction(operands[1].number))
        if function == "rdiv" and self._is_count(operands[1]):
            return self._divide_by_count(*operands)
        if function in EXPONENTS and operands[-1].number is None:
            return self._without_powers_of_two(function, operands)
        if function in ("max", "min"):
            members = self._undominated(function, frozenset().union(*(self._members(function, x) for x in operands)))
            if len(members) == 1:
                return Real(dict(next(iter(members))))
            return operands[0] if len(members) == 1 else self.atom(function, "of", members)
        return self.atom("call", function, *(x.frozen for x in operands))

    def _without_powers_of_two(self, function: str, operands: Sequence[Real]) -> Real:
        """Return √(4^k · y) as 2^k · √y, and x / (2^k · y) as 2^-k · x / y."""
        *others, last = operands
        step, power = EXPONENTS[function]
        k = power_of_two(last) // step
        inner = self.atom("call", function, *(x.frozen for x in others), self.scaled(last, Fraction(2) ** (-k * step)).frozen)
        return self.scaled(inner, Fraction(2) ** (k * power))

    def _is_count(self, x: Real) -> bool:
        """Tell whether an element is a multiple of an integer that is at least 1."""
        (((conditions, atoms), c), *others) = x.terms.items() or ((UNIT_TERM, 0),)
        keys = [key_of(a) for a in atoms]
        return bool(c and keys and not conditions and not others) and all(
            k[0] == "integer" and self.facts.nonnegative(k[1] - 1) for k in keys
        )

    def _divide_by_count(self, x: Real, n: Real) -> Real:
        """Return x / n for n that is not 0: numbers come out of both."""
        if not x.terms:
            return ZERO_ELEMENT
        single_atom = self._single_atom(x)
        if single_atom is not None and key_of(single_atom)[:2] == ("call", "rdiv"):  # (x / m) / n = x / (m · n)
            dividend, by_before = (Real(dict(part)) for part in key_of(single_atom)[2:])
            if self._is_count(by_before):
                return self._divide_by_count(dividend, self.multiply(by_before, n))
        times, ((_, atoms),), (by,) = min(x.terms.items(), key=lambda t: term_order(t[0]))[1], n.terms, n.terms.values()
        dividend, count = self.scaled(x, 1 / times), self.atom("integer", self.facts.norm(product(key_of(a)[1] for a in atoms)))
        return self.scaled(self.atom("call", "rdiv", dividend.frozen, count.frozen), times / by)

    def _members(self, function: str, x: Real) -> frozenset[Any]:
        """Return the operands of an extremum, those of another one inside it among them."""
        single_atom = self._single_atom(x)
        if single_atom is not None and key_of(single_atom)[:2] == (function, "of"):
            members: frozenset[Any] = key_of(single_atom)[2]
            return members
        return frozenset((x.frozen,))

    def _undominated(self, function: str, members: frozenset[Any]) -> frozenset[Any]:
        """Return the operands of an extremum without numbers and float attributes that the guard's order makes redundant."""
        sides = {m: s for m in members if (s := comparison_side(m)) is not None}
        undominated = dict(sides)
        for m, s in sides.items():
            competitors = (o for n, o in undominated.items() if n != m)
            if any(self.order.is_below(s, o) if function == "max" else self.order.is_below(o, s) for o in competitors):
                del undominated[m]
        return members - (sides.keys() - undominated.keys())

    # -- ranges

    def total(self, extents: Sequence[Poly], element: Element) -> Real:
        """Return the sum of element(i, …) over ranges of unknown length."""
        extents = [self.facts.norm(e) for e in extents]
        variables, body = self._body(extents, element)
        split = self._split(extents, variables, body, element)
        if split is not None:
            return self.add(*(self.total(e, f) for e, f in split))
        return self.add(*(self._summed(extents, variables, t, c) for t, c in body.terms.items()))

    def extremum(self, kind: str, extents: Sequence[Poly], element: Element) -> Real:
        """Return the largest or smallest element(i, …) over ranges of unknown length.

        Raises:
            NotProved: the element has cases that depend on an index.
        """
        extents = [self.facts.norm(e) for e in extents]
        variables, body = self._body(extents, element)
        split = self._digits(extents, variables, body, element)
        if split is not None:
            return self.extremum(kind, *split)
        if any(conditions for conditions, _ in body.terms):
            raise NotProved
        if not any(v.atoms for v in variables):
            return body
        parts = self._outside(variables, body)
        if parts is not None:
            offset, factor, remainder = parts
            return self.add(offset, self.scaled(self._extremum_of(kind, extents, variables, remainder), factor))
        return self._extremum_of(kind, extents, variables, body)

    def _outside(self, variables: Sequence[Poly], body: Real) -> tuple[Real, Fraction, Real] | None:
        """Return a + c · y for what an extremum goes over: a has none of its indices, c is a power of two; None where it is y alone."""
        bound_atoms = {a for v in variables for a in v.atoms}
        inner = {t: c for t, c in body.terms.items() if any(integer_atoms(key_of(a)) & bound_atoms for a in t[1])}
        factor = Fraction(2) ** power_of_two(Real(inner))
        if not inner or (len(inner) == len(body.terms) and factor == 1):
            return None
        offset = Real({t: c for t, c in body.terms.items() if t not in inner})
        return offset, factor, self.scaled(Real(inner), 1 / factor)

    def _extremum_of(self, kind: str, extents: Sequence[Poly], variables: Sequence[Poly], body: Real) -> Real:
        """Return the extremum of an element that depends on the indices."""
        index_range = Range(*_ranges(extents, variables), body.frozen)
        inner_atom = self._single_atom(body)
        if inner_atom is not None and key_of(inner_atom)[:2] == (kind, "over"):  # an extremum of extrema is one
            inner_range = open_range(self.facts, self.fresh, key_of(inner_atom)[2])
            index_range = Range(
                [*index_range.extents, *inner_range.extents], [*index_range.variables, *inner_range.variables], inner_range.body
            )
        return self.atom(kind, "over", self._canonical_range(index_range, counted=False))

    def _single_atom(self, x: Real) -> int | None:
        """Return the only atom that an element is, None where it is anything else."""
        if len(x.terms) != 1:
            return None
        ((conditions, atoms), c) = next(iter(x.terms.items()))
        return atoms[0] if not conditions and c == 1 and len(atoms) == 1 else None

    def _body(self, extents: Sequence[Poly], element: Element) -> tuple[list[Poly], Real]:
        """Return an element at fresh indices; facts on the indices of a range that may be empty are dropped afterwards."""
        known_count, may_be_empty = len(self.facts.inequalities), not all(self.facts.nonnegative(e - 1) for e in extents)
        variables = [self.facts.index(("v", next(self.fresh)), e) for e in extents]
        body = element(*variables)
        if may_be_empty:
            bound_atoms = {a for v in variables for a in v.atoms}
            dependent_atoms = frozenset(
                a for p in self.facts.inequalities[known_count:] for a in p.atoms if integer_atoms(atom_of(a)) & bound_atoms
            )
            self.facts.drop_assumptions(known_count, dependent_atoms)
        return variables, body

    def _split(self, extents: Sequence[Poly], variables: Sequence[Poly], body: Real, element: Element) -> Any:
        """Return ranges whose sums add up to a sum, None where there is nothing to split."""
        for n, v in ((n, v) for n, v in enumerate(variables) if v.atoms):
            for conditions, _ in body.terms:
                for p in conditions:
                    cut = self._cut(p, v, variables)
                    if cut is not None and self.facts.nonnegative(cut) and self.facts.nonnegative(extents[n] - cut):
                        first = [*extents[:n], cut, *extents[n + 1 :]]
                        last = [*extents[:n], extents[n] - cut, *extents[n + 1 :]]
                        return [(first, element), (last, _shifted(element, n, cut))]
        digits = self._digits(extents, variables, body, element)
        return None if digits is None else [digits]

    def _cut(self, p: Poly, v: Poly, variables: Sequence[Poly]) -> Poly | None:
        """Return where a condition that is linear in one variable begins or ceases to hold, None for any other condition."""
        for sign in (1, -1):
            remainder = p - v.times(sign)
            if not remainder.atoms & {a for x in variables for a in x.atoms}:
                return remainder.times(-1) if sign == 1 else remainder + 1
        return None

    def _digits(self, extents: Sequence[Poly], variables: Sequence[Poly], body: Real, element: Element) -> Any:
        """Return a range as two where its index is divided by a factor of its extent."""
        atoms = integer_atoms(body.frozen)
        for n, v in enumerate(variables):
            for a in sorted(atoms):
                key = key_of(a)
                if key[0] == "div" and key[1] == v:
                    quotient, remainder = long_division(extents[n], key[2])
                    if remainder == ZERO:
                        ranges = [*extents[:n], quotient, key[2], *extents[n + 1 :]]
                        return ranges, _regrouped(element, n, key[2])
        return None

    def _summed(self, extents: Sequence[Poly], variables: Sequence[Poly], term: Term, factor: Fraction) -> Real:
        conditions, atoms = term
        bound_atoms = {a for v in variables for a in v.atoms}
        extents, variables = _ranges(extents, variables)
        inner_atoms = [a for a in atoms if integer_atoms(key_of(a)) & bound_atoms]
        inner_conditions = frozenset(p for p in conditions if p.atoms & bound_atoms)
        outer_factor = Real({(conditions - inner_conditions, tuple(a for a in atoms if a not in inner_atoms)): factor})
        if len(inner_atoms) == 1 and not inner_conditions:
            simplified = self._sum_inside(extents, variables, key_of(inner_atoms[0]))
            if simplified is not None:
                return self.multiply(outer_factor, simplified)
        used_atoms = {x for a in inner_atoms for x in integer_atoms(key_of(a))} | {x for p in inner_conditions for x in p.atoms}
        free_extents = [e for e, v in zip(extents, variables, strict=True) if not v.atoms & used_atoms]
        ranges = [(e, v) for e, v in zip(extents, variables, strict=True) if v.atoms & used_atoms]
        count = self.facts.norm(product(free_extents))
        times = number(count.number) if count.number is not None else self.atom("integer", count)
        if not ranges:
            return self.multiply(outer_factor, times)
        body = (inner_conditions, tuple(inner_atoms))
        summed = self.atom("sum", self._canonical_range(Range([e for e, _ in ranges], [v for _, v in ranges], body), counted=True))
        return self.multiply(self.multiply(outer_factor, times), summed)

    def _sum_inside(self, extents: Sequence[Poly], variables: Sequence[Poly], key: Any) -> Real | None:
        """Return a sum of sums as one, a sum of quotients by one count as a quotient; None where it is neither."""
        bound_atoms = {a for v in variables for a in v.atoms}
        if key[0] == "sum" and not integer_atoms(key[1][1]) & bound_atoms:
            inner_range = open_range(self.facts, self.fresh, key[1])
            return self._summed([*extents, *inner_range.extents], [*variables, *inner_range.variables], inner_range.body, Fraction(1))
        if key[:2] == ("call", "rdiv") and not integer_atoms(key[3]) & bound_atoms:
            dividend, count = (Real(dict(part)) for part in key[2:])
            if self._is_count(count):
                return self._divide_by_count(self.add(*(self._summed(extents, variables, t, c) for t, c in dividend.terms.items())), count)
        return None

    def _canonical_range(self, index_range: Range, *, counted: bool) -> Any:
        """Return a range with as few indices as can be, in the least of all orders of them, the indices named by nesting depth."""
        index_range = rising(self.facts, index_range)
        smaller = merge_indices(self.facts, self.fresh, index_range, counted=counted)
        if smaller is not None:
            return self._canonical_range(smaller, counted=counted)
        extents, variables, body = index_range
        if len(variables) > MAX_VARIABLES:
            raise NotProved
        keys = []
        height = height_of(body)
        for order in itertools.permutations(range(len(variables))):
            names = {next(iter(variables[n].atoms)): atom(("bound", height, k)) for k, n in enumerate(order)}
            key = ("range", tuple(extents[n] for n in order), renamed(body, names))
            keys.append((atom_number(key), key))
        return min(keys)[1]

    # -- comparison

    def equal(self, a: Real, b: Real, depth: int = SPLITS) -> bool:
        """Tell whether two elements are proved to be equal."""
        gap = self.add(a, self.scaled(b, -1))
        if not gap.terms:
            return True
        condition = next((p for conditions, _ in gap.terms for p in sorted(conditions, key=lambda p: p.terms)), None)
        if condition is None or not depth:
            return False
        cases = (condition, condition.times(-1) - 1)
        return all(self.equal(self.under_condition(gap, p), ZERO_ELEMENT, depth - 1) for p in cases)


def comparison_side(member: Any) -> str | float | None:
    """Return a frozen element as a side of a comparison: a number or the name of a float attribute, None for any other."""
    terms = dict(member)
    if not terms:
        return 0.0
    ((conditions, atoms), c), *others = terms.items()
    if others or conditions:
        return None
    if not atoms:
        return float(c) if Fraction(float(c)) == c else None
    if len(atoms) != 1 or c != 1 or key_of(atoms[0])[0] != "float":
        return None
    return str(key_of(atoms[0])[1])


def power_of_two(x: Real) -> int:
    """Return the largest k so that every coefficient is 2^k times a fraction with an odd denominator."""
    exponents = ((c.numerator & -c.numerator).bit_length() - (c.denominator & -c.denominator).bit_length() for c in x.terms.values())
    return min(exponents, default=0)


def term_order(term: Term) -> Any:
    """Return the sort key of a term."""
    return term[1], sorted(p.terms for p in term[0])


def _ranges(extents: Sequence[Poly], variables: Sequence[Poly]) -> tuple[list[Poly], list[Poly]]:
    """Return the ranges of more than one index."""
    pairs = [(e, v) for e, v in zip(extents, variables, strict=True) if v.atoms]
    return [e for e, _ in pairs], [v for _, v in pairs]


def _shifted(element: Element, n: int, by: Poly) -> Element:
    return lambda *i: element(*i[:n], i[n] + by, *i[n + 1 :])


def _regrouped(element: Element, n: int, by: Poly) -> Element:
    return lambda *i: element(*i[:n], i[n] * by + i[n + 1], *i[n + 2 :])
