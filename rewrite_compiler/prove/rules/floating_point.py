"""Floating point decided: whether elements of both sides have the same bits, by exact laws and by z3 at float16 and float32.

Exact in every IEEE type: a − b = a + (−b), a + a = 2·a, signs taken out of products and quotients, two operands exchanged, and an extremum
as the set of its operands (of two zeros it is +0 that counts as larger, as in IEEE 754-2019). What these leave apart is one
question for z3, with operands as symbols and functions that are not interpreted. What z3 does not decide is no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ...rewrite.float_condition import OperandBound
from ..instances.element_terms import Node, constant, node
from ..verdict import Counterexample, Stop

Comparison = tuple[str | float, str, str | float]  # of float attributes and numbers
ENGINE = "floating point (z3)"
NODES = 60  # of both elements together
QUESTIONS = 12  # of one rule
WORK = 10_000_000  # of z3 for one question, in its own units of work
KINDS = ("float16", "float32")
CONDITIONAL_KINDS = ("float32",)  # the type that the condition of a grade is about


@dataclass
class UndecidedPairs:
    """Pairs of elements that exact laws leave undecided, one for each form that they have."""

    up_to_zeros: bool  # grade Z: added zeros and their signs do not count, nor data on which a side overflows
    bounds: tuple[OperandBound, ...] = ()  # float32 data that the grade is about
    pairs: dict[str, tuple[Node, Node]] = field(default_factory=dict)
    stop: Stop | None = None

    def add(self, pairs: Iterable[tuple[Any, Any]], attributes: Iterable[str] = ()) -> None:
        """Add pairs that exact laws do not make one; `attributes` are the float ones, whose values occur in them as numbers."""
        forms: dict[Node, Node] = {}
        for a, b in pairs:
            if self.stop is not None:
                return
            if not (isinstance(a, Node) and isinstance(b, Node)):
                self.stop = Stop(ENGINE, "it does not read an operator of the rule")
            elif _form(a, self.up_to_zeros, forms) is not _form(b, self.up_to_zeros, forms):
                self._take(a, b, sorted(attributes))

    def _take(self, a: Node, b: Node, attributes: list[str]) -> None:
        if attributes:
            self.give_up(attributes)
            return
        places = _topological_places(a, b)
        if len(places) > NODES:
            self.stop = Stop(ENGINE, f"an element is made of more than {NODES} operations")
            return
        self.pairs.setdefault(_skeleton(places, a, b, {bound.name for bound in self.bounds}), (a, b))
        if len(self.pairs) > QUESTIONS:
            self.stop = Stop(ENGINE, f"elements differ in more than {QUESTIONS} forms")

    def give_up(self, attributes: list[str]) -> None:
        """Give up, because operations on float attributes round differently at other values."""
        self.stop = Stop(ENGINE, f"it takes numbers for {', '.join(attributes)}, and other operations may round otherwise at others")

    def decision(self, guard: Sequence[Comparison] = ()) -> Stop | tuple[str, Counterexample] | None:
        """Return None where all pairs are proved to agree, else the type and operands of one that does not, or where z3 stops.

        `guard` compares float attributes.
        """
        if self.stop is not None:
            return self.stop
        kinds = CONDITIONAL_KINDS if self.bounds else KINDS
        answers = (_z3_answer(a, b, kind, self, guard) for a, b in self.pairs.values() for kind in kinds)
        return next((x for x in answers if x is not None), None)


def _z3_answer(a: Node, b: Node, kind: str, claim: UndecidedPairs, guard: Sequence[Comparison]) -> Stop | tuple[str, Counterexample] | None:
    from ...readings.smt.scalars.floating_point import difference
    from ...readings.smt.scalars.scalar_term import Undecided

    try:
        result = difference(a, b, kind, WORK, up_to_zeros=claim.up_to_zeros, guard=guard, bounds=claim.bounds)
    except Undecided as why:
        return Stop(ENGINE, str(why))
    if result is None:
        return None
    operands, left, right = result
    return kind, Counterexample(operands, {}, None, left, right)


# -- exact laws


def _form(x: Node, up_to_zeros: bool, forms: dict[Node, Node]) -> Node:
    if x not in forms:
        args = [_form(a, up_to_zeros, forms) for a in x.args]
        forms[x] = _exact_form(x, args, up_to_zeros) if args else x
    return forms[x]


def _exact_form(x: Node, args: list[Node], up_to_zeros: bool) -> Node:
    if x.op == "neg":
        return _negative(args[0], up_to_zeros)
    if x.op in ("max", "min"):
        members = {m for a in args for m in (a.args if a.op == x.op else (a,))}
        return args[0] if len(members) == 1 else node(x.op, sorted(members, key=id))
    if x.op in ("mul", "rdiv"):
        sign = sum(a.op == "neg" for a in args) % 2
        bare = [a.args[0] if a.op == "neg" else a for a in args]
        product = node(x.op, sorted(bare, key=id) if x.op == "mul" else bare)
        return _negative(product, up_to_zeros) if sign else product
    if x.op in ("add", "sub", "sum"):
        return _sum_form([args[0], _negative(args[1], up_to_zeros)] if x.op == "sub" else args, up_to_zeros)
    return node(x.op, args, x.data)


def _sum_form(args: list[Node], up_to_zeros: bool) -> Node:
    if up_to_zeros:
        args = [a for a in args if a.number != 0] or args[:1]
    if len(args) == 1:
        return args[0]
    if len(args) == 2 and args[0] is args[1]:
        return _exact_form(node("mul", args), [args[0], constant(2)], up_to_zeros)
    return node("add", sorted(args, key=id) if len(args) == 2 else args)


def _negative(x: Node, up_to_zeros: bool) -> Node:
    """Return −x; −0 is no number that a node has, and −(a + b) = (−a) + (−b) but for the sign of a zero."""
    if x.number:
        return constant(-x.number)
    if x.op == "add" and up_to_zeros:
        return _sum_form([_negative(a, up_to_zeros) for a in x.args], up_to_zeros)
    return x.args[0] if x.op == "neg" else node("neg", (x,))


def _topological_places(*roots: Node) -> dict[Node, int]:
    """Return all nodes of some, operands first, with their places in this order."""
    places: dict[Node, int] = {}

    def visit(x: Node) -> None:
        if x not in places and len(places) <= NODES:
            for a in x.args:
                visit(a)
            places[x] = len(places)

    for x in roots:
        visit(x)
    return places


def _skeleton(places: Mapping[Node, int], a: Node, b: Node, named: Set[str]) -> str:
    """Return two elements as a text that is the same whatever their operands are called, but those that are `named`."""

    def label(x: Node) -> str:
        return str(x.data) if x.op != "leaf" else x.data[0] if x.data[0] in named else ""

    rows = [(x.op, label(x), *(places[y] for y in x.args)) for x in places]
    return f"{rows} {places[a]} {places[b]}"
