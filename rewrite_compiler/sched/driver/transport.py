"""Transport: elements that commands carry to a memory and reads return, or that copies bring from an image and take there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...target.timing import Region as Span
from ..instructions.control import Settings, after, strobes
from ..instructions.image import Copier, copiers, word_bits
from ..instructions.movement import Address, Mover, readers, width_of, writers
from .matching import NONE
from .program import BYTE, LITERALS, Issued, Lane
from .writer import Writer

MOST_STROBES = 256  # commands that move a pointer to where a read begins
Contents = Mapping[Address, int]  # address → flat index of an operand, or NONE
Pending = tuple[Address, int, int]  # address, flat index of the result, and which of its bytes begins there


def store_by_bus(w: Writer, memory: str, source: str, contents: Contents) -> bool:
    """Write elements to a memory by the first instruction that can; tell whether there is one."""
    for m in writers(w.ila):
        commands = list(_covering(w, m, contents)) if m.memory == memory and not m.shifted else [None]
        if None not in commands:
            for fields, lanes in (c for c in commands if c is not None):
                w.issue(Issued(m.instruction, w.with_fields(m.instruction, fields), m.lanes, source, lanes))
            w.contents.pop(memory, None)
            return True
    return False


def _covering(w: Writer, m: Mover, contents: Contents) -> Iterator[tuple[Settings, tuple[Lane | None, ...]] | None]:
    """Yield the commands of a mover that cover elements: fields and lanes; None where it does not reach one."""
    left = dict(contents)
    count = width_of(w.ila, m)
    while left:
        address = next(iter(left))
        fields = m.addressing.settings(address, w.registers)
        if fields is None:
            yield None
            return
        lanes: list[Lane | None] = [None] * count
        for p in m.pieces:
            element = contents.get(_moved(address, p.offset), NONE)
            lanes[p.lane] = lanes[p.lane] if element == NONE else Lane(element, p.low // BYTE)
            left.pop(_moved(address, p.offset), None)
        yield fields, tuple(lanes)


def read_by_bus(w: Writer, memory: str, pending: Sequence[Pending]) -> bool:
    """Read elements from a memory, in their order, by the first instruction that can; tell whether there is one."""
    return any(_read(w, m, pending) for m in readers(w.ila) if m.memory == memory)


def _read(w: Writer, m: Mover, pending: Sequence[Pending]) -> bool:
    elements = {a: (element, byte) for a, element, byte in pending}
    missing = dict.fromkeys((a, p.low) for a in elements for p in m.pieces)
    before = w.registers, len(w.commands)
    while missing:
        address, low = next(iter(missing))
        offset = next(p.offset for p in m.pieces if p.low == low)
        base = _moved(address, tuple(-n for n in offset))
        fields = _reaching(w, m, base)
        if fields is None:
            w.registers = before[0]
            del w.commands[before[1] :]
            return False
        lanes: list[Lane | None] = [None] * width_of(w.ila, m)
        for p in m.pieces:
            place = _moved(base, p.offset)
            if (place, p.low) in missing:
                element, byte = elements[place]
                lanes[p.lane] = Lane(element, byte + p.low // BYTE)
                del missing[place, p.low]
        w.issue(Issued(m.instruction, w.with_fields(m.instruction, fields), "", "", tuple(lanes), returns=True))
    return True


def _reaching(w: Writer, m: Mover, base: Address) -> Settings | None:
    """Return the fields with which a read begins at an address; commands that move its pointer there are written before."""
    fields = m.addressing.settings(base, w.registers)
    for name in strobes(w.ila) if fields is None else ():
        registers, count = w.registers, 0
        while fields is None and count < MOST_STROBES:
            registers, count = after(w.ila, name, {}, registers), count + 1
            fields = m.addressing.settings(base, registers)
        for _ in range(count if fields is not None else 0):
            w.issue(Issued(name, {}))
    return fields


def _moved(address: Address, offset: Address) -> Address:
    return tuple(a + b for a, b in zip(address, offset, strict=True))


# -- images


def load_from_image(w: Writer, memory: str, source: str, contents: Contents) -> bool:
    """Copy elements to a memory by the first instruction that can; tell whether there is one."""
    return any(_load(w, c, source, contents) for c in copiers(w.ila) if c.memory == memory and not c.is_store)


def _load(w: Writer, c: Copier, source: str, contents: Contents) -> bool:
    runs = list(_runs(c, contents))
    unit = c.span
    starts = [_first(w, c, count, unit) for _, count in runs]
    commands = [cmd for (a, count), at in zip(runs, starts, strict=True) for cmd in _copies(w, c, a, at, count)]
    if any(settings is None for settings, *_ in commands):
        return False
    for (address, count), at in zip(runs, starts, strict=True):
        lanes: list[Lane | None] = [None] * (count * c.span)
        for row in range(count):
            for word in c.words:
                element = contents.get(_place(address + row * c.step, word.offset), NONE)
                if element != NONE:
                    lanes[row * c.span + word.word] = _lane(w, c, source, element, word.low)
        w.place(c.image, at, source, lanes)
    _issue(w, c, commands)
    return True


def _lane(w: Writer, c: Copier, source: str, element: int, low: int) -> Lane:
    bits, _ = word_bits(w.ila, c.image)
    return w.constant(element >> low & (1 << bits) - 1) if source == LITERALS else Lane(element, low // BYTE)


def store_to_image(w: Writer, memory: str, pending: Sequence[Pending], digit: int) -> bool:
    """Copy elements from a memory by the first instruction that can; `digit` is the byte of the code that their lowest is now."""
    return any(_store(w, c, pending, digit) for c in copiers(w.ila) if c.memory == memory and c.is_store)


def _store(w: Writer, c: Copier, pending: Sequence[Pending], digit: int) -> bool:
    elements = {a: (element, byte) for a, element, byte in pending}
    runs = list(_runs(c, elements))
    before = dict(w.sizes)
    starts = [_first(w, c, count, c.span) for _, count in runs]
    commands = [cmd for (a, count), at in zip(runs, starts, strict=True) for cmd in _copies(w, c, a, at, count)]
    if any(settings is None for settings, *_ in commands):
        w.sizes = before
        return False
    _issue(w, c, commands)
    for (address, count), at in zip(runs, starts, strict=True):
        lanes: list[Lane | None] = [None] * (count * c.span)
        for row in range(count):
            for word in c.words:
                element, byte = elements.get(_place(address + row * c.step, word.offset), (NONE, 0))
                lanes[row * c.span + word.word] = None if element == NONE else Lane(element, byte + digit + word.low // BYTE)
        w.fetch(c.image, at, lanes)
    return True


def stored_bits(w: Writer, memory: str) -> int:
    """Return how many low bits of an element a copy takes outside; 0 where there is none."""
    return max((c.bits for c in copiers(w.ila) if c.memory == memory and c.is_store), default=0)


def _first(w: Writer, c: Copier, count: int, unit: int) -> int:
    return w.allocate(c.image, count * c.span, unit)


def _copies(w: Writer, c: Copier, address: int, at: int, count: int) -> Iterator[tuple[dict[str, int] | None, int, int, int]]:
    """Yield commands that copy elements: fields, first address, first word, and how many; as many at once as fields allow."""
    while count:
        size = count
        settings = c.settings(w.ila, address, at, size)
        while settings is None and size > 1:
            size = -(-size // 2)
            settings = c.settings(w.ila, address, at, size)
        yield settings, address, at, size
        if settings is None:
            return
        address, at, count = address + size * c.step, at + size * c.span, count - size


def _issue(w: Writer, c: Copier, commands: Sequence[tuple[dict[str, int] | None, int, int, int]]) -> None:
    for settings, address, at, count in commands:
        memory, image = Span(c.memory, address, address + count * c.step), Span(c.image, at, at + count * c.span)
        read, destination = (memory, image) if c.is_store else (image, memory)
        fields = w.with_fields(c.instruction, settings or {})
        w.issue(Issued(c.instruction, fields, reads=(read,), writes=(destination,)))


def _runs(c: Copier, contents: Iterable[Address]) -> Iterator[tuple[int, int]]:
    """Yield first address and number of the elements that follow each other."""
    bases = sorted({a[0] for a in contents})
    first, count = bases[0], 0
    for base in bases:
        if base >= first + (count + 1) * c.step:
            yield first, count
            first, count = base, 0
        count = max(count, (base - first) // c.step + 1)
    yield first, count


def _place(address: int, offset: Address) -> Address:
    return (address + offset[0], *offset[1:])
