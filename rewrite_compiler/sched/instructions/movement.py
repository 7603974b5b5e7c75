"""Movement of elements between a host and memories: commands that carry their data, and reads that return it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ...ila import CONTROL, Ila
from ...ila.polynomial import NotPolynomial, Poly, Symbols
from ...ila.summary import Opaque, Transition, read_summary, summarise, transition_of
from ...lang.binders import Comprehension, array, static_shape
from ...lang.expr import Expr, lift
from ...lang.substitution import substitute
from .control import Addressing, free_names, is_register
from .copies import NoCopy, Part, addressed, parts_of

Address = tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Bits of a memory's element, `low` and so many, that are bits of a lane of the bus from bit `at` on."""

    offset: Address  # of the element from the first address of the command
    lane: int
    low: int
    width: int
    at: int


@dataclass(frozen=True, eq=False)
class Mover:
    """An instruction that moves between the bus and a memory: where it begins, and what it moves from there."""

    instruction: str
    memory: str
    addressing: Addressing
    pieces: tuple[Piece, ...]
    lanes: str  # the operand that carries the data; "" for a read
    shifted: Mapping[Address, Address] = field(default_factory=dict)  # what else moves in the memory: where to, and where from


@lru_cache(maxsize=16)
def writers(ila: Ila) -> tuple[Mover, ...]:
    """Return the instructions that write what the bus carries to a memory, those that move most first."""
    return _sorted(m for name in ila.instructions for m in _writer(ila, name))


@lru_cache(maxsize=16)
def readers(ila: Ila) -> tuple[Mover, ...]:
    """Return the instructions that return what lies in a memory, those that move most first."""
    return _sorted(m for name in ila.instructions for m in _reader(ila, name))


def computing_readers(ila: Ila, memory: str) -> list[str]:
    """Return the instructions whose result follows from a memory, but is not what lies there."""
    copies = {m.instruction for m in readers(ila) if m.memory == memory}
    results = ((name, i.result) for name, i in ila.instructions.items() if i.result is not None and name not in copies)
    return [name for name, result in results if memory in {leaf.name for leaf in result.reads}]


def width_of(ila: Ila, m: Mover) -> int:
    """Return how many lanes a command carries, or a read returns."""
    instruction = ila.instructions[m.instruction]
    lanes = instruction.operands[m.lanes].leaf if m.lanes else instruction.result
    return math.prod(static_shape(lanes)) if lanes is not None else 0


def _sorted(movers: Iterator[Mover]) -> tuple[Mover, ...]:
    return tuple(sorted(movers, key=lambda m: -len(m.pieces)))


def _writer(ila: Ila, name: str) -> Iterator[Mover]:
    summary = summarise(ila, name)
    vectors = {o.leaf.name: key for key, o in ila.instructions[name].operands.items() if o.leaf.shape}
    if isinstance(summary, Opaque) or not vectors:
        return
    data = [(conditions, loops, t) for conditions, loops, t in summary.transitions() if not is_register(ila, t.write.memory)]
    if len(data) != 1 or data[0][0] or data[0][1]:
        return
    t = addressed(data[0][2])
    parts = _pieces(ila, name, t, summary.symbols)
    vector_names = {p.memory for p, _ in parts or ()} - {t.write.memory}
    if parts and len(vector_names) == 1 and vector_names <= vectors.keys():
        pieces = tuple(Piece(offset, p.index[0], p.at, p.width, p.low) for p, offset in parts if p.memory != t.write.memory)
        shifted = {offset: p.index for p, offset in parts if p.memory == t.write.memory}
        bits = ila.states[t.write.memory].bits if t.write.memory in ila.states else 0
        if any((p.low, p.at, p.width) != (0, 0, bits) for p, _ in parts if p.memory == t.write.memory):
            return
        addressing = Addressing(t.write, summary.symbols, free_names(ila, name))
        yield Mover(name, t.write.memory, addressing, pieces, vectors[vector_names.pop()], shifted)


def _reader(ila: Ila, name: str) -> Iterator[Mover]:
    result = ila.instructions[name].result
    if not isinstance(result, Comprehension) or any(not isinstance(n, int) for n in result.shape):
        return
    control = dict.fromkeys([*(n for n, s in ila.states.items() if not s.leaf.shape), *ila.instructions[name].operands], 0)
    points = [*itertools.product(*(range(int(n)) for n in result.shape if isinstance(n, int)))]
    try:
        parts = [(p, x) for x in points for p in parts_of(result.body, dict(zip(result.variables, x, strict=True)), control)]
    except NoCopy:
        return
    if not parts or len({p.memory for p, _ in parts}) != 1:
        return
    first, lane = parts[0]
    addressing = _read_addressing(ila, name, dict(zip(result.variables, lane, strict=True)), first.memory)
    if addressing is None:
        return
    pieces = tuple(
        Piece(tuple(i - b for i, b in zip(p.index, first.index, strict=True)), x[-1] if x else 0, p.low, p.width, p.at) for p, x in parts
    )
    yield Mover(name, first.memory, addressing, pieces, "")


def _read_addressing(ila: Ila, name: str, lane: Mapping[Expr, int], memory: str) -> Addressing | None:
    """Return how the first address of a read follows from fields: of all lanes, or of its first lane where those are no polynomial."""
    read = read_summary(ila, name)
    result = ila.instructions[name].result
    if isinstance(read, Opaque) and isinstance(result, Comprehension):
        control = frozenset(s.leaf for s in ila.states.values() if s.binding == CONTROL)
        symbols = Symbols(control | {o.leaf for o in ila.instructions[name].operands.values() if not o.leaf.shape})
        body = substitute(result.body, {v: lift(n) for v, n in lane.items()})
        try:
            read = transition_of(array(lambda: body, ()), "data", symbols, frozenset(s.leaf for s in ila.states.values())), symbols
        except NotPolynomial:
            return None
    if read is None or isinstance(read, Opaque):
        return None
    t, symbols = read
    access = next((r.access for r in addressed(t).reads if r.access.memory == memory), None)
    return None if access is None else Addressing(access, symbols, free_names(ila, name))


def _pieces(ila: Ila, name: str, t: Transition, symbols: Symbols) -> list[tuple[Part, Address]] | None:
    """Return the parts of each element that a transition writes, with the element's place from the first; None for no copy."""
    extents = [int(p.get((), 0)) if set(p) <= {()} else 0 for _, p in t.loops]
    control = dict.fromkeys([*(n for n, s in ila.states.items() if not s.leaf.shape), *ila.instructions[name].operands], 0)
    parts: list[tuple[Part, Address]] = []
    try:
        for point in itertools.product(*map(range, extents)):
            numbers = {symbols.variables[v]: n for (v, _), n in zip(t.loops, point, strict=True)}
            place = tuple(_offset(p, dict(zip((v for v, _ in t.loops), point, strict=True))) for p in t.write.address)
            parts += [(p, place) for p in parts_of(t.value, numbers, control)]
    except NoCopy:
        return None
    return parts


def _offset(p: Poly, numbers: Mapping[str, int]) -> int:
    """Return how far loop variables move an address."""
    return sum(c * numbers[m[0]] for m, c in p.items() if len(m) == 1 and m[0] in numbers)
