"""Memories with one read port and one write port, and the schedule that brings what a term reads into registers.

A clock sets the address of a read port, the next clock has its data. A reduction or fold that reads such memories, or whose
length varies, becomes a loop over clocks with accumulator registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...lang import intervals as iv
from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, static_shape
from ...lang.expr import Expr, lift, select, wrap
from ...lang.step import Step, assign, seq, together
from ...lang.substitution import substitute
from ...lang.traversal import inner_terms, terms_of
from ...readings.verilog.printer import NoVerilog
from ...readings.verilog.reader import Instance, Word

REGISTER_BITS = 256  # an array of at most so many bits is made of registers
ROUNDS = 64  # the longest loop that one clock may run in combinational logic
Consumer = Callable[[Sequence[Expr], int], int]  # (terms over registers, number of the clock or 0) → number of the clock


@dataclass(frozen=True, eq=False)
class MemoryPort:
    """A memory with its ports: the register of the read address and the word that is read."""

    memory: Leaf
    name: str
    is_filled: bool
    start: int
    address: Leaf = field(init=False)
    data: Leaf = field(init=False)

    def __post_init__(self) -> None:
        """Create the leaves of the read port."""
        object.__setattr__(self, "address", Leaf((), iv.of_width(self.address_bits, False), False, f"{self.name}_ra"))
        object.__setattr__(self, "data", Leaf((), self.memory.interval, False, f"{self.name}_rd"))

    @property
    def count(self) -> int:
        """The number of words."""
        return count_of(self.memory)

    @property
    def address_bits(self) -> int:
        """The width of an address."""
        return max(1, (self.count - 1).bit_length())

    @property
    def word(self) -> tuple[int, bool]:
        """Width and sign of a word."""
        return iv.width_of(self.memory.interval) or (1, False)

    def words(self) -> dict[str, Word]:
        """Return the declared words of the ports."""
        bits, signed = self.word
        return {
            f"{self.name}_ra": Word(self.address_bits, False), f"{self.name}_rd": Word(bits, signed, 0, "wire"),
            f"{self.name}_we": Word(1, False), f"{self.name}_wa": Word(self.address_bits, False), f"{self.name}_wd": Word(bits, signed),
        }  # fmt: skip

    def instance(self, module: str) -> Instance:
        """Return the instance of the memory in a module of this name."""
        parameters = {"BITS": self.word[0], "WORDS": self.count, "ADDRESS_BITS": self.address_bits, "FILLED": int(self.is_filled),
                      "START": self.start % (1 << self.word[0])}  # fmt: skip
        ports = {"clock": "clock"} | {
            port: f"{self.name}_{word}"
            for port, word in (
                ("read_address", "ra"), ("read_data", "rd"), ("write", "we"), ("write_address", "wa"), ("write_data", "wd")
            )
        }  # fmt: skip
        return Instance(module, parameters, ports)


def count_of(memory: Leaf) -> int:
    """Return the number of words of a memory."""
    count = 1
    for n in static_shape(memory):
        count *= n
    return count


def is_large(memory: Leaf) -> bool:
    """Tell whether a memory is too large for registers."""
    return bool(memory.shape) and count_of(memory) * (iv.width_of(memory.interval) or (1, False))[0] > REGISTER_BITS


@dataclass(frozen=True)
class Nest:
    """The counters of a loop nest, outermost first, with their ends."""

    counters: tuple[tuple[Leaf, Expr], ...]

    @property
    def start(self) -> Step:
        """The step that sets all counters to 0."""
        return seq(*(assign(n, 0) for n, _ in self.counters))

    @property
    def has_elements(self) -> Expr:
        """Whether every loop runs at all."""
        condition = lift(1)
        for _, end in self.counters:
            is_nonempty = end > 0
            condition = condition if is_nonempty.value == 1 else is_nonempty if condition.value == 1 else condition & is_nonempty
        return condition

    def advance(self, go: Callable[[Expr], Step], body: int, successor: int) -> Step:
        """Return the step that counts on and continues at `body` or, from the last element, at `successor`."""
        carry, steps = lift(1), list[Step]()
        for n, end in reversed(self.counters):
            last = n[()] + 1 == end
            bits = (n.interval[1] or 1).bit_length()
            steps.append(assign(n, select(carry, select(last, 0, wrap(n[()] + 1, bits, False)), n[()])))
            carry = last if carry.value == 1 else carry & last
        return seq(go(select(carry, successor, body)), *reversed(steps))  # a counter reads the inner ones as they were


class ClockBuilder(Protocol):
    """What adds clocks."""

    def reserve(self) -> int:
        """Return the number of a clock that is defined later."""
        ...

    def add(self, step: Step, number: int = 0) -> int:
        """Define a clock and return its number."""
        ...

    def go(self, target: Expr | int) -> Step:
        """Return the step that continues at another clock."""
        ...

    def nest(
        self, variables: Sequence[Expr], extents: Sequence[Expr], bindings: Mapping[Expr, Expr], depth: int | None = None
    ) -> tuple[Nest, Mapping[Expr, Expr]]:
        """Return counters for variables, and the bindings of all variables."""
        ...

    def register(self, name: str, interval: iv.Interval) -> Leaf:
        """Return the register of a name."""
        ...


@dataclass(frozen=True)
class _Reads:
    """A clock that sets read addresses and, with buffers, one that keeps what is read."""

    reads: tuple[tuple[MemoryPort, Expr], ...]
    buffers: tuple[Leaf, ...]

    def build(self, s: ClockBuilder, successor: int, number: int) -> int:
        """Add the clocks and return the first."""
        if self.buffers:
            copies = (assign(b, p.data[()]) for b, (p, _) in zip(self.buffers, self.reads, strict=True))
            successor = s.add(seq(*copies, s.go(successor)))
        return s.add(seq(*(assign(p.address, address) for p, address in self.reads), s.go(successor)), number)


@dataclass(frozen=True)
class _Rounds:
    """A fold over clocks: its counters, the accumulators with their first values, and the plan of a round."""

    nest: Nest
    accumulators: tuple[Leaf, ...]
    initial: tuple[Expr, ...]
    plan: Plan

    def build(self, s: ClockBuilder, successor: int, number: int) -> int:
        """Add the clocks and return the first."""
        body = s.reserve()

        def add_round(terms: Sequence[Expr], number: int) -> int:
            return s.add(seq(_together(self.accumulators, terms), self.nest.advance(s.go, body, successor)), number)

        self.plan.build(s, add_round, body)
        start = (assign(a, x) for a, x in zip(self.accumulators, self.initial, strict=True))
        return s.add(seq(*start, self.nest.start, s.go(select(self.nest.has_elements, body, successor))), number)


def _together(leaves: Sequence[Leaf], terms: Sequence[Expr]) -> Step:
    return together(*(assign(a, x) for a, x in zip(leaves, terms, strict=True)))


@dataclass(frozen=True)
class Plan:
    """What runs before terms can be computed in one clock, and the terms over registers."""

    parts: tuple[_Reads | _Rounds, ...]
    terms: tuple[Expr, ...]

    def build(self, s: ClockBuilder, consumer: Consumer, number: int) -> int:
        """Add the clocks, those of the consumer last, and return the first, which is `number` unless that is 0."""
        if not self.parts:
            return consumer(self.terms, number)
        successor = consumer(self.terms, 0)
        for n, part in reversed([*enumerate(self.parts)]):
            successor = part.build(s, successor, number if n == 0 else 0)
        return successor


class Planner:
    """Plans the reads and folds of terms; registers have slots that nothing shares until `release`."""

    def __init__(self, s: ClockBuilder, ports: Mapping[Leaf, MemoryPort]) -> None:
        self.s, self.ports, self.slot = s, ports, 0

    def plan(self, terms: Sequence[Expr], depth: int) -> Plan:
        """Return the plan of terms whose counters begin at this depth."""
        parts, now = list[_Reads | _Rounds](), [self.flat(t) for t in terms]
        while pending := self.pending_terms(now):
            reads = self.ready_reads(pending)
            part, replacements = self.reads(reads) if reads else self.rounds(self.ready_fold(pending), now, depth)
            parts.append(part)
            now = [self.flat(substitute(t, replacements)) for t in now]
        if parts and isinstance(last := parts[-1], _Reads):  # the next clock has the data itself
            direct = {b[()]: p.data[()] for b, (p, _) in zip(last.buffers, last.reads, strict=True)}
            parts[-1], now = _Reads(last.reads, ()), [substitute(t, direct) for t in now]
        return Plan(tuple(parts), tuple(now))

    # -- what waits

    def flat(self, e: Expr) -> Expr:
        """Return a term without elements of comprehensions that have to wait: each is the comprehension's body."""
        while True:
            load = next((x for x in self.outer_terms(e) if x.op == "load" and isinstance(x.data, Comprehension) and self.waits_in(x)), None)
            if load is None:
                return e
            e = substitute(e, {load: substitute(load.data.body, dict(zip(load.data.variables, load.args, strict=True)))})

    def waits_in(self, e: Expr) -> bool:
        """Tell whether something below waits."""
        return any(self.is_waiting(x) for x in terms_of(e))

    def is_waiting(self, e: Expr) -> bool:
        """Tell whether a term is a read of a memory with ports, or a fold over clocks."""
        if e.op == "load" and isinstance(e.data, Leaf):
            return e.data in self.ports
        return self.is_clocked(e)

    def is_clocked(self, e: Expr) -> bool:
        """Tell whether a term is a fold or reduction that reads memories with ports, or whose length varies or is long."""
        if e.op == "load" and isinstance(e.data, FoldResult):
            return _is_long((e.data.fold.extent,)) or not self.ports.keys().isdisjoint(e.data.fold.reads)
        return e.op == "reduce" and (_is_long(e.args[1:]) or self.waits_in(e.args[0]))

    def outer_terms(self, e: Expr) -> Iterator[Expr]:
        """Yield the terms below, those inside of clocked folds left out but for their extents and first values."""
        work, visited = [e], set[int]()
        while work:
            x = work.pop()
            if id(x) not in visited:
                visited.add(id(x))
                yield x
                work.extend(self.operands(x) if self.is_clocked(x) else inner_terms(x))

    def operands(self, e: Expr) -> tuple[Expr, ...]:
        """Return the terms that a clocked fold needs before its first round."""
        if e.op == "reduce":
            return e.args[1:]
        f: Fold = e.data.fold
        return (f.extent, *(_element(a) for a in f.initial))

    def pending_terms(self, terms: Sequence[Expr]) -> list[Expr]:
        """Return the terms that wait for nothing else."""
        candidates = dict.fromkeys(x for t in terms for x in self.outer_terms(t) if self.is_waiting(x))
        return [x for x in candidates if not any(self.waits_in(a) for a in (self.operands(x) if self.is_clocked(x) else x.args))]

    def ready_reads(self, pending: Sequence[Expr]) -> list[Expr]:
        """Return one read of each memory."""
        return [*{x.data: x for x in reversed(pending) if not self.is_clocked(x)}.values()][::-1]

    def ready_fold(self, pending: Sequence[Expr]) -> Expr:
        """Return the first fold that waits for nothing else."""
        return pending[0]

    # -- parts

    def register(self, interval: iv.Interval) -> Leaf:
        """Return a register of its own that holds an interval.

        Raises:
            NoVerilog: the interval is unbounded.
        """
        width = iv.width_of(interval)
        if width is None:
            raise NoVerilog("an accumulator without a known range has no form over several clocks")
        bits, signed = width
        self.slot += 1
        name = f"r{self.slot}_{bits}{'s' if signed else ''}"
        return self.s.register(name, iv.of_width(bits, signed))

    def reads(self, reads: Sequence[Expr]) -> tuple[_Reads | _Rounds, dict[Expr, Expr]]:
        """Return the part that reads one word of each memory, and the registers that stand for them."""
        pairs = [(self.ports[x.data], self.flat_address(self.ports[x.data], x.args)) for x in reads]
        buffers = tuple(self.register(x.data.interval) for x in reads)
        return _Reads(tuple(pairs), buffers), {x: b[()] for x, b in zip(reads, buffers, strict=True)}

    def flat_address(self, port: MemoryPort, indices: Sequence[Expr]) -> Expr:
        """Return a row-major address.

        Raises:
            NoVerilog: the address may lie outside of the memory.
        """
        total = lift(0)
        for i, n in zip(indices, static_shape(port.memory), strict=True):
            total = total * n + i
        if not iv.inside(total.interval, (0, port.count - 1)):
            raise NoVerilog(f"an index of {port.name} in {total.interval} may lie outside of its {port.count} words")
        return total

    def rounds(self, e: Expr, terms: Sequence[Expr], depth: int) -> tuple[_Reads | _Rounds, dict[Expr, Expr]]:
        """Return the part of a fold or reduction, and the accumulators that stand for its results."""
        return self.reduction(e, depth) if e.op == "reduce" else self.fold(e.data.fold, terms, depth)

    def reduction(self, e: Expr, depth: int) -> tuple[_Reads | _Rounds, dict[Expr, Expr]]:
        """Return the part of a sum, minimum or maximum.

        Raises:
            NoVerilog: it is of reals, or of values without a known range.
        """
        monoid, variables = e.data
        body, *extents = e.args
        low, high = body.interval
        first = 0 if monoid == "sum" else low if monoid == "max" else high
        if e.real or first is None:
            raise NoVerilog("a reduction of reals or of values without a known range has no form over several clocks")
        nest, values = self.s.nest(variables, extents, {}, depth)
        total = self.register(iv.hull(e.interval, (first, first)))
        bits, signed = iv.width_of(total.interval) or (1, False)
        element = substitute(body, values)
        combined = {"sum": total[()] + element, "max": maximum(total[()], element), "min": minimum(total[()], element)}[monoid]
        plan = self.plan([wrap(combined, bits, signed)], depth + len(nest.counters))
        return _Rounds(nest, (total,), (lift(first),), plan), {e: total[()]}

    def fold(self, f: Fold, terms: Sequence[Expr], depth: int) -> tuple[_Reads | _Rounds, dict[Expr, Expr]]:
        """Return the part of a fold whose accumulators are scalars.

        Raises:
            NoVerilog: it has other accumulators.
        """
        results = [x for t in terms for x in self.outer_terms(t) if x.op == "load" and isinstance(x.data, FoldResult) and x.data.fold is f]
        if any(a.shape or a.real for a in f.accumulators) or any(x.data.history for x in results):
            raise NoVerilog("a fold of arrays or of reals has no form over several clocks")
        nest, values = self.s.nest((f.variable,), (f.extent,), {}, depth)
        registers = tuple(self.register(a.interval) for a in f.accumulators)
        leaves: Mapping[Accumulator, Array] = dict(zip(f.accumulators, registers, strict=True))
        bodies = [substitute(_element(b), values, leaves) for b in f.bodies]
        plan = self.plan(bodies, depth + len(nest.counters))
        initial = tuple(_element(a) for a in f.initial)
        return _Rounds(nest, registers, initial, plan), {x: registers[x.data.component][()] for x in results}


def _element(a: Array) -> Expr:
    return a.body if isinstance(a, Comprehension) else a[()]


def _is_long(extents: Sequence[Expr]) -> bool:
    rounds = 1
    for n in extents:
        if n.value is None:
            return True
        rounds *= int(n.value)
    return rounds > ROUNDS
