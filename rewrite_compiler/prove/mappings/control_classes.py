"""Control classes of a driver: which way its branches go, how often its loops turn, which fields its instructions set.

A driver runs on a device that does nothing, under a tracer of its own files. Of the calls that are drawn those are kept that
cover a new fact; branches that no call takes are listed.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ...ila import Ila
from ...ila.mmio import rows_of
from ...readings.arrays.labelled_array import Data, storage_dtype
from ...target import Mapping, Target
from .draws import Invocation, product_count, result_dimensions
from .driver_code import reachable_functions
from .mappings import attributes_at, formats_at, shapes_at

QUIET_CALLS = 60  # calls in a row that show nothing new, after which no more are drawn
MANY = 3  # turns of a loop, values of an attribute: from here on they are one class
CALLS_PER_FUNCTION = 6  # of one function in one run that are followed
Fact = Hashable
Branch = tuple[CodeType, int, int]  # the instruction before, the instruction after


@dataclass
class _IdleDevice:
    """A device that does nothing, and records which fields are set."""

    ila: Ila
    facts: set[Fact] = field(default_factory=set)

    def issue(self, instruction: str, **operands: int) -> None:
        self.facts.add((instruction, *sorted(itertools.compress(operands, operands.values()))))  # a generator's turns would be traced

    def store(self, instruction: str, **operands: Data) -> None:
        self.facts.add(instruction)

    def load(self, instruction: str, **operands: Data) -> Data:
        self.facts.add(instruction)
        definition = self.ila.instructions[instruction]
        assert definition.result is not None
        count = rows_of(operands)
        return np.zeros((count, *(int(n) for n in definition.result.shape)), np.uint8)  # type: ignore[arg-type]

    def wait(self) -> None:
        pass

    def attach(self, memory: str, words: int) -> None:
        pass

    def place(self, memory: str, address: int, words: Data) -> None:
        pass

    def fetch(self, memory: str, address: int, count: int) -> Data:
        return np.zeros(count, storage_dtype(self.ila.externals[memory].leaf.interval))


@dataclass(frozen=True)
class Call:
    """A call of an operation on one design of its accelerator; its formats are of data so many times as large as usual."""

    design: Target
    mapping: Mapping
    invocation: Invocation
    magnitude: float = 1.0

    @property
    def ila(self) -> Ila:
        """The model of the design."""
        return self.design.ila()

    @property
    def is_far(self) -> bool:
        """Tell whether its formats are of data that are far from the usual ones."""
        return self.magnitude != 1.0

    def __str__(self) -> str:
        formats = "" if not self.is_far else f" in formats of {self.magnitude:g} times the usual data"
        return f"{self.invocation} on the design {', '.join(f'{k}={v}' for k, v in self.design.chosen.items())}{formats}"


@dataclass(frozen=True)
class Classes:
    """The calls that cover every fact seen, and what they do not show.

    As `file:line` the targets of branches that were reached but never taken, and loops with how often they always turn; and the
    functions that the driver can reach and that no call entered.
    """

    calls: tuple[Call, ...]
    unreached: tuple[str, ...]
    unentered: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return what the calls do not show, empty where they show everything."""
        rows = (("never taken", self.unreached), ("never entered", self.unentered), ("loops that always turn alike", self.loops))
        return "; ".join(f"{about}: {', '.join(names)}" for about, names in rows if names)


def control_classes(calls: Iterable[Call], max_calls: int) -> Classes:
    """Return the drawn calls that cover a new fact, at most so many, in the order of their work."""
    covered, representatives, quiet_calls = set[Fact](), list[Call](), 0
    for call in calls:
        call_facts = control_facts(call)
        if call.is_far and call_facts <= covered:
            continue
        quiet_calls = quiet_calls + 1 if call_facts <= covered else 0
        if quiet_calls == QUIET_CALLS:
            break
        if not quiet_calls:
            covered |= call_facts
            representatives.append(call)
        if len(representatives) == max_calls:
            break
    in_order = tuple(sorted(representatives, key=lambda c: product_count(c.mapping, c.invocation.sizes)))
    return Classes(in_order, tuple(_unreached(covered)), tuple(_unentered(representatives, covered)), tuple(_steady_loops(covered)))


def trace(call: Call, calls_per_function: int) -> Tracer:
    """Return the trace of a call's driver on a device that does nothing, with so many calls of each function."""
    return _traced(call, calls_per_function)[0]


def _traced(call: Call, calls_per_function: int = CALLS_PER_FUNCTION) -> tuple[Tracer, _IdleDevice]:
    """Return the trace of a call's driver, and the device."""
    m, invocation = call.mapping, call.invocation
    folder = _folder(m)
    device, tracer = _IdleDevice(call.ila), Tracer(folder, calls_per_function)
    operands = {n: np.zeros(shape, np.int64) for n, shape in shapes_at(m, invocation.sizes).items()}
    formats, attributes = formats_at(m), attributes_at(m, invocation.sizes)
    _clear_caches(folder)
    previous_trace = sys.gettrace()
    sys.settrace(tracer.call)
    try:
        m.run_driver(device, operands, formats, attributes, invocation.stay)
    finally:
        sys.settrace(previous_trace)
    return tracer, device


def _clear_caches(folder: Path) -> None:
    """Clear what the functions of a folder's modules have cached: what is cached is not run, and so not seen."""
    for module in _modules_in(str(folder), _Identities(tuple(sys.modules.values()))):
        for f in list(vars(module).values()):
            getattr(f, "cache_clear", lambda: None)()


class _Identities:
    """Objects that are the same where each one is: what compares or hashes itself in another way may be among the modules."""

    def __init__(self, objects: tuple[Any, ...]) -> None:
        self.objects, self.numbers = objects, tuple(map(id, objects))  # while the objects are held no number is given again

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identities) and self.numbers == other.numbers


@lru_cache(maxsize=4)
def _modules_in(folder: str, modules: _Identities) -> tuple[Any, ...]:
    """Return the modules of a folder, which are looked for again where any module has been imported or replaced."""
    return tuple(m for m in modules.objects if (getattr(m, "__file__", None) or "").rpartition(os.sep)[0] == folder)


def control_branches(call: Call) -> frozenset[str]:
    """Return the ways that a call's branches go, and how often its loops turn, each with file and line."""
    tracer, _ = _traced(call)
    ways = {f"{_place(code, way)}: taken from line {line_of(code, origin)}" for code, origin, way in tracer.transitions}
    turns = {f"{_place(code, loop)}: {min(n, MANY)}{' or more' * (n >= MANY)} turns" for (code, loop), n in tracer.turns}
    return frozenset(ways | turns)


def _place(code: CodeType, offset: int) -> str:
    return f"{Path(code.co_filename).name}:{line_of(code, offset)}"


def control_facts(call: Call) -> frozenset[Fact]:
    """Return the control facts of a call: branches taken, loop counts and pairs of them, small sizes, fields set.

    Of one in far formats only branches count: the sizes are those of a call in usual ones.
    """
    m, invocation = call.mapping, call.invocation
    tracer, device = _traced(call)
    if call.is_far:
        return frozenset[Fact](tracer.transitions | tracer.entered)
    transitions, turns = tracer.transitions, [(loop, min(n, MANY)) for loop, n in tracer.turns]
    loops = sorted({t for t in turns if t[0][0].co_name not in ("<genexpr>", "<listcomp>")}, key=repr)
    lists, results = {name for name, kind in m.statics if kind == "ints"}, result_dimensions(m)
    clipped_sizes = [
        (name, n, min(x, MANY)) for name, a in invocation.sizes.items() for n, x in enumerate(a if isinstance(a, tuple) else (a,))
    ]
    tiles = list(_tiles(m, invocation.sizes))
    size_pairs = itertools.product((g for g in clipped_sizes if g[0] in lists), (g for g in clipped_sizes if g[0] in results))
    stay = () if invocation.stay is None else (("stay", invocation.stay.present, any(invocation.stay.at.values())),)
    return frozenset(
        itertools.chain(
            transitions,
            tracer.entered,
            turns,
            itertools.combinations(loops, 2),
            clipped_sizes,
            size_pairs,
            stay,
            device.facts,
            tiles,
            itertools.combinations(tiles, 2),
        )
    )


def _tiles(m: Mapping, sizes: MappingOf[str, Any]) -> Iterator[Fact]:
    """Yield how many tiles sizes take of units that are wider than loops are counted, and whether the last one is shorter.

    Drivers lay these out by array operations, in which no branch and no loop shows.
    """
    for d, unit in m.units.items():
        if unit > MANY and isinstance(sizes.get(d), int):
            yield d, "tiles", min(-(-sizes[d] // unit), MANY), bool(sizes[d] % unit)


def _folder(m: Mapping) -> Path:
    drive: Any = m.drive
    while isinstance(drive, partial):
        drive = drive.func
    return Path(inspect.unwrap(drive).__code__.co_filename).parent


@lru_cache(maxsize=4096)
def _parent_of(name: str) -> Path:
    return Path(name).parent


@dataclass(eq=False)
class _FollowedCode:
    """A code with what its frames have shown: ways of its branches and turns of its loops; and how many more calls are followed."""

    code: CodeType
    calls_left: int
    owners: MappingOf[int, int] = field(default_factory=dict)
    targets: MappingOf[int, JumpTargets] = field(default_factory=dict)
    ways: set[tuple[int, int]] = field(default_factory=set)
    turns: set[tuple[int, int]] = field(default_factory=set)


class Tracer:
    """A trace function that follows the frames of one folder's files, instruction by instruction."""

    def __init__(self, folder: Path, calls_per_function: int) -> None:
        self.folder = folder
        self.calls_per_function = calls_per_function
        self.entered: set[CodeType] = set()
        self.counts: dict[FrameType, Counter[int]] = {}
        self._codes: dict[CodeType, _FollowedCode] = {}
        self._by_identity: dict[int, tuple[CodeType, _FollowedCode]] = {}  # to hash a code takes long; a code that is held keeps its number

    @property
    def transitions(self) -> set[Branch]:
        """The ways that branches took."""
        return {(followed.code, *way) for followed in self._codes.values() for way in followed.ways}

    @property
    def turns(self) -> set[tuple[tuple[CodeType, int], int]]:
        """The loops that ended, each with how often it turned."""
        return {((followed.code, loop), n) for followed in self._codes.values() for loop, n in followed.turns}

    def call(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace a frame that begins or resumes."""
        _, followed = self._by_identity.get(id(frame.f_code)) or self._first_call(frame.f_code)
        if not followed.calls_left:
            return None
        followed.calls_left -= 1
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._steps(frame, followed)

    def _first_call(self, code: CodeType) -> tuple[CodeType, _FollowedCode]:
        followed = self._codes.get(code)
        if followed is None:
            is_inside = _parent_of(code.co_filename) == self.folder
            is_followed = is_inside and bool(branches(code))
            followed = _FollowedCode(code, self.calls_per_function * is_followed)
            if is_followed:
                followed.owners, followed.targets = _prefixed(code), branches(code)
            if is_inside:
                self.entered.add(code)
            self._codes[code] = followed
        entry = self._by_identity[id(code)] = code, followed
        return entry

    def _steps(self, frame: FrameType, followed: _FollowedCode) -> Callable[..., Any]:
        """Return the trace function of a frame, until it ends or waits: it records targets of branches, and trip counts of ended loops."""
        owners, targets_of, origin = followed.owners, followed.targets, -1

        def step(_frame: FrameType, event: str, _: Any) -> Any:
            nonlocal origin
            if event != "opcode":
                return step
            offset = frame.f_lasti
            offset = owners.get(offset, offset)
            if origin in targets_of and origin != offset:
                self._record(frame, followed, targets_of[origin], origin, offset)
            origin = offset
            return step

        return step

    def _record(self, frame: FrameType, followed: _FollowedCode, targets: JumpTargets, origin: int, offset: int) -> None:
        followed.ways.add((origin, offset))
        if targets.is_loop:
            counts = self.counts.setdefault(frame, Counter())
            if offset == targets.fallthrough:
                counts[origin] += 1
            else:
                followed.turns.add((origin, counts.pop(origin, 0)))


@dataclass(frozen=True)
class JumpTargets:
    """The targets of a conditional jump: the next instruction, and the one it jumps to."""

    fallthrough: int
    jump: int
    is_loop: bool


@lru_cache(maxsize=1024)
def _prefixed(code: CodeType) -> dict[int, int]:
    """Return the offset of the instruction that each prefix of a longer argument belongs to."""
    instructions = list(dis.get_instructions(code))
    owners: dict[int, int] = {}
    for i, following in zip(reversed(instructions[:-1]), reversed(instructions[1:]), strict=True):
        if i.opname == "EXTENDED_ARG":
            owners[i.offset] = owners.get(following.offset, following.offset)
    return owners


@lru_cache(maxsize=1024)
def branches(code: CodeType) -> dict[int, JumpTargets]:
    """Return the conditional jumps of a code, those that end a loop, too."""
    instructions = list(dis.get_instructions(code))
    successors = dict(zip((i.offset for i in instructions), (i.offset for i in instructions[1:]), strict=False))
    jumps = [i for i in instructions if i.opname == "FOR_ITER" or ("JUMP" in i.opname and "IF" in i.opname)]
    owners = _prefixed(code)

    def place(offset: int) -> int:
        return owners.get(offset, offset)

    return {i.offset: JumpTargets(place(successors[i.offset]), place(i.argval), i.opname == "FOR_ITER") for i in jumps}


def _unreached(all_facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the lines that begin a branch never taken, of conditions that were evaluated, in order."""
    transitions = {x for x in all_facts if isinstance(x, tuple) and isinstance(x[0], CodeType)}
    lines = set()
    for code, origin in {(code, jump) for code, jump, _ in transitions}:
        targets = branches(code)[origin]
        ways = () if targets.is_loop else (targets.fallthrough, targets.jump)
        lines |= {(Path(code.co_filename).name, line_of(code, way)) for way in ways if (code, origin, way) not in transitions}
    return (f"{name}:{line}" for name, line in sorted(lines))


def _unentered(calls: Iterable[Call], all_facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the functions that a driver can reach and that no call entered, in order."""
    entered = {x for x in all_facts if isinstance(x, CodeType)}
    for call in itertools.islice(calls, 1):
        assert call.mapping.drive is not None
        functions = reachable_functions(call.mapping.drive)
        yield from sorted({f.__qualname__ for f in functions if f.__code__ not in entered and "<" not in f.__code__.co_name})


def _steady_loops(all_facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the loops of functions that turn equally often in every call, once or twice, in order."""
    counts: dict[tuple[CodeType, int], set[int]] = {}
    for x in all_facts:
        if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], tuple) and isinstance(x[0][0], CodeType) and isinstance(x[1], int):
            counts.setdefault(x[0], set()).add(x[1])
    steady = {(_place(*loop), min(n)) for loop, n in counts.items() if len(n) == 1 and max(n) < MANY}
    return (f"{place} ({n})" for place, n in sorted(steady))


def line_of(code: CodeType, offset: int) -> int:
    """Return the line of an instruction."""
    return next((line for first, end, line in code.co_lines() if first <= offset < end and line is not None), code.co_firstlineno)
