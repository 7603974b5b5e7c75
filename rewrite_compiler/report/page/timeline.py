"""Timeline: the bus traffic for one call of one offload, as lanes over time and as a list of commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...compile import Plan
from ...compile.offload.execute import PreparedOffload
from ...compile.plan.plan import Offload, tensors_of
from ...emit.mmio.listing import ENDS, Row, rows
from ...emit.mmio.recorder import Recorder, StreamRecorder, recorder
from ...ila import Ila
from ...ila.traces.assembly import disassemble
from ...ila.traces.trace import Commands, Fetch, Header, Place, Section, Trace, Wait
from ..graphics.charts import gantt_chart
from ..graphics.markup import figure, folded, note, table, text
from ..terminal import count_text

WORD_BYTES = 16  # of what one command carries
MAX_RECORDED_BYTES = 200_000  # bytes of commands and data that are worth making for a picture
MOST_INSTRUCTIONS, MOST_ROWS = 8, 60
WAITING = "device works"

Event = tuple[str, str, int]  # lane, phase, words; no words: the host waits


@dataclass(frozen=True)
class Timeline:
    """The commands of an offload's first call: busy intervals of each phase and instruction, in `unit`, and lines of text."""

    offload: str
    calls: int
    unit: str
    end: float
    spans: dict[str, list[tuple[float, float]]]
    commands: int
    rows: tuple[Row, ...]


def timeline_of(plan: Plan) -> Timeline | None:
    """Return the timeline of one offload for zero inputs: among those cheap to record, the one with most cycles.

    None when the plan has no offload or no formats yet.
    """
    if not plan.offloads or not plan.calibrated:
        return None
    o = _representative_offload(plan)
    device = recorder(o.target.ila())
    device.log.begin(o.id, 0)
    _first_call(plan, o, device)
    trace = Trace(Header(o.target.name), tuple(device.log.items))
    events = list(_events(trace, device.ila))
    compute, word, unit = _rates(o, events)
    spans, end = _spans(events, compute, word)
    listing = _command_rows(trace, device.ila)
    return Timeline(o.id, o.tiling.calls, unit, end, spans, sum(n for _, _, n in events), tuple(listing))


def _representative_offload(plan: Plan) -> Offload:
    cheap = [o for o in plan.offloads if _size(plan, o) <= MAX_RECORDED_BYTES]
    return max(cheap, key=_cycles) if cheap else min(plan.offloads, key=lambda o: _size(plan, o))


def _size(plan: Plan, o: Offload) -> int:
    return sum(plan.program.types[v].nbytes for v in tensors_of(o).values())


def _cycles(o: Offload) -> int:
    return o.macs if o.price is None else o.price.cycles


def _first_call(plan: Plan, o: Offload, device: Recorder | StreamRecorder) -> None:
    p = plan.program
    values = {n: v for n, v in tensors_of(o).items() if n not in o.mapping.axes.results}
    prepared = PreparedOffload(o, {n: p.constants[v] for n, v in values.items() if v in p.constants})
    moving = {n: np.zeros((1, *p.types[v].shape), p.types[v].dtype) for n, v in values.items() if v not in p.constants}
    codes = {**prepared.codes, **PreparedOffload(o, moving).codes}
    prepared.call(device, codes, next(iter(o.tiling.slices())))


def _events(trace: Trace, ila: Ila) -> Iterator[Event]:
    phase = ""
    for item in trace.items:
        if isinstance(item, Section):
            phase = item.phase
        elif isinstance(item, Commands):
            command, _ = next(_block_ends(item, 1).rows())  # a block that was recorded is of one instruction
            yield disassemble(ila, command).instruction.name, phase, len(item)
        elif isinstance(item, Place | Fetch):
            size = item.words.nbytes if isinstance(item, Place) else 0 if item.gives is None else item.gives.nbytes
            yield f"{item.memory} ({'read' if isinstance(item, Fetch) else 'write'})", phase, max(1, size // WORD_BYTES)
        elif isinstance(item, Wait):
            yield WAITING, phase, 0


def _block_ends(block: Commands, ends: int) -> Commands:
    """Return the first and the last commands of a block."""
    if len(block) <= 2 * ends:
        return block
    indices = [*range(ends), *range(len(block) - ends, len(block))]
    return Commands(
        {name: column[indices] for name, column in block.columns.items()}, None if block.gives is None else block.gives[indices]
    )


def _command_rows(trace: Trace, ila: Ila) -> Iterator[Row]:
    """Yield the commands as lines, the middle of a block as one."""
    section = Section(0, "", 0, "", False)
    for item in trace.items:
        if isinstance(item, Section):
            section = item
            continue
        end_block = _block_ends(item, ENDS) if isinstance(item, Commands) else item
        command_rows = rows(Trace(trace.header, (section, end_block)), ila, section.offload, call=section.call, is_complete=True)
        omitted = len(item) - len(end_block) if isinstance(item, Commands) and isinstance(end_block, Commands) else 0
        omission = [Row(section.phase, f"… {omitted} more", "…", omitted)] if omitted else []
        yield from (*command_rows[:ENDS], *omission, *command_rows[ENDS:])


def _rates(o: Offload, events: list[Event]) -> tuple[float, float, str]:
    """Return what one wait and one word take, and the unit: cycles of the plan's cost spread evenly, or commands without a cost."""
    waits, words = sum(n == 0 for _, _, n in events), sum(n for _, _, n in events)
    if o.price is None:
        return 1.0, 1.0, "commands"
    calls = o.tiling.calls
    return o.price.cost.compute_cycles / calls / max(1, waits), o.price.cost.transfer_cycles / calls / max(1, words), "cycles"


def _spans(events: list[Event], compute: float, word: float) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """Return the spans of each phase, of the device at work, and of the instructions that take most time; and the end."""
    phases: dict[str, list[tuple[float, float]]] = {}
    names: dict[str, list[tuple[float, float]]] = {}
    time = 0.0
    for name, phase, count in events:
        end = time + (count * word if count else compute)
        if count:
            _extend_spans(names.setdefault(name, []), time, end)
        _extend_spans(phases.setdefault(phase if count else WAITING, []), time, end)
        time = end
    order = sorted(names, key=lambda n: -sum(b - a for a, b in names[n]))
    top_spans = {n: names[n] for n in names if n in order[:MOST_INSTRUCTIONS]}
    remaining_spans = sorted(span for n in order[MOST_INSTRUCTIONS:] for span in names[n])
    other_spans = {f"{len(names) - len(top_spans)} more instructions": remaining_spans} if remaining_spans else {}
    return {**phases, **top_spans, **other_spans}, time


def _extend_spans(spans: list[tuple[float, float]], start: float, end: float) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))


def timeline_section(timeline: Timeline | None, calibrated: bool) -> str:
    """Return the section of the page, with the reason where there is no timeline."""
    if timeline is None:
        reason = "the plan has no offload" if calibrated else "the plan has no formats yet: compile with --calibrate FILE, or co-simulate"
        return folded("Commands of one offload", note(f"There are no commands to show: {reason}."), "timeline")
    call = f"the first of {count_text(timeline.calls, 'call')}" if timeline.calls > 1 else "its one call"
    spread = (
        "Transfers are spread evenly over the words." if timeline.unit == "cycles" else "One command a unit; the target gives no cycles."
    )
    about = f"{timeline.offload}: {call}, for inputs of zeros; {count_text(timeline.commands, 'word')} cross the bus. {spread}"
    drawing = gantt_chart(f"what crosses the bus for {timeline.offload}, over time", timeline.end, timeline.spans, timeline.unit)
    command_rows = [
        (text(r.phase), text(r.assembly), text(r.mmio), figure("" if r.times == 1 else str(r.times))) for r in timeline.rows[:MOST_ROWS]
    ]
    omitted = len(timeline.rows) - len(command_rows)
    omission = f"; flexmatch show offload {timeline.offload} PLAN --trace lists {omitted} lines more" if omitted else ""
    return folded(
        "Commands of one offload",
        note(about) + drawing + table(f"commands in order{_escaped(omission)}", ("phase", "instruction", "bus", "times"), command_rows),
        "timeline",
    )


def _escaped(words: str) -> str:
    return text(words)[1]
