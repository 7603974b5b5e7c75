"""An accelerator model as a page of reference: states, instructions, fields, semantics, read from the model alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...ila import Ila
from ...ila.model import Instruction, Operand, State
from ...lang.listing import StepWriter, diagnostics_of, step_listing
from ...lang.printer import show
from ...lang.step import updates_of
from .blocks import Block, Heading, Lines, Paragraph, Rows

SCHEMA = "flexmatch.ila/1"


def ila_blocks(m: Ila, only: str = "") -> list[Block]:
    """Return the page of a model, or of the instructions and states whose names contain `only`."""
    groups = [group for group in _groups(m) if only in group[0].name]
    states = [s for s in m.states.values() if only in s.name]
    head: list[Block] = [Heading(1, m.name), Paragraph(_line(m.doc))]
    if only:
        return [*head, *_states(m, states), *_details(groups)]
    about = [*_parameters(m), *_revisions(m), *_inputs(m), *_states(m, states)]
    return [*head, *about, *_summary(groups), *_queues(m), *_waits(m), *_details(groups)]


def ila_document(m: Ila) -> dict[str, Any]:
    """Return a model as JSON: inputs, states, instructions with fields, decodes, updates and diagnostics."""
    return {
        "schema": SCHEMA,
        "name": m.name,
        "parameters": {k: str(v) for k, v in m.parameters.items()},
        "inputs": [{"name": n, "lanes": _count(x.shape), "most": x.interval[1]} for n, x in m.inputs.items()],
        "states": [
            {
                "name": s.name, "shape": [int(n) for n in s.leaf.shape], "bits": s.bits, "signed": s.signed, "binding": s.binding,  # type: ignore[arg-type]
                "reset": s.reset, "doc": _line(s.doc),
            }
            for s in m.states.values()
        ],
        "instructions": [
            {
                "name": i.name, "at": "/".join(i.place.split("/")[-2:]), "doc": i.doc, "command": _command(i), "decode": show(i.decode),
                "fields": [{"name": n, "input": o.input, "low": o.bits.low, "high": o.bits.high} for n, o in i.operands.items()],
                "update": step_listing(i.update), "diagnostics": [{"code": c, "sentence": s} for c, s in diagnostics_of(i.update)],
            }
            for i in m.instructions.values()
        ],
    }  # fmt: skip


# -- tables


def _parameters(m: Ila) -> Iterator[Block]:
    if m.parameters:
        yield Paragraph("Parameters: " + ", ".join(f"{k} = {v}" for k, v in m.parameters.items()) + ".")


def _revisions(m: Ila) -> Iterator[Block]:
    if m.revisions is not None:
        yield Heading(2, f"What {m.revisions.parameter} decides")
        yield Rows(("of", *(f"{m.revisions.parameter} = {v}" for v in m.revisions.values)), list(m.revisions.rows))


def _inputs(m: Ila) -> Iterator[Block]:
    yield Heading(2, "Command inputs")
    yield Rows(("input", "lanes", "bits"), [(n, str(_count(x.shape)), str((x.interval[1] or 0).bit_length())) for n, x in m.inputs.items()])


def _states(m: Ila, states: Sequence[State]) -> Iterator[Block]:
    if not states:
        return
    yield Heading(2, "State")
    fields = _register_fields(m)
    rows = [
        (s.name, _shape(s), f"{'signed ' if s.signed else ''}{s.bits}", s.binding, str(s.reset), _line(s.doc) or fields.get(s.name, ""))
        for s in states
    ]
    yield Rows(("state", "shape", "bits", "binding", "reset", "meaning"), rows)


def _register_fields(m: Ila) -> dict[str, str]:
    """Return the instruction and bit field that set each register, for registers that are a field of a command."""
    fields: dict[str, str] = {}
    for i in m.instructions.values():
        operands = {o.leaf: o for o in i.operands.values()}
        for u in updates_of(i.update):
            source = u.value.data if u.value.op == "load" else None
            if source in operands:
                fields.setdefault(u.memory.name, f"{i.name}: {_bits(operands[source])}")
    return fields


def _shape(s: State) -> str:
    return " × ".join(str(n) if int(n) < 1 << 40 else "external" for n in s.leaf.shape) or "1"  # type: ignore[arg-type]


def _count(shape: Sequence[Any]) -> int:
    return int(shape[0]) if shape else 1


def _summary(groups: Sequence[tuple[Instruction, Sequence[Instruction]]]) -> Iterator[Block]:
    yield Heading(2, "Instructions")
    rows = [(_name(group), _commands(group), first.doc.split("\n")[0]) for first, group in groups]
    yield Rows(("instruction", "command", "does"), rows)


def _queues(m: Ila) -> Iterator[Block]:
    if not m.queues:
        return
    yield Heading(2, "Queues and tokens")
    rows = [(q.name, ", ".join(sorted(q.instructions)), _tokens(q.takes), _tokens(q.gives)) for q in m.queues]
    yield Rows(("queue", "instructions", "takes", "gives"), rows)


def _tokens(t: Mapping[str, str]) -> str:
    return ", ".join(f"{token} ({field})" for field, token in t.items())


def _waits(m: Ila) -> Iterator[Block]:
    if m.waits:
        yield Heading(2, "When no interrupt can come")
        yield Rows(("engine", "it"), list(dict.fromkeys((w.engine, w.sentence) for w in m.waits)))


# -- instructions


def _groups(m: Ila) -> list[tuple[Instruction, Sequence[Instruction]]]:
    """Return instructions with those that differ from them in the number of a unit only."""
    groups: dict[tuple[object, ...], list[Instruction]] = {}
    for i in m.instructions.values():
        fields = tuple((n, o.input, o.bits) for n, o in i.operands.items())
        prefix, digits, suffix = _unit(i.name)
        key = (prefix, bool(digits), suffix, i.doc, fields)
        groups.setdefault(key, []).append(i)
    return [(group[0], group) for group in groups.values()]


def _unit(name: str) -> tuple[str, str, str]:
    """Return a name before, in and after the number of the unit that its first word ends in."""
    first, _, suffix = name.partition("_")
    match = re.fullmatch(r"([a-z]+)(\d+)", first)
    return (match[1], match[2], suffix) if match else (first, "", suffix)


def _name(group: Sequence[Instruction]) -> str:
    if len(group) == 1:
        return group[0].name
    prefix, low, suffix = _unit(group[0].name)
    return f"{prefix}{low}…{_unit(group[-1].name)[1]}_{suffix}"


def _command(i: Instruction) -> str:
    """Return the command that the assembler makes: direction and address, or the bits that are fixed."""
    address = i.fixed.get("addr")
    kind = "read" if i.fixed.get("rd") else "write"
    if address is None:
        return ", ".join(f"{n} = {v:#x}" for n, v in i.fixed.items())
    address_fields = [o for o in i.operands.values() if o.input == "addr"]
    if not address_fields:
        return f"{kind} {address:#x}"
    return (
        f"{kind} {' + '.join([_base(address, address_fields[0]), *(f'{_step(o)}{n}' for n, o in i.operands.items() if o.input == 'addr')])}"
    )


def _base(address: int, o: Operand) -> str:
    return hex(address + (o.base << o.bits.low))


def _step(o: Operand) -> str:
    return f"{1 << o.bits.low} · " if o.bits.low else ""


def _commands(group: Sequence[Instruction]) -> str:
    return _command(group[0]) if len(group) == 1 else f"{_command(group[0])}, …, {_command(group[-1])}"


def _details(groups: Sequence[tuple[Instruction, Sequence[Instruction]]]) -> Iterator[Block]:
    yield Heading(2, "What each instruction does")
    for first, group in groups:
        yield Heading(3, _name(group))
        note = f" Shown is the first of {len(group)}." if len(group) > 1 else ""
        yield Paragraph(f"{_line(first.doc)}{note} Command: {_commands(group)}.".strip())
        yield from _fields(first)
        yield Lines(_result(first) or step_listing(first.update))
        diagnostics = diagnostics_of(first.update)
        if diagnostics:
            yield Paragraph("Strict simulation says:")
            yield Rows(("code", "sentence"), diagnostics)


def _result(i: Instruction) -> list[str]:
    """Return what a read gives, in place of an update that changes nothing."""
    update = step_listing(i.update)
    if i.result is None:
        return []
    result_line = f"gives {StepWriter().array(i.result)}"
    return [result_line] if update == ["nothing changes"] else [*update, result_line]


def _fields(i: Instruction) -> Iterator[Block]:
    rows = [(_bits(o), n, "signed" if o.bits.signed else "") for n, o in i.operands.items()]
    if rows:
        yield Rows(("bits", "field", ""), rows)


def _bits(o: Operand) -> str:
    if o.leaf.shape:
        return f"{o.input}, all lanes"
    low, high = o.bits.low, o.bits.high
    return f"{o.input}[{high}:{low}]" if high > low else f"{o.input}[{low}]"


def _line(text: str) -> str:
    """Return documentation as one line."""
    return " ".join(text.split())
