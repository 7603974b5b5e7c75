"""Transport: elements that commands carry to a memory and reads return, or that copies bring from an image and take there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...readings.arrays.labelled_array import Data
from ...target.timing import Region as Span
from ..instructions.control import Settings, after, changes_registers, strobes
from ..instructions.image import Copier, copiers, word_bits
from ..instructions.movement import Mover, readers, width_of, writers
from .matching import NONE
from .program import BYTE, LITERALS, Block, Cover, Lanes
from .writer import Writer, columns_of

MOST_STROBES = 256  # commands that move a pointer to where a read begins
Copies = list[tuple[dict[str, int], int, int, int]]  # fields, first address, first word, how many elements


class _Directory:
    """Which of some addresses [count, axes] another one is: the last where there are several."""

    def __init__(self, addresses: Data) -> None:
        self.sizes = np.array([axis.max(initial=0) for axis in addresses.T]) + 1
        self.factors = np.append(np.cumprod(self.sizes[:0:-1])[::-1], 1)
        self.keys = sum((axis * factor for axis, factor in zip(addresses.T, self.factors, strict=True)), np.zeros(len(addresses), np.int64))
        self.numbers = np.full(int(np.prod(self.sizes)), NONE)
        self.numbers[self.keys] = np.arange(len(addresses))

    @cached_property
    def first(self) -> Data:
        """The number of each address where it comes first, in their order."""
        return np.asarray(np.sort(np.unique(self.keys, return_index=True)[1]))

    def find(self, addresses: Data) -> Data:
        """Return the number of each address [..., axes], or NONE."""
        return self._numbers([addresses[..., axis] for axis in range(addresses.shape[-1])])

    def find_moved(self, addresses: Data, by: Data) -> Data:
        """Return the number of each address [count, axes] moved along the first axis by each of some distances, or NONE."""
        first, *others = addresses.T
        ends = addresses.min(axis=0), addresses.max(axis=0)
        ends[0][0] += by.min()
        ends[1][0] += by.max()
        if (ends[0] >= 0).all() and (ends[1] < self.sizes).all():
            return np.asarray(self.numbers[addresses @ self.factors + by[:, None] * self.factors[0]])
        return self._numbers([first + by[:, None], *others])

    def _numbers(self, axes: Sequence[Data]) -> Data:
        """Return the number of each address, given by its axes, which broadcast."""
        keys, is_inside = np.zeros((), np.int64), np.ones((), bool)
        for axis, size, factor in zip(axes, self.sizes, self.factors, strict=True):
            keys, is_inside = keys + axis * factor, is_inside & (axis >= 0) & (axis < size)
        return self.numbers[keys] if is_inside.all() else np.where(is_inside, self.numbers[np.where(is_inside, keys, 0)], NONE)


@dataclass(frozen=True, eq=False)
class Contents:
    """What lies at addresses [count, axes]: the flat index of an operand's element, or NONE, and from which byte of its code on."""

    addresses: Data
    elements: Data
    digits: Data

    @cached_property
    def directory(self) -> _Directory:
        """Which of the addresses another one is."""
        return _Directory(self.addresses)

    def once(self) -> Contents:
        """Return the contents with each address once, where it comes first, and what comes last for it."""
        addresses = self.addresses[self.directory.first]
        last = self.directory.find(addresses)
        return Contents(addresses, self.elements[last], self.digits[last])

    def without_zeros(self) -> Contents:
        """Return the contents that are elements."""
        is_used = self.elements != NONE
        return Contents(self.addresses[is_used], self.elements[is_used], self.digits[is_used])

    def with_others(self, other: Contents) -> Contents:
        """Return these contents, then others."""
        if not len(self.addresses):
            return other
        pairs = ((self.addresses, other.addresses), (self.elements, other.elements), (self.digits, other.digits))
        return Contents(*map(np.concatenate, pairs))

    def meets(self, other: Contents) -> bool:
        """Tell whether others have an address in common with these."""
        return bool(len(self.addresses) and (self.directory.find(other.addresses) != NONE).any())


NOTHING = Contents(np.zeros((0, 1), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _cover(places: Data) -> Data:
    """Return which candidates are taken one after the other, each the first that none of them covered, by the places of each [n, reach].

    A candidate covers its own place.
    """
    count = len(places)
    left, selection = np.arange(count), [np.zeros(0, np.int64)]
    while left.size:
        covering = _earliest(places, left, count)
        selection.append(left[covering[left] >= left])
        left = left[_earliest(places, selection[-1], count)[left] > left]
    return np.sort(np.concatenate(selection))


def _earliest(places: Data, candidates: Data, count: int) -> Data:
    """Return for each of so many places the first candidate that covers it, or the number of places."""
    first = np.full(count + 1, count)
    first[places[candidates[::-1]].reshape(-1)] = np.repeat(candidates[::-1], places.shape[1])
    return first


def store_by_bus(w: Writer, memory: str, source: str, contents: Contents) -> bool:
    """Write elements to a memory by the first instruction that can; tell whether there is one."""
    for m in writers(w.ila):
        if m.memory == memory and not m.shifted and _store_all(w, m, source, contents):
            w.contents.pop(memory, None)
            return True
    return False


def _store_all(w: Writer, m: Mover, source: str, contents: Contents) -> bool:
    """Write elements by commands that cover their addresses; tell whether those reach all of them."""
    if not len(contents.addresses):
        return True
    c = _cover_of(w, m, contents, _stores)
    if c.columns is None:
        return False
    w.issue(Block(m.instruction, c.columns, len(c.bases), m.lanes, source, c.lanes(contents.elements, contents.digits)))
    return True


def read_by_bus(w: Writer, memory: str, pending: Contents) -> bool:
    """Read elements from a memory, in their order, by the first instruction that can; tell whether there is one."""
    return any(_read(w, m, pending) for m in readers(w.ila) if m.memory == memory)


def _read(w: Writer, m: Mover, pending: Contents) -> bool:
    """Read from addresses; where registers decide which, one after the other."""
    if not len(pending.addresses):
        return True
    c = _cover_of(w, m, pending, _reads)
    lanes, before = c.lanes(pending.elements, pending.digits), (w.registers, len(w.commands))
    if c.columns is not None and not changes_registers(w.ila, m.instruction):
        w.issue(Block(m.instruction, c.columns, len(c.bases), "", "", lanes, returns=True))
        return True
    for n, base in enumerate(c.bases.tolist()):
        fields = _reaching(w, m, tuple(base))
        if fields is None:
            w.registers = before[0]
            del w.commands[before[1] :]
            return False
        w.issue(Block(m.instruction, columns_of(fields), 1, "", "", lanes.part(n, n + 1), returns=True))
    return True


def _cover_of(w: Writer, m: Mover, x: Contents, found: Callable[[Writer, Mover, Contents], tuple[Data, Data, Data]]) -> Cover:
    """Return the commands of an instruction that move contents."""
    registers = tuple([w.registers.get(name) for name in m.addressing.leaves])
    key = m.instruction, registers, x.addresses.tobytes(), (x.elements == NONE).tobytes()
    if key not in w.covers:
        bases, *lanes = found(w, m, x)
        w.covers[key] = Cover(bases, m.addressing.columns(bases, w.registers), *lanes)
    return w.covers[key]


def _stores(w: Writer, m: Mover, x: Contents) -> tuple[Data, Data, Data]:
    """Return where commands begin that cover addresses, which address each lane of each is of, or NONE, and from which byte on."""
    directory = x.directory
    addresses = x.addresses[directory.first]
    reached = addresses[:, None] + np.array([p.offset for p in m.pieces])
    selection = _cover(_Directory(addresses).find(reached))
    numbers, lanes = directory.find(reached[selection]), Lanes.empty(len(selection), width_of(w.ila, m))
    for n, p in enumerate(m.pieces):
        is_used = np.append(x.elements, NONE)[numbers[:, n]] != NONE
        lanes.elements[is_used, p.lane], lanes.digits[is_used, p.lane] = numbers[is_used, n], p.low // BYTE
    return addresses[selection], lanes.elements, lanes.digits


def _reads(w: Writer, m: Mover, x: Contents) -> tuple[Data, Data, Data]:
    """Return where reads of addresses begin, which address each lane of each is of, or NONE, and from which byte on."""
    addresses = x.addresses[x.directory.first]
    last = x.directory.find(addresses)
    lows = list(dict.fromkeys(p.low for p in m.pieces))
    starts = np.array([next(p.offset for p in m.pieces if p.low == low) for low in lows])
    bases = (addresses[:, None] - starts).reshape(-1, starts.shape[1])  # of a read that begins with bits from `low` on
    numbers = _Directory(addresses).find(bases[:, None] + np.array([p.offset for p in m.pieces]))
    places = np.where(numbers == NONE, NONE, numbers * len(lows) + np.array([lows.index(p.low) for p in m.pieces]))
    selection = _cover(places)
    reader, lanes = _earliest(places, selection, len(bases)), Lanes.empty(len(selection), width_of(w.ila, m))
    for n, p in enumerate(m.pieces):
        is_new = (places[selection, n] != NONE) & (reader[places[selection, n]] == selection)
        reader[places[selection, n][is_new]] = NONE
        lanes.elements[is_new, p.lane], lanes.digits[is_new, p.lane] = last[numbers[selection, n][is_new]], p.low // BYTE
    return bases[selection], lanes.elements, lanes.digits


def _reaching(w: Writer, m: Mover, base: tuple[int, ...]) -> Settings | None:
    """Return the fields with which a read begins at an address; commands that move its pointer there are written before."""
    fields = m.addressing.settings(base, w.registers)
    for name in strobes(w.ila) if fields is None else ():
        registers, count = w.registers, 0
        while fields is None and count < MOST_STROBES:
            registers, count = after(w.ila, name, {}, registers), count + 1
            fields = m.addressing.settings(base, registers)
        for _ in range(count if fields is not None else 0):
            w.issue(Block(name, {}))
    return fields


# -- images


def load_from_image(w: Writer, memory: str, source: str, contents: Contents) -> bool:
    """Copy elements to a memory by the first instruction that can; tell whether there is one."""
    return any(_load(w, c, source, contents) for c in copiers(w.ila) if c.memory == memory and not c.is_store)


def _load(w: Writer, c: Copier, source: str, contents: Contents) -> bool:
    runs = _runs(c, contents)
    starts = [w.allocate(c.image, count * c.span, c.span) for _, count in runs]
    commands = _copies(w, c, runs, starts)
    if commands is None:
        return False
    lows = np.array([word.low for word in c.words])
    for at, lanes in zip(starts, _lanes(c, contents, runs), strict=True):
        w.place(c.image, at, source, _literals(w, c, lanes, lows) if source == LITERALS else lanes)
    _issue(w, c, commands)
    return True


def _literals(w: Writer, c: Copier, lanes: Lanes, lows: Data) -> Lanes:
    """Return lanes that carry bits of numbers as lanes of these numbers among all constants."""
    bits, _ = word_bits(w.ila, c.image)
    used = np.flatnonzero(lanes.elements != NONE)
    words = np.array([word.word for word in c.words])
    low = np.zeros(c.span, np.int64)
    low[words] = lows
    values = lanes.elements[used] >> low[used % c.span] & (1 << bits) - 1
    literals = Lanes.empty(len(lanes.elements))
    literals.elements[used] = [w.constant(x) for x in values.tolist()]
    return literals


def store_to_image(w: Writer, memory: str, pending: Contents, digit: int) -> bool:
    """Copy elements from a memory by the first instruction that can; `digit` is the byte of the code that their lowest is now."""
    return any(_store(w, c, pending, digit) for c in copiers(w.ila) if c.memory == memory and c.is_store)


def _store(w: Writer, c: Copier, pending: Contents, digit: int) -> bool:
    runs, before = _runs(c, pending), dict(w.sizes)
    starts = [w.allocate(c.image, count * c.span, c.span) for _, count in runs]
    commands = _copies(w, c, runs, starts)
    if commands is None:
        w.sizes = before
        return False
    _issue(w, c, commands)
    for at, lanes in zip(starts, _lanes(c, pending, runs, digit), strict=True):
        w.fetch(c.image, at, lanes)
    return True


def stored_bits(w: Writer, memory: str) -> int:
    """Return how many low bits of an element a copy takes outside; 0 where there is none."""
    return max((c.bits for c in copiers(w.ila) if c.memory == memory and c.is_store), default=0)


def _copies(w: Writer, c: Copier, runs: Sequence[tuple[int, int]], starts: Sequence[int]) -> Copies | None:
    """Return commands that copy runs of elements, as many at once as fields allow; None where they allow not even one."""
    commands: Copies = []
    for (address, left), at in zip(runs, starts, strict=True):
        while left:
            size = left
            while (settings := c.settings(w.ila, address, at, size)) is None and size > 1:
                size = -(-size // 2)
            if settings is None:
                return None
            commands.append((settings, address, at, size))
            address, at, left = address + size * c.step, at + size * c.span, left - size
    return commands


def _issue(w: Writer, c: Copier, commands: Copies) -> None:
    for settings, address, at, count in commands:
        memory, image = Span(c.memory, address, address + count * c.step), Span(c.image, at, at + count * c.span)
        read, destination = (memory, image) if c.is_store else (image, memory)
        if c.pointer is not None:
            settings = w.pointed(c, address, at)
        w.issue(Block(c.instruction, columns_of(settings), reads=(read,), writes=(destination,)))


def _runs(c: Copier, contents: Contents) -> list[tuple[int, int]]:
    """Return first address and number of the elements that follow each other."""
    is_base = np.zeros(int(contents.addresses[:, 0].max()) + 1, bool)
    is_base[contents.addresses[:, 0]] = True
    bases, runs = np.flatnonzero(is_base), []
    while bases.size:
        steps = (bases - bases[0]) // c.step
        end = next(iter(np.flatnonzero(np.diff(steps) > 1).tolist()), bases.size - 1) + 1
        runs.append((int(bases[0]), int(steps[end - 1]) + 1))
        bases = bases[end:]
    return runs


def _lanes(c: Copier, x: Contents, runs: Sequence[tuple[int, int]], digit: int = 0) -> Iterator[Lanes]:
    """Yield the words of each run of elements; `digit` is the byte of the code that their lowest is now."""
    elements, digits = np.append(x.elements, NONE), np.append(x.digits + digit, 0)
    is_whole = not digits.any() and all(word.low < BYTE for word in c.words)
    order = [word.word for word in c.words]
    words: slice | list[int] = slice(None) if order == [*range(c.span)] else order
    offsets, lows = np.array([word.offset for word in c.words]), np.array([word.low // BYTE for word in c.words])
    for first, count in runs:
        numbers, lanes = x.directory.find_moved(offsets, first + np.arange(count) * c.step), Lanes.empty(count, c.span)
        lanes.elements[:, words] = codes = elements[numbers]
        if not is_whole:
            lanes.digits[:, words] = np.where(codes == NONE, 0, digits[numbers] + lows)
        yield Lanes(lanes.elements.reshape(-1), lanes.digits.reshape(-1))
