"""Driven: the elements of states that something reads and that nothing writes or resets: they would be 0 for ever.

Of a register every element that an index may name must be written by some instruction; of a memory one of them, because
strict simulation knows what of it a program has written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...errors import Problem
from ...lang import intervals as iv
from ...lang.binders import Comprehension, Leaf, static_shape
from ...lang.expr import Expr
from ...lang.intervals import Interval
from ...lang.step import reads_of, terms_in, updates_of
from ...lang.traversal import loads_of
from ..model import Ila, Instruction, State

UNDRIVEN = "I102"
HELP = "add the instruction that writes it, give it a reset value, or leave it out"
MOST = 1 << 12  # elements that are looked at one by one

Box = tuple[tuple[int, int], ...]


def undriven(ila: Ila) -> Iterator[Problem]:
    """Yield the states, and the elements of states, that instructions read and that none writes."""
    outside = {leaf for e in ila.externals.values() for leaf in (e.leaf, e.base, e.size)}
    written: dict[Leaf, set[Box]] = {}
    for i in ila.instructions.values():
        for u in updates_of(i.update):
            written.setdefault(u.memory, set()).add(_box(u.memory, u.address))
    states = {s.leaf: s for s in ila.states.values() if not s.reset and s.leaf not in outside}
    told = set[Leaf]()  # once, where it is read first
    for i in ila.instructions.values():
        read = _reads(i) - told - written.keys()
        for state in (s for leaf, s in states.items() if leaf in read):
            told.add(state.leaf)
            yield Problem(UNDRIVEN, f"{i.name}: {state.name} is read, but no instruction of {ila.name} writes it", i.place, HELP)
    wanted = {leaf: s for leaf, s in states.items() if leaf in written and not _is_whole(leaf, written[leaf])}
    for i in ila.instructions.values() if wanted else ():
        yield from _partly(ila, i, wanted, written, told)


def _partly(ila: Ila, i: Instruction, states: Mapping[Leaf, State], written: Mapping[Leaf, set[Box]], told: set[Leaf]) -> Iterator[Problem]:
    for load in _loads(i):
        leaf: Leaf = load.data
        if leaf not in states or leaf in told:
            continue
        read = _box(leaf, load.args)
        element = _missing(leaf, read, written[leaf])
        if element is not None and not (states[leaf].is_memory and any(_meet(read, box) for box in written[leaf])):
            told.add(leaf)
            parts = ", ".join(f"{leaf.name}[{_shown(b)}]" for b in _largest(written[leaf]))
            place = f"{leaf.name}[{', '.join(map(str, element))}]"
            yield Problem(
                UNDRIVEN, f"{i.name}: {place} is read, but the instructions of {ila.name} write only {parts}", i.place,
                "write the other elements, too, or read only what is written",
            )  # fmt: skip


def _box(leaf: Leaf, indices: Sequence[Expr]) -> Box:
    """Return the elements that indices can name, inside of the memory, as a range an axis."""
    return tuple(_clipped(i.interval, n) for i, n in zip(indices, static_shape(leaf), strict=True))


def _clipped(a: Interval, size: int) -> tuple[int, int]:
    return max(a[0] or 0, 0), size - 1 if a[1] is None else min(a[1], size - 1)


def _is_whole(leaf: Leaf, boxes: set[Box]) -> bool:
    return _missing(leaf, tuple((0, n - 1) for n in static_shape(leaf)), boxes) is None


def _missing(leaf: Leaf, read: Box, written: set[Box]) -> tuple[int, ...] | None:
    """Return an element of a box that no other one has; of large boxes, one outside of the hull of the others."""
    if any(_is_in(read, box) for box in written):
        return None
    if math.prod(high - low + 1 for low, high in read) > MOST:
        hull = [(min(b[n][0] for b in written), max(b[n][1] for b in written)) for n in range(len(read))]
        beyond = [r[0] if r[0] < h[0] else r[1] for r, h in zip(read, hull, strict=True)]
        return None if all(iv.inside(r, h) for r, h in zip(read, hull, strict=True)) else tuple(beyond)
    covered = np.zeros([high - low + 1 for low, high in read], np.bool_)
    for box in written:
        covered[tuple(slice(max(w[0] - r[0], 0), max(w[1] - r[0] + 1, 0)) for r, w in zip(read, box, strict=True))] = True
    places = np.argwhere(~covered)
    return tuple(int(x) + r[0] for x, r in zip(places[0], read, strict=True)) if len(places) else None


def _largest(boxes: set[Box]) -> list[Box]:
    """Return the boxes that lie in no other one."""
    return sorted(b for b in boxes if not any(b != c and _is_in(b, c) for c in boxes))


def _is_in(a: Box, b: Box) -> bool:
    return all(iv.inside(x, y) for x, y in zip(a, b, strict=True))


def _meet(a: Box, b: Box) -> bool:
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))


def _reads(i: Instruction) -> frozenset[Leaf]:
    return i.decode.reads | reads_of(i.update) | (i.result.reads if i.result is not None else frozenset())


def _loads(i: Instruction) -> Iterator[Expr]:
    """Yield every read of a state by name that an instruction makes."""
    terms = [i.decode, *terms_in(i.update), *([i.result.body] if isinstance(i.result, Comprehension) else [])]
    return (load for e in terms for load in loads_of(e) if isinstance(load.data, Leaf))


def _shown(box: Box) -> str:
    return ", ".join(str(low) if low == high else f"{low}…{high}" for low, high in box)
