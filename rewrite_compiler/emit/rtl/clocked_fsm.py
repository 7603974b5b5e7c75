"""Instructions over several clocks as a finite state machine: one Step for each clock, with counters for loops.

The clocks are numbered; the state register `at` holds the number of the next one, 0 between commands. External memory is behind
a port: a clock requests a word or writes one, and the next waits until the memory is ready. A parallel update is done element
by element, which is equivalent where no value reads another element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ila import External, Ila
from ...lang import intervals as iv
from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Comprehension, Leaf
from ...lang.expr import Expr, lift, select, wrap
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, assign, make_update, seq, together, updates_of, when
from ...lang.substitution import substitute
from ...lang.traversal import loads_of
from ...readings.verilog.printer import NoVerilog
from .memory_ports import Consumer, MemoryPort, Nest, Planner, is_large

AT_BITS = 10
ADDRESS_BITS = 48
LOCAL_WORDS = 1 << 16  # of an array that is computed on the way
Bindings = Mapping[Expr, Expr]
Part = tuple[Leaf, tuple[Expr, ...], Expr]  # memory, address, value


def _word(name: str, bits: int) -> Leaf:
    return Leaf((), iv.of_width(bits, False), False, name)


@dataclass(frozen=True, eq=False)
class Port:
    """The port of an external memory: registers that request and write, inputs that answer."""

    external: External
    read_request: Leaf = field(default_factory=lambda: _word("dram_read", 1))
    write_request: Leaf = field(default_factory=lambda: _word("dram_write", 1))
    address: Leaf = field(default_factory=lambda: _word("dram_address", ADDRESS_BITS))
    write_data: Leaf = field(default_factory=lambda: _word("dram_given", 8))
    ready: Leaf = field(default_factory=lambda: _word("dram_ready", 1))
    read_data: Leaf = field(default_factory=lambda: _word("dram_found", 8))

    def put_load_address(self, load: Expr) -> Step:
        """Return the step that puts the address of a loaded element on the port."""
        return self.put_address(load.args[0])

    def put_address(self, index: Expr) -> Step:
        """Return the step that puts the address of the element at this index on the port."""
        return assign(self.address, wrap(index + self.external.base[()], ADDRESS_BITS, False))


@dataclass(eq=False)
class Clocks:
    """The clocks of a device by number, their state register and their counters."""

    ila: Ila
    port: Port | None
    has_ports: bool = False  # memories have one read and one write port
    state: Leaf = field(default_factory=lambda: _word("at", AT_BITS))
    fault: Leaf = field(default_factory=lambda: _word("fault", 1))
    steps: dict[int, Step] = field(default_factory=dict)
    counters: dict[str, Leaf] = field(default_factory=dict)
    locals_: dict[str, Leaf] = field(default_factory=dict)  # memories of arrays that are computed on the way
    ports: dict[Leaf, MemoryPort] = field(default_factory=dict)  # memories with one read and one write port
    outputs: set[Leaf] = field(default_factory=set)  # written whole in one clock
    count: int = 0

    def sequence(self, name: str, step: Step, operands: Mapping[Leaf, Leaf]) -> int:
        """Add the clocks of an instruction, its scalar operands on registers of full range, and return the number of the first.

        Raises:
            NoVerilog: the instruction has no form over several clocks.
        """
        count_before = self.count
        try:
            within = {leaf[()]: _within(register, leaf) for leaf, register in operands.items()}
            return _Sequence(self).build(step, 0, {**self._attached(), **within})
        except NoVerilog:
            self.drop(count_before)
            raise

    def drop(self, last: int) -> None:
        """Remove the clocks after this one."""
        for n in range(last + 1, self.count + 1):
            self.steps.pop(n, None)
        self.count = last

    def _attached(self) -> Bindings:
        """Return the constants of external memories: the first is attached, the others are not."""
        attached = {e.is_attached: lift(0) for e in self.ila.externals.values()}
        return attached | ({self.port.external.is_attached: lift(1)} if self.port is not None else {})


class _Sequence:
    def __init__(self, clocks: Clocks) -> None:
        self.c, self.depth, self.lets, self.arrays = clocks, 0, 0, dict[Leaf, Leaf]()
        self.planner = Planner(self, clocks.ports)

    # -- clocks

    def reserve(self) -> int:
        """Return the number of a clock that is defined later."""
        self.c.count += 1
        if self.c.count >> AT_BITS:
            raise NoVerilog(f"the device takes more than {(1 << AT_BITS) - 1} clocks of different kinds")
        return self.c.count

    def add(self, step: Step, number: int = 0) -> int:
        """Define a clock and return its number."""
        n = number or self.reserve()
        self.c.steps[n] = step
        return n

    def go(self, target: Expr | int) -> Step:
        """Return the step that continues at another clock."""
        return assign(self.c.state, target)

    # -- terms

    def term(self, e: Expr, bindings: Bindings) -> Expr:
        """Return a term over registers; NoVerilog where it reads external memory."""
        result = substitute(e, bindings, self.arrays)
        if self.c.has_ports and self.planner.waits_in(result):
            raise NoVerilog("a loop as long as a memory or a fold says has no form over several clocks")
        return self.inside(result)

    def inside(self, result: Expr) -> Expr:
        """Return a term; NoVerilog where it reads external memory."""
        external = next((x for x in result.reads if x.name in self.c.ila.externals), None)
        if external is not None:
            raise NoVerilog(f"{external.name} has no Verilog form: it lies outside of the device, and decides where to read or write")
        return result

    def values(self, terms: Sequence[Expr], consumer: Consumer, number: int = 0, counters: int = 0) -> int:
        """Add the clocks that compute terms, then those of the consumer that takes them; return the first, `number` unless that is 0."""
        if not self.c.has_ports:
            return consumer(terms, number)
        plan = self.planner.plan(terms, self.depth + counters)
        self.planner.slot = 0
        return plan.build(self, consumer, number)

    # -- steps

    def build(self, step: Step, successor: int, bindings: Bindings) -> int:
        """Add the clocks of a step that continues at `successor`, and return the first."""
        form = FORMS.get(type(step))
        if form is None:
            raise NoVerilog(f"a step of kind {type(step).__name__} has no form over several clocks")
        return form(self, step, successor, bindings)

    def seq(self, step: Seq, successor: int, bindings: Bindings) -> int:
        """Add steps in sequence."""
        for part in reversed(step.steps):
            successor = self.build(part, successor, bindings)
        return successor

    def when(self, step: When, successor: int, bindings: Bindings) -> int:
        """Add a conditional."""
        condition = self.inside(substitute(step.condition, bindings, self.arrays))
        if condition.value is not None:
            return self.build(step.then if condition.value else step.otherwise, successor, bindings)
        yes, no = (self.build(x, successor, bindings) for x in (step.then, step.otherwise))
        return yes if yes == no else self.values([condition], lambda terms, number: self.add(self.go(select(terms[0], yes, no)), number))

    def require(self, step: Require, successor: int, bindings: Bindings) -> int:
        """Add a check that ends the instruction where it fails."""
        if not step.always:
            return successor
        condition = self.inside(substitute(step.condition, bindings, self.arrays))

        def check(terms: Sequence[Expr], number: int) -> int:
            return self.add(seq(self.go(select(terms[0], successor, 0)), assign(self.c.fault, 1 - terms[0])), number)

        return self.values([condition], check)

    def loop(self, step: Loop, successor: int, bindings: Bindings) -> int:
        """Add a sequential loop."""
        nest, inner = self.nest((step.variable,), (step.extent,), bindings)
        _refuse_changing_ends(nest, step.body)
        if not nest.counters:
            return self.build(step.body, successor, inner)
        count_clock = self.reserve()
        self.depth += 1
        body = self.build(step.body, count_clock, inner)
        self.depth -= 1
        if body == count_clock:
            return successor
        self.add(nest.advance(self.go, body, successor), count_clock)
        return self.add(seq(nest.start, self.go(select(nest.has_elements, body, successor))))

    def nest(
        self, variables: Sequence[Expr], extents: Sequence[Expr], bindings: Bindings, depth: int | None = None
    ) -> tuple[Nest, Bindings]:
        """Return counters for variables that have more than one value, and the bindings of all variables."""
        counters, values = list[tuple[Leaf, Expr]](), dict(bindings)
        for v, extent in zip(variables, extents, strict=True):
            end = self.term(extent, bindings)
            if end.value == 1:
                values[v] = lift(0)
                continue
            if end.interval[1] is None:
                raise NoVerilog("a loop without a known bound has no Verilog form")
            n = self.counter((self.depth if depth is None else depth) + len(counters), max(1, (end.interval[1] - 1).bit_length()))
            counters.append((n, end))
            values[v] = n[()]
        return Nest(tuple(counters)), values

    def counter(self, depth: int, bits: int) -> Leaf:
        """Return the counter of so many bits at this depth."""
        name = f"n{depth}_{bits}"
        return self.c.counters.setdefault(name, _word(name, bits))

    def let(self, step: Let, successor: int, bindings: Bindings) -> int:
        """Add the clocks that fill a memory with an array computed on the way, then those of the body that reads it."""
        if not isinstance(step.array, Comprehension):
            raise NoVerilog(f"the array {step.local.name}, which a fold computes, has no form over several clocks")
        a, memory = step.array, self.local_memory(step.local)
        self.arrays[step.local] = memory
        self.lets += 1
        body = self.build(step.body, successor, bindings)
        self.lets -= 1
        return self.build(make_update(memory, a.variables, tuple(lift(n) for n in a.shape), a.variables, a.body), body, bindings)

    def local_memory(self, local: Leaf) -> Leaf:
        """Return the memory of a local array, as large as its extents may be; nested ones have memories of their own."""
        extents = [lift(n).interval[1] for n in local.shape]
        # an index of a varying extent may reach it where its own interval does not say that it stays below
        sizes = tuple(n + (lift(extent).value is None) for n, extent in zip(extents, local.shape, strict=True) if n is not None)
        count = math.prod(sizes)
        if len(sizes) < len(extents) or local.interval[0] is None or local.interval[1] is None or count > LOCAL_WORDS:
            bound = f"may have more than {LOCAL_WORDS:,} elements" if len(sizes) == len(extents) else "has no known bound"
            raise NoVerilog(f"the array {local.name}, computed on the way, {bound}")
        bits, is_signed = iv.width_of(local.interval) or (1, False)
        name = f"l{self.lets}_{local.name}_{count}_{bits}{'s' if is_signed else ''}"
        memory = self.c.locals_.setdefault(
            name, Leaf(sizes, iv.of_width(bits, is_signed) if self.c.has_ports else local.interval, False, name)
        )
        if self.c.has_ports and is_large(memory):
            self.c.ports.setdefault(memory, MemoryPort(memory, name, False, 0))
        return memory

    # -- updates, one element a clock

    def update(self, step: Update | Together, successor: int, bindings: Bindings) -> int:
        """Add an update, element by element."""
        updates = step.updates if isinstance(step, Together) else (step,)
        first = updates[0]
        if any((u.variables, u.extents) != (first.variables, first.extents) for u in updates[1:]):
            raise NoVerilog("updates over different elements have no form over several clocks")
        nest, inner = self.nest(first.variables, first.extents, bindings)
        _refuse_changing_ends(nest, step)
        if nest.counters and not all(_is_apart(u, load) for u in updates for load in _loads(updates) if load.data is u.memory):
            return self.buffered_update(updates, successor, bindings)
        if first.memory in self.c.outputs:
            return self.add(
                seq(
                    make_update(first.memory, first.variables, first.extents, first.address, self.term(first.value, bindings)),
                    self.go(successor),
                )
            )
        is_external = any(u.memory.name in self.c.ila.externals for u in updates)
        terms = [substitute(e, inner, self.arrays) for u in updates for e in (*u.address, u.value)]
        body = self.reserve()

        def element(terms: Sequence[Expr], number: int) -> int:
            rest = iter(terms)
            parts = [(u.memory, tuple(self.inside(next(rest)) for _ in u.address), next(rest)) for u in updates]
            return self.write_word(parts, nest, body, successor, number) if is_external else self.word(parts, nest, body, successor, number)

        self.values(terms, element, body, len(nest.counters))
        return self.entry(nest, body, successor)

    def word(self, parts: Sequence[Part], nest: Nest, body: int, successor: int, number: int) -> int:
        """Add the clocks that store one element, after the words from outside that it takes."""
        loads = list(dict.fromkeys(x for *_, value in parts for x in loads_of(value) if self._is_outside(x)))
        if loads:
            return self.fetch_words(parts, loads, nest, body, successor, number)
        return self.add(seq(_element(parts), nest.advance(self.go, body, successor)), number)

    def buffered_update(self, updates: Sequence[Update], successor: int, bindings: Bindings) -> int:
        """Add an update that reads other elements of what it writes: all values first, into memories of their own."""
        written_memories = {u.memory for u in updates}
        if any(not a.reads.isdisjoint(written_memories) for u in updates for a in u.address):
            raise NoVerilog("an update whose addresses read what it writes has no form over several clocks")
        shapes = [tuple(n if n.value is None else int(n.value) for n in u.extents) for u in updates]
        buffers = [
            self.local_memory(Leaf(shape, u.memory.interval, False, f"{u.memory.name}_{n}"))
            for n, (u, shape) in enumerate(zip(updates, shapes, strict=True))
        ]
        pairs = [*zip(updates, buffers, strict=True)]
        values = together(*(make_update(b, u.variables, u.extents, u.variables, u.value) for u, b in pairs))
        writes = together(*(make_update(u.memory, u.variables, u.extents, u.address, b[u.variables]) for u, b in pairs))
        return self.build(values, self.build(writes, successor, bindings), bindings)

    def _is_outside(self, load: Expr) -> bool:
        return isinstance(load.data, Leaf) and load.data.name in self.c.ila.externals

    def entry(self, nest: Nest, body: int, successor: int) -> int:
        """Return the clock that resets the counters, where there are any."""
        return self.add(seq(nest.start, self.go(select(nest.has_elements, body, successor)))) if nest.counters else body

    def port(self, leaves: Sequence[Leaf]) -> Port:
        """Return the port if it is that of all these memories."""
        p = self.c.port
        other_memory = next((x for x in leaves if p is None or x is not p.external.leaf), None)
        if p is None or other_memory is not None:
            raise NoVerilog(f"{other_memory.name if other_memory else 'a memory'} has no Verilog form: it lies outside of the device")
        return p

    def fetch_words(self, parts: Sequence[Part], loads: Sequence[Expr], nest: Nest, body: int, successor: int, request: int) -> int:
        """Add clocks that load the words of an element one by one; the element is stored with the last one."""
        p = self.port([x.data for x in loads])
        if any(x.free or p.external.leaf in x.args[0].reads for x in loads):
            raise NoVerilog("words from outside under a loop have no form over several clocks")
        buffers = [self.c.counters.setdefault(f"b{n}", _word(f"b{n}", 8)) for n in range(len(loads) - 1)]
        words = dict(zip(loads, [*(k[()] for k in buffers), p.read_data[()]], strict=True))
        element = _element([(memory, address, substitute(value, words)) for memory, address, value in parts])
        last = self.reserve()
        following = last
        for n in range(len(loads) - 1, 0, -1):
            take_word = seq(assign(buffers[n - 1], p.read_data[()]), p.put_load_address(loads[n]), self.go(following))
            following = self.add(when(p.ready[()], take_word))
        self.add(when(p.ready[()], seq(element, assign(p.read_request, 0), nest.advance(self.go, body, successor))), last)
        return self.add(seq(assign(p.read_request, 1), p.put_load_address(loads[0]), self.go(following)), request)

    def write_word(self, parts: Sequence[Part], nest: Nest, body: int, successor: int, number: int) -> int:
        """Add the clock that writes one word through the port, and the one that waits for the last."""
        p, ((_, (address,), value), *more_parts) = self.port([memory for memory, *_ in parts]), parts
        if more_parts:
            raise NoVerilog("two words to outside at once have no Verilog form")
        final = self.add(when(p.ready[()], seq(assign(p.write_request, 0), self.go(successor))))
        word = seq(assign(p.write_request, 1), p.put_address(address), assign(p.write_data, self.inside(value)))
        return self.add(when(p.ready[()] | ~p.write_request[()], seq(word, nest.advance(self.go, body, final))), number)

    def register(self, name: str, interval: iv.Interval) -> Leaf:
        """Return the register of a name."""
        return self.c.counters.setdefault(name, Leaf((), interval, False, name))


def _within(held: Leaf, operand: Leaf) -> Expr:
    """Return what a register holds, limited to the range of its operand, for a state that no command leaves, too."""
    low, high = operand.interval
    value = held[()]
    if high is not None and value.interval[1] != high:
        value = minimum(value, high)
    return maximum(value, low) if low is not None and value.interval[0] != low else value


def _refuse_changing_ends(nest: Nest, body: Step) -> None:
    """Refuse a loop whose body changes its end, which every counting clock computes again."""
    written_memories = {u.memory for u in updates_of(body)}
    if any(not end.reads.isdisjoint(written_memories) for _, end in nest.counters):
        raise NoVerilog("a loop whose body changes where it ends has no form over several clocks")


def _loads(updates: Sequence[Update]) -> Iterator[Expr]:
    return (load for u in updates for e in (u.value, *u.address) for load in loads_of(e))


def _is_apart(u: Update, load: Expr) -> bool:
    """Tell whether a read of a written memory can only meet the write of its own element (no loop-carried dependence)."""
    shared = {a for a, b in zip(u.address, load.args, strict=True) if a is b}
    varying = {v for v, n in zip(u.variables, u.extents, strict=True) if n.value != 1}
    return varying <= shared


def _element(parts: Sequence[Part]) -> Step:
    return together(*(make_update(memory, (), (), address, value) for memory, address, value in parts))


FORMS: Mapping[type, Callable[..., int]] = {
    Seq: _Sequence.seq, When: _Sequence.when, Require: _Sequence.require, Loop: _Sequence.loop,
    Let: _Sequence.let, Update: _Sequence.update, Together: _Sequence.update,
}  # fmt: skip
