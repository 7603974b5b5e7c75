"""Integer laws: a rule whose guard gives its operands integer types holds of modular arithmetic, and not of real numbers.

Functions of elements are one question for z3 in bit-vectors of each type, at its own width. Elements that are polynomials with
integer coefficients are equal in every ring where they are equal over the reals.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from ...ops.op import Apply, Tensor, Variable, subterms
from ...ops.static import HasType
from ...rewrite.rule import Rule
from ..verdict import Counterexample, Stop, Theorem
from .scalar_laws import is_pointwise

ENGINE = "bit-vectors (z3)"
WORK = 20_000_000  # of z3 for one question, in its own units of work
RING = frozenset({"add", "sub", "mul", "neg", "reduce_sum"})
SAME_TYPE = frozenset({"add", "sub", "mul", "div", "max", "min", "pow", "concat", "dense", "matmul", "bias_add", "scale"})
MOVEMENTS = frozenset({"reshape", "transpose", "slice", "reverse", "concat", "expand"})  # which move elements and compute none


def operand_types(rule: Rule) -> tuple[str, ...]:
    """Return the element types that a guard admits for all operands, none where it says nothing."""
    type_lists = [c.dtypes for c in rule.where if isinstance(c, HasType) and isinstance(c.tensor, Variable)]
    return reduce(lambda common, types: tuple(t for t in common if t in types), type_lists) if type_lists else ()


def has_integer_operands(rule: Rule) -> bool:
    """Tell whether a guard gives every operand an integer type, itself or as the other operand of an operator on elements of one type."""
    typed_operands = {c.tensor.name for c in rule.where if isinstance(c, HasType) and isinstance(c.tensor, Variable)}
    operands = {x.name for left, _ in rule.pairs for x in subterms(left) if isinstance(x, Variable)}
    types = operand_types(rule)
    for _ in operands:
        typed_operands |= {name for names in _operands_of_one_type(rule) if names & typed_operands for name in names}
    return bool(types) and operands <= typed_operands and not any(t.startswith(("float", "bfloat")) for t in types)


def _operands_of_one_type(rule: Rule) -> Iterator[set[str]]:
    """Yield the operands of the rule whose elements an operator takes together."""
    for t in (t for left, _ in rule.pairs for t in subterms(left)):
        if isinstance(t, Apply) and len(t.operands) > 1 and t.op.name in SAME_TYPE:
            yield {name for x in t.operands if (name := _source(x))}


def _source(t: Tensor) -> str | None:
    """Return the operand of the rule whose element type a term has, None where it has its own."""
    if isinstance(t, Variable):
        return t.name
    return _source(t.operands[0]) if isinstance(t, Apply) and t.operands and not t.op.dtype else None


def is_polynomial(rule: Rule) -> bool:
    """Tell whether every element of both sides is a polynomial in elements with integer coefficients."""
    return all(map(_is_of_ring, _parts(rule)))


def _is_of_ring(t: Apply) -> bool:
    if t.op.name == "full":
        value = t.attributes["value"]
        return isinstance(value, float) and value.is_integer()
    return t.op.name in RING | MOVEMENTS


def _parts(rule: Rule) -> Iterator[Apply]:
    return (t for pair in rule.pairs for side in pair for t in subterms(side) if isinstance(t, Apply))


def bitvector_answer(rule: Rule) -> Theorem | Stop | Counterexample:
    """Return the answer of z3's bit-vectors on an elementwise rule, at all its integer types."""
    if not is_pointwise(rule):
        return Stop(ENGINE, "sides that are not functions of elements are not read")
    for dtype in operand_types(rule):
        answer = _decide(rule, dtype)
        if answer is not None:
            return answer
    return Theorem(ENGINE, None)


def _decide(rule: Rule, dtype: str) -> Stop | Counterexample | None:
    from ...readings.smt.scalars.scalar_term import Undecided
    from ...readings.smt.scalars.wrapped_integers import IntegerType, Word, difference, integer_type

    def term(t: Tensor, kind: IntegerType, symbols: dict[str, Word]) -> Word:
        if isinstance(t, Variable):
            return symbols.setdefault(t.name, kind.symbol(t.name))
        assert isinstance(t, Apply)
        if t.op.name == "full":
            value = t.attributes["value"]
            if not isinstance(value, float):
                raise Undecided("a number that the pattern binds is not read on integers")
            return kind.number(value)
        return kind.apply(t.op.name, *(term(x, kind, symbols) for x in t.operands))

    kind = integer_type(dtype)
    if kind is None:
        return Stop(ENGINE, f"{dtype} is not read")
    try:
        for sides in rule.pairs:
            symbols: dict[str, Word] = {}
            left, right = (term(t, kind, symbols) for t in sides)
            example = difference(kind, left, right, symbols, WORK)
            if example is not None:
                return _counterexample(rule, dtype, *example)
    except Undecided as why:
        return Stop(ENGINE, f"{why}, in {dtype}")
    return None


def _counterexample(rule: Rule, dtype: str, operands: object, left: int, right: int) -> Stop | Counterexample:
    if not all(isinstance(c, HasType) for c in rule.where):
        return Stop(ENGINE, f"the sides differ in {dtype} where a condition of the guard may not hold")
    assert isinstance(operands, dict)
    return Counterexample({name: f"{x} ({dtype})" for name, x in operands.items()}, {}, None, str(left), str(right))
