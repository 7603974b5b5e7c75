"""Timing: when every command of a stream runs, on units, links and queues that work at once.

Commands are given in program order. A queue runs its commands in order, a resource one command at a time, whichever queue is
ready first. A command waits for what it reads to be written, for what it overwrites to be read, and for the tokens that it takes.
A memory of several rooms keeps as many versions of a region: a command that fills it again waits for the readers of the version
that many fills ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from ..errors import SpecError
from ..ila import Ila

ONE_ROOM: Mapping[str, int] = MappingProxyType({})


class Wait(StrEnum):
    """What a command waits for beyond the one before it in its queue."""

    RESOURCE = "the resource is busy"
    """Another queue's command holds the unit or link."""
    DATA = "the data is not there"
    """Something it reads is still being written."""
    ROOM = "there is no room"
    """Something it overwrites is still being read or written."""
    TOKEN = "the token is not there"  # noqa: S105
    """Another queue has not pushed what it pops."""


@dataclass(frozen=True)
class Region:
    """Addresses start … stop − 1 of a memory."""

    memory: str
    start: int
    stop: int

    def overlaps(self, other: Region) -> bool:
        """Tell whether two regions of one memory have an address in common."""
        return self.start < other.stop and other.start < self.stop

    def covers(self, other: Region) -> bool:
        """Tell whether every address of another region of the memory lies in this one."""
        return self.start <= other.start and other.stop <= self.stop


@dataclass(frozen=True)
class Command:
    """A command: the unit or link that it holds for so many cycles, what it reads and writes, the tokens that it takes and gives."""

    name: str
    resource: str
    cycles: int
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    queue: str = ""  # the resource's own where none is named
    pops: tuple[str, ...] = ()
    pushes: tuple[str, ...] = ()

    @property
    def lane(self) -> str:
        """The queue that it runs in."""
        return self.queue or self.resource


@dataclass(frozen=True)
class Stall:
    """A wait of a command: why, what for (a resource, memory or token), and how many cycles after its queue was ready."""

    wait: Wait
    subject: str
    cycles: int


@dataclass(frozen=True)
class Span:
    """When a command runs, and the wait before it."""

    command: Command
    start: int
    end: int
    stall: Stall | None = None


@dataclass(frozen=True)
class Timeline:
    """The spans of a stream, in program order."""

    spans: tuple[Span, ...]

    @property
    def cycles(self) -> int:
        """Cycles until the last command has ended."""
        return max((s.end for s in self.spans), default=0)

    @property
    def serial_cycles(self) -> int:
        """Cycles of all commands one after the other: without any overlap."""
        return sum(s.end - s.start for s in self.spans)

    def busy(self) -> dict[str, int]:
        """Return the cycles that each resource works, in the order of first use."""
        totals: dict[str, int] = {}
        for s in self.spans:
            totals[s.command.resource] = totals.get(s.command.resource, 0) + s.end - s.start
        return totals

    def stalls(self) -> dict[tuple[str, Wait, str], int]:
        """Return the cycles that each resource's commands wait, by why and for what."""
        totals: dict[tuple[str, Wait, str], int] = {}
        for s in self.spans:
            if s.stall is not None:
                key = s.command.resource, s.stall.wait, s.stall.subject
                totals[key] = totals.get(key, 0) + s.stall.cycles
        return totals


@dataclass(frozen=True)
class _Dependence:
    """A command that must have ended, why, and what it is about."""

    command: int
    wait: Wait
    subject: str


@dataclass
class _Access:
    """One access to a region: its version, by which command, whether it wrote."""

    region: Region
    version: int
    command: int
    is_write: bool


@dataclass
class _Memory:
    """The accesses to one memory that later ones may wait for."""

    rooms: int
    accesses: list[_Access] = field(default_factory=list)

    def version_at(self, region: Region) -> tuple[int, bool]:
        """Return the newest version of a region, and whether something has read it."""
        overlapping = [a for a in self.accesses if a.region.overlaps(region)]
        newest = max((a.version for a in overlapping), default=0)
        return newest, any(not a.is_write for a in overlapping if a.version == newest)

    def next_version(self, region: Region) -> int:
        """Return the version that a write makes: a new one where the last has been read."""
        newest, is_read = self.version_at(region)
        return newest + is_read

    def before_read(self, region: Region) -> Iterator[int]:
        """Yield the commands that write the newest version of a region."""
        newest, _ = self.version_at(region)
        yield from (a.command for a in self.accesses if a.is_write and a.version == newest and a.region.overlaps(region))

    def before_write(self, region: Region) -> Iterator[int]:
        """Yield the commands that hold the room a write needs: those of versions `rooms` before, and other writes of its own."""
        version = self.next_version(region)
        overlapping = (a for a in self.accesses if a.region.overlaps(region))
        yield from (a.command for a in overlapping if a.version <= version - self.rooms or (a.version == version and a.is_write))

    def enter(self, access: _Access) -> None:
        """Remember an access, and forget those that no later one waits for but through this one."""
        if access.is_write:
            oldest = access.version - self.rooms
            self.accesses = [a for a in self.accesses if a.version > oldest or not access.region.covers(a.region)]
        self.accesses.append(access)


class _Dependences:
    """What each command of a stream waits for, in program order."""

    def __init__(self, rooms: Mapping[str, int]) -> None:
        self.rooms = rooms
        self.memories: dict[str, _Memory] = {}
        self.tokens: dict[str, deque[int]] = {}

    def memory(self, name: str) -> _Memory:
        if name not in self.memories:
            self.memories[name] = _Memory(self.rooms.get(name, 1))
        return self.memories[name]

    def of(self, number: int, c: Command) -> list[_Dependence]:
        """Return the dependences of the next command."""
        dependences = [*self._of_memories(c), *self._of_tokens(c)]
        reads = [_Access(r, self.memory(r.memory).version_at(r)[0], number, is_write=False) for r in c.reads]
        writes = [_Access(r, self.memory(r.memory).next_version(r), number, is_write=True) for r in c.writes]
        for access in (*reads, *writes):
            self.memory(access.region.memory).enter(access)
        for token in c.pushes:
            self.tokens.setdefault(token, deque()).append(number)
        return dependences

    def _of_memories(self, c: Command) -> Iterator[_Dependence]:
        for r in c.reads:
            yield from (_Dependence(k, Wait.DATA, r.memory) for k in self.memory(r.memory).before_read(r))
        for r in c.writes:
            yield from (_Dependence(k, Wait.ROOM, r.memory) for k in self.memory(r.memory).before_write(r))

    def _of_tokens(self, c: Command) -> Iterator[_Dependence]:
        for token in c.pops:
            if not self.tokens.get(token):
                sentence = f"{c.name} of queue {c.lane} takes a token of {token} that no command before it gives"
                raise SpecError("I102", sentence, help="order the stream so that every token is given before it is taken")
            yield _Dependence(self.tokens[token].popleft(), Wait.TOKEN, token)


def timeline(commands: Sequence[Command], rooms: Mapping[str, int] = ONE_ROOM) -> Timeline:
    """Return when every command runs; `rooms` are the rooms of memories that have more than one.

    Of the commands at the heads of their queues the one that can start first does; of several the first in program order.

    Raises:
        SpecError: I102, a command takes a token that none before it gives.
    """
    dependences = _Dependences(rooms)
    waits = [dependences.of(n, c) for n, c in enumerate(commands)]
    queues: dict[str, deque[int]] = {}
    for n, c in enumerate(commands):
        queues.setdefault(c.lane, deque()).append(n)
    spans: dict[int, Span] = {}
    free: dict[str, int] = {}
    ready = dict.fromkeys(queues, 0)
    while queues:
        heads = [q[0] for q in queues.values()]
        starts = {n: _start(commands[n], waits[n], spans, free) for n in heads if all(d.command in spans for d in waits[n])}
        n = min(starts, key=lambda n: (max(starts[n][0], ready[commands[n].lane]), n))
        c, (start, wait, subject) = commands[n], starts[n]
        begin = max(start, ready[c.lane])
        stall = Stall(wait, subject, start - ready[c.lane]) if start > ready[c.lane] else None
        spans[n] = Span(c, begin, begin + c.cycles, stall)
        ready[c.lane] = free[c.resource] = spans[n].end
        queues[c.lane].popleft()
        if not queues[c.lane]:
            del queues[c.lane]
    return Timeline(tuple(spans[n] for n in range(len(commands))))


def _start(c: Command, waits: Sequence[_Dependence], spans: Mapping[int, Span], free: Mapping[str, int]) -> tuple[int, Wait, str]:
    """Return when all that a command waits for is there, and the last of it; its resource only where nothing else is as late."""
    conditions = [(spans[d.command].end, d.wait, d.subject) for d in waits] + [(free.get(c.resource, 0), Wait.RESOURCE, c.resource)]
    return max(conditions, key=lambda condition: condition[0])


def queued_commands(
    ila: Ila, issued: Iterable[tuple[str, Mapping[str, int]]], cycles: Callable[[str, Mapping[str, int]], int]
) -> list[Command]:
    """Return the commands of instructions as a model's queues order them: each queue is a unit, its token operands are dependences.

    Raises:
        SpecError: I102, an instruction belongs to no queue of the model.
    """
    queue_of = {name: q for q in ila.queues for name in q.instructions}
    commands = []
    for name, operands in issued:
        if name not in queue_of:
            raise SpecError(
                "I102", f"{name} belongs to no queue of {ila.name}: there are {', '.join(q.name for q in ila.queues) or 'none'}"
            )
        q = queue_of[name]
        pops, pushes = (tuple(token for operand, token in tokens.items() if operands.get(operand)) for tokens in (q.takes, q.gives))
        commands.append(Command(name, q.name, cycles(name, operands), pops=pops, pushes=pushes))
    return commands
