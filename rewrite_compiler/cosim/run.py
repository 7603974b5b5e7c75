"""Co-simulation: a plan over data, host parts in onnxruntime and offloads on the generated simulators."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

import numpy as np

from ..compile.calibrate import float_program
from ..compile.coded import Operand, looked_at
from ..compile.exact import host_program
from ..compile.execute import Prepared, Statistics
from ..compile.host import HostProgram
from ..compile.numerics import Specified
from ..compile.plan import Offload, Plan
from ..errors import UsageError
from ..ila import Ila
from ..ir.evaluate import run as evaluate
from ..ir.program import Data, Value
from ..lang.named import Data as Array
from ..lang.tape import Diverged
from ..lang.twin import NoTwin
from ..limits import DEFAULT
from ..target import Device, SimulatedDevice, SimulatedStream, TapedDevice, body_of, simulated_device
from .ahead import in_order, most_ahead
from .audit import EVERY, Audit, chosen
from .flow import constants_of, flow, loose
from .numerics import OffloadNumerics
from .segments import Segment, segments
from .tapes import First, Group, Tapes, why_not
from .tier import NUMERICS, RECORDED

SHOWN_INSTRUCTIONS = 4
COMPARED_SAMPLES = 8  # the first samples of a run, in which offloads are compared with their float meaning
Progress = Callable[[int, int], None]
Take = Callable[[slice], Mapping[str, Data]]  # inputs of some samples
Seen = TypeVar("Seen", Statistics, OffloadNumerics)  # what can be added up


@dataclass
class Outcome:
    """The outputs for some samples, and what each offload saw."""

    outputs: dict[str, Data]
    statistics: dict[str, Statistics]
    instructions: int
    host_batching: tuple[str, ...] = ()
    numerics: dict[str, OffloadNumerics] = field(default_factory=dict)


@dataclass
class Engine:
    """A plan ready to co-simulate."""

    plan: Plan
    reading: str = "arrays"
    threads: int = 1
    audit: int = EVERY  # batches, of which a sample is computed again; 0: none
    steps: list[tuple[Segment, HostProgram | None]] = field(default_factory=list)
    prepared: dict[str, Prepared] = field(default_factory=dict)
    compared: int = COMPARED_SAMPLES
    built: Mapping[str, Ila] = field(default_factory=dict)  # models of targets that are built already, by the target's hash
    host: str = "onnxruntime"  # or "exact"
    host_seconds: int = DEFAULT.host_seconds  # of a sample's host part
    engine: str = NUMERICS  # what computes offloads: numerics where they have some, recorded simulators, or simulators
    tapes: Tapes = field(init=False)
    has_begun: bool = field(init=False, default=False)  # whether a batch ran
    size: int = field(init=False, default=1)  # of the largest batch
    aside: ThreadPoolExecutor | None = field(init=False, default=None)  # computes what the next step of a batch does not need
    computed_aside: list[Future[None]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not self.plan.calibrated:
            raise UsageError(
                "C100",
                "the plan is not calibrated: its offloads have no formats",
                help="give --calibrate FILE, or --data with more than 32 samples",
            )
        self.ilas = {t.name: self.built[t.sha256] if t.sha256 in self.built else t.ila() for t in self.plan.targets}
        self.tapes = Tapes(self.reading, self.ilas)
        for s in segments(self.plan):
            self.steps.append((s, None if s.host is None else host_program(self.host, s.host, self.host_seconds)))
        self.loose = loose(self.plan, self.steps)
        for o in self.plan.offloads:
            constants, is_specified = constants_of(self.plan.program, o), self.engine == NUMERICS and o.mapping.codes is not None
            self.prepared[o.id] = Specified(o, constants, is_native=self.reading == "native") if is_specified else Prepared(o, constants)

    def run(self, inputs: Mapping[str, Data], *, batch: int = 32, progress: Progress | None = None) -> Outcome:
        """Co-simulate all samples of `inputs` (samples first), `batch` at a time on each thread; the oracle takes one at a time."""
        samples = min(len(x) for x in inputs.values())
        batch = 1 if self.reading == "oracle" else batch
        parts = [slice(at, min(at + batch, samples)) for at in range(0, samples, batch)]
        results = []
        for n, found in enumerate(self.batches(lambda part: {name: x[part] for name, x in inputs.items()}, parts)):
            results.append(found)
            if progress is not None and n:
                progress(parts[n].stop, samples)
        return together(results)

    def batches(self, take: Take, parts: Sequence[slice]) -> Iterator[Outcome]:
        """Yield what each part of the samples gives, in order; the very first one alone, as it chooses how host parts are batched."""
        if not parts:
            return
        self.tapes.expected += len(parts)
        sizes = Counter(part.stop - part.start for part in parts)
        self.size = max(self.size, *sizes)
        self.tapes.rare = frozenset(n for n, times in sizes.items() if times == 1) if len(parts) > 1 else frozenset()
        if not self.has_begun:
            self.has_begun = True
            with self._aside():
                found = self.batch(take, parts[0])
            yield found
            parts = parts[1:]
        rare = [n for n, part in enumerate(parts) if part.stop - part.start in self.tapes.rare]  # run without a tape: as long as several
        most = most_ahead(self.plan.program, max(sizes), self.threads)
        with closing(in_order(lambda part: self.batch(take, part), parts, self.threads, most, first=rare)) as begun:
            yield from (one.result() for one in begun)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Have what the next step of a batch does not need computed by another thread, if there is one; all of it, at the end."""
        if self.threads == 1:
            yield
            return
        try:
            with ThreadPoolExecutor(1) as self.aside:
                yield
            for one in self.computed_aside:
                one.result()
        finally:
            self.aside = None
            self.computed_aside.clear()

    @property
    def host_batching(self) -> tuple[str, ...]:
        """Why host parts run one sample at a time."""
        why = [h.batching.why for _, h in self.steps if h is not None and h.batching is not None and h.batching.places is None]
        return tuple(f"host part ran one sample at a time: {w}" for w in dict.fromkeys(why) if w)

    def batch(self, take: Take, part: slice) -> Outcome:
        """Co-simulate one part of the samples: on a tape where there is one, else on simulators, which may make one."""
        samples = part.stop - part.start
        group = self.tapes.taken(samples) or self._twin(samples)
        if group is not None:
            try:
                found = self._once(take(part), part, group)
            except Diverged:
                self.tapes.refuse("a driver sent other commands for other samples")
            else:
                self.tapes.keep(samples, group)
                return found
        is_wanted = self.engine == RECORDED and self.tapes.are_wanted and samples not in self.tapes.rare
        return self._recorded(take(part), part) if is_wanted else self._once(take(part), part)

    def _twin(self, samples: int) -> Group | None:
        """Return a recording of another thread on memory of its own, once it gives the same outputs; None where there is none."""
        first = self.tapes.first.get(samples)
        if first is None or self.tapes.refused:
            return None
        group = first.twin()
        is_twin = self._gives(first.outputs, first.inputs, first.part, group)
        if not is_twin or first.twins == self.threads - 1:
            self.tapes.first.pop(samples, None)
        self.tapes.rewind(group)
        return group if is_twin else None

    def _recorded(self, inputs: Mapping[str, Data], part: slice) -> Outcome:
        """Co-simulate one part and keep its tape if playing it on scrambled memory gives the same outputs; so for its shortcuts."""
        group: Group = {}
        found = self._once(inputs, part, group, is_recording=True)
        for why in why_not(group):
            self.tapes.refuse(why)
        if self.tapes.refused or not group:
            return found
        self.tapes.scramble(group)
        self.tapes.ask(group)
        is_same = self._gives(found.outputs, inputs, part, group)
        wanted = self.tapes.answers(group)
        if not is_same:
            self.tapes.refuse("a tape gave other outputs than the simulators it was made on")
            return found
        self.tapes.shorten(wanted, self.threads)
        self.tapes.scramble(group)
        if not self._gives(found.outputs, inputs, part, group):
            for device in group.values():
                device.shortcuts.clear()
        if self.threads > 1:
            self.tapes.first.setdefault(part.stop - part.start, First(group, inputs, part, found.outputs))
        self.tapes.keep(part.stop - part.start, group)
        return found

    def _gives(self, outputs: Mapping[str, Data], inputs: Mapping[str, Data], part: slice, group: Group) -> bool:
        """Tell whether a group plays a batch to the end and gives these outputs."""
        try:
            return _are_same(outputs, self._once(inputs, part, group, is_check=True).outputs)
        except (Diverged, NoTwin):
            return False

    def _once(
        self, inputs: Mapping[str, Data], part: slice, group: Group | None = None, *, is_recording: bool = False, is_check: bool = False
    ) -> Outcome:
        p, samples = self.plan.program, part.stop - part.start
        devices: dict[str, SimulatedDevice | SimulatedStream | TapedDevice] = {}
        seen: dict[str, Statistics] = {}
        look = _Look(self, {v: inputs[p.names[v]] for v in p.inputs}, samples, part.start, is_check)
        again = () if is_check else chosen(part, self.size, self.audit)
        audit = Audit(part, again, self.ilas, "arrays" if self.reading == "oracle" else self.reading)

        def run(o: Offload, moving: Mapping[str, Operand]) -> Sequence[Operand]:
            prepared, begun = self.prepared[o.id], time.thread_time()
            if isinstance(prepared, Specified):
                results, seen[o.id] = prepared.loosely(moving) if o.id in self.loose else prepared.run(cast(Device, None), moving)
                seen[o.id].slow = prepared.slow
            else:
                if o.target.name not in devices:
                    devices[o.target.name] = self._device(o.target.name, samples, group, is_recording)
                results, seen[o.id] = self._offload(o, devices[o.target.name], moving)
                seen[o.id].slow = (without_numerics(o),) if self.engine == NUMERICS else ()
            seen[o.id].seconds = time.thread_time() - begun if seen[o.id].slow else 0.0
            audit.check(prepared, moving, results, seen[o.id])
            self._looked_at(o, moving, results, seen[o.id], look)
            return results

        outputs = flow(p, self.steps, inputs, samples, run)
        notes = (*self.host_batching, *(note for name, d in devices.items() for note in without_machine_code(name, d.sim.not_native)))
        slow = dict.fromkeys(note for x in seen.values() for note in x.slow)
        executed = sum(d.sim.executed for d in devices.values()) + audit.instructions
        return Outcome(outputs, seen, executed, (*notes, *slow), look.numerics)

    def _device(
        self, target: str, samples: int, group: Group | None, is_recording: bool
    ) -> SimulatedDevice | SimulatedStream | TapedDevice:
        """Return what a batch runs on: a device of its own, one that records, or one that plays."""
        if group is None:
            return simulated_device(self.ilas[target], reading=self.reading, samples=samples)
        if is_recording:
            group[target] = self.tapes.recording(target, samples)
        return group[target]

    def _offload(
        self, o: Offload, device: SimulatedDevice | SimulatedStream | TapedDevice, moving: Mapping[str, Operand]
    ) -> tuple[tuple[Operand, ...], Statistics]:
        prepared = self.prepared[o.id]
        if isinstance(device, TapedDevice) and not device.is_recording:
            return self.tapes.run(prepared, device, moving, is_loose=o.id in self.loose)
        return prepared.run(device, moving)

    def _looked_at(self, o: Offload, moving: Mapping[str, Operand], results: Sequence[Operand], seen: Statistics, look: _Look) -> None:
        """Compare what an offload gives with float values, for the samples of which that is wanted."""
        if not look.count:
            return
        some = {n: looked_at(x)[: look.count] for n, x in moving.items()}
        work = partial(look.at, o, some, [looked_at(x)[: look.count] for x in results], seen)
        if self.aside is None:
            work()
        else:
            self.computed_aside.append(self.aside.submit(work))


class _Look:
    """Compares offloads with float values for the samples of a batch that are among the first ones of the run."""

    def __init__(self, engine: Engine, inputs: Mapping[Value, Data], samples: int, start: int, is_check: bool = False) -> None:
        self.engine, self.start, self.is_check = engine, start, is_check
        self.count = 0 if is_check else max(min(engine.compared - start, samples), 0)
        self.numerics: dict[str, OffloadNumerics] = {}
        self.true: Mapping[Value, Data] = {}
        offloads = engine.plan.offloads
        if self.count and offloads:
            p = engine.plan.program
            wanted = tuple(dict.fromkeys(o.node.outputs[0] for o in offloads))
            host = HostProgram(replace(float_program(engine.plan), outputs=wanted), p.inputs, seconds=engine.host_seconds)
            self.true = host.one_by_one({v: x[: self.count] for v, x in inputs.items()}, self.count)

    def at(self, o: Offload, moving: Mapping[str, Array], results: Sequence[Data], seen: Statistics) -> None:
        """Compare an offload's first result with its meaning in float64 on the same operands, and with the float32 run."""
        if not self.count:
            return
        p = self.engine.plan.program
        body = body_of(o.mapping, [p.types[v] for v in o.node.inputs], dict(o.node.attributes))
        constants = self.engine.prepared[o.id].constants
        numerics = self.numerics[o.id] = OffloadNumerics()
        result = o.mapping.axes.result
        if not self.start:
            for name, x in constants.items():
                numerics.see(name, x, o.formats[name])
        for n in range(self.count):
            operands = {
                v: (moving[name][n] if name in moving else constants[name])
                for v, name in zip(body.inputs, [x.name for x in o.mapping.operands], strict=True)
            }
            meant = evaluate(body, operands)[body.outputs[0]]
            true = meant.astype(np.float64)
            error = results[0][n].astype(np.float64) - true
            if meant.dtype.kind in "iu":
                seen.codes += error.size
                seen.differing_codes += int(np.count_nonzero(error))
            seen.squared_error += float(np.vdot(error, error))
            seen.squared_reference += float(np.vdot(true, true))
            seen.max_abs_error = max(seen.max_abs_error, float(np.max(np.abs(error), initial=0)))
            seen.compared += 1
            for name, x in moving.items():
                numerics.see(name, x[n], o.formats[name])
            numerics.see_result(result, true, results[0][n], o.formats[result])
            numerics.drift(results[0][n], self.true[o.node.outputs[0]][n])


def _are_same(some: Mapping[str, Data], others: Mapping[str, Data]) -> bool:
    """Tell whether outputs are the same, bit for bit but for the kind of a NaN; a sample at a time, which takes little memory."""
    pairs = ((a, b) for name, x in some.items() for a, b in zip(x, others[name], strict=True))
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def without_numerics(o: Offload) -> str:
    """Return why an offload runs on a simulator though numerics are wanted."""
    return f"{o.mapping.name} ({o.mapping.rule.place}) has no numerics: the commands of its driver run on the simulator for every sample"


def without_machine_code(target: str, not_native: Mapping[str, str]) -> Iterator[str]:
    """Yield which instructions ran without machine code although it was asked for, and why; those of one reason together."""
    for why in dict.fromkeys(not_native.values()):
        names = [name for name, reason in not_native.items() if reason == why]
        shown = ", ".join(names) if len(names) < SHOWN_INSTRUCTIONS else f"{len(names)} instructions"
        yield f"{shown} of {target} ran without machine code: {why}"


def together(results: Sequence[Outcome]) -> Outcome:
    """Return what several batches gave, as one outcome."""
    outputs = {name: np.concatenate([found.outputs[name] for found in results]) for name in results[0].outputs}
    statistics = merged([r.statistics for r in results], Statistics)
    numerics = merged([r.numerics for r in results], OffloadNumerics)
    why = tuple(dict.fromkeys(w for r in results for w in r.host_batching))
    return Outcome(outputs, statistics, sum(r.instructions for r in results), why, numerics)


def merged(parts: Sequence[Mapping[str, Seen]], new: Callable[[], Seen]) -> dict[str, Seen]:
    """Return what several batches saw of each offload, added in order to a `new` one."""
    found: dict[str, Seen] = {}
    for part in parts:
        for key, seen in part.items():
            found.setdefault(key, new()).merge(seen)
    return found
