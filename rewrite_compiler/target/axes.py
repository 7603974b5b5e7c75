"""Axes: the loop dimensions of an operation's operands and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import SpecError, did_you_mean


@dataclass(frozen=True)
class Axes:
    """Which loop dimension runs along each axis of each operand and result, e.g. "x: t k; w: n k; y: t n"."""

    of: Mapping[str, tuple[str, ...]]
    results: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, results: int = 1) -> Axes:
        """Return the axes of the text form; its last entries are the results."""
        entries = [entry.partition(":") for entry in text.split(";")]
        of = {name.strip(): tuple(dims.split()) for name, _, dims in entries}
        return cls(of, tuple(of)[-results:])

    @property
    def result(self) -> str:
        """The first result."""
        return self.results[0]

    @property
    def summed(self) -> tuple[str, ...]:
        """The reduction dimensions, which the result does not have: partial results along them add up."""
        result_dimensions = set(self.of[self.result])
        return tuple(dict.fromkeys(d for dims in self.of.values() for d in dims if d not in result_dimensions))

    def sizes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Return the size of every dimension."""
        return {d: n for name, shape in shapes.items() for d, n in zip(self.of[name], shape, strict=True)}


def check_axes(name: str, axes: Axes, text: str, operands: Sequence[str]) -> None:
    """Require axes of every operand and, last, of the results, and of nothing else.

    Raises:
        SpecError: I102, they name something else, or not all of these.
    """
    function = name.rpartition(".")[2]
    form = f'write "{"; ".join(f"{n}: …" for n in operands)}; {"; ".join(f"{n}: …" for n in axes.results)}": operands, and results last'
    odd = [entry.strip() for entry in text.split(";") if ":" not in entry]
    if odd:
        raise SpecError("I102", f'the axes of {name} must be a tensor, a colon and its axes, as "x: t k", not "{odd[0]}"', help=form)
    mistaken = sorted(set(axes.results) & set(operands))
    if mistaken:
        sentence = f"the axes of {name} must end with its result, not with {mistaken[0]}, which is an operand"
        raise SpecError("I102", sentence, help=f'move "{mistaken[0]}: …" forward, and name the result as no parameter is')
    strange = [n for n in axes.of if n not in (*operands, *axes.results)]
    if strange:
        sentence = f"the axes of {name} name {strange[0]}, which is no parameter of {function}"
        raise SpecError("I102", sentence, help=did_you_mean(strange[0], operands) or form)
    missing = sorted(set(operands) - axes.of.keys())
    if missing:
        remedy = f"every parameter of {function} is an operand or an attribute of its pattern: leave out what is none"
        raise SpecError("I102", f'the axes of {name} must name its operand {missing[0]}, not only "{text}"', help=remedy)
