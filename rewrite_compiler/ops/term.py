"""Patterns: variables and applications of operators, with symbolic shapes and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError
from ..lang.expr import Expr
from .op import Op, complete
from .static import Ints, ShapeOf, as_ints

AttributeTerm = int | float | str | Expr | Ints


class Tensor:
    """A pattern that stands for a tensor."""

    __hash__ = object.__hash__

    @property
    def shape(self) -> Ints:
        """The shape, known when the pattern has matched."""
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
    """Any tensor; the same variable matches the same tensor everywhere."""

    name: str


@dataclass(frozen=True, eq=False)
class Apply(Tensor):
    """Output `output` of an operator on patterns."""

    op: Op
    operands: tuple[Tensor, ...]
    attributes: Mapping[str, AttributeTerm]
    output: int = 0


def apply(operator: Op, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Return the application of an operator (a tuple of applications when it has several outputs)."""
    positional = list(operands)
    count = len(operator.operands)
    tensors = positional[:count] if not operator.variadic else [x for x in positional if isinstance(x, Tensor)]
    extra = positional[len(tensors) :]
    given = dict(attributes)
    free = [a.name for a in operator.attributes if a.name not in given]
    given.update(zip(free, extra, strict=False))
    if len(extra) > len(free) or any(not isinstance(x, Tensor) for x in tensors) or len(tensors) < count:
        names = ", ".join((*operator.operands, *(a.name for a in operator.attributes)))
        raise SpecError("R101", f"{operator.name} takes {names}; the pattern gives {len(positional)} values")
    terms: dict[str, AttributeTerm] = {}
    for name, value in complete(operator, given).items():
        terms[name] = as_ints(value) if isinstance(value, tuple | list) else value
    made = tuple(Apply(operator, tuple(tensors), terms, n) for n in range(operator.outputs))
    return made[0] if operator.outputs == 1 else made


def subterms(t: Tensor) -> Iterator[Tensor]:
    """Yield every pattern below `t`, operands first, each once."""
    seen: set[int] = set()

    def walk(x: Tensor) -> Iterator[Tensor]:
        if id(x) in seen:
            return
        seen.add(id(x))
        if isinstance(x, Apply):
            for operand in x.operands:
                yield from walk(operand)
        yield x

    yield from walk(t)
