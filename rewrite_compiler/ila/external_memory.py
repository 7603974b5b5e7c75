"""External memory: a memory outside of the device, attached when a simulator starts, and the wider words that lie in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..lang import intervals as iv
from ..lang.binders import Extent, Leaf, as_shape
from ..lang.expr import Expr, lift, wrap
from ..lang.step import Step, require, update
from .bit_fields import joined

WORD = "data"  # the input of a device with external memory that is one word of its stream


@dataclass(frozen=True, eq=False)
class External:
    """A memory outside of the device: `size` elements, the first at the address `base`; size 0 when none is attached."""

    leaf: Leaf
    base: Leaf
    size: Leaf

    @property
    def name(self) -> str:
        """The name of the leaf."""
        return self.leaf.name

    @property
    def is_attached(self) -> Expr:
        """1 when the simulator was given this memory."""
        return self.size[()] > 0

    def index(self, address: Expr | int) -> Expr:
        """Return the element index of an address."""
        return lift(address) - self.base[()]

    def holds(self, first: Expr | int, last: Expr | int) -> Expr:
        """Return 1 when all elements of the address range first … last exist."""
        return (self.index(first) >= 0) & (self.index(last) < self.size[()])

    def words(self, bits: int, *, signed: bool = False) -> ExternalWords:
        """Return a view of the memory as words of `bits` bits."""
        return ExternalWords(self, bits, signed)


@dataclass(frozen=True, eq=False)
class ExternalWords:
    """An external memory viewed as little-endian words of `bits` bits: word n begins at the address n · elements."""

    external: External
    bits: int
    signed: bool

    @property
    def _element(self) -> tuple[int, bool]:
        """Width and sign of an element."""
        return iv.width_of(self.external.leaf.interval) or (self.bits, self.signed)

    @property
    def elements(self) -> int:
        """The number of memory elements in a word."""
        return self.bits // self._element[0]

    def word(self, number: Expr) -> Expr:
        """Return the word of a number."""
        first = self.external.index(number * self.elements)
        if self.elements == 1:
            return wrap(self.external.leaf[first], self.bits, self.signed)
        width, _ = self._element
        return wrap(joined(lambda n: wrap(self.external.leaf[first + n], width, False), self.elements, width), self.bits, self.signed)

    def store(self, over: Sequence[Extent] | Extent, word: Callable[..., tuple[Expr, Expr]]) -> Step:
        """Return the parallel update of words over the index space `over`, where word(i, …) = (number, value)."""
        extents, (width, signed) = as_shape(over), self._element

        def part(*index: Expr) -> tuple[Expr, Expr]:
            number, value = word(*index[: len(extents)])
            n = index[-1] if self.elements > 1 else 0
            return self.external.index(number * self.elements + n), wrap(value >> width * n, width, signed)

        return update(self.external.leaf, (*extents, self.elements) if self.elements > 1 else extents, part)

    def require(self, first: Expr, last: Expr, sentence: str) -> Step:
        """Return the check that the words `first` … `last` exist.

        The sentence may name the element addresses {first} … {last} of the access and {start} … {end}, {size} of the memory.
        """
        low, high = first * self.elements, last * self.elements + (self.elements - 1)
        start, size = self.external.base[()], self.external.size[()]
        placeholders = {"first": low, "last": high, "start": start, "end": start + size - 1, "size": size}
        values = {name: value for name, value in placeholders.items() if f"{{{name}}}" in sentence}
        return require(self.external.holds(low, high), "I103", sentence, always=True, **values)
