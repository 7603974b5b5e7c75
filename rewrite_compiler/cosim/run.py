"""Co-simulation: a plan over data, host parts in onnxruntime and offloads on the generated simulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..compile.execute import Prepared, Statistics
from ..compile.host import HostProgram
from ..compile.plan import Offload, Plan, tensors_of
from ..errors import UsageError
from ..ir.evaluate import run as evaluate
from ..ir.program import Data, Value
from ..lang.named import Data as Array
from ..target import SimulatedDevice, SimulatedStream, body_of, simulated_device
from .audit import Audit
from .segments import Segment, segments

COMPARED_SAMPLES = 8  # the first samples of a run, in which offloads are compared with their float meaning
Progress = Callable[[int, int], None]


@dataclass
class Outcome:
    """The outputs for all samples, and what each offload saw."""

    outputs: dict[str, Data]
    statistics: dict[str, Statistics]
    instructions: int
    host_batching: tuple[str, ...] = ()


@dataclass
class Engine:
    """A plan ready to co-simulate."""

    plan: Plan
    reading: str = "arrays"
    threads: int = 1
    audit: int = 0  # results of each offload computed again by the oracle
    steps: list[tuple[Segment, HostProgram | None]] = field(default_factory=list)
    prepared: dict[str, Prepared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.plan.calibrated:
            raise UsageError(
                "C100",
                "the plan is not calibrated: its offloads have no formats",
                help="give --calibrate FILE, or --data with more than 32 samples",
            )
        p = self.plan.program
        self.ilas = {t.name: t.ila() for t in self.plan.targets}
        for s in segments(self.plan):
            host = None if s.host is None else HostProgram(s.host, s.host.inputs)
            self.steps.append((s, host))
        for o in self.plan.offloads:
            constants = {n: p.constants[v] for n, v in tensors_of(o).items() if v in p.constants}
            self.prepared[o.id] = Prepared(o, constants)

    def run(self, inputs: Mapping[str, Data], *, batch: int = 32, progress: Progress | None = None) -> Outcome:
        """Co-simulate all samples of `inputs` (samples first), `batch` at a time on each thread; the oracle takes one at a time."""
        batch = 1 if self.reading == "oracle" else batch
        samples = min(len(x) for x in inputs.values())
        parts = [slice(at, min(at + batch, samples)) for at in range(0, samples, batch)]
        results: list[tuple[dict[Value, Data], dict[str, Statistics], int]] = []
        first = self._batch(inputs, parts[0])  # chooses how host parts are batched, before threads share them
        results.append(first)
        with ThreadPoolExecutor(self.threads) as pool:
            for n, found in enumerate(pool.map(lambda part: self._batch(inputs, part), parts[1:]), 2):
                results.append(found)
                if progress is not None:
                    progress(min(n * batch, samples), samples)
        return self._outcome(results)

    def _outcome(self, results: Sequence[tuple[dict[Value, Data], dict[str, Statistics], int]]) -> Outcome:
        p = self.plan.program
        outputs = {p.names[v]: np.concatenate([found[v] for found, _, _ in results]) for v in p.outputs}
        statistics = {o.id: Statistics() for o in self.plan.offloads}
        for _, seen, _ in results:
            for key, s in seen.items():
                statistics[key].merge(s)
        why = [h.batching.why for _, h in self.steps if h is not None and h.batching is not None and h.batching.places is None]
        return Outcome(outputs, statistics, sum(n for _, _, n in results), tuple(dict.fromkeys(why)))

    def _batch(self, inputs: Mapping[str, Data], part: slice) -> tuple[dict[Value, Data], dict[str, Statistics], int]:
        p = self.plan.program
        values: dict[Value, Data] = {v: inputs[p.names[v]][part] for v in p.inputs}
        samples = len(next(iter(values.values())))
        devices: dict[str, SimulatedDevice | SimulatedStream] = {}
        seen: dict[str, Statistics] = {}
        for segment, host in self.steps:
            if host is not None:
                values.update(host.run({v: values[v] for v in host.program.inputs}))
            for o in segment.offloads:
                if o.target.name not in devices:
                    devices[o.target.name] = simulated_device(self.ilas[o.target.name], reading=self.reading, samples=samples)
                results, seen[o.id] = self._offload(o, devices[o.target.name], values, COMPARED_SAMPLES - part.start)
                values.update(zip(o.node.outputs, results, strict=True))
            for v in segment.dead:
                values.pop(v, None)
        outputs = {v: values[v] if v in values else np.broadcast_to(p.constants[v], (samples, *p.constants[v].shape)) for v in p.outputs}
        return outputs, seen, sum(d.sim.executed for d in devices.values())

    def _offload(
        self, o: Offload, device: SimulatedDevice | SimulatedStream, values: Mapping[Value, Data], compared: int
    ) -> tuple[tuple[Data, ...], Statistics]:
        moving = {n: values[v] for n, v in tensors_of(o).items() if v in values and n not in o.mapping.axes.results}
        prepared = self.prepared[o.id]
        audit = Audit(self.audit, self.ilas[o.target.name]) if compared == COMPARED_SAMPLES and self.audit else None
        results, seen = prepared.run(device, moving, None if audit is None else partial(audit.check, prepared))
        self._compare(o, moving, [r[: max(compared, 0)] for r in results], seen)
        return results, seen

    def _compare(self, o: Offload, moving: Mapping[str, Array], results: Sequence[Data], seen: Statistics) -> None:
        """Compare an offload's first result with its meaning in float64 on the same operands, for the first samples."""
        p = self.plan.program
        body = body_of(o.mapping, [p.types[v] for v in o.node.inputs], dict(o.node.attributes))
        constants = self.prepared[o.id].constants
        for n in range(len(results[0])):
            operands = {
                v: (moving[name][n] if name in moving else constants[name])
                for v, name in zip(body.inputs, [x.name for x in o.mapping.operands], strict=True)
            }
            expected = evaluate(body, operands)
            true = expected[body.outputs[0]]
            error = results[0][n].astype(np.float64) - true
            seen.squared_error += float(np.vdot(error, error))
            seen.squared_reference += float(np.vdot(true, true))
            seen.max_abs_error = max(seen.max_abs_error, float(np.max(np.abs(error), initial=0)))
            seen.compared += 1
