"""Random sizes at which an operation is tried beside its trials: small, with attributes like those of its trials."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from ...lang.formats import Format
from ...ops.op import ShapeError
from ...target import FormatFor, Mapping, Stay, Target
from .mappings import refusal_at, with_results

EXTENTS = (1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 17)
ENTRIES = (0, 1, 1, 2, 2, 3, 4)  # of lists: strides, pads, windows
LARGEST_ENTRY = 16  # of a list of the trials that is drawn anew, one more than four bits hold; zero points are those of a trial
MAX_PRODUCTS = 1_500  # of one call, where a design has no other bound
CANDIDATES = 20_000


@dataclass(frozen=True)
class Invocation:
    """One invocation: sizes with attributes, where tensors lie, and whether those that can last lie there from an invocation before."""

    sizes: MappingOf[str, Any]
    stay: Stay | None = None

    def __str__(self) -> str:
        sizes_text = ", ".join(f"{d}={n}" for d, n in self.sizes.items())
        at = "" if self.stay is None else ", ".join(f"{name} from element {n} on" for name, n in self.stay.at.items())
        suffix = " from the call before" if self.stay is not None and self.stay.present else ""
        return f"{sizes_text}; {at}{suffix}" if at else sizes_text


def drawn_invocations(m: Mapping, target: Target, seed: int, products: int) -> Iterator[Invocation]:
    """Yield random invocations of so many products that a mapping admits; it ends only where hardly any size is admitted."""
    random, m = Random(f"{seed} {m.name}"), replace(m, units=_admitted_units(m))
    drawn, misses, completions, counted = _Drawn.of(m), 0, dict[Hashable, Any](), _Products.of(m)
    if drawn.least_products(counted) > products:
        return
    while misses < CANDIDATES:
        candidate = drawn.candidate(random)
        key = tuple(candidate.items())
        if key not in completions:  # few sizes are admitted by a small design, and are drawn again and again
            completions[key] = _admitted(m, candidate, drawn.results, counted, products)
        sizes = completions[key]
        if sizes is None:
            misses += 1
            continue
        misses = 0
        yield Invocation(sizes, _stay(m, target, sizes, random))


def with_magnitudes(m: Mapping, factor: float, *, of_data: bool = True) -> Mapping:
    """Return an operation whose formats are chosen for data, and so results, that are larger by a factor: other operands as they are.

    Without `of_data` the other operands are the larger ones.
    """
    data = {m.operands[0].name, *m.axes.results}
    for group in m.shared:
        data |= set(group) if not data.isdisjoint(group) else set()
    larger = data if of_data else set(m.format_choices) - data
    choices = {n: partial(_format_of_larger, choose, factor) if n in larger else choose for n, choose in m.format_choices.items()}
    return replace(m, formats=choices)


def _format_of_larger(choose: FormatFor, factor: float, largest: float) -> Format:
    return choose(factor * largest)


def _admitted_units(m: Mapping) -> dict[str, int]:
    """Return the units of dimensions of which the limits admit one beside the least sizes of the others."""
    first = dict(m.trials[0]) if m.trials else {}
    least = {**dict.fromkeys((d for dims in m.axes.of.values() for d in dims), 1), **first}
    attributes = {name: least.pop(name) for name, _ in m.statics}
    return {d: n for d, n in m.units.items() if d in least and m.exceeded_limit({**least, d: n}, attributes) is None}


def product_count(m: Mapping, sizes: MappingOf[str, Any]) -> int:
    """Return about how many products a call computes: results times the shortest reduction of an operand, sizes padded to units."""
    return _Products.of(m).count(sizes)


@dataclass(frozen=True)
class _Products:
    """What products of a call are counted by: dimensions of its result, of each operand those that are summed, and units."""

    result: tuple[str, ...]
    summed: tuple[tuple[str, ...], ...]
    units: MappingOf[str, int]

    @classmethod
    def of(cls, m: Mapping) -> _Products:
        """Return what products of an operation are counted by."""
        result = m.axes.of[m.axes.result]
        summed = (tuple(d for d in dims if d not in result) for dims in m.axes.of.values())
        return cls(tuple(result), tuple(dims for dims in summed if dims), m.units)

    def count(self, sizes: MappingOf[str, Any]) -> int:
        """Return about how many products a call of these sizes computes."""

        def padded(dims: tuple[str, ...]) -> int:
            return math.prod(-(-sizes[d] // u) * u for d, u in ((d, self.units.get(d, 1)) for d in dims))

        return padded(self.result) * min(map(padded, self.summed), default=1)


@dataclass(frozen=True)
class _Drawn:
    """What is drawn of an operation: dimensions with their units, lists with their trials, sizes that follow from others."""

    trials: Sequence[MappingOf[str, Any]]
    units: MappingOf[str, int]
    lists: tuple[str, ...]
    ties: MappingOf[str, tuple[str, int]]
    results: frozenset[str]

    @classmethod
    def of(cls, m: Mapping) -> _Drawn:
        """Return what is drawn of an operation."""
        units = {d: m.units.get(d, 1) for d in dict.fromkeys(d for v in m.operands for d in m.axes.of[v.name])}
        ints = [name for name, kind in m.statics if kind == "ints"]
        lists = tuple(name for name in ints if all(max(map(abs, t[name]), default=0) <= LARGEST_ENTRY for t in m.trials))
        return cls(m.trials, units, lists, ties(m), frozenset(result_dimensions(m)))

    def least_products(self, counted: _Products) -> int:
        """Return how many products a call computes whose dimensions are 1."""
        return counted.count(dict.fromkeys((*self.units, *self.results), 1))

    def candidate(self, random: Random) -> dict[str, Any]:
        """Return random sizes of operands and attributes."""
        sizes: dict[str, Any] = dict(random.choice(self.trials)) if self.trials else {}
        for d, unit in self.units.items():
            in_units, ragged = random.random() < 0.5, random.choice((0, 1, 2, unit - 2, unit - 1)) if unit > 3 else random.randrange(unit)
            sizes[d] = max(1, random.choice(EXTENTS) * unit - ragged) if in_units else random.choice(EXTENTS)
        for name in self.lists:
            sizes[name] = tuple(random.choice(ENTRIES) for _ in sizes[name])
        for name, (base, factor) in self.ties.items():
            sizes[name] = factor * sizes[base]
        return {name: x for name, x in sizes.items() if name not in self.results}


def _admitted(
    m: Mapping, sizes: MappingOf[str, Any], results: Collection[str], counted: _Products, products: int
) -> dict[str, Any] | None:  # fmt: skip
    """Return sizes with those of results; None where the mapping does not admit them or there are too many products."""
    if counted.count({**sizes, **dict.fromkeys(results, 1)}) > products:  # already with results of one element
        return None
    try:
        completed = with_results(m, sizes)
    except (ShapeError, ArithmeticError):
        return None
    return None if counted.count(completed) > products or refusal_at(m, completed) else completed


def result_dimensions(m: Mapping) -> set[str]:
    """Return the dimensions that only results have."""
    return {d for name in m.axes.results for d in m.axes.of[name]} - {d for v in m.operands for d in m.axes.of[v.name]}


def ties(m: Mapping) -> dict[str, tuple[str, int]]:
    """Return the sizes that are a fixed multiple of another one in all trials: groups are channels, gates four times units."""
    tied: dict[str, tuple[str, int]] = {}
    names = [n for n in (m.trials[0] if m.trials else ()) if n not in result_dimensions(m) and all(isinstance(t[n], int) for t in m.trials)]
    for a in names:
        for b in names:
            is_free = b not in tied and all(x != b for x, _ in tied.values())
            ratios = {(t[b] // t[a], t[b] % t[a]) for t in m.trials if t[a]}
            if a != b and is_free and a not in tied and len({t[a] for t in m.trials}) > 1 and len(ratios) == 1:
                ((factor, remainder),) = ratios
                if not remainder and factor:
                    tied[b] = a, factor
    return tied


def _stay(m: Mapping, target: Target, sizes: MappingOf[str, Any], random: Random) -> Stay | None:
    """Return where tensors lie and which are there already; None where all memories are the call's own, and in one draw of two.

    In each memory tensors and scratch lie one after the other in a random order, with gaps; where they do not fit nothing stays.
    """
    rooms = m.rooms(sizes, {n: sizes[n] for n, _ in m.statics}) or ()
    resources = target.resources()
    tensors = {r.tensor for r in rooms if r.tensor}
    if not tensors or resources is None or random.random() < 0.5:
        return None
    depths = {memory.name: memory.elements for memory in resources.memories}
    at: dict[str, int] = {}
    for memory in dict.fromkeys(r.memory for r in rooms):
        tensor_rooms = [r for r in rooms if r.memory == memory and (r.tensor or r.scratch)]
        place = sum(r.size for r in rooms if r.memory == memory) - sum(r.size for r in tensor_rooms)
        free = depths[memory] - place - sum(r.size for r in tensor_rooms)
        if free < 0:
            return None
        for r in random.sample(tensor_rooms, len(tensor_rooms)):
            gap = random.randint(0, free)
            at[r.tensor or r.scratch], place, free = place + gap, place + gap + r.size, free - gap
    return Stay(at, frozenset(v.name for v in m.operands if v.name in tensors and random.random() < 0.7))
