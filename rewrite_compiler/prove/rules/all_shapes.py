"""Proofs at all shapes: both sides typed and equal where every extent and amount is a symbol, for each rank and permutation.

Ranks, permutations, axes and flags are tried one by one; which of two extents that broadcast is 1 is a case of its own. A
left side assumes its shape rules and its guard, a right side has to prove its own. What is not proved here is no verdict:
the instances judge every rule all the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ...lang.expr import Expr
from ...ops.op import Apply, Variable
from ...ops.op import Tensor as Pattern
from ...ops.order import order_of
from ...ops.static import (
    ELEMENTS,
    Condition,
    Element,
    Ints,
    Inverse,
    ListConcatenation,
    ListLiteral,
    ListsEqual,
    ListSlice,
    ListUpdate,
    NamedList,
    PermutedList,
    RealComparison,
    ShapeOf,
    TermIsTrue,
)
from ...rewrite.domain import OPERAND_RANKS
from ...rewrite.rule import Float, Rule, Str, condition_atoms, free_attribute
from ..shapes_calculus.atom_keys import integer_atoms
from ..shapes_calculus.element_text import element_text, place_text
from ..shapes_calculus.operator_readers import read
from ..shapes_calculus.polynomials import WORK, ZERO, Contradiction, Facts, Poly, TooMuchWork, as_poly, atom, key_of, long_division, product
from ..shapes_calculus.real_elements import NotProved, Real, Reals, ShapeMismatch
from ..shapes_calculus.scalar_questions import equal_as_scalars
from ..shapes_calculus.symbolic_tensors import Tensor, Typing, variable
from ..verdict import Stop, Theorem
from .scalar_laws import is_partial, is_pointwise, scalar_answer

RANKS = (5, 6)  # the largest rank of an operand: the first of these that has an instance
BRANCHES = 40_000  # of ranks, permutations and cases
CASES = 15_000  # of permutations and cases at the same ranks
ENGINE = "index calculus"
SPLITS = 6  # digits of one index of the result
MAX_DIGIT_VALUES = 4  # values of such a digit that are compared one by one


Index = list[list[tuple[Poly, Poly]]]  # of each axis: digits, each with its extent and weight


@dataclass
class _Choices:
    """Walks through all sequences of choices, the last one counting up."""

    script: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    cases: list[int] = field(default_factory=list)  # the counts of choices other than ranks
    at: int = 0
    is_open: bool = False  # whether extents that broadcast are left open
    has_open: bool = False  # whether some were

    def choose(self, options: Sequence[Any], *, is_rank: bool = False) -> Any:
        """Return the option that this walk takes.

        Raises:
            ShapeMismatch: there is none.
            TooMuchWork: the cases at the same ranks are too many.
        """
        if not options:
            raise ShapeMismatch
        if self.at == len(self.script):
            self.script.append(0)
            self.counts.append(len(options))
            self.cases.append(1 if is_rank else len(options))
            if math.prod(self.cases) > CASES:
                raise TooMuchWork
        self.at += 1
        return options[self.script[self.at - 1]]

    def advance(self) -> bool:
        """Go on to the next sequence; tell whether there is one."""
        del self.script[self.at :], self.counts[self.at :], self.cases[self.at :]
        self.at = 0
        while self.script and self.script[-1] + 1 == self.counts[-1]:
            self.script.pop()
            self.counts.pop()
            self.cases.pop()
        if not self.script:
            return False
        self.script[-1] += 1
        return True


class _Assuming(Typing):
    """The shape rules of left sides: what they require is assumed."""

    def __init__(self, reals: Reals, choices: _Choices, settle: Callable[[], None]) -> None:
        super().__init__(reals)
        self.choices = choices
        self.settle = settle  # assumes what the guard says of shapes that are known already: then there is less to choose

    def require_equal(self, a: Poly, b: Poly) -> None:
        """Assume that two extents are equal."""
        self.facts.unify(a, b)

    def require_nonnegative(self, p: Poly) -> None:
        """Assume that a polynomial is not negative."""
        self.facts.assume(p)

    def broadcast_extent(self, a: Poly, b: Poly) -> Poly:
        """Return the extent that two broadcast to: a case where they are equal, and one for either being 1."""
        a, b = self.facts.norm(a), self.facts.norm(b)
        if a == b or 1 in (a.number, b.number):
            return b if a.number == 1 else a
        self.settle()
        a, b = self.facts.norm(a), self.facts.norm(b)
        if a == b or 1 in (a.number, b.number):
            return b if a.number == 1 else a
        if self.choices.is_open:
            self.choices.has_open = True
            return self.facts.join(a, b, assumed=True) or a
        case = self.choices.choose(("equal", "first", "second"))
        self.facts.unify(a, b if case == "equal" else as_poly(1)) if case != "second" else self.facts.unify(b, as_poly(1))
        return b if case == "first" else a

    def require_broadcast(self, a: Poly, b: Poly) -> None:
        """Assume that an extent is another one or 1: a case of each."""
        a, b = self.facts.norm(a), self.facts.norm(b)
        if a == b or a.number == 1:
            return
        if self.choices.is_open:
            self.choices.has_open = True
            self.facts.widenings.add((a, b))
            return
        self.facts.unify(a, self.choices.choose((b, as_poly(1))))


def theorem_of(rule: Rule) -> Theorem | Stop:
    """Return what an engine proves of a rule, or where they stop."""
    if is_pointwise(rule):
        answer = _theorem_on_scalars(rule)
        if isinstance(answer, Theorem) or answer.numbers is not None or is_partial(rule):
            return answer
    for rank in RANKS:
        forms = _forms(rule, rank)
        if isinstance(forms, Stop):
            return forms
        if forms:
            return Theorem(ENGINE, rank, forms)
    return Stop(ENGINE, f"no operands of ranks 0…{RANKS[-1]} satisfy its left side and guard")


def _theorem_on_scalars(rule: Rule) -> Theorem | Stop:
    """Return what is proved of a rule that is pointwise: the calculus takes every operand to have a result, z3 does not."""
    forms = 0 if is_partial(rule) else _forms(replace(rule, where=tuple(c for c in rule.where if isinstance(c, RealComparison))), 0)
    return scalar_answer(rule) if isinstance(forms, Stop) or not forms else Theorem(ENGINE, None)


def _forms(rule: Rule, rank: int) -> int | Stop:
    """Return at how many forms with operands up to a rank a rule is proved, or where the proof stops.

    Which of two extents that broadcast is 1 is left open first; where that does not prove it, each case is a form of its own.
    """
    choices = _Choices(is_open=True)
    forms = _forms_of(rule, rank, choices)
    return _forms_of(rule, rank, _Choices()) if isinstance(forms, Stop) and choices.has_open else forms


def _forms_of(rule: Rule, rank: int, choices: _Choices) -> int | Stop:
    work, forms = WORK, 0
    for _ in range(BRANCHES):
        branch = _Branch(rule, choices, work, rank)
        try:
            forms += branch.holds()
        except Contradiction:  # a left side that what is proved of the right one leaves no instance
            pass
        except TooMuchWork:
            return Stop(ENGINE, f"it gives up after {WORK:,} questions and {CASES:,} cases")
        except NotProved as open_question:
            return Stop(ENGINE, f"{str(open_question) or 'a term has no normal form'}{branch.ranks}")
        except (RecursionError, IndexError, ZeroDivisionError, KeyError, ValueError):
            return Stop(ENGINE, f"a term has no normal form{branch.ranks}")
        work = branch.facts.work
        if not choices.advance():
            return forms
    return Stop(ENGINE, f"it gives up after {BRANCHES:,} forms")


class _Branch:
    """One sequence of choices: types the left sides, assumes the guard, compares."""

    def __init__(self, rule: Rule, choices: _Choices, work: int, rank: int) -> None:
        self.rule = rule
        self.rank = rank
        self.choices = choices
        self.facts = Facts(work=work)
        self.reals = Reals(self.facts, order=order_of(rule.where))
        self.tensors: dict[Variable, Tensor] = {}
        self.results: dict[Any, tuple[Tensor, ...]] = {}
        self.values: dict[Any, Any] = {}
        self.pending_conditions = [c for c in rule.where if isinstance(c, ListsEqual | TermIsTrue)]

    def holds(self) -> bool:
        """Tell whether there are instances; NotProved where the sides are not proved to be equal at them."""
        left = _Assuming(self.reals, self.choices, self.settle)
        try:
            pairs = [(self.tensor(a, left), b) for a, b in self.rule.pairs]
            for c in self.rule.where:
                self.assume(c)
            if self.rule.where:  # extents that the guard makes equal are not divided by
                pairs = self.retyped(left)
        except (ShapeMismatch, Contradiction):
            return False
        right, value_count = Typing(self.reals), len(self.facts.values)
        try:
            sides = [(a, self.tensor(b, right)) for a, b in pairs]
        except ShapeMismatch as requirement:
            claim = f": {requirement}" if str(requirement) else ""
            raise NotProved(f"a shape rule of the right side is not proved to be satisfied{claim}") from None
        if len(self.facts.values) > value_count:  # what the right sides divide is written as a quotient and a rest now
            sides = [(a, self.tensor(b, right)) for a, b in self.retyped(left)]
        for a, b in sides:
            self.compare(a, b)
        return True

    def retyped(self, typing: Typing) -> list[tuple[Tensor, Pattern]]:
        """Return the left sides typed again, under all that is known by now."""
        self.results.clear()
        return [(self.tensor(a, typing), b) for a, b in self.rule.pairs]

    @property
    def ranks(self) -> str:
        """The ranks of operands in words, where any are known."""
        ranks_text = ", ".join(f"{x.name} of rank {len(t.shape)}" for x, t in self.tensors.items())
        return f", with {ranks_text}" if ranks_text else ""

    def settle(self) -> None:
        """Assume what the guard says of shapes of operands and of attributes, as soon as all of them are known."""
        for c in list(self.pending_conditions):
            if all(self._is_known(a) for a in condition_atoms(c)):
                self.pending_conditions.remove(c)
                self.assume(c)

    def _is_known(self, condition_atom: Any) -> bool:
        if isinstance(condition_atom, ShapeOf):
            return condition_atom.tensor in self.tensors
        return (condition_atom.name if isinstance(condition_atom, NamedList) else condition_atom) in self.values

    def compare(self, a: Tensor, b: Tensor) -> None:
        """Prove that two tensors have one shape and the same elements."""
        if len(a.shape) != len(b.shape) or not all(self.facts.equal(n, m) for n, m in zip(a.shape, b.shape, strict=True)):
            shapes = (", ".join(place_text(self.facts.norm(n)) for n in x.shape) for x in (a, b))
            raise NotProved(f"the sides are not proved to have one shape: ({') and ('.join(shapes)})")
        shape = [self.facts.norm(n) for n in a.shape]
        index: Index = [[(n, as_poly(1))] for n in shape]
        for _ in range(SPLITS):
            digits = [[self.facts.index(("i", k, d, n.terms), n) for d, (n, _) in enumerate(axis)] for k, axis in enumerate(index)]
            difference = self._difference(a, b, index, digits)
            if difference is None:
                return
            if not self._split(index, digits, difference):
                break
        elements = " and ".join(map(element_text, difference or ()))
        raise NotProved(f"elements of the sides are not proved to be equal: {elements}")

    def _difference(self, a: Tensor, b: Tensor, index: Index, digits: Sequence[Sequence[Poly]]) -> tuple[Real, Real] | None:
        """Return elements that are not proved to be equal; digits with few values are these values one after the other."""
        for values in itertools.product(
            *(_values(n, i, axis) for axis, at in zip(index, digits, strict=True) for (n, _), i in zip(axis, at, strict=True))
        ):
            digit_values = iter(values)
            at = [_place_of_digits([next(digit_values) for _ in axis], axis) for axis in index]
            x, y = a.at(at), b.at(at)
            if not self.reals.equal(x, y) and not equal_as_scalars(self.reals, x, y):
                return x, y
        return None

    def _split(self, index: Index, digits: Sequence[Sequence[Poly]], elements: Sequence[Real]) -> bool:
        """Take a digit apart that is divided by a factor of its extent."""
        divisions = [key for x in elements for a in integer_atoms(x.frozen) if (key := key_of(a))[0] == "div"]
        for k, axis in enumerate(index):
            for d, (n, weight) in enumerate(axis):
                for _, p, by in divisions:
                    quotient, remainder = long_division(n, by)
                    if p == digits[k][d] and remainder == ZERO and quotient.number != 1:
                        axis[d : d + 1] = [(quotient, weight * by), (by, weight)]
                        return True
        return False

    # -- patterns

    def tensor(self, t: Pattern, typing: Typing, rank: int | None = None) -> Tensor:
        """Return a pattern as a tensor of unknown shape, of a rank where what reads it takes no other."""
        if isinstance(t, Variable):
            if t not in self.tensors:
                # what is not proved mostly shows at large ranks
                ranks = range(self.rank, -1, -1) if rank is None else [rank] if rank <= self.rank else []
                chosen_rank = self.choices.choose(ranks, is_rank=True)
                self.tensors[t] = variable(self.reals, t.name, [self.facts.extent(("extent", t.name, axis)) for axis in range(chosen_rank)])
                self.settle()
            return self.tensors[t]
        if not isinstance(t, Apply):
            raise NotProved
        key = (t.op.name, id(t.attributes), tuple(map(id, t.operands)))
        if key not in self.results:
            ranks_taken = OPERAND_RANKS.get(t.op.name, ())
            operands = [self.tensor(x, typing, r) for x, r in itertools.zip_longest(t.operands, ranks_taken[: len(t.operands)])]
            attributes = {name: self.attribute(t, name, value, operands) for name, value in t.attributes.items()}
            self.results[key] = read(t.op, typing, operands, attributes)
        return self.results[key][t.output]

    def attribute(self, t: Apply, name: str, value: Any, operands: Sequence[Tensor]) -> Any:
        """Return the value of an attribute: a number, a symbol, or a list of these."""
        key = free_attribute(value)
        if key is not None:
            if key not in self.values:
                self.values[key] = self.free_value(t.op.name, name, key, value, operands)
                self.settle()
            return self.values[key]
        if isinstance(value, Ints):
            return self.list(value)
        if isinstance(value, Expr):
            return self.value(value)
        if isinstance(value, float):
            return Fraction(value) if math.isfinite(value) else str(value)
        return as_poly(value) if isinstance(value, int) else value

    def free_value(self, op: str, name: str, key: Any, value: Any, operands: Sequence[Tensor]) -> Any:
        """Return a choice or a symbol for an attribute that a pattern binds."""
        if isinstance(value, Float | Str):
            only = self.reals.order.value(value.name)
            return str(value.name) if only is None or math.isinf(only) else Fraction(only)
        shape = operands[0].shape if operands else ()
        label = key if isinstance(key, str) else str(key.data)
        factory = FREE_ATTRIBUTES.get(name)
        if factory is None:
            raise NotProved
        return factory(self, ("attribute", label, op, name), len(shape))

    # -- static values

    def list(self, x: Ints) -> list[Poly]:
        """Return a static list under what is assumed."""
        if isinstance(x, NamedList):
            elements: list[Poly] = self.values[x.name]
            return elements
        if isinstance(x, ShapeOf):
            try:
                return list(self.tensor(x.tensor, Typing(self.reals)).shape)
            except ShapeMismatch:  # a term of the right side that is not proved to have a shape
                raise NotProved from None
        if isinstance(x, ListLiteral):
            return [self.value(e) for e in x.elements]
        if isinstance(x, ListSlice):
            return self.list(x.base)[x.start : x.stop]
        if isinstance(x, ListConcatenation):
            return [n for part in x.parts for n in self.list(part)]
        if isinstance(x, ListUpdate):
            base = [*self.list(x.base)]
            base[self.place(x.index)] = self.value(x.element)
            return base
        if isinstance(x, PermutedList):
            base = self.list(x.base)
            return [base[self.constant_of(p)] for p in self.list(x.perm)]
        if isinstance(x, Inverse):
            perm = [self.constant_of(p) for p in self.list(x.perm)]
            return [as_poly(perm.index(n)) for n in range(len(perm))]
        raise NotProved

    def constant_of(self, p: Poly) -> int:
        """Return a number that must be known."""
        n = self.facts.norm(p).number
        if n is None:
            raise NotProved
        return n

    def place(self, e: Expr) -> int:
        """Return the value of a term that must be known."""
        return self.constant_of(self.value(e))

    def value(self, e: Expr) -> Poly:
        """Return an integer term under what is assumed; NotProved where it is no polynomial."""
        if e.op == "const":
            return as_poly(int(e.data))
        if e.op == "var":
            reference = ELEMENTS.get(e)
            symbol: Poly = self.values[e] if reference is None else self.element(reference)
            return symbol
        if e.op in POLYNOMIAL:
            return POLYNOMIAL[e.op](*(self.value(a) for a in e.args))
        if e.op in ("div", "mod"):
            p, n = (self.value(a) for a in e.args)
            if not self.facts.nonnegative(n - 1):
                raise NotProved
            quotient = self.facts.floor_quotient(p, n)
            return quotient if e.op == "div" else p - n * quotient
        raise NotProved

    def element(self, reference: Element) -> Poly:
        """Return an element, the length or the product of a static list."""
        values = self.list(reference.base)
        if reference.kind:
            return as_poly(len(values)) if reference.kind == "length" else product(values)
        return values[self.place(reference.index) if reference.index is not None else 0]

    # -- guards

    def assume(self, c: Condition) -> None:
        """Assume a condition of the guard; one that says nothing of integers is left out, which proves more."""
        try:
            if isinstance(c, ListsEqual):
                a, b = self.list(c.left), self.list(c.right)
                if len(a) != len(b):
                    raise Contradiction
                for p, q in zip(a, b, strict=True):
                    self.facts.unify(p, q)
            elif isinstance(c, TermIsTrue):
                self.assume_true(c.term)
        except NotProved as left_out:
            if isinstance(left_out, ShapeMismatch):
                raise
        except (IndexError, ValueError):  # a list is too short, or no permutation: the condition fails
            raise Contradiction from None

    def assume_true(self, e: Expr) -> None:
        """Assume that a term is not 0."""
        if e.op == "bitand":
            for a in e.args:
                self.assume_true(a)
            return
        if e.op == "not" and e.args[0].op in OPPOSITE:
            self.assume_comparison(OPPOSITE[e.args[0].op], [self.value(a) for a in e.args[0].args])
        elif e.op in OPPOSITE:
            self.assume_comparison(e.op, [self.value(a) for a in e.args])
        elif e.op == "const" and not e.data:
            raise Contradiction

    def assume_comparison(self, op: str, sides: Sequence[Poly]) -> None:
        """Assume a comparison."""
        a, b = sides
        if op == "eq":
            self.facts.unify(a, b)
        elif op == "ne" and self.facts.equal(a, b):
            raise Contradiction
        elif op in BOUNDS:
            self.facts.assume(BOUNDS[op](a, b))


def _values(extent: Poly, digit: Poly, axis: Sequence[Any]) -> Sequence[Poly]:
    """Return what a digit is compared at: each of its values where it is one of several of an index and these are few."""
    n = extent.number
    return [as_poly(v) for v in range(n)] if n is not None and 1 < n <= MAX_DIGIT_VALUES and len(axis) > 1 else [digit]


def _place_of_digits(digits: Sequence[Poly], axis: Sequence[tuple[Poly, Poly]]) -> Poly:
    place = ZERO
    for i, (_, weight) in zip(digits, axis, strict=True):
        place = place + i * weight
    return place


OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt"}
BOUNDS: dict[str, Callable[[Poly, Poly], Poly]] = {
    "le": lambda a, b: b - a,
    "lt": lambda a, b: b - a - 1,
    "ge": lambda a, b: a - b,
    "gt": lambda a, b: a - b - 1,
}
POLYNOMIAL: dict[str, Callable[..., Poly]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: a.times(-1),
}


def _extents(count: Callable[[int], int]) -> Callable[[_Branch, Any, int], list[Poly]]:
    return lambda b, key, rank: [b.facts.extent((*key, n)) for n in range(max(count(rank), 0))]


def _pads(b: _Branch, key: Any, rank: int) -> list[Poly]:
    axes = rank if key[2] == "pad" else max(rank - 2, 0)
    return [b.facts.amount((*key, n)) for n in range(2 * axes)]


def _target(b: _Branch, key: Any, rank: int) -> list[Poly]:
    return [b.facts.extent((*key, n)) for n in range(b.choices.choose(range(b.rank + 1)))]


def _permutation(b: _Branch, key: Any, rank: int) -> list[Poly]:
    return [as_poly(n) for n in b.choices.choose(list(itertools.permutations(range(rank))))]


def _subset(b: _Branch, key: Any, rank: int) -> list[Poly]:
    return [as_poly(n) for n in b.choices.choose([c for n in range(rank + 1) for c in itertools.permutations(range(rank), n)])]


def _flag(b: _Branch, key: Any, rank: int) -> Poly:
    return as_poly(b.choices.choose((0, 1)))


FREE_ATTRIBUTES: dict[str, Callable[[_Branch, Any, int], Any]] = {
    "perm": _permutation,
    "axis": lambda b, key, rank: as_poly(b.choices.choose(range(max(rank, 1)))),
    "axes": _subset,
    "shape": _target,
    "strides": _extents(lambda rank: rank - 2),
    "dilations": _extents(lambda rank: rank - 2),
    "kernel": _extents(lambda rank: rank - 2),
    "pads": _pads,
    "group": lambda b, key, rank: b.facts.extent(key),
    "start": lambda b, key, rank: b.facts.amount(key),
    "stop": lambda b, key, rank: b.facts.amount(key),
    "step": lambda b, key, rank: b.facts.extent(key),
    **dict.fromkeys(("keepdims", "ceil", "count_include_pad", "linear_before_reset"), _flag),
    **dict.fromkeys(("zero", "x_zero", "w_zero"), lambda b, key, rank: atom(key)),
}
