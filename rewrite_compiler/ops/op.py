"""Op: an operator with its operands, attributes, shape inference and meaning as a term; patterns of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, SpecError, did_you_mean
from ..lang.binders import Array
from ..lang.expr import Expr
from ..user_code import quoted
from .static import Ints, ShapeOf, as_ints

Shape = tuple[int, ...]
AttributeValue = int | float | str | tuple[int, ...]
AttributeTerm = int | float | str | Expr | Ints
# kinds of operator: what a host pays for, what only moves data, what is one function of each element, what rules pass through
# on the way to a larger form and no program is made of
COMPUTE, ELEMENTWISE, LAYOUT, STAGE = "compute", "elementwise", "layout", "stage"
# kinds of attribute
INT, INTS, FLOAT, STRING = "int", "ints", "float", "string"


class ShapeError(InputError):
    """The refusal of operands or attributes for which an operator is not defined."""

    def __init__(self, sentence: str, *, help: str = "") -> None:
        super().__init__("F131", sentence, help=help)

    def at(self, place: str) -> InputError:
        """Return the same refusal at `place`."""
        return InputError(self.problem.code, self.problem.sentence, place=place, help=self.problem.help)


@dataclass(frozen=True)
class Attribute:
    """A named static argument of an operator."""

    name: str
    kind: str
    default: AttributeValue | None = None


@dataclass(frozen=True, eq=False)
class Op:
    """An operator. Calling it on patterns builds a pattern; `meaning` on arrays builds the term it stands for."""

    name: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    kind: str
    shape: Callable[..., Shape | tuple[Shape, ...]]
    meaning: Callable[..., Array | tuple[Array, ...]]
    outputs: int = 1
    macs: Callable[..., int] | None = None
    variadic: bool = False
    doc: str = ""
    dtype: str = ""  # element type of the results, ":to" for that of an attribute; empty: the first operand's

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        """Build the application of this operator to patterns."""
        return apply(self, operands, attributes)

    def shapes(self, operands: Sequence[Shape], attributes: Mapping[str, AttributeValue]) -> tuple[Shape, ...]:
        """Return the shapes of all outputs (shape inference).

        Raises:
            ShapeError: the operator is not defined on these shapes and attributes.
        """
        self.check_count(len(operands))
        result = self.shape(*operands, **attributes)
        return result if self.outputs > 1 else (result,)  # type: ignore[return-value]

    def dtype_of(self, first: str, attributes: Mapping[str, AttributeValue]) -> str:
        """Return the element type of the results from that of the first operand."""
        return str(attributes[self.dtype[1:]]) if self.dtype.startswith(":") else self.dtype or first

    def check_count(self, count: int) -> None:
        """Check the number of operands.

        Raises:
            ShapeError: the operator takes another number.
        """
        if count != len(self.operands) and not (self.variadic and count >= 1):
            raise ShapeError(f"{self.name} takes {len(self.operands)} operands, not {count}")


OPS: dict[str, Op] = {}


def op(
    name: str,
    operands: str,
    shape: Callable[..., Any],
    *,
    attributes: str = "",
    kind: str = COMPUTE,
    outputs: int = 1,
    macs: Callable[..., int] | None = None,
    variadic: bool = False,
    dtype: str = "",
) -> Callable[[Callable[..., Any]], Op]:
    """Return the decorator that defines an operator from its meaning and enters it in OPS.

    `attributes` is a list like "strides:ints axis:int=-1", `macs` counts the multiply-accumulates at operand shapes.
    """

    def decorate(meaning: Callable[..., Any]) -> Op:
        operator = Op(
            name, tuple(operands.split()), _attributes(attributes), kind, shape, meaning, outputs, macs, variadic, meaning.__doc__ or "",
            dtype,
        )  # fmt: skip
        OPS[name] = operator
        return operator

    return decorate


def _attributes(text: str) -> tuple[Attribute, ...]:
    attributes = []
    for part in text.split():
        declared, _, default = part.partition("=")
        name, _, kind = declared.partition(":")
        value: AttributeValue | None = None
        if default:
            value = float(default) if kind == FLOAT else default if kind == STRING else int(default)
        attributes.append(Attribute(name, kind, value))
    return tuple(attributes)


def complete_attributes(operator: Op, attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return all attributes in declared order, defaults filled in.

    Raises:
        ShapeError: an attribute is unknown, or one without a default is missing.
    """
    declared = {a.name for a in operator.attributes}
    unknown = sorted(attributes.keys() - declared)
    if unknown:
        remedy = did_you_mean(unknown[0], declared) or f"it has {', '.join(a.name for a in operator.attributes) or 'none'}"
        raise ShapeError(f'{operator.name} has no attribute "{unknown[0]}"', help=remedy)
    full: dict[str, AttributeValue] = {}
    for a in operator.attributes:
        value = attributes.get(a.name, a.default)
        if value is None:
            raise ShapeError(f'{operator.name} needs the attribute "{a.name}"')
        full[a.name] = value
    return full


# -- patterns


def _refusal_of_sign(sign: str, operator: str) -> Callable[[Tensor, object], Any]:
    def refused(self: Tensor, other: object) -> Any:
        sentence = f"a pattern must name its operators, not write {sign} between tensors"
        raise SpecError("R101", sentence, help=f"write {operator}(…), from rewrite_compiler.ops")

    return refused


class Tensor:
    """A pattern that stands for a tensor: the type of a rule's parameters."""

    __hash__ = object.__hash__

    def __init__(self, *values: Any, **named: Any) -> None:
        call = f"Tensor({', '.join([*map(quoted, values), *(f'{k}={quoted(x)}' for k, x in named.items())])})"
        remedy = "take an unknown tensor as a parameter, `x: Tensor`; a number is full((1,), 3.0) of the operators"
        raise SpecError("R101", f"Tensor must be the type of a pattern's parameter, not a call, {call}", help=remedy)

    __add__ = __radd__ = _refusal_of_sign("+", "add")
    __sub__ = __rsub__ = _refusal_of_sign("-", "sub")
    __mul__ = __rmul__ = _refusal_of_sign("*", "mul")
    __truediv__ = __rtruediv__ = _refusal_of_sign("/", "div")
    __matmul__ = __rmatmul__ = _refusal_of_sign("@", "matmul")

    @property
    def shape(self) -> Ints:
        """The shape, a list that has a value once the pattern has matched."""
        return ShapeOf(self)

    @property
    def rank(self) -> Expr:
        """The number of axes."""
        return self.shape.length

    @property
    def size(self) -> Expr:
        """The number of elements."""
        return self.shape.product


@dataclass(frozen=True, eq=False)
class Variable(Tensor):
    """A pattern variable: matches any tensor, and the same tensor at every occurrence (non-linear patterns)."""

    name: str


@dataclass(frozen=True, eq=False)
class Apply(Tensor):
    """Output `output` of an operator on patterns."""

    op: Op
    operands: tuple[Tensor, ...]
    attributes: Mapping[str, AttributeTerm]
    output: int = 0


def apply(operator: Op, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Return the application of an operator to patterns; a tuple of applications when it has several outputs.

    Positional values after the operands are attributes in declared order.

    Raises:
        SpecError: operands are missing, too many, or no patterns.
        ShapeError: an attribute is unknown or missing.
    """
    positional = list(operands)
    count = len(operator.operands)
    tensors = positional[:count] if not operator.variadic else [x for x in positional if isinstance(x, Tensor)]
    extra = positional[len(tensors) :]
    values = dict(attributes)
    free = [a.name for a in operator.attributes if a.name not in values]
    values.update(zip(free, extra, strict=False))
    if len(extra) > len(free) or any(not isinstance(x, Tensor) for x in tensors) or len(tensors) < count:
        names = ", ".join((*operator.operands, *(a.name for a in operator.attributes)))
        odd = next(((n, x) for n, x in zip(operator.operands, tensors, strict=False) if not isinstance(x, Tensor)), None)
        if odd is not None:
            raise SpecError("R101", f"operand {odd[0]} of {operator.name} must be a pattern, not {quoted(odd[1])}")
        count_text = f"{len(positional)} value{'s' if len(positional) != 1 else ''}"
        raise SpecError("R101", f"{operator.name} takes {names}; the pattern gives {count_text}")
    terms: dict[str, AttributeTerm] = {}
    for name, value in complete_attributes(operator, values).items():
        terms[name] = as_ints(value) if isinstance(value, tuple | list) else value
    applications = tuple(Apply(operator, tuple(tensors), terms, n) for n in range(operator.outputs))
    return applications[0] if operator.outputs == 1 else applications


def subterms(t: Tensor) -> Iterator[Tensor]:
    """Yield every subpattern of `t` once, in post-order."""
    visited: set[int] = set()

    def walk(x: Tensor) -> Iterator[Tensor]:
        if id(x) in visited:
            return
        visited.add(id(x))
        if isinstance(x, Apply):
            for operand in x.operands:
                yield from walk(operand)
        yield x

    yield from walk(t)
