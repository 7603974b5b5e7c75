"""The C model of an accelerator, generated from its ILA: decode, updates, reads and the interrupt, behind a small C interface."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InputError
from ...ila import Ila, Instruction
from ...lang import intervals as iv
from ...lang.binders import Array, Leaf, static_shape
from ...lang.expr import Expr
from ...lang.step import NOTHING, Step, assign, seq, update, when
from ...lowering.decoded_copies import DecodedCopy, decoded_copies
from ...lowering.lower import lower_step
from ...lowering.trap_analysis import static_size
from ...readings.arrays.evaluator import table_data
from ...readings.c.printer import NoC, PrintedFunction, Tables, c_type, optimise, print_c
from ...readings.c.runtime import PRELUDE, RUNTIME, SCRATCH, called_functions
from .bus_functions import MMIO, board_text
from .decoder import decode_tree
from .text import HEADER_DEVICE, SOURCE_DEVICE, fill_template

DATA_BYTES = 16
TRAPS = {
    "FM_OUTSIDE": "an index lies outside of its array",
    "FM_DIVISION": "division by zero",
    "FM_SHIFT": "a shift by a negative amount",
    "FM_MEMORY": "there is no memory for a local array",
}


@dataclass
class _Model:
    """The state of printing an ILA."""

    ila: Ila
    name: str
    strict: bool
    mirrors: Sequence[DecodedCopy]
    tables: Tables = field(default_factory=Tables)
    functions: list[PrintedFunction] = field(default_factory=list)
    raises: int = 0

    @property
    def allocates(self) -> bool:
        """Whether a function needs scratch memory."""
        return any(f.allocates for f in (*self.functions, *self.tables.fills))

    def function(self, name: str, step: Step) -> PrintedFunction:
        """Print a step as a function."""
        printed = print_c(lower_step(step, strict=self.strict), name, self.tables, first_raise=self.raises + 1, mirrors=self.mirrors)
        self.functions.append(printed)
        self.raises += len(printed.raises)
        return printed


def device_files(ila: Ila, name: str = "", *, strict: bool = False) -> dict[str, bytes]:
    """Return the C source and header of a device by file name.

    With `strict`, commands that break a Require of the model are refused; without, they do what the hardware does.

    Raises:
        InputError: F161, an instruction has no C form.
    """
    mirrors = decoded_copies(optimise(lower_step(i.update, strict=strict)) for i in ila.instructions.values())
    model = _Model(ila, re.sub(r"\W", "_", name or ila.name, flags=re.ASCII), strict, mirrors)
    cases = [_instruction(model, n, i) for n, i in enumerate(ila.instructions.values())]
    decoder = _decoder(model)
    waits = _waits(model)
    fields = {
        "name": model.name, "guard": f"{model.name.upper()}_DEVICE_H", "doc": _comment(ila.doc),
        "inputs": "\n".join(f"    {c_type(leaf.interval, False)} {_input(n)}{_extent(leaf)};" for n, leaf in ila.inputs.items()),
        "prelude": PRELUDE, "scratch": SCRATCH if model.allocates else "",
        "tables": "".join(model.tables.texts), "filling": model.tables.fill_text, "functions": "\n".join(f.text for f in model.functions),
        "state": "\n".join([*(_member(ila, n) for n in ila.states), *map(_mirror_member, mirrors)]), "reset": "\n".join(_resets(model)),
        "decode": decoder, "cases": "\n".join(cases), "waits": waits, "messages": "\n".join(_messages(model)),
        "drop": "    fm_drop(&d->s, 0);" if model.allocates else "",
        "bus_header": _bus(ila, model.name, header=True), "bus": _bus(ila, model.name, header=False),
        "result_bytes": str(max([1, *(math.prod(_lanes(i.result)) for i in ila.instructions.values() if i.result is not None)])),
    }  # fmt: skip
    fields["runtime"] = called_functions(RUNTIME, "".join(fields.values()))
    files = {f"{model.name}_device.h": fill_template(HEADER_DEVICE, fields), f"{model.name}_device.c": fill_template(SOURCE_DEVICE, fields)}
    board = board_text(ila, model.name)
    return {path: text.encode() for path, text in (files | ({f"{model.name}_board.c": board} if board else {})).items()}


def _instruction(model: _Model, number: int, i: Instruction) -> str:
    """Print an instruction and return its case of the switch: decoded operands, the update, the result of a read."""
    step = seq(*(_operand(o.leaf, o.term) for o in i.operands.values()), i.update if i.update is not NOTHING else NOTHING)
    out = None
    if i.result is not None:
        out = Leaf(_lanes(i.result), (0, 255), False, "out")
        step = seq(step, update(out, out.shape, lambda *j: (j, i.result[j])))  # type: ignore[index]
    try:
        function = model.function(f"do_{i.name}", step)
    except NoC as refusal:
        raise InputError("F161", f"{i.name} of {model.ila.name} has no C form: {refusal.problem.sentence}", place=i.place) from None
    parameters = {o.leaf: f"p{n}" for n, o in enumerate(i.operands.values())}
    parameter_leaves = [leaf for leaf in parameters if leaf in function.memories]
    local = "".join(f" {c_type(leaf.interval, False)} {parameters[leaf]}[{math.prod(static_shape(leaf))}];" for leaf in parameter_leaves)
    place = {**parameters, **({out: "result"} if out is not None else {})}
    return f"    case {number + 1}: {{{local} return do_{i.name}({_arguments(model, function, place)}); }}"


def _operand(leaf: Leaf, term: Expr | Array) -> Step:
    return assign(leaf, term) if isinstance(term, Expr) else update(leaf, term.shape, lambda *i: (i, term[i]))


def _lanes(result: Array) -> tuple[int, ...]:
    return tuple(int(n) for n in result.shape)  # type: ignore[arg-type]


def _arguments(model: _Model, function: PrintedFunction, place: Mapping[Leaf, str]) -> str:
    """Return the arguments of a call: scratch, then the function's memories in order."""
    ila = model.ila
    inputs = {leaf: f"&in->{_input(n)}" if not leaf.shape else f"in->{_input(n)}" for n, leaf in ila.inputs.items()}
    states = {s.leaf: f"d->m_{n}" for n, s in ila.states.items()} | {m.leaf: f"d->{_mirror_name(m)}" for m in model.mirrors}
    arguments = ["&d->s"]
    for leaf in function.memories:
        text = place.get(leaf) or inputs.get(leaf) or states[leaf]
        arguments.append(text)
        if static_size(leaf) is None:
            arguments.append(f"{text}_words")
    return ", ".join(arguments)


def _decoder(model: _Model) -> str:
    number = Leaf((), (0, len(model.ila.instructions)), False, "found")
    step = decode_tree([i.decode for i in model.ila.instructions.values()], list(model.ila.inputs.values()), number)
    function = model.function("decode", step)
    type_name = c_type(number.interval, False)
    return f"    {type_name} found[1] = {{0}};\n    decode({_arguments(model, function, {number: 'found'})});"


def _waits(model: _Model) -> str:
    """Print which engine cannot finish, and return the call."""
    ila = model.ila
    if ila.interrupt is None:
        return "    return d->s.trap = d->answer = FM_NO_INTERRUPT;"
    take_interrupt = f"    if (d->m_{ila.interrupt.name}[0]) {{ d->m_{ila.interrupt.name}[0] = {int(ila.interrupt_stays)}; return 0; }}"
    engine_number = Leaf((), (0, len(ila.waits)), False, "waiting")
    steps = [when(~w.condition, assign(engine_number, n + 1)) for n, w in reversed(list(enumerate(ila.waits)))]
    if not steps:
        return f"{take_interrupt}\n    return d->answer = FM_HANG;"
    function = model.function("waiting_for", seq(*steps))
    type_name = c_type(engine_number.interval, False)
    call = f"    {type_name} waiting[1] = {{0}};\n    waiting_for({_arguments(model, function, {engine_number: 'waiting'})});"
    return f"{take_interrupt}\n{call}\n    d->waiting = waiting[0];\n    return d->answer = FM_HANG;"


def _member(ila: Ila, name: str) -> str:
    state = ila.states[name]
    type_name = c_type(state.leaf.interval, False)
    if name in ila.externals:
        return f"    {type_name} *m_{name}; int64_t m_{name}_words;"
    return f"    {type_name} m_{name}[{max(1, math.prod(static_shape(state.leaf)))}]; /* {_comment(state.doc)} */"


def _mirror_name(m: DecodedCopy) -> str:
    return f"of_{m.leaf.name}"


def _mirror_member(m: DecodedCopy) -> str:
    return f"    {c_type(m.leaf.interval, False)} {_mirror_name(m)}[{math.prod(static_shape(m.leaf))}]; /* {m.memory.name}, looked up */"


def _resets(model: _Model) -> Iterator[str]:
    ila, start = model.ila, {s.leaf: s.reset for s in model.ila.states.values()}
    values = {f"m_{n}": (s.leaf, s.reset) for n, s in ila.states.items() if n not in ila.externals}
    values |= {_mirror_name(m): (m.leaf, int(table_data(m.table)[start[m.memory]])) for m in model.mirrors}
    for name, (leaf, value) in values.items():
        if value:
            yield f"    for (size_t i = 0; i < {math.prod(static_shape(leaf))}; ++i) d->{name}[i] = {value};"


def _messages(model: _Model) -> Iterator[str]:
    """Yield a case for every trap, every diagnostic and every engine that waits."""
    for name, sentence in TRAPS.items():
        yield f'    case {name}: return "{sentence}";'
    number = 0
    for f in model.functions:
        for r in f.raises:
            number += 1
            yield f"    case {number}: {_message_statement(r.sentence, [name for name, _ in r.values])}"
    yield "    case FM_HANG:"
    yield "        switch (d->waiting) {"
    for n, w in enumerate(model.ila.waits):
        yield f'        case {n + 1}: return "no interrupt can come: {_quoted(w.engine)} {_quoted(w.sentence)}";'
    yield f'        default: return "no interrupt can come: {_quoted(model.ila.name)} was not started";'
    yield "        }"


def _message_statement(sentence: str, names: Sequence[str]) -> str:
    """Return the C statement that formats a diagnostic with its values."""
    order = re.findall(r"\{(\w+)\}", sentence)
    if not order:
        return f'return "{_quoted(sentence)}";'
    text = re.sub(r"\{\w+\}", '%" PRId64 "', _quoted(sentence).replace("%", "%%"))
    values = ", ".join(f"d->s.value[{names.index(n)}]" for n in order)
    return f'snprintf(d->text, sizeof d->text, "{text}", {values}); return d->text;'


def _bus(ila: Ila, name: str, *, header: bool) -> str:
    """Return the bus functions: reads and writes of 16 bytes, with a variant for every further flag; and those of external memories."""
    functions = []
    if set(MMIO) <= ila.inputs.keys():
        flags = [n for n, leaf in ila.inputs.items() if n not in MMIO and leaf.interval == iv.TRUTH]
        bytes_ = math.prod(static_shape(ila.inputs["data"]))
        for flag in ("", *flags):
            functions.append(_access(name, flag, bytes_, is_write=True, header=header))
            functions.append(_access(name, flag, bytes_, is_write=False, header=header))
    functions += [_attach(name, n, ila, header=header) for n in ila.externals]
    return "\n".join(functions)


def _access(name: str, flag: str, size: int, *, is_write: bool, header: bool) -> str:
    verb, const = ("write128", "const ") if is_write else ("read128", "")
    head = f"int {name}_{verb}{'_' + flag if flag else ''}({name}_device *d, uint64_t address, {const}uint8_t data[16])"
    if header:
        return f"{head};"
    copied_bytes = min(size, DATA_BYTES)
    set_flag = f"    in.{_input(flag)} = 1;\n" if flag else ""
    direction = f"    in.{_input('wr' if is_write else 'rd')} = 1;\n    in.{_input('addr')} = (uint32_t)address;\n"
    if is_write:
        body = f"{direction}{set_flag}    memcpy(in.{_input('data')}, data, {copied_bytes});\n    return {name}_command(d, &in, NULL);"
    else:
        body = (
            f"{direction}{set_flag}    uint8_t result[{name.upper()}_RESULT_BYTES] = {{0}};\n"
            f"    const int answer = {name}_command(d, &in, result);\n"
            f"    memset(data, 0, {DATA_BYTES});\n    memcpy(data, result, sizeof result < {DATA_BYTES} ? sizeof result : {DATA_BYTES});\n"
            "    return answer;"
        )
    wide = "    if (address >> 32) return d->answer = FM_UNDECODED;\n"
    return f"{head}\n{{\n    {name}_inputs in;\n    memset(&in, 0, sizeof in);\n{wide}{body}\n}}\n"


def _attach(name: str, memory: str, ila: Ila, *, header: bool) -> str:
    type_name = c_type(ila.externals[memory].leaf.interval, False)
    head = f"void {name}_attach_{memory}({name}_device *d, {type_name} *words, int64_t count, uint64_t base)"
    if header:
        return f"{head};"
    registers = f"    d->m_{memory}_start[0] = base;\n    d->m_{memory}_size[0] = (uint64_t)count;\n"
    return f"{head}\n{{\n    d->m_{memory} = words;\n    d->m_{memory}_words = count;\n{registers}}}\n"


def _input(name: str) -> str:
    return f"i_{name}"


def _extent(leaf: Leaf) -> str:
    return f"[{math.prod(static_shape(leaf))}]" if leaf.shape else ""


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /").encode("ascii", "replace").decode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("…", "..").encode("ascii", "replace").decode()
