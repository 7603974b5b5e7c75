"""The Verilog module of an accelerator, generated from its ILA: state, decode, and every instruction that has a Verilog form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...ila import Ila
from ...lang.binders import Table, static_shape
from ...lowering.lower import lower_step
from ...readings.verilog.printer import Place, print_verilog, word_bits
from ..c.device_model import _comment
from ..c.text import fill_template
from .design import DEPTH, SHOWN, Design, Word, decode_step, design, device_states, extent, found_leaf, input_bits, result_bits, size
from .memory_ports import MemoryPort
from .rom import fill_lines
from .text import BENCH, BENCH_DRAM, BUSY, MEMORY, MODULE, NOTES, PORT_NOTE, SETTLE, SEVERAL_PORTS_NOTE

FULL_RESET = 1 << 10  # larger memories start at their first value once, as on a board


@dataclass(frozen=True)
class VerilogDevice:
    """The Verilog files of an accelerator, the instructions that they contain, and why they omit the others.

    For instructions that take more than one clock, also their number of clocks.
    """

    files: Mapping[str, bytes]
    instructions: tuple[str, ...]
    omitted: Mapping[str, str]
    clock_counts: Mapping[str, int]


def verilog_device(ila: Ila, name: str = "") -> VerilogDevice:
    """Return the module of a model, and a test bench that runs commands on it."""
    module_name = re.sub(r"\W", "_", name or ila.name, flags=re.ASCII)
    d = design(ila)
    number = found_leaf(ila)
    decode = print_verilog(
        lower_step(decode_step(ila, number)), "decode", d.places | {number: Place("found", "register", 0)}, d.wires, DEPTH
    )
    cases = [line for n, part in d.arms.items() for line in _numbered(n, part.lines)]
    fields = {
        "name": module_name, "shown": f"{SHOWN:,}", "doc": _comment(ila.doc), "contents": "\n".join(_contents(d)),
        "inputs": "\n".join(f"    input [{input_bits(leaf) - 1}:0] i_{n}," for n, leaf in ila.inputs.items()),
        "ports": "".join(f"    {_declared(n, w)},\n" for n, w in d.words.items() if w.port),
        "number_top": str(word_bits(number.interval) - 2), "found_top": str(word_bits(number.interval) - 1),
        "result_top": str(result_bits(ila) - 1), "state": "\n".join(_member(ila, n) for n in device_states(ila) if f"m_{n}" not in d.ports),
        "roms": "".join(f"    {rom_member(t, p)}\n" for t, p in d.roms.places.items()),
        "own": "".join(f"    {_declared(n, w)};\n" for n, w in d.words.items() if not w.port) + _ports(d, module_name),
        "memories": "\n".join([*_initial(d), *_rom_fills(d)]) or "        word = 0;",
        "registers": "\n".join([*_resets(d), *(f"            {n} = 0;" for n, w in d.words.items() if w.reset)]),
        "busy": _busy(d), "cleared": "".join(f"            {n} = 0;\n" for n in d.cleared_words), "note": _notes(d),
        "wires": "".join(f"    {line}\n" for line in d.wires.lines()), "idle": "".join(f"        {n}_we <= 0;\n" for n in d.ports),
        "decode": "\n".join(decode), "cases": "\n".join(cases),
    }  # fmt: skip
    files = {
        f"{module_name}_device.v": (fill_template(MODULE, fields) + (memory_text(module_name) if d.ports else "")).encode(),
        f"{module_name}_bench.v": fill_template(BENCH, _bench(d, fields)).encode(),
    }
    clock_counts = {name: sum(p.name == name for p in d.clocks.values()) for name in dict.fromkeys(p.name for p in d.clocks.values())}
    return VerilogDevice(files, tuple(n for n in ila.instructions if n not in d.omitted), d.omitted, clock_counts)


def memory_module(module_name: str) -> str:
    """Return the name of the module of a memory."""
    return f"{module_name}_memory"


def memory_text(module_name: str) -> str:
    """Return the module of a memory with one read and one write port."""
    return fill_template(MEMORY, {"name": memory_module(module_name)})


def _ports(d: Design, module_name: str) -> str:
    return "".join(_port_text(p, memory_module(module_name)) for p in d.ports.values())


def _port_text(p: MemoryPort, module: str) -> str:
    i = p.instance(module)
    words = "".join(
        f"    {'wire' if w.port else 'reg'} {'signed ' if w.signed else ''}[{w.width - 1}:0] {name};\n" for name, w in p.words().items()
    )
    parameters = ", ".join(f".{name}({value})" for name, value in i.parameters.items())
    connections = ", ".join(f".{port}({word})" for port, word in i.ports.items())
    return f"{words}    {i.module} #({parameters}) {p.name} ({connections});\n"


def _notes(d: Design) -> str:
    ports = PORT_NOTE if d.ports else fill_template(SEVERAL_PORTS_NOTE, {"reason": _comment(d.several_ports)}) if d.several_ports else ""
    return ports + "".join(text for n, text in NOTES.items() if n in d.words) + ("\n//" if d.clocks else "")


def _numbered(n: int, lines: tuple[str, ...]) -> list[str]:
    return [f"            {n}: {lines[0].lstrip()}", *lines[1:]]


def _busy(d: Design) -> str:
    if not d.clocks:
        return ""
    return fill_template(BUSY, {"clocks": "\n".join(line for n, part in d.clocks.items() for line in _numbered(n, part.lines))})


def _declared(name: str, w: Word) -> str:
    direction = {"input": "input", "output": "output reg", "": "reg"}[w.port]
    words = f" [0:{w.count - 1}]" if w.count else ""
    return f"{direction} {'signed ' if w.signed else ''}[{w.bits - 1}:0] {name}{words}"


def _contents(d: Design) -> Iterator[str]:
    for n, name in enumerate(d.ila.instructions):
        yield f"// {n + 1}: {name}" + (f"  (outside: {_comment(d.omitted[name])})" if name in d.omitted else "")


def _member(ila: Ila, name: str) -> str:
    s = ila.states[name]
    return f"    reg {'signed ' if s.signed else ''}[{s.bits - 1}:0] m_{name}{extent(s.leaf)}; // {_comment(s.doc)}".rstrip("/ ")


def _filled(ila: Ila, name: str) -> str:
    s = ila.states[name]
    count = size(static_shape(s.leaf))
    return f"for (word = 0; word < {count}; word = word + 1) m_{name}[word] = {s.reset};"


def _initial(d: Design) -> Iterator[str]:
    ila = d.ila
    for n in device_states(ila):
        if f"m_{n}" not in d.ports and FULL_RESET < size(static_shape(ila.states[n].leaf)) <= SHOWN:
            yield f"        {_filled(ila, n)}"


def rom_member(table: Table, p: Place) -> str:
    """Return the declaration of a table's memory."""
    return f"reg signed [{p.bits - 1}:0] {p.name} [0:{size(table.shape) - 1}]; // table {_comment(table.name)}"


def _rom_fills(d: Design) -> Iterator[str]:
    for table, place in d.roms.places.items():
        yield from (f"        {line}" for line in fill_lines(table, place))


def _resets(d: Design) -> Iterator[str]:
    ila = d.ila
    for n in device_states(ila):
        s = ila.states[n]
        if f"m_{n}" in d.ports:
            continue
        if not s.leaf.shape:
            yield f"            m_{n} = {s.reset};"
        elif size(static_shape(s.leaf)) <= FULL_RESET:
            yield f"            {_filled(ila, n)}"


def _bench(d: Design, fields: Mapping[str, str]) -> dict[str, str]:
    ila = d.ila
    names = [f"i_{n}" for n in ila.inputs]
    flags = d.cleared_words
    port_inputs = [n for n, w in d.words.items() if w.port == "input"]
    has_port = "dram_read" in d.words
    return {
        **{k: fields[k] for k in ("name", "shown", "number_top", "result_top")},
        "order": ", ".join(ila.inputs), "count": str(len(names)), "names": ", ".join(names),
        "inputs": "\n".join(f"    reg [{input_bits(leaf) - 1}:0] i_{n};" for n, leaf in ila.inputs.items()),
        "ports": ", ".join(f".{n}({n})" for n in [*names, *port_inputs]), "scan": " ".join(["%h"] * len(names)),
        "flags": "".join(f", after {n}" for n in flags), "formats": "".join(" %0d" for n in flags),
        "flagged": "".join(f", dut.{n}" for n in flags), "wait": "                while (dut.at != 0) tick;\n" if d.clocks else "",
        "dump": "\n".join(line for n in device_states(ila) for line in _dumped(d, n)), "settle": SETTLE if d.ports else "",
        **{k: (text if has_port else "") for k, text in BENCH_DRAM.items()},
    }  # fmt: skip


def _dumped(d: Design, name: str) -> Iterator[str]:
    leaf, indent = d.ila.states[name].leaf, " " * 12
    words = f"dut.m_{name}.words" if f"m_{name}" in d.ports else f"dut.m_{name}"
    if not leaf.shape:
        yield f'{indent}if (dut.m_{name} != 0) $display("{name} 0 %h", dut.m_{name});'
        return
    if size(static_shape(leaf)) > SHOWN:
        return
    yield f"{indent}for (word = 0; word < {size(static_shape(leaf))}; word = word + 1)"
    yield f'{indent}    if ({words}[word] != 0) $display("{name} %0d %h", word, {words}[word]);'
