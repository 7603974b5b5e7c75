"""Decode disjointness: the proof that no command is decoded by two instructions, and the commands that none decodes.

A decode is a conjunction. Conjuncts that limit one term to an interval (an address range, an opcode field) are compared as
boxes; z3 decides the others, and every witness is replayed in the oracle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Array, Leaf, scalar_array, static_shape
from ...lang.expr import Expr, lift
from ...lang.intervals import Interval
from ...lang.printer import show
from ...lang.traversal import loads_of
from ...readings.oracle.emit_python import evaluate
from ...readings.smt.bitvector_evaluator import evaluator_for
from ...readings.smt.evaluator import refute, truth
from ...readings.smt.solver import Verdict
from ..model import Ila, Instruction

GRID_CELLS = 1 << 22
STATE_ELEMENTS = 1 << 10  # a decode may read registers, not memories

Values = Mapping[str, int]
Ranges = tuple[Interval, ...]
Region = tuple[bool, Ranges]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Overlap:
    """Two instructions that may decode the same command: a witness by input and register, or why the solver found neither."""

    first: str
    second: str
    witness: Values
    reason: str = ""


@dataclass(frozen=True)
class Hole:
    """Commands that no instruction decodes, as a range for each tested term: all commands in these ranges, or only some."""

    ranges: tuple[tuple[str, Interval], ...]
    is_complete: bool

    def __str__(self) -> str:
        parts = [f"{name} {low}" if low == high else f"{name} {_word(low)}…{_word(high)}" for name, (low, high) in self.ranges]
        return ("" if self.is_complete else "some of ") + ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Box:
    """The intervals to which a decode limits terms; `exact` when the decode is no more than that."""

    instruction: Instruction
    limits: Mapping[Expr, Interval]
    exact: bool

    @property
    def is_empty(self) -> bool:
        """Whether the decode matches no command."""
        return any(_is_empty(i) for i in self.limits.values())


def box_of(instruction: Instruction) -> Box:
    """Return the box of an instruction's decode."""
    return _box(instruction, instruction.decode)


def find_overlaps(ila: Ila, seconds: float) -> list[Overlap]:
    """Return the pairs of instructions that are not proved disjoint; `seconds` is the solver's budget for each pair."""
    boxes = [box_of(i) for i in ila.instructions.values()]
    overlaps = []
    for a, b in itertools.combinations([x for x in boxes if not x.is_empty], 2):
        if _are_apart(a.limits, b.limits):
            continue
        decodes = [a.instruction.decode, b.instruction.decode]
        verdict, witness = find_command(ila, decodes, [], seconds)
        if verdict.outcome != "proved":
            overlaps.append(Overlap(a.instruction.name, b.instruction.name, witness, verdict.reason))
    return overlaps


def find_holes(ila: Ila, seconds: float) -> list[Hole]:
    """Return the commands that no instruction decodes, as boxes.

    Raises:
        SpecError: I101, the decodes test too many combinations of intervals, or a term without bounds.
    """
    boxes = [b for i in ila.instructions.values() if not (b := box_of(i)).is_empty]
    covering = [*boxes, *(_box(None, c) for c in ila.idle)]
    keys = sorted({k for b in covering for k in b.limits}, key=show)
    cells = [_cells(k, [b.limits[k] for b in covering if k in b.limits]) for k in keys]
    if math.prod(map(len, cells)) > GRID_CELLS:
        cases = f"{len(keys)} terms with {math.prod(map(len, cells))} cases"
        raise SpecError("I101", f"the decodes of {ila.name} test {cases}, more than {GRID_CELLS}")
    covered: Mask = np.zeros(tuple(map(len, cells)), np.bool_)
    partly_covered = covered.copy()
    for b in covering:
        place = np.ix_(*(_cells_inside(c, b.limits.get(k)) for k, c in zip(keys, cells, strict=True)))
        (covered if b.exact else partly_covered)[place] = True
    independent = _are_independent(keys)
    holes = []
    for is_touched, ranges in _merged(list(_regions(cells, covered, partly_covered))):
        is_certain = independent and not is_touched
        if is_certain or _has_hole(ila, dict(zip(keys, ranges, strict=True)), seconds):
            holes.append(Hole(_named_ranges(ila, keys, ranges), not is_touched))
    return holes


# -- boxes


def _box(instruction: Instruction | None, decode: Expr) -> Box:
    limits: dict[Expr, Interval] = {}
    exact = True
    for condition in conjuncts(decode):
        limit = _limit(condition)
        if limit is None:
            exact = False
            continue
        key, interval = limit
        previous = limits.get(key, key.interval)
        limits[key] = _meet(previous, interval)
    return Box(instruction, limits, exact)  # type: ignore[arg-type]


def conjuncts(decode: Expr) -> Iterator[Expr]:
    """Yield the conditions of a conjunction."""
    if decode.op == "bitand" and all(iv.inside(a.interval, iv.TRUTH) for a in decode.args):
        for a in decode.args:
            yield from conjuncts(a)
    elif decode.value != 1:
        yield decode


def _limit(c: Expr) -> tuple[Expr, Interval] | None:
    """Return the term and the interval to which a condition limits it, or None for a condition of another form."""
    if c.op == "not":
        inner = c.args[0]
        if inner.op in ("lt", "le"):
            a, b = inner.args
            return _limit(b <= a if inner.op == "lt" else b < a)
        return (*_peeled(inner, (0, 0)),) if inner.op == "load" else None
    if c.op in ("eq", "le", "lt"):
        a, b = c.args
        if b.value is not None:
            return _peeled(a, _side(c.op, int(b.value), False))
        return None if a.value is None else _peeled(b, _side(c.op, int(a.value), True))
    return _peeled(c, (1, 1)) if c.op in ("load", "extract") and iv.inside(c.interval, iv.TRUTH) else None


def _side(op: str, n: int, is_left: bool) -> Interval:
    if op == "eq":
        return n, n
    strict = int(op == "lt")
    return (n + strict, None) if is_left else (None, n - strict)


def _peeled(key: Expr, target: Interval) -> tuple[Expr, Interval]:
    """Return the innermost term under constant shifts and sums, and its interval for which the whole term lies in `target`."""
    while key.op in ("add", "sub", "shr") and key.args[1].value is not None:
        n = int(key.args[1].value)
        if key.op == "shr":
            target = (None if target[0] is None else target[0] << n), (None if target[1] is None else (target[1] + 1 << n) - 1)
        else:
            target = iv.sub(target, (n, n)) if key.op == "add" else iv.add(target, (n, n))
        key = key.args[0]
    return key, _meet(key.interval, target)


def _meet(a: Interval, b: Interval) -> Interval:
    lows, highs = ([x for x in ends if x is not None] for ends in zip(a, b, strict=True))
    return max(lows, default=None), min(highs, default=None)


def _is_empty(a: Interval) -> bool:
    return a[0] is not None and a[1] is not None and a[0] > a[1]


def _are_apart(a: Mapping[Expr, Interval], b: Mapping[Expr, Interval]) -> bool:
    return any(_is_empty(_meet(i, b[k])) for k, i in a.items() if k in b)


# -- the grid of cases


def _cells(key: Expr, limits: Sequence[Interval]) -> list[Interval]:
    low, high = key.interval
    if low is None or high is None:
        raise SpecError("I101", f"a decode tests {show(key)}, which is not bounded")
    starts = {low} | {x for a, b in limits for x in (a, None if b is None else b + 1) if x is not None and low < x <= high}
    order = sorted(starts)
    return [(a, b - 1) for a, b in zip(order, [*order[1:], high + 1], strict=True)]


def _cells_inside(cells: Sequence[Interval], limit: Interval | None) -> list[int]:
    return [n for n, c in enumerate(cells) if limit is None or iv.inside(c, limit)]


def _regions(cells: Sequence[list[Interval]], covered: Mask, partly_covered: Mask) -> Iterator[Region]:
    """Yield the uncovered cells of the grid, and whether an inexact decode overlaps them."""
    for place in zip(*np.nonzero(~covered), strict=True):
        yield bool(partly_covered[place]), tuple(c[n] for c, n in zip(cells, place, strict=True))


def _merged(regions: list[Region]) -> list[Region]:
    """Merge regions that are adjacent along one term and equal along the others."""
    for axis in reversed(range(len(regions[0][1]) if regions else 0)):
        lines: dict[tuple[bool, Ranges], list[Interval]] = {}
        for is_touched, ranges in regions:
            lines.setdefault((is_touched, (*ranges[:axis], *ranges[axis + 1 :])), []).append(ranges[axis])
        regions = [
            (t, (*other_ranges[:axis], r, *other_ranges[axis:]))
            for (t, other_ranges), line in lines.items()
            for r in _adjacent_merged(line)
        ]
    return sorted(regions, key=lambda r: r[1])


def _adjacent_merged(ranges: list[Interval]) -> list[Interval]:
    runs: list[Interval] = []
    for low, high in sorted(ranges, key=lambda r: r[0] or 0):
        if runs and runs[-1][1] == (low or 0) - 1:
            runs[-1] = runs[-1][0], high
        else:
            runs.append((low, high))
    return runs


def _are_independent(keys: Sequence[Expr]) -> bool:
    """Tell whether every cell of the grid contains a command."""
    used_bits: set[tuple[Expr, int]] = set()
    for k in keys:
        source, low, width = (k.args[0], *k.data) if k.op == "extract" else (k, 0, 1 << 10)
        bits = {(source, n) for n in range(low, low + width)}
        if bits & used_bits or not _is_plain(source) or any(source is not s and not s.reads.isdisjoint(source.reads) for s, _ in used_bits):
            return False
        used_bits |= bits
    return True


def _is_plain(e: Expr) -> bool:
    return e.op == "load" and isinstance(e.data, Leaf)


def _named_ranges(ila: Ila, keys: Sequence[Expr], ranges: Sequence[Interval]) -> tuple[tuple[str, Interval], ...]:
    return tuple((_name(ila, k), r) for k, r in zip(keys, ranges, strict=True) if r != k.interval)


def _name(ila: Ila, key: Expr) -> str:
    """Return the name of an input, its bits as the specification counts them, or the term."""
    (leaf, *other_leaves) = key.reads
    if not other_leaves and leaf in ila.inputs.values() and key.op == "extract" and leaf.shape:
        size = (iv.width_of(leaf.interval) or (8, False))[0]
        lanes = [int(x.args[0].value or 0) for x in loads_of(key)]
        low = min(lanes) * size + key.data[0]
        if ila.word(leaf.name, low, low + key.data[1] - 1) is key:
            return f"{leaf.name}[{low}:{low + key.data[1]}]"
    return show(key).replace("[]", "")


# -- the solver


def _has_hole(ila: Ila, ranges: Mapping[Expr, Interval], seconds: float) -> bool:
    """Tell whether some command in the ranges is not decoded; queries that the solver does not decide count as yes."""
    limits = {k: r for k, r in ranges.items() if r != k.interval}
    conditions = [(k >= lift(r[0] or 0)) & (k <= lift(r[1] or 0)) for k, r in limits.items()]
    candidates = [b.instruction.decode for i in ila.instructions.values() if not _are_apart((b := box_of(i)).limits, limits)]
    candidates += [c for c in ila.idle if not _are_apart(_box(None, c).limits, limits)]
    return find_command(ila, conditions, candidates, seconds)[0].outcome != "proved"


def find_command(ila: Ila, required: Sequence[Expr], excluded: Sequence[Expr], seconds: float) -> tuple[Verdict, Values]:
    """Search a command that satisfies all conditions of the first list and none of the second; a witness is replayed in the oracle.

    Raises:
        SpecError: I102, a condition reads a memory, or I100, the witness does not hold in the oracle.
    """
    leaves = sorted({leaf for e in (*required, *excluded) for leaf in e.reads}, key=lambda leaf: str(leaf.name))
    for leaf in leaves:
        if math.prod(static_shape(leaf)) > STATE_ELEMENTS:
            raise SpecError("I102", f"a decode of {ila.name} reads the memory {leaf.name}", help="decode on inputs and registers")
    reading, limits = evaluator_for([*required, *excluded], leaves)
    holds = [truth(reading.value(e)) for e in required]
    fails = [_negated(truth(reading.value(e))) for e in excluded]
    verdict = refute([*holds, *fails, *limits], seconds)
    if verdict.outcome != "refuted":
        return verdict, {}
    model = verdict.model
    flat = {leaf: [int(model.get(str(x), leaf.interval[0] or 0)) for x in data.reshape(-1)] for leaf, data in reading.memories.items()}
    _replay(ila, required, excluded, flat)
    return verdict, {leaf.name: _little_endian(leaf, lanes) for leaf, lanes in flat.items()}


def _negated(x: object) -> object:
    return not x if isinstance(x, bool) else ~x  # type: ignore[operator]


def _replay(ila: Ila, required: Sequence[Expr], excluded: Sequence[Expr], values: Mapping[Leaf, list[int]]) -> None:
    for e, expected in (*((e, 1) for e in required), *((e, 0) for e in excluded)):
        value: Array = scalar_array(e)
        if evaluate(value, dict(values), 1) != [expected]:
            raise SpecError("I100", f"the solver's witness for a decode of {ila.name} does not hold in the oracle")


def _little_endian(leaf: Leaf, lanes: Sequence[int]) -> int:
    size = (iv.width_of(leaf.interval) or (8, False))[0]
    return sum(x << size * n for n, x in enumerate(lanes))


def _word(x: int | None) -> str:
    return str(x) if x is None or abs(x) < 1 << 10 else f"{x:#010x}"
