"""Static values of patterns: shapes and attribute lists (`Ints`), their elements as integer terms, and conditions on them.

`x.shape[-1]` is a term, `y.shape[:-1]` a list, `a.shape == b.shape` a condition. Nothing here has a value before a
pattern has matched; `value_of` and `holds` evaluate under a match.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError
from ..lang.expr import INTEGER, Expr, Operand, lift, var

SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
_names = itertools.count()
ONE_BY_ONE = "give the guard its conditions one by one, parted by commas"


class Ints:
    """A list of integers known at compile time: a shape, a permutation, strides."""

    __hash__ = object.__hash__

    def __getitem__(self, index: int | Expr | slice) -> Any:
        """Return one element as a term, or a part of the list."""
        if isinstance(index, slice):
            return ListSlice(self, index.start or 0, index.stop)
        return element(self, index)

    def __add__(self, other: Ints | Sequence[Operand]) -> Ints:
        return ListConcatenation((self, as_ints(other)))

    def __radd__(self, other: Sequence[Operand]) -> Ints:
        return ListConcatenation((as_ints(other), self))

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return ListsEqual(self, as_ints(other))

    def __bool__(self) -> bool:
        raise TypeError("a static list has no truth value before a pattern has matched")

    @property
    def length(self) -> Expr:
        """Number of elements, as a term."""
        return measure(self, "length")

    @property
    def product(self) -> Expr:
        """Product of all elements, as a term."""
        return measure(self, "product")

    def with_element(self, index: Operand, value: Operand) -> Ints:
        """Return the list with one element replaced."""
        return ListUpdate(self, lift(index), lift(value))

    def permuted(self, perm: Ints) -> Ints:
        """Return the list whose element i is element perm[i] of this one: transposing a shape, composing permutations."""
        return PermutedList(self, perm)


@dataclass(frozen=True, eq=False)
class NamedList(Ints):
    """A list attribute that a pattern binds."""

    name: str


@dataclass(frozen=True, eq=False)
class ShapeOf(Ints):
    """The shape of a pattern."""

    tensor: Any


@dataclass(frozen=True, eq=False)
class ListLiteral(Ints):
    """A list given element by element."""

    elements: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class ListSlice(Ints):
    """Elements start … stop of a list, Python style (negative: from the end; stop None: to the end)."""

    base: Ints
    start: int
    stop: int | None


@dataclass(frozen=True, eq=False)
class ListConcatenation(Ints):
    """Lists one after the other."""

    parts: tuple[Ints, ...]


@dataclass(frozen=True, eq=False)
class ListUpdate(Ints):
    """A list with one element replaced."""

    base: Ints
    index: Expr
    element: Expr


@dataclass(frozen=True, eq=False)
class PermutedList(Ints):
    """base[perm[0]], base[perm[1]], …"""

    base: Ints
    perm: Ints


@dataclass(frozen=True, eq=False)
class Inverse(Ints):
    """The inverse of a permutation."""

    perm: Ints


class Condition:
    """A side condition of a rule, which a match must satisfy."""

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise SpecError("R101", "a condition has no truth value before a pattern has matched", help=ONE_BY_ONE)

    def _joined(self, _: object) -> Condition:
        raise SpecError("R101", "conditions on lists, tensors and float attributes are not joined by & or |", help=ONE_BY_ONE)

    __and__ = __rand__ = __or__ = __ror__ = _joined


def _real_text(x: Real | float) -> str:
    """Return a side of a comparison as text; `inf` is a number of the text form."""
    return repr(x) if isinstance(x, float) else x.name


class Real:
    """A float attribute that a pattern binds, as guards compare it: `v >= 0.0`, `low <= high`."""

    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> RealComparison:  # type: ignore[override]
        return RealComparison(self, "eq", as_real(self, other))

    def __ne__(self, other: object) -> RealComparison:  # type: ignore[override]
        return RealComparison(self, "ne", as_real(self, other))

    def __lt__(self, other: object) -> RealComparison:
        return RealComparison(self, "lt", as_real(self, other))

    def __le__(self, other: object) -> RealComparison:
        return RealComparison(self, "le", as_real(self, other))

    def __gt__(self, other: object) -> RealComparison:
        return RealComparison(as_real(self, other), "lt", self)

    def __ge__(self, other: object) -> RealComparison:
        return RealComparison(as_real(self, other), "le", self)


def as_real(v: Real, other: object) -> Real | float:
    """Return the other side of a comparison with a float attribute.

    Raises:
        SpecError: it is no number, or not-a-number.
    """
    if isinstance(other, Real) and type(other) is type(v):
        return other
    if not isinstance(other, int | float):
        operand = "a term of integers" if isinstance(other, Expr) else repr(getattr(other, "name", other))
        help_ = "compare it with a number or a float attribute"
        raise SpecError("R101", f"the float attribute {v.name} is compared with {operand}", help=help_)
    if math.isnan(other):
        help_ = "compare it with a number; not-a-number satisfies no comparison of a guard"
        raise SpecError(
            "R101", f"the float attribute {v.name} is compared with not-a-number, which nothing equals, exceeds or is less than", help=help_
        )
    return float(other)


@dataclass(frozen=True, eq=False)
class ListsEqual(Condition):
    """Two lists are equal."""

    left: Ints
    right: Ints


@dataclass(frozen=True, eq=False)
class TermIsTrue(Condition):
    """An integer term is not 0."""

    term: Expr


@dataclass(frozen=True, eq=False)
class RealComparison(Condition):
    """One number equals (eq), is not (ne), is less than (lt) or at most (le) another; not-a-number satisfies none of these."""

    left: Real | float
    comparison: str
    right: Real | float

    def __str__(self) -> str:
        left, right, sign = self.left, self.right, SIGNS[self.comparison]
        if isinstance(left, float):  # a number is read easier on the right
            left, right, sign = right, left, sign.replace("<", ">")
        return f"{_real_text(left)} {sign} {_real_text(right)}"

    @property
    def variables(self) -> tuple[Real, ...]:
        """The float attributes that are compared."""
        return tuple(x for x in (self.left, self.right) if isinstance(x, Real))

    @property
    def numbers(self) -> tuple[float, ...]:
        """The constants that they are compared with."""
        return tuple(x for x in (self.left, self.right) if isinstance(x, float))


@dataclass(frozen=True, eq=False)
class IsConstant(Condition):
    """A tensor is known at compile time."""

    tensor: Any


@dataclass(frozen=True, eq=False)
class HasType(Condition):
    """A tensor has one of some element types."""

    tensor: Any
    dtypes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Element:
    """What an element variable stands for: list[index], its length or its product."""

    base: Ints
    index: Expr | None
    kind: str = ""


ELEMENTS: dict[Expr, Element] = {}
_variables: dict[tuple[Any, ...], Expr] = {}


def element(base: Ints, index: int | Expr) -> Expr:
    """Return base[index] as a term; the same element of the same list is one term."""
    return _element(base, lift(index), "")


def measure(base: Ints, kind: str) -> Expr:
    """Return the length or product of a list as a term."""
    return _element(base, None, kind)


def _element(base: Ints, index: Expr | None, measure: str) -> Expr:
    base_key = ("shape", id(base.tensor)) if isinstance(base, ShapeOf) else ("list", id(base))
    key = (*base_key, id(index), measure)
    variable = _variables.get(key)
    if variable is None:
        variable = _variables[key] = var(f"e{next(_names)}", (0, None))
        ELEMENTS[variable] = Element(base, index, measure)
    return variable


def as_ints(x: object) -> Ints:
    """Return a list or tuple of terms as a static list.

    Raises:
        SpecError: `x` is no list.
    """
    if isinstance(x, Ints):
        return x
    if isinstance(x, tuple | list):
        return ListLiteral(tuple(lift(e) for e in x))
    raise SpecError("R101", f"a static list is needed, not {x!r}")


def as_condition(x: object) -> Condition:
    """Return a condition, a term (not 0) or a truth value as a condition of a guard.

    Raises:
        SpecError: `x` is none of these.
    """
    if isinstance(x, Condition):
        return x
    if isinstance(x, Expr):
        return TermIsTrue(x)
    if isinstance(x, bool):
        return TermIsTrue(lift(int(x)))
    raise SpecError("R101", f"a guard must be a condition on shapes or attributes, not {x!r}")


@dataclass(frozen=True)
class Binding:
    """The environment of a match: shapes, element types and constness of tensors, values of attributes."""

    shape: Callable[[Any], tuple[int, ...]]
    attributes: Mapping[Any, Any]
    dtype: Callable[[Any], str] = lambda _: "float32"
    is_constant: Callable[[Any], bool] = lambda _: False


def list_of(x: Ints, b: Binding) -> tuple[int, ...]:
    """Return the value of a static list under a match.

    Raises:
        SpecError: the list is of an unknown kind.
        IndexError: a list that it takes elements of is too short.
    """
    if isinstance(x, NamedList):
        return tuple(b.attributes[x.name])
    if isinstance(x, ShapeOf):
        return b.shape(x.tensor)
    if isinstance(x, ListLiteral):
        return tuple(value_of(e, b) for e in x.elements)
    if isinstance(x, ListSlice):
        return list_of(x.base, b)[x.start : x.stop]
    if isinstance(x, ListConcatenation):
        return tuple(n for p in x.parts for n in list_of(p, b))
    if isinstance(x, ListUpdate):
        base, at = list(list_of(x.base, b)), value_of(x.index, b)
        base[at] = value_of(x.element, b)
        return tuple(base)
    if isinstance(x, PermutedList):
        base = list(list_of(x.base, b))
        return tuple(base[p] for p in list_of(x.perm, b))
    if isinstance(x, Inverse):
        perm = list_of(x.perm, b)
        return tuple(perm.index(n) for n in range(len(perm)))
    raise SpecError("R101", f"a static list of kind {type(x).__name__} cannot be evaluated")


def value_of(e: Expr, b: Binding) -> int:
    """Return the value of an integer term under a match.

    Raises:
        IndexError: a list that it takes an element of is too short.
    """
    if e.op == "const":
        return int(e.data)
    if e.op == "var":
        element = ELEMENTS.get(e)
        return int(b.attributes[e]) if element is None else _measured(element, b)
    if len(e.args) == 2:  # nearly all, and guards are read often
        return INTEGER[e.op](value_of(e.args[0], b), value_of(e.args[1], b))
    operands = [value_of(a, b) for a in e.args]
    if e.op == "select":
        return operands[1] if operands[0] else operands[2]
    if e.op in ("neg", "not"):
        return -operands[0] if e.op == "neg" else 1 - operands[0]
    return INTEGER[e.op](*operands)


def _measured(element: Element, b: Binding) -> int:
    values = list_of(element.base, b)
    if element.kind:
        return len(values) if element.kind == "length" else math.prod(values)
    index = value_of(element.index, b) if element.index is not None else 0
    return values[index]


REAL: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a < b or a > b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip


def holds(c: Condition, b: Binding) -> bool:
    """Tell whether a condition is satisfied under a match; a list that is too short fails it.

    Raises:
        SpecError: the condition is of an unknown kind.
    """
    try:
        if isinstance(c, ListsEqual):
            return list_of(c.left, b) == list_of(c.right, b)
        if isinstance(c, TermIsTrue):
            return value_of(c.term, b) != 0
        if isinstance(c, RealComparison):
            return REAL[c.comparison](*(float(b.attributes[x.name]) if isinstance(x, Real) else x for x in (c.left, c.right)))
        if isinstance(c, IsConstant):
            return b.is_constant(c.tensor)
        if isinstance(c, HasType):
            return b.dtype(c.tensor) in c.dtypes
    except (IndexError, ZeroDivisionError, ValueError):
        return False
    raise SpecError("R101", f"a condition of kind {type(c).__name__} cannot be evaluated")
