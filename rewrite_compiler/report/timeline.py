"""Timeline: what crosses the bus for one call of one offload, as lanes over time and as a list of commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..compile import Plan
from ..compile.offload.execute import Prepared
from ..compile.plan.plan import Offload, tensors_of
from ..emit.mmio.listing import ENDS, Row, rows
from ..emit.mmio.recorder import Recorder, StreamRecorder, recorder
from ..ila import Ila
from ..ila.traces.assembly import disassemble
from ..ila.traces.trace import Commands, Fetch, Header, Place, Section, Trace, Wait
from .charts import lanes
from .markup import figure, folded, note, table, text
from .terminal import counted

WORD_BYTES = 16  # of what one command carries
AFFORDABLE = 200_000  # bytes of commands and data that are worth making for a picture
MOST_INSTRUCTIONS, MOST_ROWS = 8, 60
WAITING = "device works"

Event = tuple[str, str, int]  # lane, phase, words; no words: the host waits


@dataclass(frozen=True)
class Timeline:
    """The commands of the first call of an offload: runs of one instruction as spans of cycles or commands, and lines for readers."""

    offload: str
    calls: int
    unit: str
    end: float
    spans: dict[str, list[tuple[float, float]]]
    commands: int
    rows: tuple[Row, ...]


def timeline_of(plan: Plan) -> Timeline | None:
    """Return the timeline of one offload for inputs of zeros: of those that are cheap to record the one that takes most cycles.

    None when the plan has no offload or no formats yet.
    """
    if not plan.offloads or not plan.calibrated:
        return None
    o = _typical(plan)
    device = recorder(o.target.ila())
    device.log.begin(o.id, 0)
    _first_call(plan, o, device)
    trace = Trace(Header(o.target.name), tuple(device.log.items))
    events = list(_events(trace, device.ila))
    compute, word, unit = _rates(o, events)
    spans, end = _spans(events, compute, word)
    listed = _listed(trace, device.ila)
    return Timeline(o.id, o.tiling.calls, unit, end, spans, sum(n for _, _, n in events), tuple(listed))


def _typical(plan: Plan) -> Offload:
    cheap = [o for o in plan.offloads if _size(plan, o) <= AFFORDABLE]
    return max(cheap, key=_cycles) if cheap else min(plan.offloads, key=lambda o: _size(plan, o))


def _size(plan: Plan, o: Offload) -> int:
    return sum(plan.program.types[v].nbytes for v in tensors_of(o).values())


def _cycles(o: Offload) -> int:
    return o.macs if o.price is None else o.price.cost.cycles


def _first_call(plan: Plan, o: Offload, device: Recorder | StreamRecorder) -> None:
    p = plan.program
    values = {n: v for n, v in tensors_of(o).items() if n not in o.mapping.axes.results}
    prepared = Prepared(o, {n: p.constants[v] for n, v in values.items() if v in p.constants})
    moving = {n: np.zeros((1, *p.types[v].shape), p.types[v].dtype) for n, v in values.items() if v not in p.constants}
    codes = {**prepared.codes, **Prepared(o, moving).codes}
    prepared.call(device, codes, next(iter(o.tiling.slices())))


def _events(trace: Trace, ila: Ila) -> Iterator[Event]:
    phase = ""
    for item in trace.items:
        if isinstance(item, Section):
            phase = item.phase
        elif isinstance(item, Commands):
            command, _ = next(_cut(item, 1).rows())  # a block that was recorded is of one instruction
            yield disassemble(ila, command).instruction.name, phase, len(item)
        elif isinstance(item, Place | Fetch):
            size = item.words.nbytes if isinstance(item, Place) else 0 if item.gives is None else item.gives.nbytes
            yield f"{item.memory} ({'read' if isinstance(item, Fetch) else 'write'})", phase, max(1, size // WORD_BYTES)
        elif isinstance(item, Wait):
            yield WAITING, phase, 0


def _cut(block: Commands, ends: int) -> Commands:
    """Return the first and the last commands of a block."""
    if len(block) <= 2 * ends:
        return block
    kept = [*range(ends), *range(len(block) - ends, len(block))]
    return Commands({name: column[kept] for name, column in block.columns.items()}, None if block.gives is None else block.gives[kept])


def _listed(trace: Trace, ila: Ila) -> Iterator[Row]:
    """Yield the commands as lines, the middle of a block as one."""
    section = Section(0, "", 0, "", False)
    for item in trace.items:
        if isinstance(item, Section):
            section = item
            continue
        short = _cut(item, ENDS) if isinstance(item, Commands) else item
        found = rows(Trace(trace.header, (section, short)), ila, section.offload, call=section.call, whole=True)
        left = len(item) - len(short) if isinstance(item, Commands) and isinstance(short, Commands) else 0
        more = [Row(section.phase, f"… {left} more", "…", left)] if left else []
        yield from (*found[:ENDS], *more, *found[ENDS:])


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
    now = 0.0
    for name, phase, count in events:
        end = now + (count * word if count else compute)
        if count:
            _extend(names.setdefault(name, []), now, end)
        _extend(phases.setdefault(phase if count else WAITING, []), now, end)
        now = end
    order = sorted(names, key=lambda n: -sum(b - a for a, b in names[n]))
    kept = {n: names[n] for n in names if n in order[:MOST_INSTRUCTIONS]}
    rest = sorted(span for n in order[MOST_INSTRUCTIONS:] for span in names[n])
    more = {f"{len(names) - len(kept)} more instructions": rest} if rest else {}
    return {**phases, **kept, **more}, now


def _extend(spans: list[tuple[float, float]], start: float, end: float) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))


def timeline(found: Timeline | None, calibrated: bool) -> str:
    """Return the section of the page."""
    if found is None:
        why = "the plan has no offload" if calibrated else "the plan has no formats yet: compile with --calibrate FILE, or co-simulate"
        return folded("Commands of one offload", note(f"There are no commands to show: {why}."), "timeline")
    call = f"the first of {counted(found.calls, 'call')}" if found.calls > 1 else "its one call"
    spread = "Transfers are spread evenly over the words." if found.unit == "cycles" else "One command a unit; the target gives no cycles."
    about = f"{found.offload}: {call}, for inputs of zeros; {counted(found.commands, 'word')} cross the bus. {spread}"
    drawn = lanes(f"what crosses the bus for {found.offload}, over time", found.end, found.spans, found.unit)
    listed = [(text(r.phase), text(r.assembly), text(r.mmio), figure("" if r.times == 1 else str(r.times))) for r in found.rows[:MOST_ROWS]]
    left = len(found.rows) - len(listed)
    more = f"; flexmatch show offload {found.offload} PLAN --trace lists {left} lines more" if left else ""
    return folded(
        "Commands of one offload",
        note(about) + drawn + table(f"commands in order{_escaped(more)}", ("phase", "instruction", "bus", "times"), listed),
        "timeline",
    )


def _escaped(words: str) -> str:
    return text(words)[1]
