"""Stages: longer chains, columns by what each computation makes of the numbers that the one before leaves, not by emitting all of them.

The numbers that the first computation leaves are read from a simulator; then sequences of element-wise computations are looked for,
breadth first, each set of numbers once, until they are the codes of the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import FlexmatchError
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...readings.arrays.labelled_array import Data
from ...target.device import simulated_device
from ..instructions.computation import Computation, computations, is_same
from ..instructions.control import Settings
from ..instructions.copies import NoCopy, number, number_or_none
from ..instructions.macros import device_model
from ..instructions.selection import reads_of
from .emission import unfinished
from .matching import NONE, Match, matches
from .operation import CHAINED, ZEROS, Reach, continuation
from .schedule import Schedule, schedules
from .writer import NotEmitted

MOST_STAGES, MOST_STATES = 5, 2000
MOST_VALUES = 8  # of one switch
MOST_WAYS = 32  # from one state to another
NUMPY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "shl": np.left_shift, "shr": np.right_shift, "div": np.floor_divide,
    "mod": np.mod, "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
Key = tuple[bytes, str, tuple[str, ...]]  # the numbers of a state, their memory, and operands that are left
Function = Callable[[Mapping[Expr, Any], Mapping[str, int]], Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """Codes of the operands, those of the result, and bits of one."""

    draws: Sequence[tuple[Mapping[str, Data], Data]]
    ranks: Mapping[str, int]
    code_bits: int


@dataclass(frozen=True, eq=False)
class Stage:
    """A computation on results, as it matches, with what decides it."""

    match: Match
    conditions: Settings
    switches: Settings


@dataclass(frozen=True, eq=False)
class State:
    """The numbers that lie in memory after stages, and the operands that none of them has taken yet."""

    numbers: Data
    memory: str
    left: tuple[Reach, ...]
    before: State | None = None
    stage: Stage | None = None  # that leads here from the state before

    @cached_property
    def depth(self) -> int:
        """How many stages lead here."""
        return 0 if self.before is None else 1 + self.before.depth

    @cached_property
    def key(self) -> Key:
        """What states that lead on alike have in common."""
        return self.numbers.tobytes(), self.memory, tuple(r.name for r in self.left)


def staged(main: Schedule, samples: Samples, numbers: Sequence[int], hopeless: set[Any]) -> Iterator[tuple[Schedule, ...]]:
    """Yield chains that begin with a computation and give the codes of the result, those of fewest stages first.

    Numbers from which no stages lead to the result, and the match that leaves them, are `hopeless` for other tiles and layouts, too.
    """
    try:
        elements, first = _left_by(main, samples)
    except (NotEmitted, FlexmatchError):
        return
    expected = np.concatenate([y.reshape(-1)[elements] for _, y in samples.draws])
    state = State(first, main.result.memory, main.match.left)
    key = (*state.key, elements.tobytes())
    if key in hopeless:
        return
    search, leads_on = _Search(main, samples, elements, numbers), MOST_STAGES
    for after in search.reachable(state):
        if after.depth > leads_on:
            return
        if not after.left and not ((after.numbers - expected) % (1 << samples.code_bits)).any():
            leads_on = after.depth
            search.results.add(after.key)
            yield from itertools.islice(_chains_of((main,), search.ways_to(after)), 1)
    if leads_on == MOST_STAGES:
        hopeless |= {key, main.match}


def _chains_of(chain: tuple[Schedule, ...], ways: Sequence[Sequence[Stage]]) -> Iterator[tuple[Schedule, ...]]:
    """Yield the schedules of a chain and of stages, each of which goes on with the one before: one of those that make the same numbers."""
    if not ways:
        yield chain
        return
    for stage in ways[0]:
        options = schedules(chain[-1].ila, stage.match, stage.conditions, chain[-1])
        s = next((x for x in options if isinstance(x, Schedule)), None)
        if s is not None:
            yield from _chains_of((*chain, s.with_switches(stage.switches)), ways[1:])


def _left_by(main: Schedule, samples: Samples) -> tuple[Data, Data]:
    """Return the elements of the result that lie in memory after the last command, and the number of each, draw after draw."""
    program, addresses, elements = unfinished(main, samples.code_bits)
    is_used = elements != NONE
    rows = addresses[is_used]
    columns = []
    for codes, _ in samples.draws:
        device = simulated_device(device_model(main.ila), reading="native")
        program.execute(device, codes, samples.ranks)
        state = device.sim.state(main.result.memory)
        columns.append(state.reshape(-1)[rows[:, 0]] if state.ndim <= 1 else state[tuple(rows.T)])
    return elements[is_used], np.concatenate(columns).astype(np.int64)


class Forecast:
    """What a single computation without sums makes of the codes that are tried: read from its transition, before it is simulated."""

    def __init__(self, s: Schedule, samples: Samples) -> None:
        self.search: _Search | None = None
        op = s.match.operation
        is_plain = all(a.constant == 0 and [f for _, f in a.terms] in ([], [1]) for a in op.result.axes)
        if op.reduced or not is_plain or s.starter is not None or s.match.starts is not None:
            return
        elements = np.arange(math.prod(op.result.shape))
        self.search = _Search(s, samples, elements, ())
        self.state = State(np.zeros(len(elements) * len(samples.draws), np.int64), s.result.memory, ())
        self.expected = np.concatenate([y.reshape(-1) for _, y in samples.draws])
        width = iv.width_of(s.computation.transition.update.memory.interval)
        self.modulus = 1 << min(samples.code_bits, samples.code_bits if width is None else width[0])

    def refutes(self, s: Schedule) -> bool:
        """Tell whether values of switches give other codes than the numerics; never where the value is no function of operands."""
        if self.search is None:
            return False
        numbers = self.search.numbers(s.match, self.state, s.settings)
        return numbers is not None and bool(((numbers - self.expected) % self.modulus).any())


class _Search:
    """What computations make of numbers."""

    def __init__(self, main: Schedule, samples: Samples, elements: Data, numbers: Sequence[int]) -> None:
        self.main, self.op, self.samples, self.elements = main, main.match.operation, samples, elements
        self.values = list(dict.fromkeys([*numbers, 0, 1]))
        self.operands: dict[Match, dict[Expr, Data | None] | None] = {}
        self.functions: dict[Match, Function] = {}
        self.options: dict[tuple[str, tuple[str, ...]], list[tuple[Match, Settings]]] = {}
        self.ways: dict[tuple[Key, Key], list[Stage]] = {}  # stages that lead from one state to another
        self.results: set[Key] = set()  # states that are results, all ways to which are yielded

    def ways_to(self, state: State) -> list[list[Stage]]:
        """Return for each state on the way to one the stages that lead there, for the last one its own."""
        if state.before is None or state.stage is None:
            return []
        earlier, last = self.ways_to(state.before), state.before
        if last.before is not None:
            earlier[-1] = self.ways[last.before.key, last.key][:MOST_WAYS]
        return [*earlier, [state.stage]]

    def reachable(self, state: State) -> Iterator[State]:
        """Yield states after one stage, two, and so on, each once, up to a number of them; results once for each way there."""
        states, visited = [state], {state.key}
        for _ in range(MOST_STAGES):
            following: list[State] = []
            for after in (after for before in states for after in self.following(before)):
                assert after.before is not None
                assert after.stage is not None
                self.ways.setdefault((after.before.key, after.key), []).append(after.stage)
                if after.key not in visited:
                    visited.add(after.key)
                    following.append(after)
                    yield after
                elif after.key in self.results:
                    yield after
                if len(visited) > MOST_STATES:
                    return
            states = following

    def following(self, state: State) -> Iterator[State]:
        """Yield the states after one more computation."""
        key = state.memory, tuple(r.name for r in state.left)
        if key not in self.options:
            self.options[key] = list(self._matches(state))
        for match, conditions in self.options[key]:
            c = match.computation
            free = [x for x in c.switches if x.name not in conditions]
            for switches in self._switches(free):
                numbers = self.numbers(match, state, {**conditions, **switches})
                if numbers is not None:
                    stage = Stage(match, conditions, {**conditions, **switches})
                    yield State(numbers, c.result.memory, match.left, state, stage)

    def _matches(self, state: State) -> Iterator[tuple[Match, Settings]]:
        op = continuation(self.op, state.left, self.main.tile)
        for c in computations(self.main.ila):
            if state.memory not in (c.result.memory, *(a.memory for a in c.operands)):
                continue
            for match in matches(op, c):
                reached = [s.access.memory for s in match.operands if s.reach.name == CHAINED]
                reached += [c.result.memory] if match.initial is not None and match.initial.name == CHAINED else []
                if reached == [state.memory]:
                    yield from ((match, conditions) for conditions in _conditions(c))

    def _switches(self, leaves: Sequence[Leaf]) -> Iterator[Settings]:
        options = []
        for leaf in leaves:
            low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
            options.append([x for x in dict.fromkeys([*self.values, low, high]) if low <= x <= high][:MOST_VALUES])
        for values in itertools.product(*options):
            yield {leaf.name: x for leaf, x in zip(leaves, values, strict=True)}

    def numbers(self, match: Match, state: State, control: Mapping[str, int]) -> Data | None:
        """Return what a computation makes of numbers; None where it is no function of them."""
        c = match.computation
        if match not in self.operands:
            self.operands[match] = self._operands(match, state)
        operands = self.operands[match]
        if operands is None:
            return None
        values_of = {load: state.numbers if x is None else x for load, x in operands.items()}
        try:
            if match not in self.functions:
                self.functions[match] = _function(c.transition.value, values_of.keys())
            numbers = np.asarray(self.functions[match](values_of, control), np.int64)
        except (NoCopy, OverflowError):
            return None
        return numbers if numbers.shape else np.full_like(state.numbers, numbers)

    def _operands(self, match: Match, state: State) -> dict[Expr, Data | None] | None:
        """Return what each load of a computation reads, None for the numbers in memory; None where it reads something else."""
        c, operands = match.computation, dict[Expr, Data | None]()
        for r in reads_of(c.transition):
            slot = next((s for s in match.operands if s.access is r.access), None)
            reach = match.initial if is_same(r.access, c.result) else slot.reach if slot is not None else None
            if reach is None:
                return None
            numbers = None if reach.name == CHAINED else self._operand(reach, state)
            operands |= {x.load: numbers for x in c.transition.reads if is_same(x.access, r.access)}
        return operands

    def _operand(self, reach: Reach, state: State) -> Data:
        if reach.name == ZEROS:
            return np.zeros_like(state.numbers)
        result = self.op.result
        loops = [a.terms[0][0] if a.terms else "" for a in result.axes]
        position = dict(zip(loops, np.unravel_index(self.elements, result.shape), strict=True))
        flat = np.zeros(self.elements.shape, np.int64)
        for size, a in zip(reach.shape, reach.axes, strict=True):
            flat = flat * size + a.constant + sum((f * position[v] for v, f in a.terms), np.zeros(flat.shape, np.int64))
        return np.concatenate([np.asarray(codes[reach.name]).reshape(-1)[flat] for codes, _ in self.samples.draws]).astype(np.int64)


def _conditions(c: Computation) -> Iterator[Settings]:
    """Yield the values of what decides whether an instruction computes so."""
    leaves = c.conditional
    for values in itertools.product((0, 1), repeat=len(leaves)):
        control = {leaf.name: x for leaf, x in zip(leaves, values, strict=True)}
        try:
            if all(number(x, {}, control) for x in c.conditions if x.reads <= set(leaves)):
                yield control
        except NoCopy:
            continue


def _function(e: Expr, loads: Collection[Expr]) -> Function:
    """Return a term as a function of arrays for its loads and of control, called for thousands of states; NoCopy says that it is none."""
    if e in loads:
        return lambda values_of, _: values_of[e]
    if e.op == "load":
        return lambda _, control: number(e, {}, control)
    if not e.reads:
        constant = number_or_none(e, {})
        return _refused if constant is None else lambda *_: constant
    if e.op not in ("select", "neg", "not", "wrap", "extract", *NUMPY):
        return _refused
    parts = [_function(a, loads) for a in e.args]
    if e.op == "select":
        return lambda *x: _selected(parts, *x)
    if e.op in NUMPY:
        function, (left, right) = NUMPY[e.op], parts
        return lambda *x: function(left(*x), right(*x))
    (part,) = parts
    if e.op in ("neg", "not"):
        return (lambda *x: -part(*x)) if e.op == "neg" else (lambda *x: np.logical_not(part(*x)))
    low, bits, signed = (0, *e.data) if e.op == "wrap" else (*e.data, False)
    ones, half = (1 << bits) - 1, 1 << bits - 1 if signed else 0
    return lambda *x: ((np.asarray(part(*x)) >> low) + half & ones) - half


def _refused(*_: object) -> Any:
    raise NoCopy


def _selected(parts: Sequence[Function], values_of: Mapping[Expr, Any], control: Mapping[str, int]) -> Any:
    """Return the alternative that is chosen, one for all numbers or each its own."""
    condition = parts[0](values_of, control)
    if np.ndim(condition) == 0:
        return parts[1 if condition else 2](values_of, control)
    return np.where(condition, *(part(values_of, control) for part in parts[1:]))
