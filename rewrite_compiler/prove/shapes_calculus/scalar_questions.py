"""Elements that differ only as terms: whether they are equal over the reals whatever the elements are that they are made of.

Numbers, float attributes, quotients, extrema, choices and functions are read; what else an element is made of is a symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

from ...readings.smt.scalars.scalar_term import ATTRIBUTE, Undecided
from ..instances.element_terms import BINARY, UNARY, Node, call, constant, leaf, select
from .polynomials import key_of
from .real_elements import Real, Reals

WORK = 1_000_000  # of z3 for one question, in its own units of work
CASES = 6  # nested cases of conditions on indices
COMPARISONS = frozenset({"lt", "le", "eq", "ne"})


def equal_as_scalars(reals: Reals, a: Real, b: Real, depth: int = CASES) -> bool:
    """Tell whether two elements are equal whatever they are made of, in each case of their conditions."""
    if reals.equal(a, b, 0):
        return True
    conditions = {p for x in (a, b) for conditions, _ in x.terms for p in conditions}
    if conditions:
        p = min(conditions, key=lambda p: p.terms)
        cases = (p, p.times(-1) - 1)
        return depth > 0 and all(
            equal_as_scalars(reals, reals.under_condition(a, q), reals.under_condition(b, q), depth - 1)
            for q in cases
            if reals.consistent_conditions(frozenset((q,))) is not None
        )
    return _answer(reals, a, b)


def _answer(reals: Reals, a: Real, b: Real) -> bool:
    from ...readings.smt.scalars.real_numbers import difference

    try:
        return difference(_node(a.terms.items()), _node(b.terms.items()), reals.order.comparisons, WORK) is None
    except Undecided:
        return False


def _node(terms: Iterable[Any]) -> Node:
    """Return the terms of an element as one node."""
    parts = [_product([_atom(n) for n in atoms], c) for (_, atoms), c in sorted(terms, key=lambda t: t[0][1])]
    return reduce(BINARY["add"], parts) if parts else constant(0)


def _product(factors: Sequence[Node], coefficient: Fraction) -> Node:
    return reduce(BINARY["mul"], factors if coefficient == 1 and factors else (constant(coefficient), *factors))


def _atom(n: int) -> Node:
    """Return an atom as a node: an application of what is read, or a symbol."""
    key = key_of(n)
    if key[0] == "float":
        return leaf(str(key[1]), ATTRIBUTE)
    if key[0] in ("max", "min") and key[1] == "of":
        return reduce(BINARY[key[0]], map(_node, sorted(key[2], key=str)))
    if key[0] != "call" or any(conditions for part in key[2:] for (conditions, _), _ in part):
        return leaf("atom", n)
    operands = [_node(part) for part in key[2:]]
    return _application(key[1], operands) or leaf("atom", n)


def _application(function: str, operands: Sequence[Node]) -> Node | None:
    if function.startswith("call "):
        return call(function.removeprefix("call "))(*operands)
    if function == "select":
        return select(*operands)
    if function in BINARY:
        return BINARY[function](*operands)
    return UNARY[function](*operands) if function == "not" else None
