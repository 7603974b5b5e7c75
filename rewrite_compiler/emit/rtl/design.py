"""The design of a Verilog module: its words, and a Step for each of its blocks; both the printer and the proof start from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ila import Ila, Instruction, Operand
from ...lang import intervals as iv
from ...lang.arithmetic import minimum
from ...lang.binders import Array, Leaf, array, static_shape
from ...lang.expr import select
from ...lang.step import Step, assign, let, reads_of, seq, update, updates_of, when
from ...lowering.loop_ir import For, If, Statement
from ...lowering.lower import lower_step
from ...readings.verilog.printer import NoVerilog, Place, Wires, print_verilog, word_bits
from ..c.device_model import _lanes, _operand
from .clocked_fsm import Clocks, Port
from .command_fifos import Tokens
from .memory_ports import MemoryPort, count_of, is_large
from .rom import Roms

RESULT_LANE = 8
DEPTH = 3  # of a block in the text
SHOWN = 1 << 16  # words of the largest memory that starts at a value and that the test bench prints


CLEARED = {"outside", "result", "fault", "waiting"}  # by a command before its block, so that wires do not have their values


@dataclass(frozen=True)
class Part:
    """One block of the text: its instruction, its Step, the registers of its operands, its result lanes, and its lines."""

    name: str
    step: Step
    operand_registers: Mapping[Leaf, Place]
    out: Leaf | None
    lines: tuple[str, ...]
    has_varying_loops: bool  # it has a loop whose end the state decides


@dataclass(frozen=True)
class Word:
    """A word of the module beside the model's inputs and states; `reset`: its initial value is 0."""

    bits: int
    signed: bool = False
    port: str = ""
    reset: bool = False
    count: int = 0  # words of a memory; 0: a register


@dataclass(eq=False)
class Design:
    """The blocks of a module by number of the instruction or clock, its further words, and the omitted instructions with reasons."""

    ila: Ila
    places: dict[Leaf, Place] = field(default_factory=dict)
    words: dict[str, Word] = field(default_factory=dict)
    arms: dict[int, Part] = field(default_factory=dict)
    clocks: dict[int, Part] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)
    roms: Roms = field(default_factory=Roms)
    ports: dict[str, MemoryPort] = field(default_factory=dict)  # memories with one read and one write port
    wires: Wires = field(default_factory=Wires)
    several_ports: str = ""  # why the memories have as many ports as the text reads and writes in one clock

    @property
    def cleared_words(self) -> tuple[str, ...]:
        """The words that every command first sets to 0, beside `result` and `outside`."""
        return tuple(n for n in ("fault", "waiting") if n in self.words)


def design(ila: Ila) -> Design:
    """Return the design of a model's module: with one read and one write port a memory, where every instruction has such a form."""
    several_ports = _design(ila, has_ports=False)
    if not any(is_large(ila.states[n].leaf) for n in device_states(ila)):
        return several_ports
    one_port = _design(ila, has_ports=True)
    reasons = [f"{name}: {reason}" for name, reason in one_port.omitted.items() if name not in several_ports.omitted]
    if one_port.roms.places:
        reasons.append("one that reads a table: a table is a memory that is read at several places in one clock")
    if not reasons:
        return one_port
    several_ports.several_ports = reasons[0]
    return several_ports


def _design(ila: Ila, *, has_ports: bool) -> Design:
    result = Design(ila, wires=Wires(is_used=has_ports))
    result.places.update({leaf: Place(f"i_{n}", "lanes" if leaf.shape else "register", _bits(leaf)) for n, leaf in ila.inputs.items()})
    for n in device_states(ila):
        s = ila.states[n]
        result.places[s.leaf] = Place(f"m_{n}", "memory" if s.leaf.shape else "register", s.bits)
    clocks = Clocks(ila, _port(ila), has_ports=has_ports)
    builder = _Builder(result, Tokens(ila), clocks)
    for n in device_states(ila) if has_ports else ():
        s = ila.states[n]
        if is_large(s.leaf):
            clocks.ports[s.leaf] = MemoryPort(s.leaf, f"m_{n}", count_of(s.leaf) <= SHOWN, s.reset)
            builder.declare_port(clocks.ports[s.leaf])
    for number, i in enumerate(ila.instructions.values()):
        builder.instruction(number + 1, i)
    return result


def _port(ila: Ila) -> Port | None:
    return next((Port(e) for e in ila.externals.values()), None)


@dataclass(frozen=True)
class _Builder:
    design: Design
    tokens: Tokens
    clocks: Clocks

    def instruction(self, number: int, i: Instruction) -> None:
        """Add the block of an instruction: all of it, the first of its clocks, or, without a Verilog form, its effect on tokens."""
        part, reason = self.try_single_clock(i)
        if part is not None and not part.has_varying_loops:
            self.design.arms[number] = part
            return
        try:
            self.design.arms[number] = self.several_clocks(i, is_even=part is not None)
        except NoVerilog as refusal:
            if i.sequential is not None:
                self.instruction(number, replace(i, update=i.sequential, sequential=None))
                return
            self.without_clocks(number, i, part, reason, refusal.problem.sentence)

    def try_single_clock(self, i: Instruction) -> tuple[Part | None, str]:
        """Return the block of an instruction in one clock, or why there is none."""
        try:
            return self.single_clock(i), ""
        except NoVerilog as refusal:
            return None, refusal.problem.sentence

    def without_clocks(self, number: int, i: Instruction, part: Part | None, reason: str, clocks_reason: str) -> None:
        """Add what there is of an instruction without a form over several clocks."""
        if part is not None:
            self.design.arms[number] = part
            return
        self.design.omitted[i.name] = reason if clocks_reason == reason else f"{reason}; over several clocks: {clocks_reason}"
        if self.tokens.counts:
            self.design.arms[number] = self.tokens_only(i)

    def single_clock(self, i: Instruction) -> Part:
        """Return the block of an instruction in one clock."""
        step, out = instruction_step(i, lambda body: self.tokens.guard(i, body))
        touched = reads_of(step) | {u.memory for u in updates_of(step)}
        shared = next((p.name for leaf, p in self.clocks.ports.items() if leaf in touched), None)
        if shared is not None:
            raise NoVerilog(f"{shared} has one read and one write port")
        return self.print_part(f"do_{i.name}", i, step, {}, out)

    def several_clocks(self, i: Instruction, *, is_even: bool) -> Part:
        """Return the block that starts an instruction of several clocks, and add those; `is_even`: no loop may have a varying length."""
        out = None
        if i.result is not None and not self.clocks.has_ports:
            raise NoVerilog("a command that returns something takes one clock")
        count_before, step = self.clocks.count, i.update
        if i.result is not None:
            out = Leaf((result_bits(self.design.ila) // RESULT_LANE,), (0, 255), False, "result")
            step = seq(step, _returned(i.result, out))
            self.clocks.outputs.add(out)
        registers = {o.leaf: self.held(o.leaf) for o in i.operands.values()}
        first = self.clocks.sequence(i.name, step, {leaf: other for leaf, other in registers.items() if other is not leaf})
        steps = {n: self.clocks.steps[n] for n in range(count_before + 1, self.clocks.count + 1)}
        accessed = frozenset[Leaf]().union(*(reads_of(s) | {u.memory for u in updates_of(s)} for s in steps.values()))
        try:
            operand_registers = {registers[o.leaf]: _operand_register(n, o) for n, o in i.operands.items() if registers[o.leaf] in accessed}
            words = self.control(accessed)
            parts = {n: self.print_part(f"clock_{n}", i, s, operand_registers, out if _writes(s, out) else None) for n, s in steps.items()}
            if (is_even or self.clocks.has_ports) and any(p.has_varying_loops for p in parts.values()):
                raise NoVerilog("a clock has a loop of varying length")
        except NoVerilog:
            self.clocks.drop(count_before)
            raise
        self.design.clocks.update(parts)
        self.design.words.update(words | {
            p.name: Word(p.bits, (leaf.interval[0] or 0) < 0, count=size(static_shape(leaf)) if leaf.shape else 0)
            for leaf, p in operand_registers.items()
        })  # fmt: skip
        begin = seq(*(_operand(leaf, i.operands[leaf.name].term) for leaf in operand_registers), assign(self.clocks.state, first))
        return self.print_part(f"do_{i.name}", i, self.with_tokens(i, begin, frozenset(operand_registers)), operand_registers, None)

    def held(self, leaf: Leaf) -> Leaf:
        """Return the leaf of an operand in clocks after the first: its register may hold every value of its width."""
        bits, signed = iv.width_of(leaf.interval) or (1, False)
        if not self.clocks.has_ports or leaf.shape or leaf.interval == iv.of_width(bits, signed):
            return leaf
        return Leaf((), iv.of_width(bits, signed), False, leaf.name)

    def tokens_only(self, i: Instruction) -> Part:
        """Return the block of an instruction that only updates its tokens."""
        outside_flag = Leaf((), iv.TRUTH, False, "outside")
        self.design.places[outside_flag] = Place("outside", "register", 1)
        return self.print_part(f"do_{i.name}", i, self.with_tokens(i, assign(outside_flag, 1), frozenset()), {}, None)

    def with_tokens(self, i: Instruction, step: Step, bound: frozenset[Leaf]) -> Step:
        """Return a step guarded by its tokens, with the operands that the guard reads."""
        guarded = self.tokens.guard(i, step)
        reads = reads_of(guarded) - bound
        return seq(*(_operand(o.leaf, o.term) for o in i.operands.values() if o.leaf in reads), guarded)

    # -- words

    def control(self, accessed: frozenset[Leaf]) -> dict[str, Word]:
        """Return the words of the clocks' registers, and of the port where it is used."""
        c, p = self.clocks, self.clocks.port
        words = self.declared(c.state, "at", "output", reset=True) | self.declared(c.fault, "fault", "output", reset=True)
        for n, leaf in c.counters.items():
            if leaf in accessed:
                words |= self.declared(leaf, n)
        for n, leaf in c.locals_.items():
            if leaf in accessed or (leaf in c.ports and c.ports[leaf].data in accessed):
                words |= self.declared(leaf, n) if leaf not in c.ports else {}
                if leaf in c.ports:
                    self.declare_port(c.ports[leaf])
        if p is None or not accessed & {p.external.base, p.external.size}:
            return words
        for leaf in (p.external.base, p.external.size, p.ready, p.read_data):
            words |= self.declared(leaf, f"i_{leaf.name}", "input")
        for leaf in (p.read_request, p.write_request, p.address, p.write_data):
            words |= self.declared(leaf, leaf.name, "output", reset=True)
        return words

    def declare_port(self, port: MemoryPort) -> None:
        """Declare the words of a memory's ports."""
        self.design.ports[port.name] = port
        self.design.places |= {
            port.memory: Place(port.name, "port", port.word[0]),
            port.address: Place(f"{port.name}_ra", "register", port.address_bits),
            port.data: Place(f"{port.name}_rd", "register", port.word[0]),
        }

    def declared(self, leaf: Leaf, name: str, port: str = "", *, reset: bool = False) -> dict[str, Word]:
        """Declare a word for a leaf, and return it."""
        bits, is_signed = iv.width_of(leaf.interval) or (1, False)
        self.design.places[leaf] = Place(name, "memory" if leaf.shape else "register", bits)
        return {name: Word(bits, is_signed, port, reset, size(static_shape(leaf)) if leaf.shape else 0)}

    def print_part(self, label: str, i: Instruction, step: Step, operand_registers: Mapping[Leaf, Place], out: Leaf | None) -> Part:
        """Return a block; operands without a register are words local to it."""
        operands = {o.leaf: Place(f"o_{n}", "memory" if o.leaf.shape else "register", word_bits(o.leaf.interval))
                    for n, o in i.operands.items() if o.leaf not in operand_registers}  # fmt: skip
        if self.tokens.counts and i.name in {n for q in self.design.ila.queues for n in q.instructions}:
            for token, leaf in self.tokens.counts.items():
                self.design.words.update(self.declared(leaf, f"t_{token}", reset=True))
            self.design.words.update(self.declared(self.tokens.is_waiting, "waiting", "output", reset=True))
        places = {
            **self.design.places,
            **operands,
            **operand_registers,
            **({out: Place("result", "lanes", RESULT_LANE)} if out is not None else {}),
        }
        routine = lower_step(step)
        local = {p.name for p in operands.values()} | CLEARED
        lines = print_verilog(routine, label, places, self.design.wires, DEPTH, self.design.roms.place_of, local)
        used_memories, indent = set(routine.memories.values()), "    " * (DEPTH + 1)
        declared = [f"{indent}reg signed [{p.bits - 1}:0] {p.name}{extent(leaf)};" for leaf, p in operands.items() if leaf in used_memories]
        return Part(i.name, step, operand_registers, out, (lines[0], *declared, *lines[1:]), _varies(routine.body))


def _varies(body: Sequence[Statement]) -> bool:
    loops = [s for s in body if isinstance(s, For)]
    inner = [*(s.body for s in loops), *(part for s in body if isinstance(s, If) for part in (s.then, s.otherwise))]
    return any(s.extent.op != "const" for s in loops) or any(map(_varies, inner))


def _operand_register(name: str, o: Operand) -> Place:
    bits, signed = iv.width_of(o.leaf.interval) or (1, False)
    lanes = f"_{size(static_shape(o.leaf))}" if o.leaf.shape else ""
    return Place(f"h_{name}_{bits}{'s' if signed else ''}{lanes}", "memory" if lanes else "register", bits)


def _writes(step: Step, out: Leaf | None) -> bool:
    return any(u.memory is out for u in updates_of(step))


def _returned(result: Array, out: Leaf) -> Step:
    """Return the step that computes what a command returns, then puts it on the output whole."""
    count, *more = _lanes(result)
    if more:
        raise NoVerilog("a result of several axes has no form over several clocks")
    value = array(lambda j: result[j], count)
    return let(value, lambda lanes: update(out, out.shape, lambda j: (j, select(j < count, lanes[minimum(j, count - 1)], 0))), "lanes")


def instruction_step(i: Instruction, guard: Callable[[Step], Step] = lambda done: done) -> tuple[Step, Leaf | None]:
    """Return the step of an instruction, its operands decoded first, and the leaf of its result."""
    step = seq(*(_operand(o.leaf, o.term) for o in i.operands.values()), guard(i.update))
    if i.result is None:
        return step, None
    out, result = Leaf(_lanes(i.result), (0, 255), False, "result"), i.result
    return seq(step, update(out, out.shape, lambda *j: (j, result[j]))), out


def decode_step(ila: Ila, number: Leaf) -> Step:
    """Return the step that sets a leaf to the number, from 1, of the instruction that decodes a command."""
    return seq(*(when(i.decode, assign(number, n + 1)) for n, i in enumerate(ila.instructions.values())))


def found_leaf(ila: Ila) -> Leaf:
    """Return a register for the number of an instruction, 0 for none."""
    return Leaf((), (0, len(ila.instructions)), False, "found")


def result_bits(ila: Ila) -> int:
    """Return the width of the widest result in bits."""
    return RESULT_LANE * max([1, *(size(_lanes(i.result)) for i in ila.instructions.values() if i.result is not None)])


def input_bits(leaf: Leaf) -> int:
    """Return the width of an input in bits, over all lanes."""
    return (iv.width_of(leaf.interval) or (8, False))[0] * size(static_shape(leaf))


def size(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a shape."""
    return math.prod(shape)


def extent(leaf: Leaf) -> str:
    """Return the declared range of a memory; empty for a register."""
    return f" [0:{size(static_shape(leaf)) - 1}]" if leaf.shape else ""


def device_states(ila: Ila) -> list[str]:
    """Return the names of the states that are part of the device, without external memories."""
    external_names = {leaf.name for e in ila.externals.values() for leaf in (e.leaf, e.base, e.size)}
    return [n for n in ila.states if n not in external_names]


def _bits(leaf: Leaf) -> int:
    return word_bits(leaf.interval) - 1
