"""Generation: the program of an operation for its sizes, chosen among schedules by trying them against the numerics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ...errors import FlexmatchError, SpecError
from ...ila import Ila
from ...lang import intervals as iv
from ...lang.binders import Comprehension, Leaf, unbounded_sums
from ...lang.formats import Format
from ...lang.traversal import terms_of
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.evaluate import evaluate
from ...target.device import simulated_device
from ...target.mapping import Mapping as Operation_
from ..instructions.computation import Computation, Start, computations
from ..instructions.control import Settings
from ..instructions.copies import is_possible
from ..instructions.macros import device_model
from .emission import emitted
from .evidence import Evidence, evidence_of, skeleton
from .matching import Match, matches
from .operation import ZEROS, Operation, continuation, operation_of, with_joined_axes
from .program import BYTE, Code, Program
from .schedule import Failure, Schedule, schedules, tiled
from .stages import Forecast, Samples, staged
from .start import started
from .writer import NotEmitted

CODE = "I116"
SMALL, LARGE = 16, 36  # elements along a dimension on which schedules are tried: all up to the first, never more than the second
MOST_VALUES = 64  # of a switch that are tried
MOST_TRIALS = 128  # settings of switches that are tried for one match
MOST_CHAINS = 8  # chains among which that of fewest commands is tried first
MOST_MAINS = 4  # settings of the first computation of a chain that are tried
DRAWS, MOST_DRAWS = 3, 12  # tries of one candidate; more than the least where results are few
MOST_CORNERS = 8  # tries of codes at the ends of ranges
ENOUGH = 48  # results over all tries, so that a switch that few results show is noticed


@dataclass(frozen=True, eq=False)
class Request:
    """An operation at its sizes: the shapes of its operands by name, formats, static attributes."""

    mapping: Operation_
    shapes: Mapping[str, tuple[int, ...]]
    formats: Mapping[str, Format]
    attributes: Mapping[str, Any]
    is_deep: bool = False  # whether sums are as long as they will be, and the codes that are tried alone the ends of ranges

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The operands."""
        return [Leaf(self.shapes[v.name], self.formats[v.name].codes, False, v.name) for v in self.mapping.operands]

    @cached_property
    def term(self) -> Comprehension:
        """The numerics.

        Raises:
            SpecError: I116, they give no array by its elements.
        """
        result = self.mapping.result_codes(self.leaves, self.formats, self.attributes)
        if not isinstance(result, Comprehension):
            sentence = f"The numerics of {self.mapping.name} give several results, or none element by element"
            raise SpecError(CODE, sentence, place=self.mapping.rule.place, help="write its driver by hand")
        return result

    @cached_property
    def operation(self) -> Operation:
        """The operation as a nest of loops."""
        axes = self.mapping.axes
        return operation_of(self.term, self.leaves, axes.result, axes.of, self.code.bits)

    @cached_property
    def row_operation(self) -> Operation:
        """The operation with axes joined that all operands have in common, so that lanes go on from row to row."""
        return with_joined_axes(self.operation)

    @cached_property
    def class_of_numerics(self) -> Hashable:
        """The numerics but for sizes, with all clamps that sums of any length may reach, and the ranges of codes."""
        try:
            with unbounded_sums(1):
                numerics = self.mapping.result_codes(self.leaves, self.formats, self.attributes)
        except FlexmatchError:
            numerics = self.term  # which need sums that are bounded
        ranges = tuple([(name, self.formats[name].codes) for name in self.shapes])
        return skeleton(numerics), ranges, self.code.bits, self.code.signed, self.mapping.axes.result

    @cached_property
    def small(self) -> Request:
        """The same on operands of few elements."""
        if self.is_deep:
            return self
        sizes = {d: _small(n) for d, n in self.mapping.axes.sizes(self.shapes).items()}
        shapes = {name: tuple(sizes[d] for d in self.mapping.axes.of[name]) for name in self.shapes}
        return Request(self.mapping, shapes, self.formats, self.attributes)

    @cached_property
    def deep(self) -> Request:
        """The same with sums of all elements and few results: what saturates at these sizes does so there."""
        sizes = self.mapping.axes.sizes(self.shapes)
        smaller = {d: n if d in self.operation.reduced else min(n, _small(n)) for d, n in sizes.items()}
        shapes = {name: tuple(smaller[d] for d in self.mapping.axes.of[name]) for name in self.shapes}
        return Request(self.mapping, shapes, self.formats, self.attributes, is_deep=True)

    @cached_property
    def samples(self) -> list[tuple[dict[str, Data], Data]]:
        """Codes of the operands, small and large, and those of the result."""
        draws = list(_draws(self))
        return [(codes, evaluate(self.term, {leaf: codes[leaf.name] for leaf in self.leaves})) for codes in draws]

    @property
    def trial_codes(self) -> Samples:
        """The codes that are tried, with what their search needs."""
        return Samples(self.samples, {n: len(x) for n, x in self.shapes.items()}, self.code.bits)

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers that may stand in registers: the difference of the formats' scales, and those of the numerics, as shifts, too."""
        fractions = {n: int(getattr(f, "fraction", 0)) for n, f in self.formats.items()}
        result = self.mapping.axes.result
        scale = sum(n for name, n in fractions.items() if name != result) - fractions.get(result, 0)
        numbers = [int(e.value) for e in terms_of(self.term.body) if isinstance(e.value, int | bool)]
        shifts = [x.bit_length() - 1 for x in numbers if x > 1 and x & x - 1 == 0]
        amounts = [int(e.args[1].value) for e in terms_of(self.term.body) if e.op in ("shl", "shr") and isinstance(e.args[1].value, int)]
        return list(dict.fromkeys([scale, *amounts, *shifts, *numbers]))

    @cached_property
    def code(self) -> Code:
        """What a result's code is."""
        name, interval = self.mapping.axes.result, self.term.interval
        width = iv.width_of(interval) or (32, True)
        bits, signed = (iv.width_of(self.formats[name].codes) or (32, True)) if name in self.formats else width
        return Code(bits, signed, *width)


def _small(n: int) -> int:
    """Return a small size that fills lanes as one does: the least that the same numbers of lanes divide, as far as there is one."""

    def differences(m: int) -> int:
        return sum((n % lanes == 0) != (m % lanes == 0) for lanes in range(2, SMALL + 1))

    return n if n <= SMALL else min(range(SMALL // 2 + 1, min(n, LARGE) + 1), key=lambda m: (differences(m), m))


@dataclass(frozen=True, eq=False)
class Choice:
    """How an operation is done: the computation, which operand and which loop is which, and the values of switches."""

    computation: Computation
    operands: tuple[str, ...]
    initial: str
    lanes: Mapping[str, str | None]
    switches: Settings
    starts: Start | None
    starter: str
    tiled: tuple[str, ...]
    is_flat: bool

    @classmethod
    def of(cls, s: Schedule) -> Choice:
        """Return the choice that a schedule is an instance of."""
        m = s.match
        starter = s.starter.computation.instruction if isinstance(s.starter, Schedule) else s.starter or ""
        initial = m.initial.name if m.initial else ""
        is_flat = bool(m.operation.whole_shape)
        return cls(m.computation, _names(m), initial, m.lanes, s.switches, m.starts, starter, s.tiled, is_flat)

    def is_of(self, m: Match) -> bool:
        """Tell whether a match is the same at other sizes."""
        initial = m.initial.name if m.initial else ""
        names = _names(m), initial, m.starts
        return m.computation is self.computation and names == (self.operands, self.initial, self.starts) and m.lanes == self.lanes

    def variant_of(self, s: Schedule) -> Schedule | Failure:
        """Return the variant of a schedule whose accumulators start so, and whose results lie in memory for one step of these loops."""
        variant = next((x for x in (s, *started(s)) if Choice.of(x).starter == self.starter), None)
        if variant is None:
            return Failure(0, f"{self.starter} does not start {s.computation.instruction}")
        loops = [v for v in self.tiled if v in dict(s.outside)]
        return tiled(variant, loops) if loops else variant


def _names(m: Match) -> tuple[str, ...]:
    """Return what the operands of a match are; zeros by the loops that move them, as well."""
    loops = [",".join(v for a in s.reach.axes for v, _ in a.terms) if s.reach.name == ZEROS else "" for s in m.operands]
    return tuple(s.reach.name + names for s, names in zip(m.operands, loops, strict=True))


def chosen(ila: Ila, r: Request) -> tuple[Choice, ...]:
    """Return the way of fewest commands that gives the numerics on the codes that are tried: computations, one after the other.

    Raises:
        SpecError: I116, no way does, with the one that came furthest.
    """
    small, failures = r.small, list[Failure]()
    samples = small.trial_codes
    ways, of_any = _ways(ila, r.mapping.codes, tuple(r.attributes.items())), _ways(ila, r.mapping.codes, None)
    for chain in _known_and_single(ila, small, [*ways, *(way for way in of_any if way not in ways)], failures):
        switches = list(dict.fromkeys(x for s in chain for x in s.chosen_switches))
        forecast = Forecast(chain[0], samples) if len(chain) == 1 else None
        for values in _switch_values(switches, r, deciding=False):
            candidate = tuple(s.with_switches(values) for s in chain)
            if forecast is not None and forecast.refutes(candidate[0]):
                failures.append(_other_codes(candidate, len(small.operation.loops)))
            elif _agrees(small, candidate, failures):
                for known_ways in (ways, of_any):
                    if not any(_is_alike(chain, way) for way in known_ways):
                        known_ways.append(tuple(Choice.of(s) for s in chain))
                return tuple(Choice.of(s) for s in candidate)
    for candidate in _staged(ila, small, failures):
        if _agrees(small, candidate, failures):
            ways.append(tuple(map(Choice.of, candidate)))
            return ways[-1]
    raise _refusal(ila, r, small.operation, failures)


def _staged(ila: Ila, r: Request, failures: list[Failure]) -> Iterator[tuple[Schedule, ...]]:
    """Yield chains of two computations and more, without and then with tiles of results, those of fewest commands first."""
    mains, hopeless = _starting(ila, r, _forms(r), failures), set[Any]()
    samples = r.trial_codes

    def chains(mains: Iterable[Schedule]) -> Iterator[tuple[Schedule, ...]]:
        for main in mains:
            for values in itertools.islice(_switch_values(main.chosen_switches, r, deciding=False), MOST_MAINS):
                yield from staged(main.with_switches(values), samples, r.numbers, hopeless)

    for every in (chains(mains), chains(s for s in _tiles(mains, failures) if s.match not in hopeless)):
        while batch := list(itertools.islice(every, MOST_CHAINS)):
            yield from _by_commands(batch, r, failures)


def _known_and_single(
    ila: Ila, r: Request, known: Sequence[tuple[Choice, ...]], failures: list[Failure]
) -> Iterator[tuple[Schedule, ...]]:  # fmt: skip
    """Yield known ways as schedules, then, where none of them did, every single computation."""
    for way in known:
        s = schedule_of(ila, r, way)
        if not isinstance(s, Failure):
            yield s
    for op in _forms(r):
        yield from _every(ila, r, op, failures)


def _forms(r: Request) -> tuple[Operation, ...]:
    """Return the operation as it may be matched: with axes joined first, where there are any, as it then has the fewest matches."""
    return (r.operation,) if r.row_operation is r.operation else (r.row_operation, r.operation)


def _every(ila: Ila, r: Request, op: Operation, failures: list[Failure]) -> list[tuple[Schedule, ...]]:
    """Return single computations of one form that can be emitted, those of fewest commands first."""
    return _by_commands([(s,) for s in _starting(ila, r, [op], failures) if not s.match.left], r, failures)


@lru_cache(maxsize=256)
def _ways(ila: Ila, numerics: Hashable, attributes: Hashable) -> list[tuple[Choice, ...]]:
    """Return the list in which ways are kept that were chosen: at other sizes and in other formats they are tried before all others.

    Under static attributes those that were chosen for them; under None, which other attributes try next, those that were suggested, and
    the single computations among all that were chosen.
    """
    return []


def suggest(ila: Ila, m: Operation_, chain: Sequence[Schedule]) -> None:
    """Let an operation be done in the way of schedules where that gives its numerics, before others are tried."""
    _ways(ila, m.codes, None).append(tuple(map(Choice.of, chain)))


def _is_alike(chain: Sequence[Schedule], way: Sequence[Choice]) -> bool:
    return len(chain) == len(way) and all(c.is_of(s.match) for s, c in zip(chain, way, strict=True))


def known_schedule(ila: Ila, r: Request) -> tuple[Schedule, ...] | Failure:
    """Return the schedules of an operation at its sizes: in a way that was chosen at others where that can be, else in its own.

    The way that can be scheduled for few elements is its own: where the same way cannot be at these sizes, no other is tried.

    Raises:
        SpecError: I116, no driver follows from the model.
    """
    for way in _ways(ila, r.mapping.codes, tuple(r.attributes.items())):
        s = schedule_of(ila, r, way)
        if not isinstance(s, Failure) or not isinstance(schedule_of(ila, r.small, way), Failure):
            return s
    return schedule_of(ila, r, choice_of(ila, r))


def _refusal(ila: Ila, r: Request, op: Operation, failures: Sequence[Failure]) -> SpecError:
    furthest = max(failures, key=lambda f: f.depth, default=None)
    loops = ", ".join(f"{v}={n}" for v, n in op.loops)
    reason = furthest.reason if furthest is not None else f"no instruction computes with {len(op.operands)} operands"
    kinds = ", ".join(dict.fromkeys(f"{c.instruction} ({len(c.operands)})" for c in computations(ila)))
    remedy = f"instructions that compute, and with how many operands: {kinds or 'none'}"
    if furthest is not None:
        remedy += "; the reason is that of the way that came furthest: add an instruction, or write the driver by hand"
    sentence = f"No driver of {r.mapping.name} follows from {ila.name} at {loops}: {reason}"
    return SpecError(CODE, sentence, place=r.mapping.rule.place, help=remedy)


def _starting(ila: Ila, r: Request, forms: Sequence[Operation], failures: list[Failure]) -> list[Schedule]:
    """Return a schedule of each match that has one, for each value of what decides whether an instruction computes so."""
    every = computations(ila)
    failures += [Failure(len(r.operation.loops) + 1, c.obstacle) for c in every if c.obstacle]
    return [s for c in every if not c.obstacle for op in forms for s in _schedules_of(ila, op, c, r, None, failures)]


def _schedules_of(
    ila: Ila, op: Operation, c: Computation, r: Request, before: Schedule | None, failures: list[Failure]
) -> Iterator[Schedule]:  # fmt: skip
    values = [x for x in _switch_values(c.conditional, r, deciding=True) if is_possible(c.conditions, x)]
    for m, conditions in itertools.product(matches(op, c), values):
        for s in schedules(ila, m, conditions, before):
            if isinstance(s, Schedule):
                yield s
                yield from started(s)
                break
            failures.append(s)


def _tiles(mains: Sequence[Schedule], failures: list[Failure]) -> Iterator[Schedule]:
    """Yield computations whose results lie in memory for one step of some loops alone, so that another goes over them before the next."""
    for s in mains:
        loops = [v for v, _ in s.outside if s.result.base is not None and s.result.slot.reach.moves_with(v)]
        for count in range(1, len(loops) + 1):
            for subset in itertools.combinations(loops, count):
                candidate = tiled(s, subset)
                if isinstance(candidate, Schedule):
                    yield candidate
                else:
                    failures.append(candidate)


def _by_commands(chains: Iterable[tuple[Schedule, ...]], r: Request, failures: list[Failure]) -> list[tuple[Schedule, ...]]:
    """Return the chains that can be emitted, those of fewest commands first, and among these of fewest bytes."""
    candidates = []
    for chain in chains:
        try:
            program = emitted(chain, r.code)
            bytes_moved = sum(program.moved(r.mapping.axes.result).values())
            candidates.append(((program.commands, bytes_moved), chain))
        except NotEmitted as reason:
            failures.append(Failure(len(r.operation.loops) + 1, str(reason)))
    return [s for _, s in sorted(candidates, key=lambda x: x[0])]


def _switch_values(switches: Sequence[Leaf], r: Request, *, deciding: bool) -> Iterator[Settings]:
    """Yield values of switches, those first that fit the numerics; those that decide alone are few."""
    numbers = () if deciding else r.numbers

    def values(leaf: Leaf) -> list[int]:
        low, high = leaf.interval[0] or 0, leaf.interval[1] or 0
        every = [] if deciding else range(low, min(high, low + MOST_VALUES) + 1)
        return [x for x in dict.fromkeys([*numbers, 0, 1, low, high, *every]) if low <= x <= high]

    options = [values(leaf) for leaf in switches]
    for option in itertools.islice(_by_rank([len(o) for o in options]), MOST_TRIALS):
        yield {leaf.name: o[n] for leaf, o, n in zip(switches, options, option, strict=True)}


def _by_rank(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield one position in each of so many lists, those near the fronts of all of them first."""
    for total in range(sum(counts) - len(counts) + 1):
        yield from _positions(counts, total)


def _positions(counts: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    if not counts:
        yield from [()] if total == 0 else []
        return
    rest = sum(counts[1:]) - len(counts) + 1
    for n in range(max(total - rest, 0), min(counts[0] - 1, total) + 1):
        yield from ((n, *others) for others in _positions(counts[1:], total - n))


def _agrees(r: Request, chain: tuple[Schedule, ...], failures: list[Failure]) -> bool:
    """Tell whether a chain gives the numerics on random codes, small and large."""
    depth = len(r.operation.loops)
    try:
        program = emitted(chain, r.code)
    except NotEmitted as reason:
        failures.append(Failure(depth + 1, str(reason)))
        return False
    for codes, expected in r.samples:
        try:
            result = program.run(
                simulated_device(device_model(chain[0].ila), reading="native"), codes, {n: len(shape) for n, shape in r.shapes.items()}
            )
        except FlexmatchError as refusal:
            failures.append(Failure(depth + 2, str(refusal.problem.sentence)))
            return False
        if not np.array_equal(np.asarray(result), expected):
            failures.append(_other_codes(chain, depth))
            return False
    return True


def _other_codes(chain: Sequence[Schedule], depth: int) -> Failure:
    values = ", ".join(f"{k}={v}" for s in chain for k, v in s.switches.items())
    names = ", then ".join(s.computation.instruction for s in chain)
    return Failure(depth + 3, f"{names}{f' with {values}' if values else ''} gives other codes than the numerics")


def _draws(r: Request) -> Iterator[dict[str, Data]]:
    """Yield random codes, small and large, then the ends of all operands' ranges, where results saturate."""
    random = np.random.default_rng(DRAWS)
    if r.is_deep:
        yield from _corners(r)
        return
    results = math.prod(int(n) for n in r.term.shape if isinstance(n, int))
    ranges = {name: r.formats[name].codes for name in r.shapes}
    lows, highs = ({name: ends[n] or 0 for name, ends in ranges.items()} for n in (0, 1))
    bits = {name: max(lows[name].bit_length(), highs[name].bit_length(), 1) for name in ranges}
    for n in range(min(max(DRAWS, ENOUGH // max(results, 1)), MOST_DRAWS)):
        by = 8 ** (n % DRAWS)
        yield {name: random.integers(lows[name] // by, highs[name] // by, s, endpoint=True) for name, s in r.shapes.items()}
    for _ in range(DRAWS if max(bits.values(), default=0) > BYTE else 0):  # of all magnitudes: a wide code mostly saturates
        codes = {name: random.integers(lows[name], highs[name], s, endpoint=True) for name, s in r.shapes.items()}
        yield {name: x >> random.integers(0, bits[name], x.shape) for name, x in codes.items()}
    yield from _corners(r)


def _corners(r: Request) -> Iterator[dict[str, Data]]:
    """Yield codes that are all at an end of the range of their operand."""
    ends = itertools.product(*((low or 0, high or 0) for low, high in (r.formats[name].codes for name in r.shapes)))
    for values in itertools.islice(ends, MOST_CORNERS):
        yield {name: np.full(s, x, np.int64) for (name, s), x in zip(r.shapes.items(), values, strict=True)}


def schedule_of(ila: Ila, r: Request, choices: Sequence[Choice]) -> tuple[Schedule, ...] | Failure:
    """Return the schedules of an operation at its sizes, done in a way that is chosen already."""
    chain: tuple[Schedule, ...] = ()
    for choice in choices:
        candidates = _schedule_of(ila, r, choice, chain[-1] if chain else None, chain[0].tile if chain else None)
        if isinstance(candidates, Failure):
            return candidates
        chain = (*chain, candidates)
    return chain


def _schedule_of(ila: Ila, r: Request, choice: Choice, before: Schedule | None, tile: Mapping[str, int] | None) -> Schedule | Failure:
    furthest = Failure(-1, "no loops match")
    op = r.row_operation if choice.is_flat else r.operation
    op = op if before is None else continuation(op, before.match.left, tile)
    for m in matches(op, choice.computation):
        if not choice.is_of(m):
            continue
        for s in schedules(ila, m, choice.switches, before):
            if isinstance(s, Schedule):
                return choice.variant_of(s)
            furthest = max(furthest, s, key=lambda f: f.depth)
    return furthest


def _agrees_deep(ila: Ila, r: Request, choice: Sequence[Choice]) -> bool:
    """Tell whether a way gives the numerics of long sums at the ends of ranges; one that has no room for them cannot be told."""
    s = schedule_of(ila, r, choice)
    if isinstance(s, Failure):
        return True
    try:
        emitted(s, r.code)
    except NotEmitted:
        return True
    return _agrees(r, s, [])


@lru_cache(maxsize=256)
def _choice(ila: Ila, key: _Key) -> tuple[Choice, ...]:
    return chosen(ila, key.request)


def _covered(ila: Ila, r: Request, evidence: Evidence) -> Program | None:
    """Return the program of the first way that was tried at sizes of the same class; None where there is none.

    Raises:
        SpecError: I116, a way that can be scheduled for few elements cannot be at these sizes.
    """
    for way in evidence.ways:
        s = schedule_of(ila, r, way)
        if isinstance(s, Failure):
            if not isinstance(schedule_of(ila, r.small, way), Failure):
                raise _refusal(ila, r, r.operation, [s])
        elif evidence.covers(s, r.operation):
            with suppress(NotEmitted):
                return emitted(s, r.code)
    return None


@lru_cache(maxsize=256)
def _program(ila: Ila, key: _Key) -> Program:
    r = key.request
    evidence = evidence_of(ila, (r.mapping.codes, key.attributes, r.class_of_numerics))
    covered = _covered(ila, r, evidence)
    if covered is not None:
        return covered
    choice = _choice(ila, _Key.of(r.small))
    if len(choice) > 1 and r.deep.shapes != r.small.shapes and not _agrees_deep(ila, r.deep, choice):
        choice = _choice(ila, _Key.of(r.deep))
    s = schedule_of(ila, r, choice)
    if isinstance(s, Failure):
        raise _refusal(ila, r, r.operation, [s])
    try:
        program = emitted(s, r.code)
        evidence.add(choice, s, r.operation)
        return program
    except NotEmitted as reason:
        raise _refusal(ila, r, r.operation, [Failure(0, str(reason))]) from None


@dataclass(frozen=True)
class _Key:
    """A request by its contents."""

    mapping: Operation_
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    formats: tuple[tuple[str, Format], ...]
    attributes: tuple[tuple[str, Any], ...]
    is_deep: bool

    @classmethod
    def of(cls, r: Request) -> _Key:
        return cls(r.mapping, tuple(r.shapes.items()), tuple(r.formats.items()), tuple(r.attributes.items()), r.is_deep)

    @property
    def request(self) -> Request:
        return Request(self.mapping, dict(self.shapes), dict(self.formats), dict(self.attributes), self.is_deep)


def program_of(ila: Ila, r: Request) -> Program:
    """Return the program of an operation at its sizes, once in a process.

    Raises:
        SpecError: I116, no driver follows from the model.
    """
    return _program(ila, _Key.of(r))


def choice_of(ila: Ila, r: Request) -> tuple[Choice, ...]:
    """Return how an operation is done, once in a process.

    Raises:
        SpecError: I116, no driver follows from the model.
    """
    return _choice(ila, _Key.of(r.small))
