"""The traces of a plan: one for each accelerator over a whole inference, and the costs of its phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...compile import Plan
from ...compile.plan.plan import Offload
from ...ila import Ila
from ...ila.traces.trace import Commands, Fetch, Header, Item, Place, Section, Trace
from ...ir.program import Data
from .inference import Host, Inference, Onnxruntime, zero_inputs
from .recorder import PHASES, Phase, Recorder, StreamRecorder, recorder


@dataclass(frozen=True)
class EmittedTrace:
    """The trace of one inference on one accelerator, and the accelerator's model."""

    ila: Ila
    trace: Trace


@dataclass(frozen=True)
class Cost:
    """The commands and bytes of one phase of an offload over one inference; bytes cross the bus or go to external memory."""

    offload: str
    phase: str
    constant: bool
    commands: int
    bytes: int


def traces_of(
    plan: Plan, inputs: Mapping[str, Data] | None = None, *, about: str = "", host: Host | None = None
) -> dict[str, EmittedTrace]:
    """Return the trace of each accelerator of a plan for one sample (default: zeros), with the simulator's results of reads.

    Raises:
        UsageError: C100, the plan is not calibrated.
    """
    inference = Inference(plan)
    devices: dict[str, Recorder | StreamRecorder] = {}

    def device_for(o: Offload) -> tuple[Recorder | StreamRecorder, Callable[[], None]]:
        if o.target.name not in devices:
            devices[o.target.name] = recorder(o.target.ila())
        device = devices[o.target.name]
        device.log.begin(o.id, 0)
        return device, lambda: device.log.begin(o.id, device.log.call + 1)

    inference.run(inputs or zero_inputs(plan.program), device_for, host or Onnxruntime())
    header_fields = {"model": Path(plan.model["path"]).name, "model_sha256": plan.model["sha256"], "inputs": about or "zeros"}
    targets = {t.name: t for t in plan.targets}
    return {
        name: EmittedTrace(
            d.ila, Trace(Header(name, targets[name].values, targets[name].sha256, header_fields), tuple(_merge_blocks(d.log.items)))
        )
        for name, d in devices.items()
    }


def part_of(trace: Trace, *, constant: bool) -> Trace:
    """Return the sections that do not depend on the inputs, or the others."""
    items: list[Item] = []
    is_selected = False
    for item in trace.items:
        if isinstance(item, Section):
            is_selected = item.constant is constant
        if is_selected:
            items.append(item)
    about = {**trace.header.about, "part": "constant" if constant else "inference"}
    return replace(trace, header=replace(trace.header, about=about), items=tuple(items))


def merged_trace(traces: Iterable[Trace]) -> Trace:
    """Merge partial traces of one trace, their sections in order."""
    first, *remaining = traces
    sections = sorted((s for t in (first, *remaining) for s in _sections(t)), key=lambda s: s[0].part if isinstance(s[0], Section) else -1)
    about = {key: x for key, x in first.header.about.items() if key != "part"} if remaining else first.header.about
    return Trace(replace(first.header, about=about), tuple(item for s in sections for item in s))


def costs(trace: Trace) -> list[Cost]:
    """Return the commands and bytes of each offload and phase, in the order of the trace."""
    totals: dict[tuple[str, str], Cost] = {}
    for section in _sections(trace):
        head, *items = section
        if not isinstance(head, Section):
            continue
        old = totals.get((head.offload, head.phase), Cost(head.offload, head.phase, head.constant, 0, 0))
        commands, size = (sum(x) for x in zip((0, 0), *map(_size, items), strict=True))
        totals[head.offload, head.phase] = replace(old, commands=old.commands + commands, bytes=old.bytes + size)
    order = {o: n for n, o in enumerate(dict.fromkeys(o for o, _ in totals))}
    return sorted(totals.values(), key=lambda c: (order[c.offload], PHASES.index(Phase(c.phase))))


def cycles_of(rows: Sequence[Cost], plan: Plan) -> list[int | None]:
    """Return the estimated cycles of each row: compute cycles for the run, transfer cycles in proportion to bytes for the others.

    None where the target declares no costs.
    """
    prices = {o.id: o.price for o in plan.offloads}
    bytes_moved = Counter[str]()
    for c in rows:
        bytes_moved[c.offload] += c.bytes if c.phase != Phase.RUN else 0
    cycles: list[int | None] = []
    for c in rows:
        price = prices[c.offload]
        if price is None:
            cycles.append(None)
        elif c.phase == Phase.RUN:
            cycles.append(price.cost.compute_cycles)
        else:
            cycles.append(price.cost.transfer_cycles * c.bytes // max(1, bytes_moved[c.offload]))
    return cycles


def _size(item: Item) -> tuple[int, int]:
    """Return the commands and the data bytes of an item: lanes of a bus command, words of external memory."""
    if isinstance(item, Commands):
        lanes = sum(c.shape[1] for c in item.columns.values() if c.ndim > 1)
        return len(item), len(item) * lanes
    if isinstance(item, Place):
        return 0, item.words.nbytes
    if isinstance(item, Fetch):
        return 0, 0 if item.gives is None else item.gives.nbytes
    return 0, 0


def _sections(trace: Trace) -> list[list[Item]]:
    sections: list[list[Item]] = []
    for item in trace.items:
        if isinstance(item, Section) or not sections:
            sections.append([])
        sections[-1].append(item)
    return sections


def _merge_blocks(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items with neighbouring blocks of commands without results merged."""
    pending: list[Commands] = []
    for item in items:
        if isinstance(item, Commands) and item.gives is None:
            pending.append(item)
            continue
        yield from _merged_block(pending)
        pending = []
        yield item
    yield from _merged_block(pending)


def _merged_block(blocks: list[Commands]) -> Iterator[Commands]:

    if blocks:
        yield Commands({name: np.concatenate([b.columns[name] for b in blocks]) for name in blocks[0].columns})
