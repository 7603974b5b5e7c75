"""Symbolic integers: polynomials in extents, attributes and indices, with the facts that are assumed of them.

Extents are at least 1. A place in row-major order is a polynomial; delinearising it into digits is a division whose
remainder is proved to be smaller than the divisor, so a reshape is a regrouping of digits. What is not proved stays an
atom `div`, and p mod n is p − n · (p div n): digits put together again give the place back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

Monomial = tuple[int, ...]  # numbers of atoms in order, repeated by degree
DEPTH = 6  # how deep a bound is looked for
WORK = 100_000  # bounds looked for, before a proof is given up
REMAINDER = "rest"  # of an unknown that is divided by a number
_serial: dict[Any, int] = {}
_keys: list[Any] = []


def atom_number(key: Any) -> int:
    """Return the number of an atom (hash-consing): equal keys have one number."""
    number = _serial.get(key)
    if number is None:
        number = _serial[key] = len(_keys)
        _keys.append(key)
    return number


def key_of(number: int) -> Any:
    """Return the key of an atom."""
    return _keys[number]


@dataclass(slots=True, eq=False)  # a proof makes millions: nothing assigns to one, and to be frozen would double what making it costs
class Poly:
    """A polynomial with integer coefficients, its monomials in order."""

    terms: tuple[tuple[Monomial, int], ...]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Poly) and self.terms == other.terms)

    def __hash__(self) -> int:
        return hash(self.terms)

    def __add__(self, other: Poly | int) -> Poly:
        terms = as_poly(other).terms
        if not terms:
            return self
        coefficients = dict(self.terms)
        for m, c in terms:
            coefficients[m] = coefficients.get(m, 0) + c
        return _poly_of(coefficients)

    def __sub__(self, other: Poly | int) -> Poly:
        terms = as_poly(other).terms
        if not terms:
            return self
        coefficients = dict(self.terms)
        for m, c in terms:
            coefficients[m] = coefficients.get(m, 0) - c
        return _poly_of(coefficients)

    def __mul__(self, other: Poly | int) -> Poly:
        factor = as_poly(other)
        if self is ONE or factor is ONE:
            return factor if self is ONE else self
        coefficients: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in factor.terms:
                key = tuple(sorted(m + n))
                coefficients[key] = coefficients.get(key, 0) + c * d
        return _poly_of(coefficients)

    def times(self, factor: int) -> Poly:
        """Return the product with a number."""
        return Poly(tuple((m, c * factor) for m, c in self.terms)) if factor else ZERO

    @property
    def number(self) -> int | None:
        """The value of a constant, None of any other polynomial."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def atoms(self) -> frozenset[int]:
        """The atoms that occur."""
        return frozenset(a for m, _ in self.terms for a in m)

    def substitute(self, atom: int, value: Poly) -> Poly:
        """Return the polynomial with a value substituted for an atom."""
        if all(atom not in m for m, _ in self.terms):
            return self
        coefficients: dict[Monomial, int] = {}
        for m, c in self.terms:
            remaining = tuple(a for a in m if a != atom)
            term = Poly(((remaining, c),))
            for _ in range(len(m) - len(remaining)):
                term = term * value
            for n, d in term.terms:
                coefficients[n] = coefficients.get(n, 0) + d
        return _poly_of(coefficients)


def _poly_of(coefficients: Mapping[Monomial, int]) -> Poly:
    terms = [term for term in coefficients.items() if term[1]]
    terms.sort()
    return Poly(tuple(terms))


ZERO = Poly(())


@cache
def _constant(x: int) -> Poly:
    return Poly((((), x),)) if x else ZERO


ONE = _constant(1)


def as_poly(x: Poly | int) -> Poly:
    """Return a number as a polynomial."""
    return x if isinstance(x, Poly) else _constant(x)


@cache
def atom(key: Any) -> Poly:
    """Return an atom as a polynomial."""
    return Poly((((atom_number(key),), 1),))


def atom_of(number: int) -> Poly:
    """Return an atom of which the number is known."""
    return Poly((((number,), 1),))


def product(factors: Iterable[Poly | int]) -> Poly:
    """Return the product of some polynomials."""
    result = ONE
    for x in factors:
        result = result * x
    return result


def monomial_quotient(m: Monomial, part: Monomial) -> Monomial | None:
    """Return a monomial divided by another, None where the quotient is no monomial."""
    remaining = list(m)
    for a in part:
        if a not in remaining:
            return None
        remaining.remove(a)
    return tuple(remaining)


class TooMuchWork(Exception):
    """A proof asks for more bounds than may be tried."""


class Contradiction(Exception):
    """The assumptions have no solution: there is no instance."""


@dataclass
class Facts:
    """Assumptions on integers: values of atoms, equal monomials, polynomials that are not negative, bounds of atoms."""

    values: dict[int, Poly] = field(default_factory=dict)
    rewrites: list[tuple[Monomial, Monomial]] = field(default_factory=list)
    inequalities: list[Poly] = field(default_factory=list)
    equations: list[Poly] = field(default_factory=list)  # polynomials that are 0 and gave no value yet
    lower_bounds: dict[int, int] = field(default_factory=dict)
    upper_bounds: dict[int, Poly] = field(default_factory=dict)
    work: int = WORK
    revision: int = 0
    answer_cache: dict[tuple[Poly, int], bool] = field(default_factory=dict)  # under what is assumed now
    answer_state: tuple[int, ...] = ()
    normal_forms: dict[Poly, Poly] = field(default_factory=dict)  # normal forms under these equations
    normal_state: tuple[int, ...] = ()
    joins: dict[frozenset[Poly], Poly] = field(default_factory=dict)  # extents that broadcast, and to what
    joined_parts: dict[Poly, frozenset[Poly]] = field(default_factory=dict)  # the other way round
    widenings: set[tuple[Poly, Poly]] = field(default_factory=set)  # extents that are another one or 1

    def extent(self, key: Any) -> Poly:
        """Return a fresh unknown that is at least 1."""
        self.lower_bounds[atom_number(key)] = 1
        return atom(key)

    def amount(self, key: Any) -> Poly:
        """Return a fresh unknown that is at least 0."""
        self.lower_bounds[atom_number(key)] = 0
        return atom(key)

    def join(self, a: Poly, b: Poly, *, assumed: bool) -> Poly | None:
        """Return the extent that two broadcast to, as an atom; None where it is neither known nor `assumed` that they do."""
        parts = (self.joined_parts.get(a) or frozenset((a,))) | (self.joined_parts.get(b) or frozenset((b,)))
        if parts not in self.joins:
            if not assumed and not any(parts <= members for members in self.joins):
                return None
            extent = self.joins[parts] = self.extent(("joined", parts))
            self.joined_parts[extent] = parts
        return self.joins[parts]

    def broadcast_index(self, i: Poly, wide: Poly, n: Poly) -> Poly:
        """Return the index at which an extent n is read when it is broadcast to `wide`: the index itself, 0 where n is 1."""
        wide, n = self.norm(wide), self.norm(n)
        if n.number == 1 or i == ZERO:
            return ZERO
        if n == wide:
            return i
        for read in map(key_of, i.atoms):
            if read[0] == "within" and atom(read) == i and self.may_broadcast(n, read[2]):  # of an extent between
                return self.broadcast_index(read[1], wide, n)
        return self.index(("within", i, n), n)

    def may_broadcast(self, n: Poly, wide: Poly) -> bool:
        """Tell whether an extent is known to broadcast to another: it is that one, or 1."""
        parts = self.joined_parts.get(wide, frozenset((wide,)))
        return n in parts or any(narrow == n and target in (wide, *parts) for narrow, target in self.widenings)

    def index(self, key: Any, extent: Poly) -> Poly:
        """Return an index atom in 0 … extent − 1; it is 0 for an extent of 1."""
        extent = self.norm(extent)
        if extent.number == 1:
            return ZERO
        self.lower_bounds[atom_number(key)] = 0
        self.upper_bounds[atom_number(key)] = extent - 1
        return atom(key)

    def norm(self, p: Poly) -> Poly:
        """Return a polynomial in normal form under the equations."""
        if not self.values and not self.rewrites:
            return p
        equations_state = (len(self.values), len(self.rewrites), self.revision)
        if equations_state != self.normal_state:
            self.normal_state = equations_state
            self.normal_forms.clear()
        normal = self.normal_forms.get(p)
        if normal is None:
            normal = self.normal_forms[p] = self._norm(p)
        return normal

    def _norm(self, p: Poly) -> Poly:
        for _ in range(100):
            previous = p
            for a in p.atoms & self.values.keys():
                p = p.substitute(a, self.values[a])
            for m, n in self.rewrites:
                p = _poly_of_sum((_rewritten(t, m, n), c) for t, c in p.terms)
            if p == previous:
                return p
        return p

    def equal(self, p: Poly, q: Poly) -> bool:
        """Tell whether two polynomials are equal under the equations."""
        return self.norm(p - q) == ZERO

    def unify(self, p: Poly, q: Poly) -> None:
        """Assume that two polynomials are equal: one unknown is solved for, or equal products are rewritten.

        Raises:
            Contradiction: they cannot be equal.
        """
        gap = self._cancelled(self.norm(p - q))
        if gap == ZERO:
            return
        if self.nonnegative(gap - 1) or self.nonnegative(gap.times(-1) - 1):
            raise Contradiction
        if self._vanishes(gap) or self._solve(gap):
            return
        if len(gap.terms) == 2 and gap.terms[0][1] == -gap.terms[1][1]:
            self._equate(gap.terms[0][0], gap.terms[1][0])
        else:
            self.inequalities += [gap, gap.times(-1)]
            self.equations.append(gap)

    def _cancelled(self, gap: Poly) -> Poly:
        """Return a polynomial without the extents that are a factor of all its terms."""
        for a in sorted(gap.atoms):
            while self.lower_bounds.get(a, 0) > 0 and all(a in m for m, _ in gap.terms):
                gap = Poly(tuple(sorted((monomial_quotient(m, (a,)) or (), c) for m, c in gap.terms)))
        return gap

    def _vanishes(self, gap: Poly) -> bool:
        """Assume that amounts whose sum is 0 are all 0."""
        signs = {c > 0 for _, c in gap.terms}
        amounts = all(len(m) == 1 and self.lower_bounds.get(m[0]) == 0 and self._may_vanish(m[0]) for m, _ in gap.terms)
        if len(signs) != 1 or not amounts:
            return False
        self.values.update((m[0], ZERO) for m, _ in gap.terms)
        self._renew()
        return True

    def _solve(self, gap: Poly) -> bool:
        for m, c in sorted(gap.terms, key=lambda t: (-self.lower_bounds.get(t[0][0], 0) if t[0] else 0, t)):
            if len(m) == 1 and abs(c) == 1 and self._may_be_solved(m[0]) and not any(m[0] in n for n, _ in gap.terms if n != m):
                value = (gap - Poly(((m, c),))).times(-c)
                self.values[m[0]] = value
                self.assume(value - self.lower_bounds[m[0]])
                self._renew()
                return True
        return False

    def _may_vanish(self, a: int) -> bool:
        """Tell whether an atom may be assumed to be 0: it is no index of a comparison."""
        return a not in self.upper_bounds or key_of(a)[0] == REMAINDER

    def _may_be_solved(self, a: int) -> bool:
        """Tell whether an atom may be replaced by a value: its least value is known, and it is no index."""
        return a in self.lower_bounds and a not in self.upper_bounds

    def _renew(self) -> None:
        """Assume all equations of products again: other atoms stand for themselves now."""
        self.revision += 1
        old_rewrites, self.rewrites = self.rewrites, []
        gaps, self.equations = self.equations, []
        for m, n in old_rewrites:
            self.unify(Poly(((m, 1),)), Poly(((n, 1),)))
        for gap in gaps:
            self.unify(gap, ZERO)

    def _equate(self, m: Monomial, n: Monomial) -> None:
        """Assume that two products of extents are equal: what they share is cancelled, the later atoms are replaced."""
        shared = [a for a in m if a in n]
        for a in list(shared):
            left, right = monomial_quotient(m, (a,)), monomial_quotient(n, (a,))
            if left is not None and right is not None and self.lower_bounds.get(a, 0) > 0:
                m, n = left, right
        if not m or not n:  # factors of 1 are 1
            ones = {a for a in (*m, *n) if self.lower_bounds.get(a, 0) > 0}
            self.values.update((a, as_poly(1)) for a in ones)
            self._renew()
        elif len(m) < 2 or len(n) < 2:
            self.unify(Poly(((m, 1),)), Poly(((n, 1),)))
        elif m != n:
            self.rewrites.append((max(m, n), min(m, n)))

    def assume(self, p: Poly) -> None:
        """Assume that a polynomial is not negative.

        Raises:
            Contradiction: it is proved to be negative.
        """
        p = self.norm(p)
        if self.nonnegative(p.times(-1) - 1):
            raise Contradiction
        if not self.nonnegative(p):
            self.inequalities.append(p)
            self._tighten(p)

    def nonnegative(self, p: Poly, depth: int = DEPTH) -> bool:
        """Tell whether a polynomial is proved not to be negative; False decides nothing.

        Raises:
            TooMuchWork: the budget of bounds is used up.
        """
        state = (len(self.inequalities), len(self.values), len(self.rewrites), self.revision)
        if state != self.answer_state:
            self.answer_state = state
            self.answer_cache.clear()
        answer = self.answer_cache.get((p, depth))
        if answer is None:
            answer = self.answer_cache[p, depth] = self._is_nonnegative(p, depth)
        return answer

    def drop_assumptions(self, count: int, atoms: frozenset[int]) -> None:
        """Drop what was assumed of some atoms after the first so many assumptions."""
        self.inequalities[count:] = [p for p in self.inequalities[count:] if not p.atoms & atoms]
        self.revision += 1

    def _is_nonnegative(self, p: Poly, depth: int) -> bool:
        self.work -= 1
        if self.work < 0:
            raise TooMuchWork
        p = self.norm(p)
        if self._is_plainly_nonnegative(p):
            return True
        if not depth:
            return False
        indices = sorted(p.atoms & self.upper_bounds.keys(), reverse=True)
        if any(key_of(a)[0] == REMAINDER for a in indices) and any(
            self._is_plainly_nonnegative(self.norm(p - f)) for f in self.inequalities
        ):
            return True
        for a in indices:
            slope, intercept = self.slope(p, a)
            if slope is not None and self.nonnegative(slope, depth - 1):
                return self.nonnegative(intercept, depth - 1)
            if slope is not None and self.nonnegative(slope.times(-1), depth - 1):
                return self.nonnegative(intercept + slope * self.upper_bounds[a], depth - 1)
        cancelled = self._cancelled(p)
        if cancelled != p:
            return self.nonnegative(cancelled, depth)
        return any(
            self._is_plainly_nonnegative(self.norm(p - f)) or (depth > DEPTH - 2 and self.nonnegative(p - f, 1)) for f in self.inequalities
        )

    def slope(self, p: Poly, a: int) -> tuple[Poly | None, Poly]:
        """Return p as slope · a + intercept, with no slope where the atom a is not linear in p."""
        slope, intercept = dict[Monomial, int](), dict[Monomial, int]()
        for m, c in p.terms:
            if m.count(a) > 1:
                return None, p
            if a in m:
                slope[tuple(x for x in m if x != a)] = c
            else:
                intercept[m] = c
        return _poly_of(slope), _poly_of(intercept)

    def _is_plainly_nonnegative(self, p: Poly) -> bool:
        """Tell whether no coefficient is negative when every atom is its least value and something more."""
        least, has_negative = 0, False  # the value where every atom is its least one
        for m, c in p.terms:
            bounds = [self.lower_bounds.get(a) for a in m]
            if None in bounds:
                return False
            least += c if all(bounds) else 0
            has_negative |= c < 0
        if not has_negative:
            return True
        if least < 0:
            return False
        coefficients: dict[Monomial, int] = {}
        for m, c in p.terms:
            vanishing, positive = [a for a in m if not self.lower_bounds[a]], [a for a in m if self.lower_bounds[a]]
            for subset in _parts(tuple(positive)):
                key = tuple(sorted((*vanishing, *subset)))
                coefficients[key] = coefficients.get(key, 0) + c
        return all(c >= 0 for c in coefficients.values())

    def floor_quotient(self, p: Poly, n: Poly) -> Poly:
        """Return p div n for n ≥ 1: exactly where the remainder is proved to be in 0 … n − 1, else with a `div` atom."""
        p, n = self.norm(p), self.norm(n)
        if n.number == 1:
            return p
        self._split_dividend(p, n)
        quotient, remainder = long_division(self.norm(p), n)
        if self.nonnegative(remainder) and self.nonnegative(n - 1 - remainder):
            return quotient
        for factor in _factors(n):  # ⌊(f·a + b) / (f·m)⌋ = ⌊a / m⌋ for 0 ≤ b < f
            digit, offset = long_division(remainder, factor)
            if self.nonnegative(factor - 1) and self.nonnegative(offset) and self.nonnegative(factor - 1 - offset):
                return quotient + self.floor_quotient(digit, long_division(n, factor)[0])
        if n.number == 2 and self._is_rest_and_one(remainder):  # ⌈r / 2⌉ = r for a rest r of a division by 2
            return quotient + remainder - 1
        nested = self._nested(remainder)
        if nested is not None:  # ⌊(⌊p / m⌋ + b) / n⌋ = ⌊(p + b·m) / (m·n)⌋
            p, m, offset = nested
            return quotient + self.floor_quotient(p + offset * m, m * n)
        quotient_atom = atom(("div", remainder, n))
        number = atom_number(("div", remainder, n))
        if number not in self.lower_bounds and self.nonnegative(remainder):
            self.lower_bounds[number] = 0
            self.inequalities += [remainder - n * quotient_atom, n * quotient_atom + n - 1 - remainder]
        return quotient + quotient_atom

    def _is_rest_and_one(self, p: Poly) -> bool:
        """Tell whether a polynomial is an unknown that is 0 or 1, and 1."""
        terms = (p - 1).terms
        return len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and self.upper_bounds.get(terms[0][0][0]) == as_poly(1)

    def _nested(self, p: Poly) -> tuple[Poly, Poly, Poly] | None:
        """Return dividend and divisor of the only quotient of unknowns in a sum, and what is added to it; None where there is no such."""
        divisions = [a for a in p.atoms if key_of(a)[0] == "div"]
        if len(divisions) != 1 or self.slope(p, divisions[0])[0] != as_poly(1) or not self._is_of_unknowns(p):
            return None
        _, dividend, divisor = key_of(divisions[0])
        return dividend, divisor, self.slope(p, divisions[0])[1]

    def _split_dividend(self, p: Poly, n: Poly) -> None:
        """Write an unknown that is divided by a number as that number times a quotient, plus a remainder."""
        if p.terms and not p.terms[0][0]:  # a number is added to it
            p = Poly(p.terms[1:])
        if n.number is None or n.number < 2 or len(p.terms) != 1 or p.terms[0][1] != 1 or len(p.terms[0][0]) != 1:
            return
        ((dividend_atom,), _) = p.terms[0]
        if not self._may_be_solved(dividend_atom) or key_of(dividend_atom)[0] == "div":
            return
        self.values[dividend_atom] = self.amount(("quotient", p, n)) * n + self.index((REMAINDER, p, n), n)
        self.assume(self.values[dividend_atom] - self.lower_bounds[dividend_atom])
        for f in [f for f in self.inequalities if dividend_atom in f.atoms]:
            self._tighten(self.norm(f))
        self._renew()

    def _tighten(self, p: Poly) -> None:
        """Learn lower bounds from c · product ≥ number, remainders of divisions eliminated."""
        if not self._is_of_unknowns(p):
            return
        for a in p.atoms & self.upper_bounds.keys():
            slope, intercept = self.slope(p, a)
            if slope is not None and self.nonnegative(slope):
                p = intercept + slope * self.upper_bounds[a]
        low = p.terms[0][1] if p.terms and not p.terms[0][0] else 0
        product_of, c = p.terms[-1] if p.terms else ((), 0)
        if low < 0 < c and len(p.terms) == 2 and all(map(self._may_be_solved, product_of)):
            least = -(low // c) if len(product_of) == 1 else 1  # a product of amounts is not 0: none of them is
            self.lower_bounds.update((a, max(self.lower_bounds[a], least)) for a in product_of)
            self.revision += 1

    def _is_of_unknowns(self, p: Poly) -> bool:
        """Tell whether a polynomial reads no index: what is known of one holds only where its range is not empty."""
        keys = [key_of(a) for a in p.atoms if a in self.upper_bounds or key_of(a)[0] == "div"]
        return all(k[0] == REMAINDER or (k[0] == "div" and self._is_of_unknowns(k[1]) and self._is_of_unknowns(k[2])) for k in keys)

    def digits(self, place: Poly, shape: Sequence[Poly]) -> list[Poly]:
        """Delinearise a row-major place: return one index an axis."""
        indices, remainder = [], self.norm(place)
        for n in range(len(shape)):
            weight = self.norm(product(shape[n + 1 :]))
            digit = (
                as_poly(0)
                if self.norm(shape[n]).number == 1
                else self.floor_quotient(remainder, weight)
                if n + 1 < len(shape)
                else remainder
            )
            indices.append(digit)
            remainder = self.norm(remainder - digit * weight)
        return indices


def place_of(index: Sequence[Poly], shape: Sequence[Poly]) -> Poly:
    """Return the row-major place of an index."""
    return _row_major_place(tuple(index), tuple(shape))


@lru_cache(maxsize=1 << 14)  # the same indices come in many permutations
def _row_major_place(index: tuple[Poly, ...], shape: tuple[Poly, ...]) -> Poly:
    place = ZERO
    for i, n in zip(index, shape, strict=True):
        place = place * n + i
    return place


@cache
def _parts(atoms: Monomial) -> tuple[Monomial, ...]:
    """Return the products that (1 + a) · (1 + b) · … is the sum of."""
    return tuple(tuple(itertools.compress(atoms, mask)) for mask in itertools.product((0, 1), repeat=len(atoms)))


def _factors(n: Poly) -> list[Poly]:
    """Return factors of a product: its number, and its unknowns."""
    if len(n.terms) != 1:
        return []
    ((m, c),) = n.terms
    unknowns = [Poly(((m, 1),))] if c > 1 and m else []
    return [*unknowns, *(atom_of(a) for a in dict.fromkeys(m) if len(m) > 1), *([as_poly(c)] if c > 1 and m else [])]


def _rewritten(m: Monomial, old: Monomial, new: Monomial) -> Monomial:
    while (quotient := monomial_quotient(m, old)) is not None:
        m = tuple(sorted(quotient + new))
    return m


def _poly_of_sum(terms: Iterable[tuple[Monomial, int]]) -> Poly:
    coefficients: dict[Monomial, int] = {}
    for m, c in terms:
        coefficients[m] = coefficients.get(m, 0) + c
    return _poly_of(coefficients)


def long_division(p: Poly, n: Poly) -> tuple[Poly, Poly]:
    """Return quotient and remainder of a division by the leading term of n, the one with the most atoms."""
    lead, factor = max(n.terms, key=lambda t: (len(t[0]), t))
    quotient, remainder = ZERO, ZERO
    for _ in range(200):
        if p == ZERO:
            break
        m, c = max(p.terms, key=lambda t: (len(t[0]), t))
        part = monomial_quotient(m, lead)
        if part is None or c % factor:
            multiple = c // factor if part is not None else 0
            remainder = remainder + Poly(((m, c - multiple * factor),))
            p = p - Poly(((m, c - multiple * factor),))
            if not multiple:
                continue
            c = multiple * factor
        step = Poly(((part, c // factor),)) if part is not None else ZERO
        quotient, p = quotient + step, p - step * n
    return quotient, remainder + p
