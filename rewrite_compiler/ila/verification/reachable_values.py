"""Reachable values: the intervals of register values, and the decodes that no reachable state satisfies.

A register holds its reset value or what some instruction writes. Nothing more is tracked, so the values considered include every
reachable one (an over-approximation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import Problem
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.intervals import Interval
from ...lang.printer import show
from ...lang.step import updates_of
from ...lang.traversal import loads_of
from ..model import CONTROL, Ila, Instruction
from .decode_disjointness import box_of, conjuncts, find_command

UNDECODED = "I101"
REMEDY = "correct the condition, or leave the instruction out"


def undecodable_instructions(ila: Ila, seconds: float) -> Iterator[Problem]:
    """Yield a problem for each instruction that no command starts, in any state or in any reachable state."""
    reach = reachable_ranges(ila)
    for i in ila.instructions.values():
        box = box_of(i)
        if i.decode.value == 0:
            yield Problem(UNDECODED, f"{i.name} decodes no command: a condition compares what can never be equal", i.place, REMEDY)
        elif box.is_empty:
            yield Problem(UNDECODED, f"{i.name} decodes no command: {_conditions(i)} is never true", i.place, REMEDY)
        elif not box.exact or any(load.data in reach for load in loads_of(i.decode)):
            yield from _check_satisfiable(ila, i, reach, seconds)


def reachable_ranges(ila: Ila) -> Mapping[Leaf, Interval]:
    """Return an interval of the values of each control register that instructions write."""
    resets: dict[Leaf, Interval] = {s.leaf: (s.reset, s.reset) for s in ila.states.values() if s.binding == CONTROL}
    ranges: dict[Leaf, Interval] = {}
    for i in ila.instructions.values():
        for u in updates_of(i.update):
            if u.memory in resets:
                ranges[u.memory] = iv.hull(ranges.get(u.memory, resets[u.memory]), u.value.interval)
    return ranges


def _check_satisfiable(ila: Ila, i: Instruction, reach: Mapping[Leaf, Interval], seconds: float) -> Iterator[Problem]:
    verdict, _ = find_command(ila, [i.decode], [], seconds)
    if verdict.outcome == "proved":
        sentence = f"{i.name} decodes no command: {_conditions(i)} is never true"
        yield Problem(UNDECODED, sentence, i.place, REMEDY)
        return
    registers = {load.data: load for load in loads_of(i.decode) if load.data in reach}
    if verdict.outcome == "refuted" and registers:
        verdict, _ = find_command(ila, [i.decode, *(c for load in _loads(i, reach) for c in _within(load, reach[load.data]))], [], seconds)
    if verdict.outcome == "proved":
        ranges_text = ", ".join(f"{leaf.name} is only ever {_range(reach[leaf])}" for leaf in registers)
        yield Problem(UNDECODED, f"{i.name} decodes no command in any state that can be reached: {ranges_text}", i.place, REMEDY)
    elif verdict.outcome == "unknown":
        yield Problem(UNDECODED, f"it is not known whether {i.name} decodes any command: {verdict.reason}", i.place, REMEDY)


def _loads(i: Instruction, reach: Mapping[Leaf, Interval]) -> Iterator[Expr]:
    return (load for load in loads_of(i.decode) if load.data in reach)


def _within(load: Expr, interval: Interval) -> Iterator[Expr]:
    low, high = interval
    if low is not None:
        yield load >= low
    if high is not None:
        yield load <= high


def _conditions(i: Instruction) -> str:
    """Return the conjuncts of a decode as text."""
    return " and ".join(show(c).replace("[]", "") for c in conjuncts(i.decode))


def _range(a: Interval) -> str:
    return str(a[0]) if a[0] == a[1] else f"{a[0]}…{a[1]}"
