"""Residency: which tensors stay in device memory between calls, so that the fewest bytes cross the links.

Calls run in a fixed order. A tensor may stay from one use to the next where both have it in one memory in one form; a result
that all its readers find on the device is never read back; weights may stay from one inference to the next. One 0-1 program
chooses, under the capacity of every memory at every call; then every tensor gets an address (first fit).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MAX_GAPS = 4_000  # variables of one program; beyond, uses far apart are not joined
BINARY_THRESHOLD = 0.5


class Role(StrEnum):
    """What a tensor is to a call."""

    IN = "in"
    """An operand that may be resident already."""
    OUT = "out"
    """A result that may stay for its readers."""
    CONSTANT = "constant"
    """A constant operand, which may stay from one inference to the next."""
    SCRATCH = "scratch"
    """Memory that the call alone uses."""


IN, OUT, CONSTANT, SCRATCH = Role


@dataclass(frozen=True)
class Piece:
    """A tensor of one call in a memory, `size` elements, and the bytes that cross the link unless it is resident."""

    tensor: str
    memory: str
    size: int
    role: Role
    link_bytes: int = 0
    value: int = -1  # the same for all uses of one tensor of the program
    form: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """The pieces of one device call; one that `is_opaque` may use all of every memory."""

    pieces: tuple[Piece, ...]
    is_opaque: bool = False


@dataclass(frozen=True)
class Gap:
    """Two consecutive uses of a tensor, (call, piece) each, and the bytes saved if it stays; a constant's is cyclic."""

    start: tuple[int, int]
    end: tuple[int, int]
    saved_bytes: int

    @property
    def is_cyclic(self) -> bool:
        """Tell whether the tensor stays from one inference to the next."""
        return self.start == self.end

    def is_live_across(self, call: int) -> bool:
        """Tell whether the tensor is live across another call."""
        return (self.is_cyclic and call != self.start[0]) or self.start[0] < call < self.end[0]


@dataclass(frozen=True)
class UnreadResult:
    """A result that need not be read back when all its gaps are closed."""

    result: tuple[int, int]
    gaps: tuple[int, ...]
    saved_bytes: int


@dataclass(frozen=True)
class ResidencyProblem:
    """The calls of a device in order, its capacities in elements, and the values that are read elsewhere."""

    calls: tuple[Call, ...]
    capacities: Mapping[str, int]
    read_elsewhere: frozenset[int] = frozenset()

    def piece(self, at: tuple[int, int]) -> Piece:
        """Return the piece at (call, piece)."""
        return self.calls[at[0]].pieces[at[1]]


@dataclass(frozen=True)
class Residency:
    """A solution: closed gaps, results that are not read back, first element of every piece, bytes saved and their upper bound."""

    gaps: tuple[Gap, ...] = ()
    unread: tuple[tuple[int, int], ...] = ()
    addresses: Mapping[tuple[int, int], int] = field(default_factory=dict)
    saved_bytes: int = 0
    upper_bound: int = 0


def gaps_of(q: ResidencyProblem) -> tuple[tuple[Gap, ...], tuple[UnreadResult, ...]]:
    """Return the gaps that may be closed, and the results that may go unread."""
    uses: dict[int, list[tuple[int, int]]] = {}
    gaps: list[Gap] = []
    for n, call in enumerate(q.calls):
        for k, piece in enumerate(call.pieces):
            if piece.role == CONSTANT and not any(c.is_opaque for c in q.calls):
                gaps.append(Gap((n, k), (n, k), piece.link_bytes))
            elif piece.role in (IN, OUT):
                uses.setdefault(piece.value, []).append((n, k))
    unread: list[UnreadResult] = []
    for value, places in uses.items():
        first = len(gaps)
        for start, end in itertools.pairwise(places):
            if _hands_over(q, start, end):
                gaps.append(Gap(start, end, q.piece(end).link_bytes))
        if q.piece(places[0]).role == OUT and value not in q.read_elsewhere and len(gaps) - first == len(places) - 1 > 0:
            unread.append(UnreadResult(places[0], tuple(range(first, len(gaps))), q.piece(places[0]).link_bytes))
    return tuple(gaps[:MAX_GAPS]), tuple(u for u in unread if all(g < MAX_GAPS for g in u.gaps))


def _hands_over(q: ResidencyProblem, start: tuple[int, int], end: tuple[int, int]) -> bool:
    """Tell whether a tensor can stay from one use to the next: in one memory and form, with no opaque call between."""
    a, b = q.piece(start), q.piece(end)
    between = q.calls[start[0] + 1 : end[0]]
    return b.role == IN and (a.memory, a.form, a.size) == (b.memory, b.form, b.size) and not any(c.is_opaque for c in between)


def fits(q: ResidencyProblem, closed_gaps: Sequence[Gap]) -> bool:
    """Tell whether at every call the live tensors and those of the call fit into each memory."""
    return all(_occupancy(q, closed_gaps, n, memory) <= capacity for n in range(len(q.calls)) for memory, capacity in q.capacities.items())


def _occupancy(q: ResidencyProblem, chosen: Sequence[Gap], call: int, memory: str) -> int:
    call_size = sum(p.size for p in q.calls[call].pieces if p.memory == memory)
    return call_size + sum(q.piece(g.start).size for g in chosen if g.is_live_across(call) and q.piece(g.start).memory == memory)


def bytes_saved_by(gaps: Sequence[Gap], unread: Sequence[UnreadResult], closed_gaps: frozenset[int]) -> int:
    """Return the bytes that a choice of gaps saves."""
    return sum(gaps[n].saved_bytes for n in closed_gaps) + sum(u.saved_bytes for u in unread if closed_gaps.issuperset(u.gaps))


def solve_residency(q: ResidencyProblem) -> Residency:
    """Return the residency that saves most; where fragmentation forbids it, without the gaps that save least."""
    gaps, unread = gaps_of(q)
    if not gaps:
        return Residency()
    solution = _solve(q, gaps, unread)
    bound = bytes_saved_by(gaps, unread, solution)
    while True:
        at = assign_addresses(q, [gaps[n] for n in sorted(solution)])
        if at is not None:
            closed_gaps = tuple(gaps[n] for n in sorted(solution))
            unread_results = tuple(u.result for u in unread if solution.issuperset(u.gaps))
            return Residency(closed_gaps, unread_results, at, bytes_saved_by(gaps, unread, solution), bound)
        solution -= {min(solution, key=lambda n: (gaps[n].saved_bytes, -n))}


def _solve(q: ResidencyProblem, gaps: Sequence[Gap], unread: Sequence[UnreadResult]) -> frozenset[int]:
    """Return the gaps that the integer program closes."""
    import highspy

    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("mip_rel_gap", 0.0)
    stays = [model.addBinary() for _ in gaps]
    skipped_reads = [model.addBinary() for _ in unread]
    for x, u in zip(skipped_reads, unread, strict=True):
        model.addConstrs(x <= stays[g] for g in u.gaps)
    lasting = {m: _lasting(q, gaps, m) for m in q.capacities}
    totals = {}
    for memory, members in lasting.items():  # one variable for all constants keeps the rows short
        totals[memory] = model.addVariable(0, math.inf)
        if members:
            model.addConstr(totals[memory] == sum(q.piece(gaps[g].start).size * stays[g] for g in members))
    for n, call in enumerate(q.calls):
        for memory, capacity in q.capacities.items():
            call_size = sum(p.size for p in call.pieces if p.memory == memory)
            terms = [
                q.piece(g.start).size * stays[k]
                for k, g in enumerate(gaps)
                if not g.is_cyclic and g.is_live_across(n) and _in(q, g, memory)
            ]
            constant_terms = [q.piece(gaps[k].start).size * stays[k] for k in lasting[memory] if gaps[k].start[0] == n]
            if terms or lasting[memory]:
                model.addConstr(sum(terms) + totals[memory] - sum(constant_terms) <= capacity - call_size)
    saved_bytes = sum(g.saved_bytes * x for g, x in zip(gaps, stays, strict=True)) + sum(
        u.saved_bytes * x for u, x in zip(unread, skipped_reads, strict=True)
    )
    model.maximize(saved_bytes)
    values = model.getSolution().col_value
    return frozenset(n for n, x in enumerate(stays) if values[x.index] > BINARY_THRESHOLD)


def _lasting(q: ResidencyProblem, gaps: Sequence[Gap], memory: str) -> list[int]:
    return [n for n, g in enumerate(gaps) if g.is_cyclic and _in(q, g, memory)]


def _in(q: ResidencyProblem, g: Gap, memory: str) -> bool:
    return q.piece(g.start).memory == memory


Span = tuple[int, int, int, list[tuple[int, int]]]  # first call, last call, size, the pieces that share the place


def assign_addresses(q: ResidencyProblem, closed_gaps: Sequence[Gap]) -> dict[tuple[int, int], int] | None:
    """Return the first element of every piece by first fit over its lifetime; None when a piece finds no place."""
    first_elements: dict[tuple[int, int], int] = {}
    for memory, capacity in q.capacities.items():
        placements: list[tuple[int, int, int, int]] = []  # first call, last call, from, up to
        for first, last, size, members in sorted(_spans(q, closed_gaps, memory), key=lambda s: (s[0] - s[1], s[0], -s[2])):
            occupied = sorted((low, high) for a, b, low, high in placements if a <= last and first <= b)
            at = 0
            for low, high in occupied:
                if at + size <= low:
                    break
                at = max(at, high)
            if at + size > capacity:
                return None
            placements.append((first, last, at, at + size))
            first_elements.update(dict.fromkeys(members, at))
    return first_elements


def _spans(q: ResidencyProblem, chosen: Sequence[Gap], memory: str) -> list[Span]:
    """Return what lies where for how long: uses joined by closed gaps share a place."""
    next_uses = {g.start: g.end for g in chosen if not g.is_cyclic}
    lasting = {g.start for g in chosen if g.is_cyclic}
    successor_uses = set(next_uses.values())
    spans: list[Span] = []
    for n, call in enumerate(q.calls):
        for k, piece in enumerate(call.pieces):
            if piece.memory != memory or (n, k) in successor_uses:
                continue
            members = [(n, k)]
            while members[-1] in next_uses:
                members.append(next_uses[members[-1]])
            first, last = (0, len(q.calls) - 1) if (n, k) in lasting else (n, members[-1][0])
            spans.append((first, last, piece.size, members))
    return spans
