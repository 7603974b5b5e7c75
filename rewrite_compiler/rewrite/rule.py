"""Rule: an identity between two program patterns under a guard, written as a Python function.

    @rule(grade="E")
    def fuse_reshapes(x: Tensor, s: Ints, t: Ints) -> Law:
        \"\"\"reshape(reshape(x, s), t) = reshape(x, t)\"\"\"
        return o.reshape(o.reshape(x, s), t), o.reshape(x, t)

Parameters annotated Tensor, Ints, Int, Float or Str are the pattern's variables; a last `Where(…)` is the guard.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Literal, overload

from ..errors import InputError, SpecError, did_you_mean
from ..lang.expr import Expr, NoTruthValue, var
from ..ops.op import Apply, AttributeTerm, Tensor, Variable, subterms
from ..ops.order import order_of
from ..ops.static import (
    ELEMENTS,
    ONE_BY_ONE,
    Condition,
    HasType,
    Ints,
    Inverse,
    IsConstant,
    ListConcatenation,
    ListLiteral,
    ListsEqual,
    ListSlice,
    ListUpdate,
    NamedList,
    PermutedList,
    Real,
    RealComparison,
    ShapeOf,
    TermIsTrue,
    as_condition,
)
from ..public_calls import FLAG, NAMES, TEXT, ArgumentKind, public, public_record
from ..user_code import quoted
from .domain import EVERYWHERE, Domain
from .float_condition import OperandBound, check_bounds, grade_text, graded
from .user_file import user_line

PHASES = ("ir", "fold", "late", "map")  # fold: to its end after every round of ir, for chains that grow by one step each time
# how the two sides agree in floating point: bit for bit; up to the sign of zero on finite data; up to the order of
# sums; as reals only
GRADES = {"E": "exact", "Z": "zero-sign", "A": "reassociates", "F": "real"}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")  # as the text form has it, by which rules travel
EXTREMA = frozenset({"min", "max"})  # elementwise, of two tensors
MARKS = ("any_dtype", "ring", "spelling", "lowering")  # lowering: costs more than what it stands for, used when asked


class Int(Expr):
    """Annotation of an integer attribute; inside the rule it is a term."""


class Float(Real):
    """Annotation of a float attribute, and the variable that stands for one."""


class Str(Float):
    """Annotation of a string attribute, and the variable that stands for one."""

    def _compared(self, _: object) -> RealComparison:
        raise SpecError("R101", f"the text {self.name} is compared", help="write the text in the pattern; guards compare numbers")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compared  # type: ignore[assignment]
    __hash__ = object.__hash__


Law = Any  # (left, right) or (left, right, Where(…)); several pairs for several results


def guard_condition(x: object) -> Condition:
    """Return what is written in a guard as a condition.

    Raises:
        SpecError: it is none, or says something of what is no tensor.
    """
    condition = as_condition(x)
    if isinstance(condition, IsConstant | HasType) and not isinstance(condition.tensor, Tensor):
        sentence = f"a condition on constness or element type must be on a tensor, not on {quoted(condition.tensor)}"
        raise SpecError("R101", sentence, help="name a variable of the pattern")
    return condition


@dataclass(frozen=True)
class Where:
    """The guard of a rule: conditions that must all hold."""

    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: object) -> None:
        object.__setattr__(self, "conditions", tuple(map(guard_condition, conditions)))


@public_record("Rule")
@dataclass(frozen=True, eq=False)
class Rule:
    """left = right for every match of the guard; `pairs` has one equation for each result."""

    name: str
    doc: str
    place: str
    pairs: tuple[tuple[Tensor, Tensor], ...]
    where: tuple[Condition, ...]
    phase: str = "ir"
    grade: str = "A"
    marks: frozenset[str] = frozenset()
    variables: Mapping[str, object] = field(default_factory=dict)
    domain: Domain = EVERYWHERE  # what its proof used beside the guard
    bounds: tuple[OperandBound, ...] = ()  # float32 data on which it is of its grade, all where there are none

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All that a match has to satisfy: the guard and the domain."""
        return (*self.where, *self.domain.conditions(self.pairs, self.where))

    @property
    def full_grade(self) -> str:
        """The grade with its condition: `E`, or `E if abs(x) < 2^126`."""
        return grade_text(self.grade, self.bounds)

    @property
    def left(self) -> Tensor:
        """The left side of the first equation."""
        return self.pairs[0][0]

    @property
    def right(self) -> Tensor:
        """The right side of the first equation."""
        return self.pairs[0][1]

    def __str__(self) -> str:
        return self.name


def short_place(place: str) -> str:
    """Return the last two parts of a place: `rules/linear.py:12`, the same on every machine."""
    return "/".join(place.split("/")[-2:])


@overload
def rule(function: Callable[..., Law]) -> Rule: ...
@overload
def rule(
    *, both_ways: Literal[True], name: str = "", phase: str = "ir", grade: str = "A", marks: Sequence[str] = ()
) -> Callable[[Callable[..., Law]], tuple[Rule, Rule]]: ...
@overload
def rule(
    *, name: str = "", both_ways: Literal[False] = False, phase: str = "ir", grade: str = "A", marks: Sequence[str] = ()
) -> Callable[[Callable[..., Law]], Rule]: ...
@public(
    "rule", function=ArgumentKind("a function of pattern variables", (FunctionType,)), name=TEXT, both_ways=FLAG, phase=TEXT, grade=TEXT,
    marks=NAMES,
)  # fmt: skip
def rule(
    function: Callable[..., Law] | None = None,
    *,
    name: str = "",
    both_ways: bool = False,
    phase: str = "ir",
    grade: str = "A",
    marks: Sequence[str] = (),
) -> Any:
    """Turn a function of pattern variables into a Rule (two of them with `both_ways`); a family of rules names each.

    A grade E or Z may have a condition on float32 operands, `E if abs(x) < 2^126`.
    """

    def decorate(f: Callable[..., Law]) -> Rule | tuple[Rule, Rule]:
        place = place_of(f)
        try:
            letter, bounds = graded(grade)
        except SpecError as error:
            raise error.at(place) from None
        for setting, value, allowed in (("phase", phase, PHASES), ("grade", letter, tuple(GRADES)), *(("mark", m, MARKS) for m in marks)):
            if value not in allowed:
                raise SpecError(
                    "R101",
                    f'{setting} must be one of {", ".join(allowed)}, not "{value}"',
                    place=place,
                    help=did_you_mean(value, allowed) or "change it at @rule",
                )
        variables = make_variables(f, place)
        pairs, where = _parts(_law_of(f, variables, place), place)
        rule_name = (name or f.__name__).rstrip("_").replace("_", "-")
        forward = Rule(rule_name, inspect.getdoc(f) or "", place, pairs, where, phase, letter, frozenset(marks), variables, bounds=bounds)
        check_rule(forward)
        if not both_ways:
            return forward
        backward = replace(forward, name=f"{forward.name}-back", pairs=tuple((r, left) for left, r in pairs))
        check_rule(backward)
        return forward, backward

    return decorate if function is None else decorate(function)


def _law_of(f: Callable[..., Law], variables: Mapping[str, object], place: str) -> Law:
    """Return what a rule's function does; what it refuses is told at the line that says it."""
    try:
        return f(**variables)
    except InputError as error:  # of an operator's attributes, too
        raise error.at(user_line(place, error)) from None
    except NoTruthValue as error:
        sentence = "a condition has no truth value before a pattern has matched"
        raise SpecError("R101", sentence, place=user_line(place, error), help=f"{ONE_BY_ONE}; write | for `or`") from None
    except (ArithmeticError, ValueError) as error:
        raise SpecError("R101", f"a part of the rule has no meaning: {error}", place=user_line(place, error)) from None


def place_of(f: Callable[..., Any]) -> str:
    """Return file:line of a function's definition."""
    code = inspect.unwrap(f).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def make_variables(f: Callable[..., Any], place: str) -> dict[str, Any]:
    """Return one pattern variable for each annotated parameter of `f`.

    Raises:
        SpecError: a parameter has a default value, or an annotation that names no kind of variable.
    """
    variables: dict[str, Any] = {}
    kinds: dict[str, Callable[[str], Any]] = {
        "Tensor": Variable, "Ints": NamedList, "Int": lambda n: var(n, (0, None)), "Float": Float, "Str": Str,
    }  # fmt: skip
    for name, parameter in inspect.signature(f).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            raise _default_refusal(f, name, place)
        annotation = parameter.annotation if isinstance(parameter.annotation, str) else getattr(parameter.annotation, "__name__", "Tensor")
        kind = "Tensor" if parameter.annotation is inspect.Parameter.empty else annotation.rpartition(".")[2]
        if kind not in kinds:
            raise SpecError("R101", f'parameter {name} must be annotated Tensor, Ints, Int, Float or Str, not "{annotation}"', place=place)
        variables[name] = kinds[kind](name)
    return variables


def _default_refusal(f: Callable[..., Any], name: str, place: str) -> SpecError:
    """Return the refusal of a parameter with a default: a match gives every parameter, so the default would never count."""
    sentence = f"parameter {name} of {f.__name__} must have no default value: what a model has there is matched, never assumed"
    return SpecError(
        "R101", sentence, place=place, help=f"use {name} from outside the function, or annotate it and match it in the pattern"
    )


def _parts(result: Any, place: str) -> tuple[tuple[tuple[Tensor, Tensor], ...], tuple[Condition, ...]]:
    items = list(result) if isinstance(result, tuple) else [result]
    where = items.pop().conditions if items and isinstance(items[-1], Where) else ()
    pairs = [items] if len(items) == 2 and all(isinstance(x, Tensor) for x in items) else items
    if not pairs or any(not isinstance(p, tuple | list) or len(p) != 2 or any(not isinstance(x, Tensor) for x in p) for p in pairs):
        sentence = "a rule returns its left side, its right side and, last, Where(…)"
        raise SpecError("R101", sentence, place=place, help="end it with `return left, right` or `return left, right, Where(…)`")
    return tuple((p[0], p[1]) for p in pairs), where


def check_rule(r: Rule) -> None:
    """Check the name of a rule, that its left side binds all variables, and that guard and condition of its grade can be satisfied.

    Raises:
        SpecError: one of these does not hold.
    """
    if not NAME.fullmatch(r.name):
        lower = "-".join(re.findall(r"[a-z][a-z0-9]*", r.name.lower())) or "a-name"
        sentence = f'the name of a rule must be words of small letters and digits, not "{r.name}"'
        raise SpecError("R101", sentence, place=r.place, help=f'call it "{lower}"')
    check_bound(r)
    check_numbers(r)
    try:
        check_bounds(r.grade, r.bounds, [name for name, v in r.variables.items() if isinstance(v, Variable)])
    except SpecError as error:
        raise error.at(r.place) from None
    compared = [c for c in r.where if isinstance(c, RealComparison)]
    if order_of(compared).is_contradictory:
        names = " and ".join(dict.fromkeys(v.name for c in compared for v in c.variables))
        raise SpecError(
            "R101", f"the guard of {r.name} contradicts itself: no {names} satisfies {' and '.join(map(str, compared))}", place=r.place,
            help="leave out one of the conditions, or make two rules of it",
        )  # fmt: skip


def check_numbers(r: Rule) -> None:
    """Check that the attributes of a pattern are numbers, infinite ones only as bounds: of clip, and beside an elementwise min or max.

    Raises:
        SpecError: one is not.
    """
    for x, is_bound in itertools.chain.from_iterable(_applications(side) for pair in r.pairs for side in pair):
        for name, value in x.attributes.items():
            for n in _floats(value):
                about = f"attribute {name} of {x.op.name} in {r.name} is"
                if math.isnan(n):
                    sentence = f"{about} not-a-number, which no number of a model equals"
                    raise SpecError("R101", sentence, place=r.place, help="write a number, or bind a float attribute")
                if math.isinf(n) and not is_bound and x.op.name != "clip":
                    sentence = f"{about} infinite, which only a bound may be: of clip, or beside an elementwise min or max"
                    raise SpecError("R101", sentence, place=r.place, help="write a finite number, or bind a float attribute")


def has_infinite_number(r: Rule) -> bool:
    """Tell whether an operator of a pattern other than clip has an infinite number, as the bound of an elementwise min or max."""
    applications = (x for pair in r.pairs for side in pair for x, _ in _applications(side) if x.op.name != "clip")
    return any(math.isinf(n) for x in applications for value in x.attributes.values() for n in _floats(value))


def _applications(side: Tensor) -> Iterator[tuple[Apply, bool]]:
    """Yield the operators of a side for each place where they occur, and whether they are an operand of an elementwise min or max."""
    if isinstance(side, Apply):
        yield side, False
    for x in subterms(side):
        if isinstance(x, Apply):
            yield from ((operand, x.op.name in EXTREMA) for operand in x.operands if isinstance(operand, Apply))


def _floats(value: object) -> Iterator[float]:
    """Yield the floats of an attribute: a number, or elements of a list."""
    elements = value.elements if isinstance(value, ListLiteral) else value if isinstance(value, tuple | list) else (value,)
    for n in elements:
        if isinstance(n, float):
            yield n
        elif isinstance(n, Expr) and n.op == "const" and isinstance(n.data, float):
            yield n.data


def check_bound(r: Rule) -> None:
    """Check that the left side of a rule binds each variable: as an operand or as a plain attribute.

    Raises:
        SpecError: the right side or the guard uses another variable.
    """
    bound_names = {name_of(v) for left, _ in r.pairs for v in _bound_by(left)}
    needed = [v for pair in r.pairs for side in pair for v in variables_of(side)]
    needed += [v for c in r.where for v in condition_variables(c)]
    for v in needed:
        if name_of(v) not in bound_names:
            raise SpecError(
                "R101", f'the right side or guard of {r.name} uses "{name_of(v)}", which its left side does not bind', place=r.place,
                help="every variable must occur as an operand or a plain attribute on the left",
            )  # fmt: skip


def _bound_by(left: Tensor) -> Iterator[object]:
    """Yield the variables that a match of a left side gives a value."""
    for x in subterms(left):
        if isinstance(x, Variable):
            yield x
        elif isinstance(x, Apply):
            yield from (
                v
                for v in x.attributes.values()
                if isinstance(v, NamedList | Float) or (isinstance(v, Expr) and v.op == "var" and v not in ELEMENTS)
            )


def name_of(variable: object) -> str:
    """Return the name of a pattern variable."""
    return str(variable.data[0]) if isinstance(variable, Expr) else str(variable.name)  # type: ignore[attr-defined]


def variables_of(t: Tensor) -> Iterator[object]:
    """Yield the tensor and attribute variables in a pattern."""
    for x in subterms(t):
        if isinstance(x, Variable):
            yield x
        elif isinstance(x, Apply):
            for value in x.attributes.values():
                yield from attribute_variables(value)


def attribute_variables(value: AttributeTerm | Float) -> Iterator[object]:
    """Yield the variables in an attribute."""
    if isinstance(value, Float):
        yield value
    elif isinstance(value, Expr):
        yield from _scalar_variables(value)
    elif isinstance(value, Ints):
        yield from _list_variables(value)


def condition_variables(c: Condition) -> Iterator[object]:
    """Yield the variables in a condition of a guard."""
    for atom in condition_atoms(c):
        yield from variables_of(atom.tensor) if isinstance(atom, ShapeOf | IsConstant | HasType) else (atom,)


def condition_atoms(c: Condition) -> Iterator[Any]:
    """Yield what a condition reads: attribute variables, shapes (ShapeOf), and the condition itself where it is one on a tensor."""
    if isinstance(c, ListsEqual):
        yield from _list_atoms(c.left)
        yield from _list_atoms(c.right)
    elif isinstance(c, TermIsTrue):
        yield from _scalar_atoms(c.term)
    elif isinstance(c, RealComparison):
        yield from c.variables
    elif isinstance(c, IsConstant | HasType):
        yield c


def _scalar_variables(e: Expr) -> Iterator[object]:
    return _expanded(_scalar_atoms(e))


def _list_variables(x: Ints) -> Iterator[object]:
    return _expanded(_list_atoms(x))


def _expanded(atoms: Iterator[Any]) -> Iterator[object]:
    for atom in atoms:
        yield from variables_of(atom.tensor) if isinstance(atom, ShapeOf) else (atom,)


def _scalar_atoms(e: Expr) -> Iterator[Any]:
    for v in e.free:
        element = ELEMENTS.get(v)
        if element is None:
            yield v
            continue
        yield from _list_atoms(element.base)
        if element.index is not None:
            yield from _scalar_atoms(element.index)


def _list_atoms(x: Ints) -> Iterator[Any]:
    if isinstance(x, NamedList | ShapeOf):
        yield x
    for part in _parts_of(x):
        yield from _scalar_atoms(part) if isinstance(part, Expr) else _list_atoms(part)


def _parts_of(x: Ints) -> tuple[Ints | Expr, ...]:
    """Return the lists and elements that a list is made from."""
    if isinstance(x, ListLiteral):
        return x.elements
    if isinstance(x, ListConcatenation):
        return x.parts
    if isinstance(x, ListUpdate):
        return x.base, x.index, x.element
    if isinstance(x, PermutedList):
        return x.base, x.perm
    return (x.base,) if isinstance(x, ListSlice) else (x.perm,) if isinstance(x, Inverse) else ()


def free_attribute(value: object) -> Any:
    """Return the key under which a match binds an attribute, None when it is a literal or computed."""
    if isinstance(value, NamedList | Float):
        return value.name
    if isinstance(value, Expr) and value.op == "var" and value not in ELEMENTS:
        return value
    return None
