"""Places: which elements of an operation's tensors lie at which addresses, while registers of a nest hold the sizes of a call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ila import Ila
from ...lang.expr import Expr
from ...lang.step import Update
from ...lang.traversal import terms_of
from ..driver.matching import NONE
from ..driver.program import BYTE
from ..driver.transport import Contents
from ..instructions.control import is_register, reset_state
from ..instructions.copies import NoCopy, Part
from .nest import Nest
from .terms import Grid, axes_of, copied_over

Linear = tuple[tuple[str, ...], ...]  # a sum of products of names, of loops and sizes
MOST_UNROLLED = 64  # values of loops that a copy's shifts depend on


class NoPlaces(Exception):
    """The registers give no layout: why."""


def linear(text: str) -> Linear:
    """Return a sum of products of names, which a text has as `u * strides[0] + r`."""
    return tuple(tuple(factor.strip("{} ") for factor in term.split("*")) for term in text.split("+"))


@dataclass(frozen=True)
class Access:
    """What a word is: an element of an operand, one sum of loops an axis; `dims` are what the axes are called."""

    operand: str
    places: tuple[Linear, ...]
    dims: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Configuration:
    """A nest that does an operation: the loop that each of its own takes, what each word is, and what registers hold.

    Names are those of loops, sizes and attributes of the operation, and numbers as text. A word that is no operand is the accumulator:
    where `initial` is an operand, results start from it.
    """

    nest: Nest
    result: Access
    loops: tuple[str, ...]  # of the result
    steps: tuple[str, ...]  # of sums
    words: tuple[Access | None, ...]
    registers: Mapping[str, str]
    initial: Access | None = None

    def control(self, ila: Ila, at: Mapping[str, int]) -> dict[str, int]:
        """Return what the registers hold at sizes."""
        return {**reset_state(ila), **{name: at[x] if x in at else int(x) for name, x in self.registers.items()}}


class Layout:
    """Where the operands and the result of a configuration lie at sizes, for one step of the loops that no loop of the nest takes.

    `shapes` are those of the tensors, `at` the sizes by name.
    """

    def __init__(
        self, ila: Ila, c: Configuration, shapes: Mapping[str, tuple[int, ...]], at: Mapping[str, int], host: Mapping[str, int]
    ) -> None:
        """Evaluate loops and registers."""
        self.ila, self.c, self.shapes, self.at, self.host = ila, c, shapes, at, host
        self.registers = c.control(ila, at)
        self.numbers = Grid({}, self.registers)
        self.bounds = dict((*c.nest.loops, *c.nest.steps))
        self.taken: dict[str, dict[Expr, None]] = {}
        for v, name in zip(self.bounds, (*c.loops, *c.steps), strict=True):
            self.taken.setdefault(name, {})[v] = None

    def extent(self, v: Expr) -> int:
        """Return the length of a loop of the nest.

        Raises:
            NoPlaces: it has no steps.
        """
        x = self.numbers.of(self.bounds[v])
        if not isinstance(x, int) or x < 1:
            raise NoPlaces("a loop has no steps")
        return x

    def loop(self, name: str, grid: Mapping[Expr, Any]) -> Any:
        """Return the iteration of a loop of the operation over a grid of the nest's loops, or a size."""
        if name in self.taken:
            index: Any = 0
            for v in self.taken[name]:
                index = index * self.extent(v) + grid.get(v, 0)
            return index
        return self.host[name] if name in self.host else self.at[name] if name in self.at else int(name)

    def flat(self, a: Access, grid: Mapping[Expr, Any]) -> tuple[Any, Any]:
        """Return the flat index of an element and whether there is one."""
        flat: Any = 0
        valid: Any = True
        for size, place in zip(self.shapes[a.operand], a.places, strict=True):
            x: Any = sum(np.prod(np.broadcast_arrays(*(self.loop(n, grid) for n in term)), axis=0) for term in place)
            valid = valid & (x >= 0) & (x < size)
            flat = flat * size + x
        for name, variables in self.taken.items():
            if name in self.at and any(v in grid for v in variables):
                valid = valid & (self.loop(name, grid) < self.at[name])
        return flat, valid

    def operands(self) -> dict[str, dict[str, Contents]]:
        """Return what must lie in each memory, by operand.

        Raises:
            NoPlaces: two elements would lie at one address.
        """
        contents: dict[str, dict[str, Contents]] = {}
        for word, access in zip(self.c.nest.words, self.c.words, strict=True):
            if access is not None:
                for memory, elements in self.word(word, access).items():
                    before = contents.setdefault(access.operand, {}).get(memory)
                    contents[access.operand][memory] = elements if before is None else united([before, elements])
        if self.c.initial is not None:
            word = next(w for w, a in zip(self.c.nest.words, self.c.words, strict=True) if a is None)
            contents[self.c.initial.operand] = dict(self.word(word, self.c.initial))
        return contents

    def word(self, word: Expr, access: Access) -> dict[str, Contents]:
        """Return where the elements lie that a word is.

        Raises:
            NoPlaces: a word has parts of elements or of bytes.
        """
        names = {n for place in access.places for term in place for n in term}
        moving = [v for v in self.bounds if v in word.free or any(v in self.taken.get(n, ()) for n in names)]
        grid = axes_of({v: self.extent(v) for v in moving})
        flat, valid = self.flat(access, grid)
        pieces: dict[str, list[Contents]] = {}
        for p in self.resolved(self.copy(word, grid)):
            if p.at % BYTE or p.low or p.width != self.ila.states[p.memory].bits:
                raise NoPlaces(f"a word has bits {p.low} to {p.low + p.width - 1} of an element of {p.memory}")
            pieces.setdefault(p.memory, []).append(elements_of(p.index, np.where(valid, flat, NONE), p.at // BYTE))
        return {memory: united(parts) for memory, parts in pieces.items()}

    def copy(self, e: Expr, numbers: Mapping[Expr, Any]) -> list[Part]:
        """Return the parts of a copy over a grid.

        Raises:
            NoPlaces: a condition that depends on the place decides them.
        """
        try:
            return copied_over(self.registers).of(e, numbers)
        except NoCopy:
            raise NoPlaces("what a word is depends on its place") from None

    def resolved(self, parts: list[Part]) -> Iterator[Part]:
        """Yield parts of arrays that the instruction fills as those of the memories that they are copies of."""
        for p in parts:
            fill = self.c.nest.fills.get(p.memory)
            if fill is None:
                yield p
                continue
            inner = self.resolved(self.copy(fill.value, dict(zip(fill.variables, p.index, strict=True))))
            for q in inner:
                low, high = max(q.at, p.low), min(q.at + q.width, p.low + p.width)
                if low < high:
                    yield Part(q.memory, q.index, q.low + low - q.at, high - low, p.at + low - p.low)

    def results(self) -> tuple[str, Contents]:
        """Return the memory that results are in, and where.

        Raises:
            NoPlaces: they lie in several memories, or several at one address, or one nowhere.
        """
        elements_by_store = [x for conditions, store in self.c.nest.stores if self.holds(conditions) for x in self.stored(store)]
        memories = {memory for memory, _ in elements_by_store}
        if len(memories) != 1:
            raise NoPlaces("no store takes results to one memory")
        used = united([x for _, x in elements_by_store], distinct=True).without_zeros()
        if not is_register(self.ila, min(memories)) and len(np.unique(used.elements)) * self.host_steps != np.prod(
            self.shapes[self.c.result.operand]
        ):
            raise NoPlaces("it does not compute every element of the result")
        return memories.pop(), used

    @property
    def host_steps(self) -> int:
        """How many steps the loops take that no loop of the nest takes."""
        return int(np.prod([self.at[name] for name in self.host])) if self.host else 1

    def holds(self, conditions: tuple[Expr, ...]) -> bool:
        """Tell whether conditions of control hold."""
        return all(self.numbers.of(x) for x in conditions)

    def stored(self, store: Update) -> Iterator[tuple[str, Contents]]:
        """Yield where one store takes elements.

        Raises:
            NoPlaces: it joins results or cuts them in too many ways.
        """
        is_own = store is self.c.nest.update
        variables = dict(zip(store.variables, store.extents, strict=True))
        extents = {v: int(self.numbers.of(n)) for v, n in variables.items()}
        extents |= {v: self.extent(v) for v, _ in self.c.nest.ordered if is_own}
        shifting = {} if is_own else {v: extents[v] for v in _shifting(store.value) if v in extents}
        if np.prod([*shifting.values(), 1]) > MOST_UNROLLED:
            raise NoPlaces("a store cuts results in too many ways")
        for point in itertools.product(*map(range, shifting.values())):
            fixed = dict(zip(shifting, point, strict=True))
            grid = {**axes_of({v: n for v, n in extents.items() if v not in fixed}), **fixed}
            index = [Grid(grid, self.registers).of(a) for a in store.address]
            bits = self.ila.states[store.memory.name].bits
            parts = [Part(self.c.nest.target, (), 0, bits, 0)] if is_own else self.copy(store.value, grid)
            if len(parts) != 1 or parts[0].at or parts[0].memory != self.c.nest.target or parts[0].low % BYTE:
                raise NoPlaces("a store joins results")
            loops = grid if is_own else dict(zip(self.c.nest.update.variables, parts[0].index, strict=True))
            flat, valid = self.flat(self.c.result, loops)
            yield store.memory.name, elements_of(index, np.where(valid, flat, NONE), parts[0].low // BYTE)


def _shifting(value: Expr) -> set[Expr]:
    """Return the variables that amounts of shifts depend on."""
    return {v for e in terms_of(value) if e.op in ("shr", "shl") for v in e.args[1].free}


def elements_of(index: Any, elements: Any, byte: int) -> Contents:
    """Return elements at indices as lists."""
    *axes, flat = np.broadcast_arrays(*index, elements)
    return Contents(np.stack([a.ravel() for a in axes], axis=1), flat.ravel(), np.where(flat.ravel() == NONE, 0, byte))


def united(parts: list[Contents], *, distinct: bool = False) -> Contents:
    """Return what lies at each address once.

    Raises:
        NoPlaces: two elements lie at one, or, where all are `distinct`, any is written twice.
    """
    addresses = np.concatenate([p.addresses for p in parts])
    rows = np.column_stack([addresses, np.concatenate([p.elements for p in parts]), np.concatenate([p.digits for p in parts])])
    once = np.unique(rows, axis=0)
    places = once[:, : addresses.shape[1]]
    if len(once) > 1 and bool((places[1:] == places[:-1]).all(axis=1).any()):
        raise NoPlaces("two elements lie at one address")
    if distinct and len(once) != len(rows):
        raise NoPlaces("two results lie at one address")
    return Contents(places, once[:, -2], once[:, -1])
