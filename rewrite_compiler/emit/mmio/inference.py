"""One inference of a plan, offload by offload, on devices that the caller supplies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...compile import Plan
from ...compile.host.host_program import HostProgram
from ...compile.offload.execute import PreparedOffload
from ...compile.plan.plan import Offload, tensors_of
from ...cosim.metrics.segmentation import segments
from ...errors import UsageError
from ...ir.program import Data, Program, Value

Host = Callable[[Program, Mapping[Value, Data]], Mapping[Value, Data]]
DeviceFor = Callable[[Offload], tuple[Any, Callable[[], None] | None]]  # the device of an offload, and what follows each call


@dataclass
class Inference:
    """A plan prepared for one sample, its constant operands encoded.

    Raises:
        UsageError: C100, the plan is not calibrated.
    """

    plan: Plan
    prepared: dict[str, PreparedOffload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_calibrated(self.plan)
        p = self.plan.program
        for o in self.plan.offloads:
            constants = {name: p.constants[v] for name, v in tensors_of(o).items() if v in p.constants}
            self.prepared[o.id] = PreparedOffload(o, constants)

    def run(self, inputs: Mapping[str, Data], device_for: DeviceFor, host: Host) -> dict[Value, Data]:
        """Return every computed value of the program for one sample of each input (no sample axis)."""
        p = self.plan.program
        values: dict[Value, Data] = {**p.constants, **{v: inputs[p.names[v]] for v in p.inputs}}
        for segment in segments(self.plan):
            if segment.host is not None:
                values.update(host(segment.host, {v: values[v] for v in segment.host.inputs}))
            for o in segment.offloads:
                values.update(zip(o.node.outputs, self._offload(o, values, device_for), strict=True))
        return values

    def _offload(self, o: Offload, values: Mapping[Value, Data], device_for: DeviceFor) -> tuple[Data, ...]:
        prepared = self.prepared[o.id]
        moving = {n: values[v][None] for n, v in tensors_of(o).items() if n not in prepared.constants and n not in o.mapping.axes.results}
        device, finished = device_for(o)
        results, _ = prepared.run(device, moving, None if finished is None else lambda *_: finished())
        return tuple(r[0] for r in results)


class Onnxruntime:
    """The host segments in onnxruntime, each prepared once."""

    def __init__(self) -> None:
        self.programs: dict[Value, HostProgram] = {}

    def __call__(self, part: Program, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs of a host segment for one sample (no sample axis)."""
        key = part.outputs[0]
        if key not in self.programs:
            self.programs[key] = HostProgram(part, part.inputs)
        return {v: x[0] for v, x in self.programs[key].run({v: x[None] for v, x in values.items()}).items()}


def check_calibrated(plan: Plan) -> None:
    """Check that a plan is calibrated, since its offloads have no commands before.

    Raises:
        UsageError: C100, it is not.
    """
    if not plan.calibrated:
        raise UsageError("C100", "the plan is not calibrated: its offloads have no formats", help="compile with --calibrate FILE")


def zero_inputs(p: Program) -> dict[str, Data]:
    """Return one sample of zeros for each input, by name."""
    return {p.names[v]: np.zeros(p.types[v].shape, p.types[v].dtype) for v in p.inputs}
