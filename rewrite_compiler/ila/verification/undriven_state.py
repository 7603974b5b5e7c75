"""Undriven state: elements that instructions read and that none writes or resets, so that they are 0 for ever.

Every element of a register that an index may address must be written by some instruction; of a memory one of them suffices,
because strict simulation tracks which parts a program has written.
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


def undriven_states(ila: Ila) -> Iterator[Problem]:
    """Yield a problem for each state, or element of a state, that instructions read and that none writes."""
    external_leaves = {leaf for e in ila.externals.values() for leaf in (e.leaf, e.base, e.size)}
    writes: dict[Leaf, set[Box]] = {}
    for i in ila.instructions.values():
        for u in updates_of(i.update):
            writes.setdefault(u.memory, set()).add(_box(u.memory, u.address))
    states = {s.leaf: s for s in ila.states.values() if not s.reset and s.leaf not in external_leaves}
    reported = set[Leaf]()  # once, where it is read first
    for i in ila.instructions.values():
        unwritten_reads = _reads(i) - reported - writes.keys()
        for state in (s for leaf, s in states.items() if leaf in unwritten_reads):
            reported.add(state.leaf)
            yield Problem(UNDRIVEN, f"{i.name}: {state.name} is read, but no instruction of {ila.name} writes it", i.place, HELP)
    partly_written = {leaf: s for leaf, s in states.items() if leaf in writes and not _is_covered(leaf, writes[leaf])}
    for i in ila.instructions.values() if partly_written else ():
        yield from _partly_written_problems(ila, i, partly_written, writes, reported)


def _partly_written_problems(
    ila: Ila, i: Instruction, states: Mapping[Leaf, State], writes: Mapping[Leaf, set[Box]], reported: set[Leaf]
) -> Iterator[Problem]:
    for load in _loads(i):
        leaf: Leaf = load.data
        if leaf not in states or leaf in reported:
            continue
        read_box = _box(leaf, load.args)
        element = _uncovered_element(leaf, read_box, writes[leaf])
        if element is not None and not (states[leaf].is_memory and any(_do_overlap(read_box, box) for box in writes[leaf])):
            reported.add(leaf)
            parts = ", ".join(f"{leaf.name}[{_box_text(b)}]" for b in _largest(writes[leaf]))
            place = f"{leaf.name}[{', '.join(map(str, element))}]"
            yield Problem(
                UNDRIVEN, f"{i.name}: {place} is read, but the instructions of {ila.name} write only {parts}", i.place,
                "write the other elements, too, or read only what is written",
            )  # fmt: skip


def _box(leaf: Leaf, indices: Sequence[Expr]) -> Box:
    """Return the elements that indices can address, clipped to the memory, as a range for each axis."""
    return tuple(_clipped(i.interval, n) for i, n in zip(indices, static_shape(leaf), strict=True))


def _clipped(a: Interval, size: int) -> tuple[int, int]:
    return max(a[0] or 0, 0), size - 1 if a[1] is None else min(a[1], size - 1)


def _is_covered(leaf: Leaf, boxes: set[Box]) -> bool:
    return _uncovered_element(leaf, tuple((0, n - 1) for n in static_shape(leaf)), boxes) is None


def _uncovered_element(leaf: Leaf, read_box: Box, written_boxes: set[Box]) -> tuple[int, ...] | None:
    """Return an element of a box that the written boxes do not cover; of large boxes, one outside of their hull."""
    if any(_is_in(read_box, box) for box in written_boxes):
        return None
    if math.prod(high - low + 1 for low, high in read_box) > MOST:
        hull = [(min(b[n][0] for b in written_boxes), max(b[n][1] for b in written_boxes)) for n in range(len(read_box))]
        outside_point = [r[0] if r[0] < h[0] else r[1] for r, h in zip(read_box, hull, strict=True)]
        return None if all(iv.inside(r, h) for r, h in zip(read_box, hull, strict=True)) else tuple(outside_point)
    covered = np.zeros([high - low + 1 for low, high in read_box], np.bool_)
    for box in written_boxes:
        covered[tuple(slice(max(w[0] - r[0], 0), max(w[1] - r[0] + 1, 0)) for r, w in zip(read_box, box, strict=True))] = True
    places = np.argwhere(~covered)
    return tuple(int(x) + r[0] for x, r in zip(places[0], read_box, strict=True)) if len(places) else None


def _largest(boxes: set[Box]) -> list[Box]:
    """Return the boxes that no other one contains."""
    return sorted(b for b in boxes if not any(b != c and _is_in(b, c) for c in boxes))


def _is_in(a: Box, b: Box) -> bool:
    return all(iv.inside(x, y) for x, y in zip(a, b, strict=True))


def _do_overlap(a: Box, b: Box) -> bool:
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))


def _reads(i: Instruction) -> frozenset[Leaf]:
    return i.decode.reads | reads_of(i.update) | (i.result.reads if i.result is not None else frozenset())


def _loads(i: Instruction) -> Iterator[Expr]:
    """Yield every read of a state by an instruction."""
    terms = [i.decode, *terms_in(i.update), *([i.result.body] if isinstance(i.result, Comprehension) else [])]
    return (load for e in terms for load in loads_of(e) if isinstance(load.data, Leaf))


def _box_text(box: Box) -> str:
    return ", ".join(str(low) if low == high else f"{low}…{high}" for low, high in box)
