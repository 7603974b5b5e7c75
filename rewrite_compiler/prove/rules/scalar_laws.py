"""Scalar laws: both sides elementwise functions of the same operands, one question for z3 with operands and float attributes as symbols.

What holds of all real numbers holds at every shape. Float attributes are finite there: bounds of clip that are not are no bounds, which is
what they tend to, and `Domain` keeps matches out where they are elements, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ...ops.op import ELEMENTWISE, Apply, Tensor, Variable, subterms
from ...ops.order import order_of
from ...ops.static import ListLiteral
from ...readings.smt.scalars.scalar_term import ATTRIBUTE, Undecided
from ...rewrite.rule import Float, Rule
from ..instances.element_meaning import Elements, NoSymbolicMeaning, apply_symbolically
from ..instances.element_terms import BINARY, Node, clear_when_large, constant, leaf, node
from ..verdict import Stop, Theorem

ENGINE = "real arithmetic (z3)"
WORK = 4_000_000  # of z3 for one question, in its own units of work
ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "div": "rdiv"}
FUNCTIONS = frozenset({"exp", "log", "sqrt", "tanh", "erf", "sigmoid", "pow"})
PARTIAL = frozenset({"div", "reciprocal", "log", "sqrt", "pow"})  # operators that some operands have no result of


def is_pointwise(rule: Rule) -> bool:
    """Tell whether both sides of every pair are elementwise functions of the same operands.

    What they broadcast to is then one shape, or none, in whatever order they are joined, and an element of it reads the same
    elements of the operands on both sides: what holds of scalars holds of tensors.
    """
    return all(_leaves(a) == _leaves(b) for a, b in rule.pairs) and all(
        map(_is_elementwise, (t for pair in rule.pairs for side in pair for t in subterms(side)))
    )


def _leaves(side: Tensor) -> set[str]:
    return {x.name for x in subterms(side) if isinstance(x, Variable)}


def _is_elementwise(t: Tensor) -> bool:
    """Tell whether a term is an operand, a number, or an operator on elements."""
    if not isinstance(t, Apply):
        return isinstance(t, Variable)
    return t.op.kind == ELEMENTWISE if t.operands else t.op.name == "full" and _is_scalar(t.attributes["shape"])


def _is_scalar(shape: Any) -> bool:
    return (isinstance(shape, ListLiteral) and not shape.elements) or (isinstance(shape, tuple) and not shape)


def is_partial(rule: Rule) -> bool:
    """Tell whether some operands have no result on a right side."""
    return any(isinstance(x, Apply) and x.op.name in PARTIAL for _, right in rule.pairs for x in subterms(right))


def scalar_answer(rule: Rule) -> Theorem | Stop:
    """Return z3's answer on a rule that is pointwise; where it stops with numbers, the sides may differ at these."""
    from ...readings.smt.scalars.real_numbers import difference

    clear_when_large()
    try:
        for sides in rule.pairs:
            left, right = map(scalar_term, sides)
            numbers = difference(left, right, order_of(rule.where).comparisons, WORK)
            if numbers is not None:
                named_numbers = {name: x for (name, _), x in sorted(numbers.items())}
                return Stop(ENGINE, f"{_unread_functions(rule)}the sides may differ at {_text(named_numbers)}", named_numbers)
    except Undecided as why:
        return Stop(ENGINE, str(why))
    except NoSymbolicMeaning as why:
        return Stop(ENGINE, f"it does not read {why}")
    return Theorem(ENGINE, None)


def _unread_functions(rule: Rule) -> str:
    names = sorted({x.op.name for pair in rule.pairs for side in pair for x in subterms(side) if isinstance(x, Apply)} & FUNCTIONS)
    return f"without the values of {', '.join(names)} " if names else ""


def _text(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {x:g}" for name, x in numbers.items())


def scalar_term(t: Tensor) -> Node:
    """Return an element of a pattern over symbols: one for each operand and for each float attribute.

    Raises:
        NoSymbolicMeaning: an operator has no meaning on real numbers.
    """
    if isinstance(t, Variable):
        return leaf(t.name, 0)
    assert isinstance(t, Apply)
    if t.op.name == "full":
        return _number(t.attributes["value"])
    operands = [scalar_term(x) for x in t.operands]
    if t.op.name == "clip":
        return _clipped(operands[0], t.attributes["low"], t.attributes["high"])
    if t.op.attributes:
        raise NoSymbolicMeaning(t.op.name)
    if t.op.name in ARITHMETIC:  # as it is written: 0 · (1 / x) is no 0 where x is
        return node(ARITHMETIC[t.op.name], operands)
    (result,) = apply_symbolically(t.op, [_scalar(x) for x in operands], {})
    (element,) = result.data.flat
    return element  # type: ignore[no-any-return]


def _scalar(x: Node) -> Elements:
    data = np.empty((), object)
    data[()] = x
    return Elements(data, True)


def _clipped(x: Node, low: Any, high: Any) -> Node:
    above = x if _is(low, -math.inf) else BINARY["max"](x, _number(low))
    return above if _is(high, math.inf) else BINARY["min"](above, _number(high))


def _is(value: Any, n: float) -> bool:
    return isinstance(value, float) and value == n


def _number(value: Any) -> Node:
    if isinstance(value, Float):
        return leaf(value.name, ATTRIBUTE)
    if not math.isfinite(value):
        raise NoSymbolicMeaning(f"the number {value:g}")
    return constant(Fraction(value))
