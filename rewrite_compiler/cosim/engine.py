"""The co-simulation engine: the host segments of a plan in onnxruntime, its offloads by their numerics or on simulators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from ..compile.host.exact_host import host_program
from ..compile.host.host_program import HostProgram
from ..compile.host.lazy_codes import Operand
from ..compile.offload.execute import PreparedOffload, Statistics
from ..compile.offload.specified import NumericsOffload
from ..compile.plan.plan import Offload, Plan
from ..errors import UsageError
from ..ila import Ila
from ..ir.program import Data, Value
from ..limits import DEFAULT
from ..target import Device, SimulatedDevice, SimulatedStream, simulated_device
from .batch_size import EVERY
from .float_comparison import FloatComparison
from .format_errors import OffloadNumerics
from .metrics.segmentation import Segment, segments
from .prefetch import in_order, prefetch_limit
from .schedule import constants_of, layout_free_offloads, run_segments
from .tier import NUMERICS
from .validation.audit import Audit, audited_samples

SHOWN_INSTRUCTIONS = 4
LEAST_COMPARED, MOST_COMPARED = 8, 64  # the first samples of a run, in which offloads are compared with their float meaning
COMPARED_WORK = 1 << 25  # multiply-accumulates of these samples, of which the least number may have more
Progress = Callable[[int, int], None]
Take = Callable[[slice], Mapping[str, Data]]  # inputs of some samples
Figures = TypeVar("Figures", Statistics, OffloadNumerics)  # what can be added up


@dataclass
class Outcome:
    """The outputs [samples, …] of a batch by name, and the statistics of each offload by its id."""

    outputs: dict[str, Data]
    statistics: dict[str, Statistics]
    instructions: int
    host_batching: tuple[str, ...] = ()
    numerics: dict[str, OffloadNumerics] = field(default_factory=dict)


def compared_samples(plan: Plan) -> int:
    """Return the number of samples in which the offloads of a plan are compared with their float meaning: more of small ones."""
    work = sum(max(o.macs, *(math.prod(shape) for shape in o.shapes)) for o in plan.offloads)
    return max(LEAST_COMPARED, min(MOST_COMPARED, COMPARED_WORK // max(1, work)))


@dataclass
class Engine:
    """A plan prepared for co-simulation: its host programs, offloads and device models."""

    plan: Plan
    reading: str = "arrays"
    threads: int = 1
    audit: int = EVERY  # batches, of which a sample is computed again; 0: none
    steps: list[tuple[Segment, HostProgram | None]] = field(default_factory=list)
    prepared: dict[str, PreparedOffload] = field(default_factory=dict)
    compared: int = -1  # the first samples, in which offloads are compared with their float meaning; below 0: by their work
    built_models: Mapping[str, Ila] = field(default_factory=dict)  # models of targets that are built already, by the target's hash
    host: str = "onnxruntime"  # or "exact"
    host_seconds: int = DEFAULT.host_seconds  # of a sample's host part
    engine: str = NUMERICS  # what computes offloads: numerics where they have some, or simulators
    has_begun: bool = field(init=False, default=False)  # whether a batch ran
    size: int = field(init=False, default=1)  # of the largest batch
    background: ThreadPoolExecutor | None = field(init=False, default=None)  # computes what the next step of a batch does not need
    background_work: list[Future[None]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not self.plan.calibrated:
            raise UsageError(
                "C100",
                "the plan is not calibrated: its offloads have no formats",
                help="give --calibrate FILE, or --data with more than 32 samples",
            )
        if self.compared < 0:
            self.compared = compared_samples(self.plan)
        self.ilas = {t.name: self.built_models[t.sha256] if t.sha256 in self.built_models else t.ila() for t in self.plan.targets}
        for s in segments(self.plan):
            self.steps.append((s, None if s.host is None else host_program(self.host, s.host, self.host_seconds)))
        self.layout_free = layout_free_offloads(self.plan, self.steps)
        for o in self.plan.offloads:
            constants, is_specified = constants_of(self.plan.program, o), self.engine == NUMERICS and o.mapping.codes is not None
            self.prepared[o.id] = (
                NumericsOffload(o, constants, is_native=self.reading == "native") if is_specified else PreparedOffload(o, constants)
            )

    def run(self, inputs: Mapping[str, Data], *, batch: int = 32, progress: Progress | None = None) -> Outcome:
        """Co-simulate all samples of `inputs` [samples, …], `batch` at a time on each thread; the oracle takes one at a time."""
        samples = min(len(x) for x in inputs.values())
        batch = 1 if self.reading == "oracle" else batch
        parts = [slice(start, min(start + batch, samples)) for start in range(0, samples, batch)]
        results = []
        for n, outcome in enumerate(self.batches(lambda part: {name: x[part] for name, x in inputs.items()}, parts)):
            results.append(outcome)
            if progress is not None and n:
                progress(parts[n].stop, samples)
        return concatenated_outcomes(results)

    def batches(self, take: Take, parts: Sequence[slice]) -> Iterator[Outcome]:
        """Yield the outcome of each part of the samples in order; the very first runs alone, as it chooses how host segments batch."""
        if not parts:
            return
        largest = max(part.stop - part.start for part in parts)
        self.size = max(self.size, largest)
        if not self.has_begun:
            self.has_begun = True
            with self._background_thread():
                outcome = self.batch(take, parts[0])
            yield outcome
            parts = parts[1:]
        ahead = prefetch_limit(self.plan.program, largest, self.threads)
        with closing(in_order(lambda part: self.batch(take, part), parts, self.threads, ahead)) as futures:
            yield from (future.result() for future in futures)

    @contextmanager
    def _background_thread(self) -> Iterator[None]:
        """Provide a thread, where several are allowed, for work that the next step of a batch does not need; wait for it at the end."""
        if self.threads == 1:
            yield
            return
        try:
            with ThreadPoolExecutor(1) as self.background:
                yield
            for future in self.background_work:
                future.result()
        finally:
            self.background = None
            self.background_work.clear()

    @property
    def host_batching(self) -> tuple[str, ...]:
        """Sentences on why host segments run one sample at a time."""
        reasons = [h.batching.why for _, h in self.steps if h is not None and h.batching is not None and h.batching.places is None]
        return tuple(f"host part ran one sample at a time: {w}" for w in dict.fromkeys(reasons) if w)

    def batch(self, take: Take, part: slice) -> Outcome:
        """Co-simulate one batch: the samples of `part`, whose inputs `take` returns."""
        inputs = take(part)
        p, samples = self.plan.program, part.stop - part.start
        devices: dict[str, SimulatedDevice | SimulatedStream] = {}
        statistics: dict[str, Statistics] = {}
        comparison = self._float_comparison({v: inputs[p.names[v]] for v in p.inputs}, samples, part.start)
        reading = "arrays" if self.reading == "oracle" else self.reading
        audit = Audit(part, audited_samples(part, self.size, self.audit), self.ilas, reading)

        def run(o: Offload, moving: Mapping[str, Operand]) -> Sequence[Operand]:
            prepared, started = self.prepared[o.id], time.thread_time()
            results: Sequence[Operand]
            if isinstance(prepared, NumericsOffload):
                results, statistics[o.id] = (
                    prepared.run_lazily(moving) if o.id in self.layout_free else prepared.run(cast(Device, None), moving)
                )
                statistics[o.id].slow = prepared.slow
            else:
                if o.target.name not in devices:
                    devices[o.target.name] = simulated_device(self.ilas[o.target.name], reading=self.reading, samples=samples)
                results, statistics[o.id] = prepared.run(devices[o.target.name], moving)
                statistics[o.id].slow = (without_numerics(o),) if self.engine == NUMERICS else ()
            statistics[o.id].seconds = time.thread_time() - started
            audit.check(prepared, moving, results, statistics[o.id])
            self._compare_with_float(o, moving, results, statistics[o.id], comparison)
            return results

        outputs = run_segments(p, self.steps, inputs, samples, run)
        notes = (*self.host_batching, *(note for name, d in devices.items() for note in without_machine_code(name, d.sim.not_native)))
        slow = dict.fromkeys(note for x in statistics.values() for note in x.slow)
        executed = sum(d.sim.executed for d in devices.values()) + audit.instructions
        return Outcome(outputs, statistics, executed, (*notes, *slow, *audit.notes), comparison.numerics)

    def _float_comparison(self, inputs: Mapping[Value, Data], samples: int, start: int) -> FloatComparison:
        """Return the comparison with float values of a batch's samples that are among the first of the run."""
        count = max(min(self.compared - start, samples), 0)
        return FloatComparison(self.plan, {v: x[:count] for v, x in inputs.items()}, count, start, self.host_seconds)

    def _compare_with_float(
        self, o: Offload, moving: Mapping[str, Operand], results: Sequence[Operand], statistics: Statistics, comparison: FloatComparison
    ) -> None:
        """Compare an offload's results with float values, for the batch's samples that are to be compared."""
        if not comparison.count:
            return
        work = comparison.work_of(self.prepared[o.id], moving, results, statistics)
        if self.background is None:
            work()
        else:
            self.background_work.append(self.background.submit(work))


def without_numerics(o: Offload) -> str:
    """Return the sentence that an offload without numerics runs on a simulator instead."""
    return f"{o.mapping.name} ({o.mapping.rule.place}) has no numerics: the commands of its driver run on the simulator for every sample"


def without_machine_code(target: str, not_native: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each reason why instructions ran without machine code although it was selected."""
    for cause in dict.fromkeys(not_native.values()):
        names = [name for name, reason in not_native.items() if reason == cause]
        names_text = ", ".join(names) if len(names) < SHOWN_INSTRUCTIONS else f"{len(names)} instructions"
        yield f"{names_text} of {target} ran without machine code: {cause}"


def concatenated_outcomes(results: Sequence[Outcome]) -> Outcome:
    """Concatenate the outcomes of several batches."""
    outputs = {name: np.concatenate([outcome.outputs[name] for outcome in results]) for name in results[0].outputs}
    statistics = merged_by_offload([r.statistics for r in results], Statistics)
    numerics = merged_by_offload([r.numerics for r in results], OffloadNumerics)
    notes = tuple(dict.fromkeys(w for r in results for w in r.host_batching))
    return Outcome(outputs, statistics, sum(r.instructions for r in results), notes, numerics)


def merged_by_offload(parts: Sequence[Mapping[str, Figures]], new: Callable[[], Figures]) -> dict[str, Figures]:
    """Return the statistics of each offload over several batches, accumulated in order into a `new` one."""
    totals: dict[str, Figures] = {}
    for part in parts:
        for key, figures in part.items():
            totals.setdefault(key, new()).merge(figures)
    return totals
