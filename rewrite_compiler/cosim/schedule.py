"""The execution order of a plan: host segments and offloads in turn, over some samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..compile.host.host_program import HostProgram
from ..compile.host.lazy_codes import Operand, elements_of
from ..compile.host.lazy_host import FastHostProgram
from ..compile.plan.plan import Offload, Plan, tensors_of
from ..ir.program import Data, Program, Value
from .metrics.segmentation import Segment

Steps = Sequence[tuple[Segment, HostProgram | None]]
Run = Callable[[Offload, Mapping[str, Operand]], Sequence[Operand]]


def run_segments(p: Program, steps: Steps, inputs: Mapping[str, Data], samples: int, run: Run) -> dict[str, Data]:
    """Return the outputs [samples, …] for inputs by name; `run` returns the results of an offload for its moving operands."""
    values: dict[Value, Operand] = {v: inputs[p.names[v]] for v in p.inputs}
    for segment, host in steps:
        if host is not None:
            values.update(host.run_lazily({v: values[v] for v in host.program.inputs}))
        for o in segment.offloads:
            moving = {n: values[v] for n, v in tensors_of(o).items() if v in values and n not in o.mapping.axes.results}
            values.update(zip(o.node.outputs, run(o, moving), strict=True))
        for v in segment.dead:
            values.pop(v, None)
    outputs = {
        v: elements_of(values[v]) if v in values else np.broadcast_to(p.constants[v], (samples, *p.constants[v].shape)) for v in p.outputs
    }
    return {p.names[v]: x for v, x in outputs.items()}


def layout_free_offloads(plan: Plan, steps: Steps) -> frozenset[str]:
    """Return the offloads whose results only consumers read that accept any order of axes."""
    ordered = set(plan.program.outputs)
    for _, host in steps:
        if host is not None and not isinstance(host, FastHostProgram):
            ordered.update(host.program.inputs)
    return frozenset(o.id for o in plan.offloads if ordered.isdisjoint(o.node.outputs))


def constants_of(p: Program, o: Offload) -> dict[str, Data]:
    """Return the constant operands of an offload by name."""
    return {n: p.constants[v] for n, v in tensors_of(o).items() if v in p.constants}
