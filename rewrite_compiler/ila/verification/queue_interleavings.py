"""Queue interleavings: the order in which a stream runs on several command queues, and races between its instructions.

Each queue runs its instructions in order; between queues only tokens order them. A token has one queue that gives it and one
that takes it, so the n-th taking waits for the n-th giving whatever the timing: order and deadlock do not depend on it. Vector
clocks give the happens-before relation; two unordered instructions race when they access the same element and one writes it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang.binders import Leaf
from ...lang.step import updates_of
from ...readings.arrays.labelled_array import Data
from ...readings.state.access_bounds import AccessBounds, Bounds
from ...readings.state.footprint import Footprint
from ..model import Ila, Instruction, Queue

VectorClock = dict[str, int]  # queue → its last instruction (1 + number in the stream) that is certainly done; 0: none


@dataclass(frozen=True, eq=False)
class Issue:
    """One instruction of a stream: its number, from 0, and its operands."""

    number: int
    instruction: Instruction
    operands: Mapping[str, Any]

    def __str__(self) -> str:
        return f"instruction {self.number} ({self.instruction.name})"

    def is_token_set(self, operand: str) -> bool:
        """Tell whether a token operand is set."""
        value = self.operands.get(operand, 0)
        return any(value) if isinstance(value, list) else bool(np.asarray(value).any())


@dataclass(frozen=True, eq=False)
class Turn:
    """An issue in its queue, with its vector clock: for each queue, the last instruction that certainly finished before."""

    issue: Issue
    queue: str
    clock: VectorClock


@dataclass(eq=False)
class Schedule:
    """A legal order of a stream, the queues that are blocked for ever and why, and the tokens that no instruction takes."""

    turns: list[Turn] = field(default_factory=list)
    blocked_queues: list[tuple[str, str]] = field(default_factory=list)  # queue, sentence
    unused_tokens: list[tuple[str, Issue | None]] = field(default_factory=list)  # token, who gives it (None: held before)


def schedule(queues: Sequence[Queue], stream: Sequence[Issue], initial_tokens: Sequence[str] = ()) -> Schedule:
    """Return the legal order that always runs the earliest instruction of the stream that can run.

    A stream in dependency order runs as written. Instructions of no declared queue run in a queue of their own. The third
    argument gives the tokens that are available at the start.
    """
    return _Scheduler(queues, stream, initial_tokens).run()


class _Scheduler:
    def __init__(self, queues: Sequence[Queue], stream: Sequence[Issue], initial_tokens: Sequence[str]) -> None:
        self.queues = {q.name: q for q in queues}
        self.queue_of = {name: q.name for q in queues for name in q.instructions}
        self.stream = stream
        self.heads: dict[str, deque[Issue]] = {name: deque() for name in (*self.queues, "")}
        for issue in stream:
            self.heads[self.queue_of.get(issue.instruction.name, "")].append(issue)
        self.clocks: dict[str, VectorClock] = {name: dict.fromkeys(self.heads, 0) for name in self.heads}
        self.tokens: dict[str, deque[tuple[Issue | None, VectorClock]]] = {}
        for token in (t for q in queues for t in (*q.takes.values(), *q.gives.values())):
            self.tokens[token] = deque()
        for token in initial_tokens:
            self.tokens[token].append((None, dict.fromkeys(self.heads, 0)))
        self.result = Schedule()

    def run(self) -> Schedule:
        while (queue := self._next_queue()) is not None:
            self._advance(queue)
        self.result.blocked_queues = [(name, self._blocked_sentence(name)) for name in self.heads if self.heads[name]]
        self.result.unused_tokens = [(token, giver) for token, givers in self.tokens.items() for giver, _ in givers]
        return self.result

    def _next_queue(self) -> str | None:
        ready = [(heads[0].number, name) for name, heads in self.heads.items() if heads and not self._missing_tokens(name)]
        return min(ready)[1] if ready else None

    def _tokens_taken(self, queue: str, issue: Issue) -> Iterator[str]:
        return (token for operand, token in self._take_operands(queue).items() if issue.is_token_set(operand))

    def _take_operands(self, queue: str) -> Mapping[str, str]:
        return self.queues[queue].takes if queue else {}

    def _missing_tokens(self, queue: str) -> list[str]:
        return [token for token in self._tokens_taken(queue, self.heads[queue][0]) if not self.tokens[token]]

    def _advance(self, queue: str) -> None:
        issue = self.heads[queue].popleft()
        clock = self.clocks[queue]
        for token in self._tokens_taken(queue, issue):
            _, giver_clock = self.tokens[token].popleft()
            clock = {name: max(time, giver_clock[name]) for name, time in clock.items()}
        self.result.turns.append(Turn(issue, queue, clock))
        next_clock = self.clocks[queue] = {**clock, queue: issue.number + 1}
        for operand, token in (self.queues[queue].gives if queue else {}).items():
            if issue.is_token_set(operand):
                self.tokens[token].append((issue, next_clock))

    # -- what a queue waits for

    def _blocked_sentence(self, queue: str) -> str:
        issue, token = self.heads[queue][0], self._missing_tokens(queue)[0]
        giver = self._giver(token)
        giver_text = f"that {giver} would give" if giver is not None else "that nothing gives"
        return f"waits at {issue} for a token of {token} {giver_text}"

    def _giver(self, token: str) -> Issue | None:
        """Return the first instruction that has not run and gives the token."""
        for queue in self.queues.values():
            operands = [o for o, t in queue.gives.items() if t == token]
            issue = next((i for i in self.heads[queue.name] if any(i.is_token_set(o) for o in operands)), None)
            if issue is not None:
                return issue
        return None


def tokens_of(queues: Sequence[Queue], issue: Issue) -> tuple[list[str], list[str]]:
    """Return the tokens that an instruction takes and those that it gives."""
    queue = next((q for q in queues if issue.instruction.name in q.instructions), None)
    sides = (queue.takes, queue.gives) if queue is not None else ({}, {})
    takes, gives = ([token for operand, token in side.items() if issue.is_token_set(operand)] for side in sides)
    return takes, gives


def check_connected(queues: Sequence[Queue], stream: Sequence[Issue]) -> None:
    """Check that no instruction sets a token operand that its queue does not connect.

    Raises:
        SpecError: I102, one does.
    """
    queue_of = {name: q for q in queues for name in q.instructions}
    for issue in stream:
        queue = queue_of.get(issue.instruction.name)
        invalid = [o for o in (queue.unconnected if queue else ()) if issue.is_token_set(o)]
        if queue and invalid:
            raise SpecError("I102", f"{invalid[0]} of {issue} must be 0: queue {queue.name} has no such token")


def check_all_taken(order: Schedule) -> None:
    """Check that every token of a schedule is taken.

    Raises:
        SpecError: I108, a token is left over.
    """
    if order.unused_tokens:
        token, giver = order.unused_tokens[0]
        giver_text = "an earlier run" if giver is None else str(giver)
        more_text = f" (and {len(order.unused_tokens) - 1} more)" if len(order.unused_tokens) > 1 else ""
        raise SpecError("I108", f"{giver_text} gives a token of {token} that nothing takes{more_text}")


@dataclass(frozen=True, eq=False)
class _Access:
    """An access to a memory: 1 + the number in the stream, bounds of its elements, and the elements."""

    number: int
    bounds: Bounds
    elements: Callable[[], Data]


class RaceDetector:
    """A race detector: finds two unordered instructions that access the same element, one of them writing it.

    It observes every turn of a schedule in order. Accesses whose bounds are disjoint are; of others the footprints are compared. Of a
    queue only the accesses after the last one that is certainly done can race.
    """

    def __init__(self, ila: Ila, sizes: Mapping[Leaf, int]) -> None:
        """Watch the memories in `sizes`, by number of elements."""
        self.ila, self.sizes = ila, sizes
        self.accesses: dict[tuple[Leaf, str, bool], list[_Access]] = {}  # by memory, queue, is write, in the order of the queue
        self.issues: dict[int, Issue] = {}
        self.latest: dict[str, Issue] = {}
        self.end: Turn | None = None

    def observe(self, turn: Turn, bounds: AccessBounds, footprint: Callable[[], Footprint]) -> None:
        """Record the accesses of an instruction: their bounds, and the function that gives its footprint where they overlap.

        Raises:
            SpecError: I107, it races with an earlier instruction, or may end the run before another one is done.
        """
        self._check_end(turn)
        number = turn.issue.number + 1
        self.issues[number] = self.latest[turn.queue] = turn.issue
        accesses = [
            (m, is_write, _Access(number, x, partial(self._elements, footprint, m, is_write)))
            for is_write, part in ((False, bounds.reads), (True, bounds.writes))
            for m, x in part.items()
            if m in self.sizes
        ]
        for memory, is_write, access in accesses:
            self._check(turn, memory, access, is_write)
        for memory, is_write, access in accesses:
            self.accesses.setdefault((memory, turn.queue, is_write), []).append(access)

    def _elements(self, footprint: Callable[[], Footprint], memory: Leaf, is_write: bool) -> Data:
        accesses = footprint()
        elements = np.concatenate((accesses.writes if is_write else accesses.reads).get(memory, [np.empty(0, np.int64)]))
        return elements[(elements >= 0) & (elements < self.sizes[memory])]

    def _check(self, turn: Turn, memory: Leaf, access: _Access, is_write: bool) -> None:
        for (leaf, queue, wrote), earlier in self.accesses.items():
            if leaf is not memory or queue == turn.queue or not (is_write or wrote):
                continue
            first: tuple[int, _Access] | None = None  # the first common element, and the last access to it
            for other in _unordered(earlier, turn.clock[queue], access.bounds):
                common = np.intersect1d(access.elements(), other.elements())
                if common.size and (first is None or int(common[0]) < first[0]):
                    first = int(common[0]), other
            if first is not None:
                raise self._race(turn, self.issues[first[1].number], (wrote, is_write), _element(memory, first[0]))

    def _race(self, turn: Turn, earlier: Issue, writes: tuple[bool, bool], element: str) -> SpecError:
        first, second = ("writes" if w else "reads" for w in writes)
        return SpecError(
            "I107",
            f"{earlier} and {turn.issue} may run in either order, but the first {first} and the second {second} {element}",
            help="order the two queues with a token",
        )

    def _check_end(self, turn: Turn) -> None:
        """Refuse an instruction that may still be running when another one raises the interrupt."""
        if self.end is not None and turn.queue != self.end.queue:
            raise _premature_end(self.end.issue, turn.issue)
        if self.ila.interrupt not in written_by(turn.issue.instruction):
            return
        for queue, issue in self.latest.items():
            if queue != turn.queue and issue.number + 1 > turn.clock[queue]:
                raise _premature_end(turn.issue, issue)
        self.end = turn


def _unordered(accesses: Sequence[_Access], clock: int, bounds: Bounds) -> Iterator[_Access]:
    """Yield the accesses of a queue after its last instruction that is certainly done, the last first, that overlap with bounds."""
    for a in reversed(accesses):
        if a.number <= clock:
            return
        if a.bounds[0] <= bounds[1] and bounds[0] <= a.bounds[1]:
            yield a


@lru_cache(maxsize=1024)
def written_by(instruction: Instruction) -> frozenset[Leaf]:
    """Return the state elements that an instruction may write."""
    return frozenset(u.memory for u in updates_of(instruction.update))


def _premature_end(last: Issue, unfinished: Issue) -> SpecError:
    return SpecError(
        "I107",
        f"{last} may end the run before {unfinished} is done",
        help="let the last instruction take a token that follows from the other",
    )


def _element(memory: Leaf, number: int) -> str:
    inner = math.prod(n for n in memory.shape[1:] if isinstance(n, int))
    return f"element {number // inner} of {memory.name}"
