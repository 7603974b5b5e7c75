"""The listing of an offload: its program fragment, its ILA instructions and its bus commands, side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from ...compile.plan.plan import Offload, Plan, tensors_of
from ...errors import UsageError, did_you_mean
from ...ila import Ila
from ...ila.traces.assembly import DecodedCommand, disassemble
from ...ila.traces.trace import Attach, Commands, Fetch, Item, Place, Section, Trace
from ...ir.program import Program
from ...target import body_of

ENDS = 2  # commands shown at each end of a run of one instruction
WIDTHS = (32, 44, 48)
HEADINGS = ("program", "ILA instructions", "MMIO commands")


@dataclass(frozen=True)
class Row:
    """One command: its section's phase, its assembly and its bus access; `times` counts the omitted commands a row stands for."""

    phase: str
    assembly: str
    mmio: str
    times: int = 1


def offload_of(plan: Plan, key: str) -> Offload:
    """Return an offload of a plan by its id.

    Raises:
        UsageError: F203, the plan has no such offload.
    """
    offload = next((o for o in plan.offloads if o.id == key), None)
    if offload is None:
        ids = [o.id for o in plan.offloads]
        remedy = " ".join(filter(None, (did_you_mean(key, ids), f"offloads: {', '.join(ids) or 'none'}")))
        raise UsageError("F203", f'the plan has no offload "{key}"', help=remedy)
    return offload


def fragment(plan: Plan, o: Offload) -> list[str]:
    """Return the meaning of an offload as text: its tensors with their formats, then its operators."""
    p = plan.program
    lines = []
    for name, v in tensors_of(o).items():
        f = o.formats.get(name)
        format_ = "" if f is None else f" {f.name}({', '.join(f'{k}={x}' for k, x in f.parameters.items())})"
        lines.append(f"{name}: {p.types[v].dtype}{list(p.types[v].shape)}{format_}")
    body = body_of(o.mapping, [p.types[v] for v in o.node.inputs], dict(o.node.attributes))
    results = dict(zip(body.outputs, o.mapping.axes.results, strict=True))
    return [*lines, *_operators(body, results)]


def _operators(body: Program, results: Mapping[int, str]) -> Iterator[str]:
    names = {v: results.get(v, body.names[v]) for v in range(len(body.types))}
    for node in body.nodes:
        attributes = [f"{key}={list(x) if isinstance(x, tuple) else x}" for key, x in node.attributes]
        operands = ", ".join([*(names[v] for v in node.inputs), *attributes])
        yield f"{', '.join(names[v] for v in node.outputs)} = {node.op}({operands})"


def rows(trace: Trace, ila: Ila, offload: str, *, call: int = 0, is_complete: bool = False) -> list[Row]:
    """Return the commands of one call of an offload; long runs of one instruction are shortened unless all rows are wanted.

    Raises:
        SpecError: I101, a command is of no instruction of the model.
    """
    listing: list[Row] = []
    is_selected, phase = False, ""
    for item in trace.items:
        if isinstance(item, Section):
            is_selected, phase = item.offload == offload and item.call == call, item.phase
        elif is_selected and isinstance(item, Commands):
            listing += _shortened_runs(list(_commands(item, ila, phase)), is_complete)
        elif is_selected:
            listing.append(_event(item, phase))
    return listing


def _commands(block: Commands, ila: Ila, phase: str) -> Iterator[tuple[str, Row]]:
    for command, gives in block.rows():
        disassembled = disassemble(ila, command)
        yield disassembled.instruction.name, Row(phase, _assembly(disassembled), _bus(command, gives))


def _assembly(disassembled: DecodedCommand) -> str:
    """Return an instruction with its operands that are not 0; all lanes of the bus appear in the command beside it."""
    fields = [
        f"{name}=…" if disassembled.instruction.operands[name].leaf.shape else f"{name}={x}"
        for name, x in disassembled.operands.items()
        if x or disassembled.instruction.operands[name].leaf.shape
    ]
    return " ".join([disassembled.instruction.name, *fields, *(["|", *disassembled.raw] if disassembled.raw else [])])


def _bus(command: Mapping[str, int], gives: int | None) -> str:
    direction = "W" if command.get("wr") else "R" if command.get("rd") else ""
    extra_inputs = [f"{name}={x:#x}" for name, x in command.items() if name not in ("wr", "rd", "addr", "data")]
    word = [f"{command.get('data', 0):#x}"] if direction != "R" else []
    place = [f"{command['addr']:#010x}"] if "addr" in command else []
    return " ".join(filter(None, [direction, *place, *word, *extra_inputs, "" if gives is None else f"→ {gives:#x}"]))


def _event(item: Item, phase: str) -> Row:
    if isinstance(item, Attach):
        return Row(phase, "", f"{item.memory}: {item.words} words")
    if isinstance(item, Place):
        return Row(phase, "", f"{item.memory}[{item.address}…{item.address + len(item.words) - 1}] :=")
    if isinstance(item, Fetch):
        return Row(phase, "", f"{item.memory}[{item.address}…{item.address + item.count - 1}] →")
    return Row(phase, "wait", "wait for the interrupt")


def _shortened_runs(commands: list[tuple[str, Row]], complete: bool) -> list[Row]:
    runs: list[list[tuple[str, Row]]] = []
    for name, row in commands:
        if not runs or runs[-1][-1][0] != name:
            runs.append([])
        runs[-1].append((name, row))
    result: list[Row] = []
    for run in runs:
        lines = [row for _, row in run]
        left_out = len(lines) - 2 * ENDS
        if complete or left_out <= 1:
            result += lines
        else:
            result += [*lines[:ENDS], Row(lines[0].phase, f"… {left_out} more", "…", left_out), *lines[-ENDS:]]
    return result


def side_by_side(program: list[str], commands: list[Row]) -> list[str]:
    """Return lines of three columns: the fragment, the instructions under their phases, and the bus commands."""
    command_cells: list[tuple[str, str]] = []
    phase = ""
    for row in commands:
        if row.phase != phase:
            phase = row.phase
            command_cells.append((f"; {phase}", ""))
        command_cells += _wrapped(row)
    program_cells = [part for line in program for part in textwrap.wrap(line, WIDTHS[0], subsequent_indent="  ", break_on_hyphens=False)]
    table = [HEADINGS, tuple("-" * w for w in WIDTHS), *((a or "", *(b or ("", ""))) for a, b in zip_longest(program_cells, command_cells))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, WIDTHS, strict=True)).rstrip() for line in table]


def _wrapped(row: Row) -> list[tuple[str, str]]:
    cells = [textwrap.wrap(x, w, subsequent_indent="  ") for x, w in zip((row.assembly, row.mmio), WIDTHS[1:], strict=True)]
    return [(a or "", b or "") for a, b in zip_longest(*cells)]
