"""Queues: in which order a stream runs on several command queues, and whether every legal order gives the same result.

Each queue runs its instructions in order; between queues only tokens order them. A token has one queue that gives it and
one that takes it, so the n-th taking waits for the n-th giving whatever the timing: order and deadlock do not depend on
it. Two instructions that are not ordered race when they touch the same element and one of them writes it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang.binders import Leaf
from ...lang.step import updates_of
from ...readings.arrays.labelled_array import Data
from ...readings.state.footprint import Footprint
from ..model import Ila, Instruction, Queue

Clock = dict[str, int]  # queue → its last instruction (1 + number in the stream) that is certainly done; 0: none


@dataclass(frozen=True, eq=False)
class Issue:
    """One instruction of a stream: its number (from 0), and its operands."""

    number: int
    instruction: Instruction
    operands: Mapping[str, Any]

    def __str__(self) -> str:
        return f"instruction {self.number} ({self.instruction.name})"

    def asks(self, operand: str) -> bool:
        """Tell whether a token operand is set."""
        value = self.operands.get(operand, 0)
        return bool(np.asarray(value).any())


@dataclass(frozen=True, eq=False)
class Turn:
    """One issue in its turn: the queue that runs it and, for each queue, the last instruction certainly done before."""

    issue: Issue
    queue: str
    before: Clock


@dataclass(eq=False)
class Schedule:
    """A legal order of a stream, the sentences on queues that wait for ever, and the tokens that nothing takes."""

    turns: list[Turn] = field(default_factory=list)
    waiting: list[tuple[str, str]] = field(default_factory=list)  # queue, sentence
    left_over: list[tuple[str, Issue | None]] = field(default_factory=list)  # token, who gives it (None: held before)


def schedule(queues: Sequence[Queue], stream: Sequence[Issue], held: Sequence[str] = ()) -> Schedule:
    """Return the legal order that always runs the earliest instruction of the stream that can run.

    A stream written in dependency order runs as written. What no queue declares runs in a queue of its own. `held` are
    the tokens that are there before.
    """
    return _Scheduler(queues, stream, held).run()


class _Scheduler:
    def __init__(self, queues: Sequence[Queue], stream: Sequence[Issue], held: Sequence[str]) -> None:
        self.queues = {q.name: q for q in queues}
        self.of = {name: q.name for q in queues for name in q.instructions}
        self.stream = stream
        self.heads: dict[str, deque[Issue]] = {name: deque() for name in (*self.queues, "")}
        for issue in stream:
            self.heads[self.of.get(issue.instruction.name, "")].append(issue)
        self.clocks: dict[str, Clock] = {name: dict.fromkeys(self.heads, 0) for name in self.heads}
        self.tokens: dict[str, deque[tuple[Issue | None, Clock]]] = {}
        for token in (t for q in queues for t in (*q.takes.values(), *q.gives.values())):
            self.tokens[token] = deque()
        for token in held:
            self.tokens[token].append((None, dict.fromkeys(self.heads, 0)))
        self.made = Schedule()

    def run(self) -> Schedule:
        while (queue := self._next()) is not None:
            self._advance(queue)
        self.made.waiting = [(name, self._waits(name)) for name in self.heads if self.heads[name]]
        self.made.left_over = [(token, giver) for token, kept in self.tokens.items() for giver, _ in kept]
        return self.made

    def _next(self) -> str | None:
        ready = [(heads[0].number, name) for name, heads in self.heads.items() if heads and not self._missing(name)]
        return min(ready)[1] if ready else None

    def _taken(self, queue: str, issue: Issue) -> Iterator[str]:
        return (token for operand, token in self._takes(queue).items() if issue.asks(operand))

    def _takes(self, queue: str) -> Mapping[str, str]:
        return self.queues[queue].takes if queue else {}

    def _missing(self, queue: str) -> list[str]:
        return [token for token in self._taken(queue, self.heads[queue][0]) if not self.tokens[token]]

    def _advance(self, queue: str) -> None:
        issue = self.heads[queue].popleft()
        clock = self.clocks[queue]
        for token in self._taken(queue, issue):
            _, given = self.tokens[token].popleft()
            clock = {name: max(at, given[name]) for name, at in clock.items()}
        self.made.turns.append(Turn(issue, queue, clock))
        after = self.clocks[queue] = {**clock, queue: issue.number + 1}
        for operand, token in (self.queues[queue].gives if queue else {}).items():
            if issue.asks(operand):
                self.tokens[token].append((issue, after))

    # -- what a queue waits for

    def _waits(self, queue: str) -> str:
        issue, token = self.heads[queue][0], self._missing(queue)[0]
        giver = self._giver(token)
        by = f"that {giver} would give" if giver is not None else "that nothing gives"
        return f"waits at {issue} for a token of {token} {by}"

    def _giver(self, token: str) -> Issue | None:
        """Return the first instruction that has not run and gives the token."""
        for queue in self.queues.values():
            operands = [o for o, t in queue.gives.items() if t == token]
            found = next((i for i in self.heads[queue.name] if any(i.asks(o) for o in operands)), None)
            if found is not None:
                return found
        return None


def tokens_of(queues: Sequence[Queue], issue: Issue) -> tuple[list[str], list[str]]:
    """Return the tokens that an instruction takes and those that it gives."""
    queue = next((q for q in queues if issue.instruction.name in q.instructions), None)
    sides = (queue.takes, queue.gives) if queue is not None else ({}, {})
    takes, gives = ([token for operand, token in side.items() if issue.asks(operand)] for side in sides)
    return takes, gives


def unconnected(queues: Sequence[Queue], stream: Sequence[Issue]) -> None:
    """Refuse a stream that asks for a token which the queue of the instruction does not have."""
    of = {name: q for q in queues for name in q.instructions}
    for issue in stream:
        queue = of.get(issue.instruction.name)
        wrong = [o for o in (queue.unconnected if queue else ()) if issue.asks(o)]
        if queue and wrong:
            raise SpecError("I102", f"{wrong[0]} of {issue} must be 0: queue {queue.name} has no such token")


def taken_in_full(made: Schedule) -> None:
    """Refuse a schedule that leaves a token over."""
    if made.left_over:
        token, giver = made.left_over[0]
        by = "an earlier run" if giver is None else str(giver)
        more = f" (and {len(made.left_over) - 1} more)" if len(made.left_over) > 1 else ""
        raise SpecError("I108", f"{by} gives a token of {token} that nothing takes{more}")


class Races:
    """Finds two instructions that are not ordered and touch the same element, one of them writing it.

    It is told every turn of a schedule in order; for each element it keeps the last access of each queue, which is enough:
    what is not ordered with an earlier access of a queue is not ordered with its last one either.
    """

    def __init__(self, ila: Ila, sizes: Mapping[Leaf, int]) -> None:
        """Watch the memories in `sizes`, which gives their numbers of elements."""
        self.ila, self.sizes = ila, sizes
        self.last: dict[tuple[Leaf, str, bool], Data] = {}  # memory, queue, is write → by element, 1 + number in the stream
        self.issues: dict[int, Issue] = {}
        self.latest: dict[str, Issue] = {}
        self.end: Turn | None = None

    def observe(self, turn: Turn, touched: Footprint) -> None:
        """Note what an instruction touches; SpecError names it and an earlier one it races with."""
        self._ends(turn)
        self.issues[turn.issue.number + 1] = self.latest[turn.queue] = turn.issue
        accesses = [(m, self._inside(m, x), w) for w, kept in ((False, touched.reads), (True, touched.writes)) for m, x in kept.items()]
        for memory, numbers, is_write in accesses:
            self._check(turn, memory, numbers, is_write)
        for memory, numbers, is_write in accesses:
            key = memory, turn.queue, is_write
            if key not in self.last:
                self.last[key] = np.zeros(self.sizes[memory], np.int32)
            self.last[key][numbers] = turn.issue.number + 1

    def _inside(self, memory: Leaf, numbers: Sequence[Data]) -> Data:
        every = np.concatenate(numbers)
        return every[(every >= 0) & (every < self.sizes[memory])]

    def _check(self, turn: Turn, memory: Leaf, numbers: Data, is_write: bool) -> None:
        for (leaf, queue, wrote), last in self.last.items():
            if leaf is not memory or queue == turn.queue or not (is_write or wrote):
                continue
            late = last[numbers] > turn.before[queue]
            if late.any():
                number = int(numbers[int(np.argmax(late))])
                raise self._race(turn, self.issues[int(last[number])], (wrote, is_write), _element(memory, number))

    def _race(self, turn: Turn, other: Issue, writes: tuple[bool, bool], element: str) -> SpecError:
        first, second = ("writes" if w else "reads" for w in writes)
        return SpecError(
            "I107",
            f"{other} and {turn.issue} may run in either order, but the first {first} and the second {second} {element}",
            help="order the two queues with a token",
        )

    def _ends(self, turn: Turn) -> None:
        """Refuse an instruction that may still run when another raises the interrupt."""
        if self.end is not None and turn.queue != self.end.queue:
            raise _early(self.end.issue, turn.issue)
        if self.ila.interrupt not in written_by(turn.issue.instruction):
            return
        for queue, issue in self.latest.items():
            if queue != turn.queue and issue.number + 1 > turn.before[queue]:
                raise _early(turn.issue, issue)
        self.end = turn


@lru_cache(maxsize=1024)
def written_by(instruction: Instruction) -> frozenset[Leaf]:
    """Return the state elements that an instruction may write."""
    return frozenset(u.memory for u in updates_of(instruction.update))


def _early(last: Issue, other: Issue) -> SpecError:
    return SpecError(
        "I107",
        f"{last} may end the run before {other} is done",
        help="let the last instruction take a token that follows from the other",
    )


def _element(memory: Leaf, number: int) -> str:
    inner = math.prod(n for n in memory.shape[1:] if isinstance(n, int))
    return f"element {number // inner} of {memory.name}"
