"""Static values of patterns: shapes and attribute lists (`Ints`), their elements as integer terms, and conditions on them.

`x.shape[-1]` is a term, `y.shape[:-1]` a list, `a.shape == b.shape` a condition. Nothing here has a value before a
pattern has matched; `value_of` and `holds` evaluate under a match.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import SpecError
from ..lang import intervals as iv
from ..lang.expr import INTEGER, Expr, Operand, lift, var
from ..public_calls import public_record

SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
_names = itertools.count()
COMPILED = 1 << 14  # lists, terms and conditions each that are kept as functions
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


@public_record("IsConstant")
@dataclass(frozen=True, eq=False)
class IsConstant(Condition):
    """A tensor is known at compile time."""

    tensor: Any


@public_record("HasType")
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
        if not iv.inside(x.interval, iv.TRUTH):
            raise SpecError("R101", "a guard must be a condition, not a number", help="compare it with one, as in x.rank == 2")
        return TermIsTrue(x)
    if isinstance(x, bool):
        return TermIsTrue(lift(int(x)))
    raise SpecError("R101", f"a guard must be a condition on shapes or attributes, not {x!r}")


class Binding(NamedTuple):
    """The environment of a match: shapes, element types and constness of tensors, values of attributes; searches make many."""

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
    return list_function(x)(b)


def value_of(e: Expr, b: Binding) -> int:
    """Return the value of an integer term under a match.

    Raises:
        IndexError: a list that it takes an element of is too short.
    """
    return term_function(e)(b)


def holds(c: Condition, b: Binding) -> bool:
    """Tell whether a condition is satisfied under a match; a list that is too short fails it.

    Raises:
        SpecError: the condition is of an unknown kind.
    """
    try:
        return _condition_function(c)(b)
    except (IndexError, ZeroDivisionError, ValueError):
        return False


# -- lists, terms and conditions as functions of a match: guards are evaluated often, and are few


@lru_cache(maxsize=COMPILED)
def list_function(x: Ints) -> Callable[[Binding], tuple[int, ...]]:
    """Return a static list as a function of a match.

    Raises:
        SpecError: the list is of an unknown kind.
    """
    if isinstance(x, NamedList):
        name = x.name
        return lambda b: tuple(b.attributes[name])
    if isinstance(x, ShapeOf):
        tensor = x.tensor
        return lambda b: b.shape(tensor)
    if isinstance(x, ListLiteral):
        elements = [term_function(e) for e in x.elements]
        return lambda b: tuple([e(b) for e in elements])
    if isinstance(x, ListSlice):
        base, part = list_function(x.base), slice(x.start, x.stop)
        return lambda b: base(b)[part]
    if isinstance(x, ListConcatenation):
        parts = [list_function(p) for p in x.parts]
        return lambda b: tuple([n for p in parts for n in p(b)])
    if isinstance(x, ListUpdate):
        return _updated_list(list_function(x.base), term_function(x.index), term_function(x.element))
    if isinstance(x, PermutedList):
        permuted, perm = list_function(x.base), list_function(x.perm)
        return lambda b: tuple(map(permuted(b).__getitem__, perm(b)))
    if isinstance(x, Inverse):
        return _inverse_permutation(list_function(x.perm))
    raise SpecError("R101", f"a static list of kind {type(x).__name__} cannot be evaluated")


def _updated_list(
    base: Callable[[Binding], tuple[int, ...]], index: Callable[[Binding], int], value: Callable[[Binding], int]
) -> Callable[[Binding], tuple[int, ...]]:
    def update(b: Binding) -> tuple[int, ...]:
        elements, place = list(base(b)), index(b)
        elements[place] = value(b)
        return tuple(elements)

    return update


def _inverse_permutation(perm: Callable[[Binding], tuple[int, ...]]) -> Callable[[Binding], tuple[int, ...]]:
    def invert(b: Binding) -> tuple[int, ...]:
        axes = perm(b)
        return tuple(map(axes.index, range(len(axes))))

    return invert


@lru_cache(maxsize=COMPILED)
def term_function(e: Expr) -> Callable[[Binding], int]:
    """Return an integer term as a function of a match."""
    if e.op == "const":
        number = int(e.data)
        return lambda b: number
    if e.op == "var":
        element = ELEMENTS.get(e)
        return (lambda b: int(b.attributes[e])) if element is None else _element_function(element)
    operands = [term_function(a) for a in e.args]
    if e.op == "select":
        return lambda b: _selected(*[f(b) for f in operands])
    if e.op in ("neg", "not"):
        (operand,) = operands
        return (lambda b: -operand(b)) if e.op == "neg" else (lambda b: 1 - operand(b))
    apply = INTEGER[e.op]
    if len(operands) != 2:
        return lambda b: apply(*[f(b) for f in operands])
    left, right = operands
    return lambda b: apply(left(b), right(b))


def _selected(condition: int, then: int, otherwise: int) -> int:
    return then if condition else otherwise


def _element_function(element: Element) -> Callable[[Binding], int]:
    base = list_function(element.base)
    if element.index is None:
        return (lambda b: len(base(b))) if element.kind == "length" else (lambda b: math.prod(base(b)))
    if element.index.op == "const":
        place = int(element.index.data)
        return lambda b: base(b)[place]
    index = term_function(element.index)
    return lambda b: base(b)[index(b)]


REAL: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a < b or a > b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip


@lru_cache(maxsize=COMPILED)
def _condition_function(c: Condition) -> Callable[[Binding], bool]:
    if isinstance(c, ListsEqual):
        left, right = list_function(c.left), list_function(c.right)
        return lambda b: left(b) == right(b)
    if isinstance(c, TermIsTrue):
        term = term_function(c.term)
        return lambda b: term(b) != 0
    if isinstance(c, RealComparison):
        compare, low, high = REAL[c.comparison], _real_function(c.left), _real_function(c.right)
        return lambda b: compare(low(b), high(b))
    if isinstance(c, IsConstant):
        tensor = c.tensor
        return lambda b: b.is_constant(tensor)
    if isinstance(c, HasType):
        typed, dtypes = c.tensor, c.dtypes
        return lambda b: b.dtype(typed) in dtypes
    raise SpecError("R101", f"a condition of kind {type(c).__name__} cannot be evaluated")


def _real_function(x: Real | float) -> Callable[[Binding], float]:
    if isinstance(x, Real):
        name = x.name
        return lambda b: float(b.attributes[name])
    return lambda b: x
