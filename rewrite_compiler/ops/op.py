"""Op: an operator, described once: its operands and attributes, its shape rule, and its meaning as a term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..lang.binders import Array

Shape = tuple[int, ...]
AttributeValue = int | float | str | tuple[int, ...]
# kinds of operator: what a host pays for, what only moves data, what is one function of each element, what rules pass through
# on the way to a larger form and no program is made of
COMPUTE, ELEMENTWISE, LAYOUT, STAGE = "compute", "elementwise", "layout", "stage"
# kinds of attribute
INT, INTS, FLOAT, STRING = "int", "ints", "float", "string"


class ShapeError(InputError):
    """Operands or attributes that an operator has no meaning for."""

    def __init__(self, sentence: str) -> None:
        super().__init__("F131", sentence)

    def at(self, place: str) -> InputError:
        """Return the same refusal at `place`."""
        return InputError(self.problem.code, self.problem.sentence, place=place)


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
        from .term import apply

        return apply(self, operands, attributes)

    def shapes(self, operands: Sequence[Shape], attributes: Mapping[str, AttributeValue]) -> tuple[Shape, ...]:
        """Return the shapes of all outputs; ShapeError when the operator has no meaning there."""
        self.check_count(len(operands))
        result = self.shape(*operands, **attributes)
        return result if self.outputs > 1 else (result,)  # type: ignore[return-value]

    def dtype_of(self, first: str, attributes: Mapping[str, AttributeValue]) -> str:
        """Return the element type of the results from that of the first operand."""
        return str(attributes[self.dtype[1:]]) if self.dtype.startswith(":") else self.dtype or first

    def check_count(self, given: int) -> None:
        """Refuse a wrong number of operands."""
        if given != len(self.operands) and not (self.variadic and given >= 1):
            raise ShapeError(f"{self.name} takes {len(self.operands)} operands, not {given}")


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
    """Define an operator from its meaning. `attributes` is a list like "strides:ints axis:int=-1"."""

    def decorate(meaning: Callable[..., Any]) -> Op:
        made = Op(
            name, tuple(operands.split()), _attributes(attributes), kind, shape, meaning, outputs, macs, variadic, meaning.__doc__ or "",
            dtype,
        )  # fmt: skip
        OPS[name] = made
        return made

    return decorate


def _attributes(text: str) -> tuple[Attribute, ...]:
    found = []
    for part in text.split():
        declared, _, default = part.partition("=")
        name, _, kind = declared.partition(":")
        value: AttributeValue | None = None
        if default:
            value = float(default) if kind == FLOAT else default if kind == STRING else int(default)
        found.append(Attribute(name, kind, value))
    return tuple(found)


def complete(operator: Op, given: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return all attributes in declared order, defaults filled in; ShapeError on a missing or unknown one."""
    known = {a.name for a in operator.attributes}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ShapeError(f'{operator.name} has no attribute "{unknown[0]}"')
    full: dict[str, AttributeValue] = {}
    for a in operator.attributes:
        value = given.get(a.name, a.default)
        if value is None:
            raise ShapeError(f'{operator.name} needs the attribute "{a.name}"')
        full[a.name] = value
    return full
