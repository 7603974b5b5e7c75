"""The Verilog reading: lowered code printed as one named block of blocking assignments, one operator a statement.

Every value is a signed word as wide as its interval needs, so that no Verilog operator extends or truncates its meaning. What
has no such form (reals, loops beyond `STEPS`, an index that may lie outside) is refused by `NoVerilog`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Leaf, Table
from ...lang.intervals import Interval
from ...lowering.dead_code import eliminate_dead_code
from ...lowering.loop_ir import Allocate, Assign, Bind, For, If, Mutable, Raise, Routine, Statement, Store, Tree
from ...lowering.trap_analysis import static_size

STEPS = 1 << 25  # the most statements that one instruction may run
LOOP_BITS = 32
NAME = re.compile(r"(?<!['$\w])[A-Za-z_]\w*")  # of a word in an expression: neither the base of a constant nor a function


class NoVerilog(SpecError):
    """A term that has no Verilog form."""

    def __init__(self, sentence: str) -> None:
        super().__init__("I102", sentence)


@dataclass(frozen=True)
class Place:
    """The storage of a routine's memory: a register, a memory of words, or the lanes of a vector."""

    name: str
    kind: str  # "register", "memory", "lanes", or "port": a memory with one write port, read through a word of its own
    bits: int


@dataclass
class Wires:
    """The wires of a module: each value that depends on registers alone, once; `is_used` is False for a module without any."""

    is_used: bool = True
    names: dict[tuple[int, str], str] = field(default_factory=dict)

    def wire(self, bits: int, text: str) -> str:
        """Return the wire of so many bits that is `text`."""
        return self.names.setdefault((bits, text), f"w{len(self.names) + 1}")

    def lines(self) -> Iterator[str]:
        """Yield the declarations, each after those that it uses."""
        for (bits, text), name in self.names.items():
            yield f"wire signed [{bits - 1}:0] {name} = {text};"


@dataclass
class Block:
    """A named block under construction: its declarations and its statements."""

    places: Mapping[str, Place]
    wires: Wires
    declarations: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    local_places: dict[str, Place] = field(default_factory=dict)
    bounds: dict[str, Interval] = field(default_factory=dict)
    count: int = 0
    steps: int = 1
    written_ports: set[str] = field(default_factory=set)
    stable: set[str] = field(default_factory=set)  # what holds the same value in the whole block so far
    aliases: dict[str, str] = field(default_factory=dict)  # name of a value → its wire

    def line(self, text: str, depth: int) -> None:
        """Append a statement."""
        self.lines.append("    " * depth + text)

    def declare(self, name: str, interval: Interval, subject: str = "values") -> str:
        """Declare a signed word that holds an interval.

        Raises:
            NoVerilog: the interval is unbounded.
        """
        self.declarations.append(f"reg signed [{word_bits(interval, subject) - 1}:0] {name};")
        return name

    def fresh(self, interval: Interval, text: str, depth: int, subject: str = "values", name: str = "") -> str:
        """Return a word that is `text`: a wire where the block has changed nothing of it, else one that is assigned here.

        Raises:
            NoVerilog: the interval is unbounded.
        """
        if self.wires.is_used and self.stable.issuperset(NAME.findall(text)):
            wire = self.wires.wire(word_bits(interval, subject), text)
            self.stable.add(wire)
            return wire
        self.count += not name
        name = self.declare(name or f"v{self.count}", interval, subject)
        self.line(f"{name} = {text};", depth)
        return name


def word_bits(interval: Interval, subject: str = "values") -> int:
    """Return the width of a signed word that holds an interval.

    Raises:
        NoVerilog: the interval is unbounded.
    """
    width = iv.width_of(interval)
    if width is None:
        raise NoVerilog(f"{subject} without a known range has no Verilog form")
    return width[0] + (not width[1])


def literal(value: int) -> str:
    """Return a signed constant of its own width."""
    bits = word_bits((value, value)) + (value < 0)
    return f"{bits}'sd{value}" if value >= 0 else f"-{bits}'sd{-value}"


def no_table(table: Table) -> Place:
    """Refuse a table.

    Raises:
        NoVerilog: always.
    """
    raise NoVerilog(f"the table {table.name} has no Verilog form here")


def print_verilog(
    routine: Routine,
    name: str,
    places: Mapping[Leaf, Place],
    wires: Wires,
    depth: int = 0,
    rom: Callable[[Table], Place] = no_table,
    local: Set[str] = frozenset(),
) -> list[str]:
    """Return a routine as the lines of a block `begin : name … end` on the given places; `rom` is the memory of a table.

    Values of words that the block has not changed become wires; the names in `local` are declared in the block.

    Raises:
        NoVerilog: it has reals, memories without a place, unbounded values or loops, or more than `STEPS` steps.
    """
    optimised = eliminate_dead_code(routine)
    for leaf in optimised.memories.values():
        if leaf.real or static_size(leaf) is None or leaf not in places:
            raise NoVerilog(f"{leaf.name} has no Verilog form: {'it is real' if leaf.real else 'it lies outside of the device'}")
    block = Block({n: places[leaf] for n, leaf in optimised.memories.items()}, wires)
    block.stable |= {p.name for p in block.places.values() if p.kind in ("register", "lanes")} - local
    printer = _Printer(block, optimised.memories, optimised.tables, rom)
    printer.block(optimised.body, depth + 1, 1)
    inner = "    " * (depth + 1)
    head = "    " * depth
    return [f"{head}begin : {name}", *(inner + d for d in printer.b.declarations), *printer.b.lines, f"{head}end"]


class _Printer:
    def __init__(self, block: Block, memories: Mapping[str, Leaf], tables: Mapping[str, Table], rom: Callable[[Table], Place]) -> None:
        self.b, self.tables, self.rom = block, tables, rom
        self.sizes = {n: static_size(leaf) or 1 for n, leaf in memories.items()}
        self.sizes.update({n: math.prod(t.shape) for n, t in tables.items()})

    # -- statements

    def block(self, statements: Sequence[Statement], depth: int, times: int) -> None:
        self.b.steps += times * len(statements)
        if self.b.steps > STEPS:
            raise NoVerilog(f"it takes more than {STEPS:,} steps")
        for s in statements:
            STATEMENTS[type(s)](self, s, depth, times)

    def bind(self, s: Bind, depth: int, times: int) -> None:
        word = self.b.fresh(s.value.interval, self.text(s.value, depth), depth, s.name, s.name)
        if word != s.name:
            self.b.aliases[s.name] = word

    def mutable(self, s: Mutable, depth: int, times: int) -> None:
        if s.real:
            raise NoVerilog("a real number has no Verilog form")
        self.b.declare(s.name, s.interval, s.name)
        self.b.line(f"{s.name} = {self.text(s.value, depth)};", depth)

    def assign(self, s: Assign, depth: int, times: int) -> None:
        self.b.line(f"{s.name} = {self.text(s.value, depth)};", depth)

    def allocate(self, s: Allocate, depth: int, times: int) -> None:
        if s.size.op != "const" or s.real:
            raise NoVerilog("a local array of varying size has no Verilog form")
        size, bits = max(1, int(s.size.data)), word_bits(s.interval, s.name)
        self.b.local_places[s.name], self.sizes[s.name] = Place(s.name, "memory", bits), size
        self.b.declarations.append(f"reg signed [{bits - 1}:0] {s.name} [0:{size - 1}];")

    def store(self, s: Store, depth: int, times: int) -> None:
        place = self.b.places.get(s.array)
        if place is not None and place.kind == "port":
            self.store_through_port(place, s, depth, times)
            return
        target, value = self.place(s.array, s.index, depth), self.text(s.value, depth)
        self.b.line(f"{target} = {value};", depth)
        self.b.stable.discard(NAME.findall(target)[0])

    def store_through_port(self, p: Place, s: Store, depth: int, times: int) -> None:
        if times > 1 or p.name in self.b.written_ports:
            raise NoVerilog(f"two words of {p.name} in one clock have no Verilog form: it has one write port")
        self.b.written_ports.add(p.name)
        self.inside(p, s.array, s.index)
        self.b.line(f"{p.name}_we <= 1;", depth)
        self.b.line(f"{p.name}_wa <= {self.text(s.index, depth)};", depth)
        self.b.line(f"{p.name}_wd <= {self.text(s.value, depth)};", depth)

    def loop(self, s: For, depth: int, times: int) -> None:
        max_count = s.extent.interval[1]
        if max_count is None:
            raise NoVerilog("a loop without a known bound has no Verilog form")
        self.b.declarations.append(f"integer {s.name};")
        self.b.bounds[s.name] = (0, max(0, max_count - 1))
        self.b.stable -= {self.b.places[n].name for n in _stored(s.body) if n in self.b.places}  # an earlier round changes it
        end = str(max_count) if s.extent.op == "const" else self.value(s.extent, depth)
        self.b.line(f"for ({s.name} = 0; {s.name} < {end}; {s.name} = {s.name} + 1) begin", depth)
        self.block(s.body, depth + 1, times * max(1, max_count))
        self.b.line("end", depth)

    def choose(self, s: If, depth: int, times: int) -> None:
        self.b.line(f"if ({self.value(s.condition, depth)}) begin", depth)
        self.block(s.then, depth + 1, times)
        if s.otherwise:
            self.b.line("end else begin", depth)
            self.block(s.otherwise, depth + 1, times)
        self.b.line("end", depth)

    def fail(self, s: Raise, depth: int, times: int) -> None:
        raise NoVerilog(f'the diagnostic "{s.sentence}" has no Verilog form')

    # -- values

    def place(self, array: str, index: Tree, depth: int) -> str:
        p = self.rom(self.tables[array]) if array in self.tables else self.b.local_places.get(array) or self.b.places[array]
        if array in self.tables:
            self.b.stable.add(p.name)
        if p.kind == "register":
            return p.name
        if p.kind == "port":
            raise NoVerilog(f"{p.name} is read through its port, in a clock after the one that sets the address")
        self.inside(p, array, index)
        if index.op == "const":
            n = int(index.data)
            return f"{p.name}[{n}]" if p.kind == "memory" else f"{p.name}[{p.bits * n + p.bits - 1}:{p.bits * n}]"
        offset = self.value(index, depth)
        return f"{p.name}[{offset}]" if p.kind == "memory" else f"{p.name}[{offset} * {p.bits} +: {p.bits}]"

    def inside(self, p: Place, array: str, index: Tree) -> None:
        if not iv.inside(index.interval, (0, self.sizes[array] - 1)):
            raise NoVerilog(f"an index of {p.name} in {index.interval} may lie outside of its {self.sizes[array]} words")

    def value(self, t: Tree, depth: int) -> str:
        """Return an identifier or a constant that is the value of a tree."""
        text = self.text(t, depth)
        return text if t.op in ("const", "name") else self.b.fresh(t.interval, text, depth, f"values of {t.op}")

    def text(self, t: Tree, depth: int) -> str:
        """Return one operator on identifiers and constants, to be assigned to a word that holds its interval."""
        if t.op == "const" and not t.real:
            return literal(int(t.data))
        if t.op == "name" and not t.real:
            return self.b.aliases.get(str(t.data), str(t.data))
        if t.real or t.op in ("floor", "rint", "rdiv", "call"):
            raise NoVerilog("a real number has no Verilog form")
        if t.op == "load":
            return self.place(t.data, t.args[0], depth)
        form = FORMS.get(t.op)
        if form is None:
            raise NoVerilog(f"{t.op} has no Verilog form")
        return form(self, t, [self.value(a, depth) for a in t.args], depth)

    def at_least(self, t: Tree, name: str, bits: int, depth: int) -> str:
        """Return an operand as a name of at least so many bits, whose bits can be selected."""
        available_bits = LOOP_BITS if name in self.b.bounds else word_bits(t.interval)
        if t.op != "const" and available_bits >= bits:
            return name
        return self.b.fresh(iv.hull(t.interval, iv.of_width(bits, True)), name, depth)


def _stored(body: Sequence[Statement]) -> Iterator[str]:
    for s in body:
        if isinstance(s, Store):
            yield s.array
        yield from _stored(s.body) if isinstance(s, For) else _stored((*s.then, *s.otherwise)) if isinstance(s, If) else ()


# -- operators


Form = Callable[[_Printer, Tree, list[str], int], str]


def _infix(sign: str) -> Form:
    return lambda p, t, a, depth: f"{a[0]} {sign} {a[1]}"


def _extremum(test: str) -> Form:
    return lambda p, t, a, depth: f"({a[0]} {test} {a[1]}) ? {a[0]} : {a[1]}"


def _floor_division(p: _Printer, t: Tree, a: list[str], depth: int) -> str:
    n = int(t.args[1].data) if t.args[1].op == "const" else 0
    if n > 0 and n & n - 1 == 0:
        k = n.bit_length() - 1
        return f"{a[0]} >>> {k}" if t.op == "div" else f"{p.at_least(t.args[0], a[0], k, depth)}[{k - 1}:0]"
    dividend, divisor = (x.interval[0] for x in t.args)
    if divisor is None or divisor < 1:
        raise NoVerilog(f"{t.op} by what may be less than 1 has no Verilog form")
    if dividend is not None and dividend >= 0:
        return f"{a[0]} {'/' if t.op == 'div' else '%'} {a[1]}"
    x, y = a  # Verilog rounds toward zero
    return f"({x} % {y} < {literal(0)}) ? " + (f"{x} / {y} - {literal(1)} : {x} / {y}" if t.op == "div" else f"{x} % {y} + {y} : {x} % {y}")


def _truncating_division(p: _Printer, t: Tree, a: list[str], depth: int) -> str:
    """Return a quotient or remainder of signed words, which Verilog rounds toward zero."""
    if iv.inside((0, 0), t.args[1].interval):
        raise NoVerilog(f"{t.op} by what may be zero has no Verilog form")
    return f"{a[0]} {'/' if t.op == 'tdiv' else '%'} {a[1]}"


def _shift(sign: str) -> Form:
    def text(p: _Printer, t: Tree, a: list[str], depth: int) -> str:
        low = t.args[1].interval[0]
        if low is None or low < 0:
            raise NoVerilog("a shift by an amount that may be negative has no Verilog form")
        return f"{a[0]} {sign} {a[1]}"

    return text


def _wrap(p: _Printer, t: Tree, a: list[str], depth: int) -> str:
    bits, is_signed = t.data
    field_ = f"{p.at_least(t.args[0], a[0], bits, depth)}[{bits - 1}:0]"
    return f"$signed({field_})" if is_signed else field_


def _extract(p: _Printer, t: Tree, a: list[str], depth: int) -> str:
    low, width = t.data
    return f"{p.at_least(t.args[0], a[0], low + width, depth)}[{low + width - 1}:{low}]"


def _leading_zeros(p: _Printer, t: Tree, a: list[str], depth: int) -> str:
    word = p.at_least(t.args[0], a[0], t.data, depth)
    tests = "".join(f"{word}[{t.data - 1 - n}] ? {literal(n)} : " for n in range(t.data))
    return f"{tests}{literal(t.data)}"


FORMS: Mapping[str, Form] = {
    "add": _infix("+"), "sub": _infix("-"), "mul": _infix("*"),
    "bitand": _infix("&"), "bitor": _infix("|"), "bitxor": _infix("^"),
    "eq": _infix("=="), "ne": _infix("!="), "lt": _infix("<"), "le": _infix("<="),
    "min": _extremum("<="), "max": _extremum(">="),
    "neg": lambda p, t, a, depth: f"-{a[0]}",
    "not": lambda p, t, a, depth: f"2'sd1 - {a[0]}",
    "select": lambda p, t, a, depth: f"{a[0]} ? {a[1]} : {a[2]}",
    "div": _floor_division, "mod": _floor_division, "tdiv": _truncating_division, "tmod": _truncating_division,
    "shl": _shift("<<<"), "shr": _shift(">>>"),
    "wrap": _wrap, "extract": _extract, "clz": _leading_zeros,
}  # fmt: skip
STATEMENTS: Mapping[type, Callable[[_Printer, Any, int, int], None]] = {
    Bind: _Printer.bind, Mutable: _Printer.mutable, Assign: _Printer.assign, Allocate: _Printer.allocate,
    Store: _Printer.store, For: _Printer.loop, If: _Printer.choose, Raise: _Printer.fail,
}  # fmt: skip
