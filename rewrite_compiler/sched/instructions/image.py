"""Movement by external memory: instructions that copy rows of words between an image outside of the device and a memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from ...ila import Ila
from ...ila.polynomial import Poly
from ...ila.summary import Opaque, Summary, Transition, summarise
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr
from .control import Addressing, Settings, free_names, reset_state, setters
from .copies import NoCopy, Part, is_possible, number, parts_of
from .pointers import Pointer, only_transition, pointer_of, solved
from .selection import Nest, Operand, Selection, reads_of, select

Address = tuple[int, ...]
ATTACHED = 1 << 40  # elements of an image while settings are looked for
UNWRAPPED = 1 << 16  # words from the first on, so that an offset below a pointer leads to no number that wraps


@dataclass(frozen=True)
class Word:
    """Bits of an element, `low` and so many, that are those of a word of the image; both as far from the first."""

    offset: Address
    word: int
    low: int
    width: int


@dataclass(frozen=True, eq=False)
class Copier:
    """A transition between an image and a memory: what one element's lanes are of a row of words."""

    summary: Summary
    transition: Transition
    conditions: tuple[Expr, ...]
    loops: tuple[tuple[str, Poly], ...]
    image: str
    memory: str
    words: tuple[Word, ...]
    is_store: bool
    pointer: Pointer | None = None  # the register of a file from which the word of the image follows
    lead: int = 0  # words of the image before that of the first lanes: lanes may descend

    @property
    def instruction(self) -> str:
        """The name of the instruction."""
        return self.summary.instruction.name

    @cached_property
    def step(self) -> int:
        """Addresses of the memory that one element takes."""
        return 1 + max(w.offset[0] for w in self.words)

    @cached_property
    def span(self) -> int:
        """Words of the image that one element takes."""
        return 1 + max(w.word for w in self.words)

    @cached_property
    def bits(self) -> int:
        """How many low bits of a number it moves."""
        return max(w.low + w.width for w in self.words)

    def settings(self, ila: Ila, address: int, at: int, count: int) -> Settings | None:
        """Return the fields with which it copies so many elements, from an address of the memory and a word of the image on."""
        if self.pointer is not None:
            return None if count > 1 else self.pointed(ila, address, at, at)
        steps = (("c", count),) if count > 1 else ()
        inside = Operand(self.memory, address, (self.step,) * len(steps))
        outside = Operand(self.image, at + self.lead, (self.span,) * len(steps))
        element_parts, read = (outside, inside) if self.is_store else (inside, outside)
        nest = Nest(steps, element_parts, tuple(self._reads(read)))
        fixed = attachment(ila, self.image)
        for values in condition_values(self.conditions, fixed):
            selection = select(self.summary, self.transition, self.loops, nest, {**fixed, **values}, ordered=False)
            if isinstance(selection, Selection):
                return {k: x for k, x in selection.settings.items() if k not in fixed}
        return None

    def pointed(self, ila: Ila, address: int, at: int, pointer_value: int) -> Settings | None:
        """Return the fields with which it copies one element at a word of the image, while register 0 of its file holds a number."""
        assert self.pointer is not None
        write, read = self.transition.write, self.transition.reads[0].access
        inside = read if self.is_store else write
        fields = solved(lambda x: self._word(ila, pointer_value, x), self._offsets, at)
        base = (address, *(0 for _ in inside.address[1:]))
        place = Addressing(inside, self.summary.symbols, free_names(ila, self.instruction)).settings(base, attachment(ila, self.image))
        return None if fields is None or place is None else {self.pointer.field: 0, **fields, **place}

    def farthest(self, ila: Ila, address: int, at: int) -> int:
        """Return the largest number that its pointer may hold to reach a word, so that it reaches most of those behind it as well."""
        lows = {x.name: x.interval[0] or 0 for x in self._offsets}
        far = at + UNWRAPPED
        ahead = at + far - self._word(ila, far, lows)
        return at if self.pointed(ila, address, at, ahead) is None else ahead

    @cached_property
    def _pointed_terms(self) -> tuple[tuple[int, Expr], ...]:
        """The terms, each with its factor, that add up to a word of the image."""
        access, atoms = self.transition.write if self.is_store else self.transition.reads[0].access, self.summary.symbols.atoms
        return tuple((c, atoms[m[0]]) for m, c in access.address[0].items() if m and m[0] in atoms)

    @cached_property
    def _offsets(self) -> tuple[Leaf, ...]:
        """The fields that say how far from its pointer it copies."""
        field = self.pointer.field if self.pointer is not None else ""
        fields = {x.name: x for _, e in self._pointed_terms for x in e.reads if x.name in self.summary.fields and x.name != field}
        return tuple(fields.values())

    def _word(self, ila: Ila, pointer_value: int, fields: Mapping[str, int]) -> int:
        assert self.pointer is not None
        return sum(
            c * number(e, {self.pointer.load: pointer_value}, {**attachment(ila, self.image), **fields}) for c, e in self._pointed_terms
        )

    def _reads(self, first: Operand) -> Iterator[Operand]:
        """Yield the operand of each read: parts of one word lie side by side."""
        constants = [r.access.address[0].get((), 0) for r in reads_of(self.transition)]
        for c in constants:
            yield Operand(first.memory, (first.base or 0) + c - min(constants), first.strides)


def attachment(ila: Ila, image: str) -> Settings:
    """Return the registers that no command sets, with one image attachment."""
    fixed = {k: x for k, x in reset_state(ila).items() if k not in setters(ila)}
    external = ila.externals.get(image)
    return fixed if external is None else {**fixed, external.base.name: 0, external.size.name: ATTACHED}


def condition_values(conditions: Sequence[Expr], fixed: Mapping[str, int]) -> tuple[Settings, ...]:
    """Return values of the fields of one bit that conditions read, under which none of them is false."""
    return _condition_values(tuple(conditions), frozenset(fixed))


@lru_cache(maxsize=256)
def _condition_values(conditions: tuple[Expr, ...], fixed: frozenset[str]) -> tuple[Settings, ...]:
    leaves = {x.name: x for c in conditions for x in c.reads if x.name not in fixed and x.interval == (0, 1)}
    every = (dict(zip(leaves, values, strict=True)) for values in itertools.product((1, 0), repeat=len(leaves)))
    return tuple(settings for settings in every if is_possible(conditions, settings))


@lru_cache(maxsize=16)
def copiers(ila: Ila) -> tuple[Copier, ...]:
    """Return the copies between images and memories of a model, those of most bits first."""
    selection = [c for name in ila.instructions for c in _of(ila, name)]
    return tuple(sorted(selection, key=lambda c: (-c.bits, -c.span)))


def _of(ila: Ila, name: str) -> Iterator[Copier]:
    summary = summarise(ila, name)
    if isinstance(summary, Opaque):
        return
    for conditions, loops, t in summary.transitions():
        sources = {r.access.memory for r in t.reads if r.load.data.shape}
        images = sources & ila.externals.keys()
        if t.write.memory in ila.externals and len(sources) == 1 and not images:
            yield from _copier(ila, summary, t, conditions, loops, t.write.memory, sources.pop(), is_store=True)
        elif images and len(sources) == 1 and t.write.memory not in ila.externals:
            yield from _copier(ila, summary, t, conditions, loops, images.pop(), t.write.memory, is_store=False)


def _copier(
    ila: Ila, summary: Summary, t: Transition, conditions: tuple[Expr, ...], loops: tuple[tuple[str, Poly], ...], image: str, memory: str,
    *, is_store: bool,
) -> Iterator[Copier]:  # fmt: skip
    lanes = [(v, int(p.get((), 0)) if set(p) <= {()} else 1) for v, p in t.loops]
    fields = summary.instruction.operands
    pointer = pointer_of(ila, (t.write, *(r.access for r in t.reads)), summary.symbols)
    if pointer is not None and only_transition(ila, summary.instruction.name) is None:
        return
    control = dict.fromkeys([*(n for n, s in ila.states.items() if not s.leaf.shape), *fields], 0)
    element_parts: list[tuple[Address, Part]] = []
    try:
        for point in itertools.product(*(range(n) for _, n in lanes)):
            numbers = {summary.symbols.variables[v]: n for (v, _), n in zip(lanes, point, strict=True)}
            numbers |= {summary.symbols.variables[v]: 0 for v, _ in loops} | ({} if pointer is None else {pointer.load: 0})
            place = tuple(_moved(p, dict(zip((v for v, _ in lanes), point, strict=True))) for p in t.write.address)
            element_parts += [(place, p) for p in parts_of(t.value, numbers, control)]
    except NoCopy:
        return
    if element_parts:
        first = element_parts[0][1].index
        words = [_word(place, p, first, is_store) for place, p in element_parts]
        lead = -min(w.word for w in words)
        words = [replace(w, word=w.word + lead) for w in words]
        yield Copier(summary, t, conditions, loops, image, memory, tuple(words), is_store, pointer, lead)


def _word(place: Address, p: Part, first: Address, is_store: bool) -> Word:
    offset = tuple(i - b for i, b in zip(p.index, first, strict=True))
    return Word(offset, place[0], p.low, p.width) if is_store else Word(place, offset[0], p.at, p.width)


def _moved(p: Poly, numbers: Mapping[str, int]) -> int:
    return sum(c * numbers[m[0]] for m, c in p.items() if len(m) == 1 and m[0] in numbers)


def word_bits(ila: Ila, image: str) -> tuple[int, bool]:
    """Return bits and sign of a word of an image."""
    return iv.width_of(ila.externals[image].leaf.interval) or (8, False)
