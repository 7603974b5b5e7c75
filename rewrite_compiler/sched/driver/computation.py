"""What one command of an instruction computes: a transition with its lanes, its counted loops, operands and accumulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...ila import CONTROL, Ila
from ...ila.polynomial import Poly, polynomial
from ...ila.summary import Access, Opaque, Summary, Transition, summarise, without_modulus
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from ..selection import reads_of
from .copies import NoCopy, number
from .image import copiers
from .movement import writers

SHIFTED = (0, 1, 255, 256, -1, -256, 12345, -54321)  # numbers on which shifts are told from others


@dataclass(frozen=True, eq=False)
class Computation:
    """A transition of an instruction that reads what it computes with; the accumulator is the read of what it writes."""

    summary: Summary
    transition: Transition
    conditions: tuple[Expr, ...]
    loops: tuple[tuple[str, Poly], ...]  # ordered ones, those of the transition, those of sums
    operands: tuple[Access, ...]
    accumulates: bool
    switches: tuple[Leaf, ...]  # control that decides what is computed, not where
    starts: tuple[tuple[str, int, int], ...] = ()  # switch, the value with which the accumulator is not read, and with which it is

    @property
    def conditional(self) -> tuple[Leaf, ...]:
        """The switches that decide whether the instruction computes this at all."""
        deciding = frozenset[Leaf]().union(*(c.reads for c in self.conditions))
        return tuple(x for x in self.switches if x in deciding)

    @property
    def has_table(self) -> bool:
        """Whether a loop reads addresses from words of a control memory."""
        return any(e.free for e in self.summary.symbols.atoms.values())

    @property
    def table(self) -> str:
        """The control memory whose words it reads addresses from."""
        e = next(e for e in self.summary.symbols.atoms.values() if e.free)
        while e.op != "load":
            e = e.args[0]
        return str(e.data.name)

    @property
    def table_base(self) -> str:
        """The field from whose address on it reads words of the table: the first that their index adds."""
        e = next(e for e in self.summary.symbols.atoms.values() if e.free)
        while e.op != "load":
            e = e.args[0]
        index, _ = without_modulus(e.args[0])
        added = [m[0] for m, c in polynomial(index, self.summary.symbols).items() if len(m) == 1 and c == 1]
        return next(n for n in added if n in self.summary.instruction.operands)

    @property
    def instruction(self) -> str:
        """The name of the instruction."""
        return self.summary.instruction.name

    @property
    def result(self) -> Access:
        """Where it writes."""
        return self.transition.write

    @property
    def lanes(self) -> dict[str, int]:
        """The loops of constant extents."""
        return {v: int(p.get((), 0)) for v, p in self.loops if set(p) <= {()}}

    @property
    def repeats(self) -> bool:
        """Whether an ordered loop of a counted length writes results more than once."""
        bound = {v for r in self.transition.reads for v, _ in r.variables} | {v for v, _ in self.transition.loops}
        return any(v not in bound and v not in self.lanes for v, _ in self.loops)

    @property
    def outer_loops(self) -> tuple[tuple[str, Poly], ...]:
        """The ordered loops around the transition, and its inner_loops counted ones, as selection takes them."""
        inner_loops = {v for v, _ in self.transition.loops}
        return tuple((v, p) for v, p in self.loops if v not in inner_loops)


@lru_cache(maxsize=16)
def computations(ila: Ila) -> tuple[Computation, ...]:
    """Return what the instructions of a model compute, those that read most first: each transition that reads data and is no copy."""
    copy_names = {m.instruction for m in writers(ila)} | {c.instruction for c in copiers(ila)}
    items = [c for name in ila.instructions if name not in copy_names for c in _of(ila, name) if c.transition.reads]
    return tuple(sorted(items, key=lambda c: -len(c.operands)))


@lru_cache(maxsize=16)
def clears(ila: Ila) -> tuple[Computation, ...]:
    """Return what writes zeros to a memory."""
    return tuple(c for name in ila.instructions for c in _of(ila, name) if not c.transition.reads)


def shifts(c: Computation, bits: int) -> Iterator[dict[str, int]]:
    """Yield values of switches with which a computation shifts what it writes right by so many bits."""
    if not c.accumulates or c.operands:
        return
    loads = {r.load for r in c.transition.reads}
    options = [[x for x in (bits, 1, 0) if iv.inside((x, x), leaf.interval)] for leaf in c.switches]
    for values in itertools.product(*options):
        control = {leaf.name: x for leaf, x in zip(c.switches, values, strict=True)}
        try:
            if all(number(c.transition.value, dict.fromkeys(loads, x), control) == x >> bits for x in SHIFTED):
                yield control
        except NoCopy:
            return


def _of(ila: Ila, name: str) -> Iterator[Computation]:
    summary = summarise(ila, name)
    if isinstance(summary, Opaque):
        return
    control = frozenset(s.leaf for s in ila.states.values() if s.binding == CONTROL and s.name not in ila.externals)
    for conditions, loops, t in summary.transitions():
        state = ila.states.get(t.write.memory)
        if state is None or state.leaf in control or t.write.memory in ila.externals or not (t.reads or t.value.value == 0):
            continue
        reads = reads_of(t)
        operands = tuple(r.access for r in reads if not is_same(r.access, t.write))
        if any(r.access.memory in ila.externals for r in reads):
            continue
        bound = {v: p for r in t.reads for v, p in r.variables}
        every = tuple({**dict(loops), **dict(t.loops), **bound}.items())
        switches, accumulates = _switches(summary, t, conditions, loops), len(operands) < len(reads)
        starts = tuple(_starts(t, switches)) if accumulates else ()
        yield Computation(summary, t, conditions, every, operands, accumulates, switches, starts)


def is_same(a: Access, b: Access) -> bool:
    """Tell whether two accesses are to one element."""
    return a.memory == b.memory and a.address == b.address


def _switches(
    summary: Summary, t: Transition, conditions: tuple[Expr, ...], loops: tuple[tuple[str, Poly], ...]
) -> tuple[Leaf, ...]:  # fmt: skip
    """Return the control leaves that a value or a condition reads and no address or length does."""
    polynomials = [p for _, p in (*loops, *t.loops)] + [p for a in (t.write, *(r.access for r in t.reads)) for p in a.address]
    polynomials += [p for r in t.reads for _, p in r.variables]
    placing = {leaf for p in polynomials for m in p for n in m for leaf in summary.symbols.term(n).reads}
    deciding = frozenset[Leaf]().union(t.value.reads, *(c.reads for c in conditions)) & summary.symbols.control
    return tuple(sorted((x for x in deciding - placing if not x.shape), key=lambda x: x.name))


def _starts(t: Transition, switches: tuple[Leaf, ...]) -> Iterator[tuple[str, int, int]]:
    """Yield the switches that leave the accumulator out: a choice between it and zero."""
    accumulators = {r.load for r in t.reads if is_same(r.access, t.write)}
    for e in terms_of(t.value):
        if e.op == "select" and e.args[0].reads <= set(switches) and len(e.args[0].reads) == 1:
            (leaf,) = e.args[0].reads
            branches = {x: e.args[1] if number(e.args[0], {}, {leaf.name: x}) else e.args[2] for x in (0, 1)}
            for start, keep in ((0, 1), (1, 0)):
                if branches[start].value == 0 and branches[keep] in accumulators:
                    yield leaf.name, start, keep
