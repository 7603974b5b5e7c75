"""The loop IR: structured loops and choices over scalars and arrays, which lowering emits and every compiled reading prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..lang import intervals as iv
from ..lang.binders import Leaf, Table
from ..lang.expr import Scalar
from ..lang.intervals import Interval


@dataclass(frozen=True)
class Tree:
    """An expression over names: `name`, `const`, `load` (data: the array's name), or an operator of Expr."""

    op: str
    args: tuple[Tree, ...]
    data: Any
    interval: Interval
    real: bool


@dataclass(frozen=True)
class Bind:
    """name := value, once."""

    name: str
    value: Tree


@dataclass(frozen=True)
class Mutable:
    """A scalar that is assigned again; the interval is that of all its values."""

    name: str
    value: Tree
    interval: Interval
    real: bool


@dataclass(frozen=True)
class Assign:
    """A new value of a mutable scalar."""

    name: str
    value: Tree


@dataclass(frozen=True)
class Allocate:
    """A local array of `size` elements."""

    name: str
    size: Tree
    interval: Interval
    real: bool


@dataclass(frozen=True)
class Store:
    """array[index] := value; the array is a memory's or a local's name."""

    array: str
    index: Tree
    value: Tree


@dataclass(frozen=True)
class For:
    """body for name = 0 … extent−1."""

    name: str
    extent: Tree
    body: list[Statement]


@dataclass(frozen=True)
class If:
    """then if the condition is 1, else otherwise."""

    condition: Tree
    then: list[Statement]
    otherwise: list[Statement]


@dataclass(frozen=True)
class Raise:
    """A diagnostic; `{name}` in the sentence stands for the value of that name."""

    code: str
    sentence: str
    values: tuple[tuple[str, Tree], ...] = ()


@dataclass(frozen=True)
class Copy:
    """array[index + stride · i] := source[start + i] for i = 0 … count−1; recognised in loops by `vector_idioms`, for machine code.

    With a `width` of more than 1 what is copied are words of so many bytes of the source, the low ones first; with `low` the
    low bits of elements. `loop` is what it was made of.
    """

    array: str
    index: Tree
    source: str
    start: Tree
    count: int
    loop: For
    stride: int = 1
    width: int = 1
    low: int | None = None


@dataclass(frozen=True)
class Conjunction:
    """name := min(name, value) for i = 0 … count−1, all of them 0 or 1; recognised in loops by `vector_idioms`, for machine code.

    `value` reads arrays side by side, or what is the same in every iteration. `loop` is what it was made of.
    """

    name: str
    value: Tree
    count: int
    loop: For


@dataclass(frozen=True)
class BoundsCheck:
    """A trap unless two indices of an array lie in it, where loops of the extents `when` run at all; from `bounds_checks`, for C."""

    array: str
    first: Tree
    last: Tree
    when: tuple[Tree, ...]


Statement = Bind | Mutable | Assign | Allocate | Store | For | If | Raise | Copy | Conjunction | BoundsCheck


@dataclass(frozen=True)
class Routine:
    """Lowered code: the memories it touches (name → leaf), the tables it reads, its statements."""

    memories: dict[str, Leaf]
    tables: dict[str, Table]
    body: list[Statement]


def constant(value: Scalar, real: bool = False) -> Tree:
    """Return a constant tree."""
    return Tree("const", (), value, (int(value), int(value)) if not real else iv.EVERYTHING, real)


def folded_sum_or_product(op: str, a: Tree, b: Tree) -> Tree:
    """Return a + b or a · b of integer trees, folded where an operand is a constant."""
    if a.op == "const" and b.op == "const":
        return constant(a.data + b.data if op == "add" else a.data * b.data)
    zero = next((x for x in (a, b) if x.op == "const" and x.data == 0), None)
    unit = next((x for x in (a, b) if x.op == "const" and x.data == 1), None)
    if zero is not None:
        return zero if op == "mul" else (b if a is zero else a)
    if unit is not None and op == "mul":
        return b if a is unit else a
    interval = (iv.add if op == "add" else iv.mul)(a.interval, b.interval)
    return Tree(op, (a, b), None, interval, False)
