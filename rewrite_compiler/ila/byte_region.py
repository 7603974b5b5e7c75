"""Regions: multidimensional arrays of little-endian words in a byte memory, at an address that the configuration gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul

from ..lang.arithmetic import row_major, signed
from ..lang.binders import Extent, Leaf, as_shape
from ..lang.expr import Expr, Operand, lift
from ..lang.step import Step, require, update
from .bit_fields import joined


@dataclass(frozen=True, eq=False)
class Region:
    """A row-major array [extents] of words of `size` bytes in a byte memory, from the byte address `base` on.

    Addresses wrap around at the end of the memory.
    """

    memory: Leaf
    base: Operand
    extents: tuple[Extent, ...]
    size: int

    def address(self, *index: Operand) -> Expr:
        """Return the byte address of the word at an index."""
        return self.base + row_major(index, self.extents) * self.size

    def byte(self, address: Operand) -> Expr:
        """Return the byte at an address, modulo the size of the memory."""
        return self.memory[lift(address) % self.room]

    def word(self, *index: Operand) -> Expr:
        """Return the word at an index as a signed number."""
        address = self.address(*index)
        return signed(joined(lambda n: self.byte(address + n), self.size), 8 * self.size)

    def store(self, over: Sequence[Extent], word: Callable[..., tuple[tuple[Operand, ...], Expr]]) -> Step:
        """Return the parallel update of words over the index space `over`, where word(i, …) = (index, number)."""

        def byte(n: Expr, *i: Expr) -> tuple[Expr, Expr]:
            index, number = word(*i)
            return (self.address(*index) + n) % self.room, (number >> 8 * n) % 256

        return update(self.memory, (self.size, *as_shape(over)), byte)

    @property
    def room(self) -> Operand:
        """The size of the memory in bytes."""
        return self.memory.shape[0]

    @property
    def bytes(self) -> Expr:
        """The size of the region in bytes."""
        static_bytes = math.prod(n for n in self.extents if isinstance(n, int)) * self.size
        return reduce(mul, (n for n in self.extents if isinstance(n, Expr)), lift(1)) * static_bytes

    @property
    def is_inside(self) -> Expr:
        """1 when the region lies inside its memory."""
        return (lift(self.base) >= 0) & (self.base + self.bytes <= self.room)

    def require(self, sentence: str) -> Step:
        """Return the diagnostic that strict simulation raises where the region does not lie inside its memory."""
        return require(self.is_inside, "I103", sentence)

    def is_apart(self, other: Region) -> Expr:
        """Return 1 when the region shares no byte with another region of the same memory."""
        return (self.base + self.bytes <= other.base) | (other.base + other.bytes <= self.base)
