"""What one command of an instruction computes: a transition with its lanes, its counted loops, operands and accumulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from ...ila import CONTROL, Ila
from ...ila.polynomial import Poly, polynomial
from ...ila.summary import Access, Opaque, Summary, Transition, summarise, without_modulus
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr, select, var
from ...lang.traversal import inner_terms, terms_of
from .copies import NoCopy, addressed, number, number_or_none
from .image import copiers
from .movement import writers
from .selection import reads_of

MOST_MODES = 8  # values of a switch of which one may leave the accumulator out
Start = tuple[str, int, int]  # switch, the value with which the accumulator is not read, and with which it is
SHIFTED = (0, 1, 255, 256, -1, -256, 12345, -54321)  # numbers on which shifts are told from others
ODD = (1, -5, 77)  # numbers on which products are told from others


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
    starts: tuple[Start, ...] = ()
    parts: tuple[Transition, ...] = ()  # the transitions of the update that it consists of

    @property
    def conditional(self) -> tuple[Leaf, ...]:
        """The switches that decide whether the instruction computes this at all."""
        deciding = frozenset[Leaf]().union(*(c.reads for c in self.conditions))
        return tuple(x for x in self.switches if x in deciding)

    def carries(self, memory: str) -> bool:
        """Tell whether a name is that of the operand of the command that carries data, not that of a memory."""
        operand = self.summary.instruction.operands.get(memory)
        return operand is not None and bool(operand.leaf.shape)

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

    @cached_property
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

    @property
    def is_copy(self) -> bool:
        """Whether it writes what it reads, unchanged."""
        return [r.load for r in self.transition.reads] == [self.transition.value]

    @cached_property
    def obstacle(self) -> str:
        """Why no schedule can move an access: fields or counted loops do along another axis than the first; nothing where none does."""
        symbols, fields = self.summary.symbols, {o.leaf for o in self.summary.instruction.operands.values()}
        counted = {v for v, _ in self.loops} - self.lanes.keys()
        moving = counted | {name for name, e in symbols.atoms.items() if e.reads & fields}
        for access in (self.result, *self.operands):
            for axis, p in enumerate(access.address[1:], 1):
                names = sorted({name for m in p for name in m} & moving)
                if names:
                    place = f"along axis {axis} of {access.memory} by {', '.join(names)}"
                    return f"{self.instruction} moves {place}, and schedules move along axis 0 alone: one address may count both"
        return ""

    def is_annulled_by(self, operand: Access) -> bool:
        """Tell whether accumulators stay as they are where an operand is zero, whatever the others are."""
        zeros = {r.load: 0 for r in self.transition.reads if r.access is operand}
        totals = {r.load for r in self.transition.reads if is_same(r.access, self.result)}
        others = {r.load for r in self.transition.reads} - totals - zeros.keys()
        control = {switch: on for switch, _, on in self.starts}
        try:
            return all(self._with(zeros | dict.fromkeys(others, x) | dict.fromkeys(totals, y), control) == y for x in ODD for y in SHIFTED)
        except NoCopy:
            return False

    def _with(self, loads: Mapping[Expr, int], control: Mapping[str, int]) -> int:
        """Return what is written where loads have these values; sums of other terms than zero are not evaluated."""
        sums = [e for e in terms_of(self.transition.value) if e.op == "reduce" and e.data[0] == "sum"]
        empty = {e: 0 for e in sums if number(e.args[0], loads, control) == 0}
        return number(self.transition.value, {**loads, **empty}, control)


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
    for conditions, loops, t, parts in _joined(summary):
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
        yield Computation(summary, t, conditions, every, operands, accumulates, switches, starts, parts)


Found = tuple[tuple[Expr, ...], tuple[tuple[str, Poly], ...], Transition, tuple[Transition, ...]]


def _joined(summary: Summary) -> Iterator[Found]:
    """Yield the transitions of a summary; those that write neighbouring elements of one memory together are one, with a loop over them."""
    groups: dict[Any, list[tuple[int, Found]]] = {}
    for conditions, loops, original in summary.transitions():
        t = addressed(original)
        address, *others = t.write.address
        offset = address.get((), 0)
        moving = tuple(sorted((m, c) for m, c in address.items() if m))
        others_key = tuple(tuple(sorted(p.items())) for p in others)
        key = conditions, tuple(v for v, _ in loops), tuple(str(p) for _, p in (*loops, *t.loops)), t.write.memory, moving, others_key
        groups.setdefault(key, []).append((offset, (conditions, loops, t, (original,))))
    for group in groups.values():
        members = sorted(group, key=lambda x: x[0])
        offsets = [n - members[0][0] for n, _ in members]
        is_one = len(members) > 1 and offsets == [*range(len(members))] and not members[0][1][2].loops
        yield from [_merged(summary, [x for _, x in members])] if is_one else [x for _, x in members]


def _merged(summary: Summary, members: Sequence[Found]) -> Found:
    """Return transitions to elements that follow each other as one, whose loop goes over them."""
    conditions, loops, first, _ = members[0]
    variable = var("part", (0, len(members) - 1))
    name = summary.symbols.declare(variable)
    value = members[-1][2].value
    for n, (*_, t, _) in reversed([*enumerate(members)][:-1]):
        value = select(variable == n, t.value, value)
    address = ({**first.write.address[0], (name,): 1}, *first.write.address[1:])
    reads = {r.load: r for *_, t, _ in members for r in t.reads}
    write = replace(first.write, address=address)
    joined = Transition(((name, {(): len(members)}),), write, tuple(reads.values()), value, first.update)
    return conditions, loops, joined, tuple(t for *_, parts in members for t in parts)


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


def _starts(t: Transition, switches: tuple[Leaf, ...]) -> Iterator[Start]:
    """Yield the switches of which one value leaves the accumulator out."""
    accumulators = frozenset(r.load for r in t.reads if is_same(r.access, t.write))
    for leaf in switches:
        low, high = leaf.interval
        if low != 0 or high is None or high >= MOST_MODES:
            continue
        needs = {x: _Needs(accumulators, {leaf.name: x}).of(t.value) for x in range(int(high) + 1)}
        yield from ((leaf.name, start, keep) for start in needs for keep in needs if needs[keep] and not needs[start])


class _Needs:
    """Which terms depend on loads while control has values."""

    def __init__(self, loads: frozenset[Expr], control: Mapping[str, int]) -> None:
        self.control = control
        self.known = dict.fromkeys(loads, True)

    def of(self, e: Expr) -> bool:
        """Tell whether a term does."""
        if e not in self.known:
            self.known[e] = any(self.of(x) for x in self.reached(e))
        return self.known[e]

    def reached(self, e: Expr) -> tuple[Expr, ...]:
        """Return the terms below one that matter: one branch of a choice, none of a product by zero."""
        if e.op == "mul" and 0 in map(self.number, e.args):
            return ()
        condition = self.number(e.args[0]) if e.op == "select" else None
        return inner_terms(e) if condition is None else (e.args[1 if condition else 2],)

    def number(self, e: Expr) -> int | None:
        """Return a term that control alone decides as a number."""
        return number_or_none(e, self.control)
