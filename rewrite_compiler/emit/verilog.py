"""A Verilog module of an accelerator, generated from its ILA: state, decode, and every instruction with a register-level form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ila import Ila, Instruction
from ..lang import intervals as iv
from ..lang.binders import Leaf, static_shape
from ..lang.loops import lower_step
from ..lang.step import Step, assign, seq, update, when
from ..lang.verilog import NoVerilog, Place, print_verilog, word_bits
from .c_text import filled
from .device import _comment, _lanes, _operand
from .verilog_text import BENCH, MODULE

RESULT_LANE = 8
FULL_RESET = 1 << 10  # larger memories start at their first value once, as on a board
SHOWN = 1 << 16  # words of the largest memory that starts at a value and that the test bench prints


@dataclass(frozen=True)
class VerilogDevice:
    """The files of an accelerator in Verilog, the instructions that they have, and why they do not have the others."""

    files: Mapping[str, bytes]
    instructions: tuple[str, ...]
    without: Mapping[str, str]


def verilog_device(ila: Ila, name: str = "") -> VerilogDevice:
    """Return the module of a model and a test bench that runs commands on it."""
    called = re.sub(r"\W", "_", name or ila.name, flags=re.ASCII)
    places = _places(ila)
    cases, without = [], dict[str, str]()
    for number, i in enumerate(ila.instructions.values()):
        try:
            lines = _instruction(i, places)
        except NoVerilog as refusal:
            without[i.name] = refusal.problem.sentence
            continue
        cases += [f"            {number + 1}: {lines[0].lstrip()}", *lines[1:]]
    kept = tuple(n for n in ila.instructions if n not in without)
    found = found_leaf(ila)
    decode = print_verilog(lower_step(decode_step(ila, found)), "decode", places | {found: Place("found", "register", 0)}, 3)
    fields = {
        "name": called, "shown": f"{SHOWN:,}", "doc": _comment(ila.doc), "contents": "\n".join(_contents(ila, without)),
        "inputs": "\n".join(f"    input [{input_bits(leaf) - 1}:0] i_{n}," for n, leaf in ila.inputs.items()),
        "number_top": str(word_bits(found.interval) - 2), "found_top": str(word_bits(found.interval) - 1),
        "result_top": str(result_bits(ila) - 1), "state": "\n".join(_member(ila, n) for n in inside(ila)),
        "memories": "\n".join(_initial(ila)) or "        word = 0;", "registers": "\n".join(_resets(ila)),
        "decode": "\n".join(decode), "cases": "\n".join(cases),
    }  # fmt: skip
    files = {f"{called}_device.v": filled(MODULE, fields).encode(), f"{called}_bench.v": filled(BENCH, _bench(ila, fields)).encode()}
    return VerilogDevice(files, kept, without)


def decode_step(ila: Ila, found: Leaf) -> Step:
    """Return the step that sets `found` to the number of the instruction that a command is."""
    return seq(*(when(i.decode, assign(found, n + 1)) for n, i in enumerate(ila.instructions.values())))


def found_leaf(ila: Ila) -> Leaf:
    """Return a register that holds the number of an instruction, 0 for none."""
    return Leaf((), (0, len(ila.instructions)), False, "found")


def instruction_step(i: Instruction) -> tuple[Step, Leaf | None]:
    """Return what an instruction does, its operands out of the inputs first, and the lanes that it returns."""
    step = seq(*(_operand(o.leaf, o.term) for o in i.operands.values()), i.update)
    if i.result is None:
        return step, None
    out, result = Leaf(_lanes(i.result), (0, 255), False, "result"), i.result
    return seq(step, update(out, out.shape, lambda *j: (j, result[j]))), out


def result_bits(ila: Ila) -> int:
    """Return the bits of the widest result."""
    return RESULT_LANE * max([1, *(size(_lanes(i.result)) for i in ila.instructions.values() if i.result is not None)])


def size(shape: tuple[int, ...]) -> int:
    """Return the number of elements."""
    return math.prod(shape)


def _places(ila: Ila) -> dict[Leaf, Place]:
    found = {leaf: Place(f"i_{n}", "lanes" if leaf.shape else "register", word_bits(leaf.interval) - 1) for n, leaf in ila.inputs.items()}
    for n in inside(ila):
        s = ila.states[n]
        found[s.leaf] = Place(f"m_{n}", "memory" if s.leaf.shape else "register", s.bits)
    return found


def inside(ila: Ila) -> list[str]:
    """Return the states of the device itself."""
    return [n for n in ila.states if n not in ila.externals]


def _instruction(i: Instruction, places: Mapping[Leaf, Place]) -> list[str]:
    step, out = instruction_step(i)
    operands = {
        o.leaf: Place(f"o_{n}", "memory" if o.leaf.shape else "register", word_bits(o.leaf.interval)) for n, o in i.operands.items()
    }
    known = {**places, **operands, **({out: Place("result", "lanes", RESULT_LANE)} if out is not None else {})}
    lines = print_verilog(lower_step(step), f"do_{i.name}", known, 3)
    declared = [f"{'    ' * 4}reg signed [{p.bits - 1}:0] {p.name}{_extent(leaf)};" for leaf, p in operands.items()]
    return [lines[0], *declared, *lines[1:]]


def _extent(leaf: Leaf) -> str:
    return f" [0:{size(static_shape(leaf)) - 1}]" if leaf.shape else ""


def _contents(ila: Ila, without: Mapping[str, str]) -> Iterator[str]:
    for n, name in enumerate(ila.instructions):
        yield f"// {n + 1}: {name}" + (f"  (outside: {_comment(without[name])})" if name in without else "")


def input_bits(leaf: Leaf) -> int:
    """Return the bits of an input, all of its lanes."""
    return (iv.width_of(leaf.interval) or (8, False))[0] * size(static_shape(leaf))


def _member(ila: Ila, name: str) -> str:
    s = ila.states[name]
    return f"    reg {'signed ' if s.signed else ''}[{s.bits - 1}:0] m_{name}{_extent(s.leaf)}; // {_comment(s.doc)}".rstrip("/ ")


def _filled(ila: Ila, name: str) -> str:
    s = ila.states[name]
    count = size(static_shape(s.leaf))
    return f"for (word = 0; word < {count}; word = word + 1) m_{name}[word] = {s.reset};"


def _initial(ila: Ila) -> Iterator[str]:
    for n in inside(ila):
        if FULL_RESET < size(static_shape(ila.states[n].leaf)) <= SHOWN:
            yield f"        {_filled(ila, n)}"


def _resets(ila: Ila) -> Iterator[str]:
    for n in inside(ila):
        s = ila.states[n]
        if not s.leaf.shape:
            yield f"            m_{n} = {s.reset};"
        elif size(static_shape(s.leaf)) <= FULL_RESET:
            yield f"            {_filled(ila, n)}"


def _bench(ila: Ila, fields: Mapping[str, str]) -> dict[str, str]:
    names = [f"i_{n}" for n in ila.inputs]
    return {
        **{k: fields[k] for k in ("name", "shown", "number_top", "result_top")},
        "order": ", ".join(ila.inputs), "count": str(len(names)), "names": ", ".join(names),
        "inputs": "\n".join(f"    reg [{input_bits(leaf) - 1}:0] i_{n};" for n, leaf in ila.inputs.items()),
        "ports": ", ".join(f".{n}({n})" for n in names), "scan": " ".join(["%h"] * len(names)),
        "dump": "\n".join(line for n in inside(ila) for line in _dumped(ila, n)),
    }  # fmt: skip


def _dumped(ila: Ila, name: str) -> Iterator[str]:
    leaf, indent = ila.states[name].leaf, " " * 12
    if not leaf.shape:
        yield f'{indent}if (dut.m_{name} != 0) $display("{name} 0 %h", dut.m_{name});'
        return
    if size(static_shape(leaf)) > SHOWN:
        return
    yield f"{indent}for (word = 0; word < {size(static_shape(leaf))}; word = word + 1)"
    yield f'{indent}    if (dut.m_{name}[word] != 0) $display("{name} %0d %h", word, dut.m_{name}[word]);'
