"""Codelets: an operation as loops, transfers and computes over surrogates, independent of a target until passes bind it to one.

A surrogate is an operand (`inp`, `out`, `param`) or a `local` that a transfer allocates in a storage. An index names a block of a
surrogate: an affine offset and a size for each axis. The text form is parsed back to the same codelet (`codelet_text`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from ..errors import SpecError

Size = int | str  # a number, or the name of a dimension that is not bound yet
Kind = Literal["inp", "out", "local", "param"]


class Stage(IntEnum):
    """How far a codelet is fitted to a target."""

    ABSTRACT = 0
    """Dimensions have names."""
    BOUND = 1
    """Dimensions are numbers, elements have types."""
    PLACED = 2
    """Every operand has a storage, every compute a unit, and transfers bring one to the other."""
    TILED = 3
    """Every block fits its storage and its edge."""


@dataclass(frozen=True)
class Affine:
    """A sum of loop variables with factors, and a constant; terms are sorted by name and none is 0."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        right = other if isinstance(other, Affine) else Affine(other)
        total = dict(self.terms)
        for name, factor in right.terms:
            total[name] = total.get(name, 0) + factor
        return Affine(self.constant + right.constant, tuple(sorted((v, c) for v, c in total.items() if c)))

    def value(self, numbers: Mapping[str, int]) -> int:
        """Return the value at values of the variables."""
        return self.constant + sum(factor * numbers[name] for name, factor in self.terms)


def variable(name: str, factor: int = 1) -> Affine:
    """Return a loop variable with a factor as an affine offset."""
    return Affine(0, ((name, factor),) if factor else ())


@dataclass(frozen=True)
class Surrogate:
    """An operand or a local: shape, element type and storage, as far as they are known."""

    name: str
    kind: Kind
    dims: tuple[Size, ...]
    dtype: str | None = None
    loc: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions as numbers.

        Raises:
            SpecError: a dimension is not bound.
        """
        unbound = next((d for d in self.dims if isinstance(d, str)), None)
        if unbound is not None:
            raise SpecError("I102", f"Dimension {unbound} of {self.name} has no size", help="bind the codelet to sizes first")
        return tuple(int(d) for d in self.dims)

    @property
    def bits(self) -> int:
        """Bits of all elements.

        Raises:
            SpecError: a dimension is not bound, or the elements have no type.
        """
        return math.prod(self.shape) * dtype_bits(self.name, self.dtype)


def dtype_bits(subject: str, dtype: str | None) -> int:
    """Return the bits of an element type.

    Raises:
        SpecError: there is no type.
    """
    if dtype is None:
        raise SpecError("I102", f"The elements of {subject} have no type", help="bind the codelet to element types first")
    return int(dtype[1:])


@dataclass(frozen=True)
class Index:
    """A block of a surrogate: its first element and its size along each axis."""

    surrogate: str
    offsets: tuple[Affine, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Elements of the block."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Constant:
    """A block of equal numbers."""

    value: int
    dtype: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Allocation:
    """A local that a transfer allocates in a storage."""

    name: str
    loc: str


@dataclass(frozen=True)
class Transfer:
    """A copy of a block, or of equal numbers, to another block or to a local that it allocates."""

    source: Index | Constant
    sink: Index | Allocation


@dataclass(frozen=True)
class Compute:
    """A capability on blocks; the unit is known once the codelet is placed."""

    capability: str
    operands: tuple[Index, ...]
    result: Index
    unit: str | None = None


@dataclass(frozen=True)
class Loop:
    """A body for variable = low, low + stride, … below high."""

    var: str
    low: Size
    high: Size
    stride: int
    body: tuple[Node, ...]


Node = Loop | Transfer | Compute


@dataclass(frozen=True)
class Codelet:
    """An operation: its operands and its body; the stage follows from what is known of them."""

    name: str
    surrogates: tuple[Surrogate, ...]
    body: tuple[Node, ...]

    @property
    def stage(self) -> Stage:
        """How far the codelet is fitted to a target."""
        nodes = list(walk(self.body))
        loops = [n for n in nodes if isinstance(n, Loop)]
        sizes = [*(d for s in self.surrogates for d in s.dims), *(x for n in loops for x in (n.low, n.high))]
        if any(isinstance(d, str) for d in sizes) or any(s.dtype is None for s in self.surrogates):
            return Stage.ABSTRACT
        if any(s.loc is None for s in self.surrogates) or any(isinstance(n, Compute) and n.unit is None for n in nodes):
            return Stage.BOUND
        return Stage.TILED if any(n.stride > 1 for n in loops) else Stage.PLACED

    def surrogate(self, name: str) -> Surrogate:
        """Return an operand by its name.

        Raises:
            SpecError: I102, there is none of this name.
        """
        match = next((s for s in self.surrogates if s.name == name), None)
        if match is None:
            raise SpecError("I102", f'{self.name} has no surrogate "{name}"', help=f"it has {', '.join(s.name for s in self.surrogates)}")
        return match


def walk(body: tuple[Node, ...]) -> Iterator[Node]:
    """Yield every node of a body and of the loops in it, outermost first."""
    for node in body:
        yield node
        if isinstance(node, Loop):
            yield from walk(node.body)


def bind(c: Codelet, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> Codelet:
    """Return a codelet with numbers for its dimensions and types for its operands.

    Raises:
        SpecError: I102, a dimension or an operand has no value, or a size is not positive.
    """

    def size(subject: str, d: Size) -> int:
        if isinstance(d, int):
            return d
        if d not in sizes:
            raise SpecError("I102", f"Dimension {d} of {subject} has no size", help=f"dimensions with sizes: {', '.join(sizes) or 'none'}")
        if sizes[d] < 1:
            raise SpecError("I102", f"Dimension {d} of {subject} must be positive, not {sizes[d]}", help="give it at least 1")
        return sizes[d]

    def node(n: Node) -> Node:
        if not isinstance(n, Loop):
            return n
        return replace(n, low=size(n.var, n.low), high=size(n.var, n.high), body=tuple(map(node, n.body)))

    surrogates = tuple(
        replace(s, dims=tuple(size(s.name, d) for d in s.dims), dtype=s.dtype or dtypes.get(s.name) or _untyped(s)) for s in c.surrogates
    )
    return replace(c, surrogates=surrogates, body=tuple(map(node, c.body)))


def _untyped(s: Surrogate) -> str:
    raise SpecError("I102", f"Operand {s.name} has no element type", help="give one as i8 or i32")
