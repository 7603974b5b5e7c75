"""Runs with resident tensors: what a device holds already is not stored again, and what only the device reads is not loaded.

Devices persist from one inference to the next, so that only the first one stores lasting constants. The outputs are those of
co-simulation, bit for bit; commands and bytes are fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..compile.plan.plan import Offload, Plan, tensors_of
from ..ir.program import Data, Value
from ..readings.arrays.labelled_array import Data as Array
from ..target import Device, SimulatedDevice, SimulatedStream, Stay, StreamedDevice, simulated_device
from .engine import Engine
from .tier import SIMULATOR


@dataclass(frozen=True)
class Inference:
    """The outputs of one inference [1, …] by name, and the number of commands that its devices executed."""

    outputs: Mapping[str, Data]
    commands: int


def inferences(plan: Plan, inputs: Mapping[str, Data], *, reading: str = "arrays", stays: bool = True) -> Iterator[Inference]:
    """Yield the inferences of `inputs` [samples, …], one after the other on persistent devices; without `stays`, all tensors move."""
    engine = Engine(plan, reading=reading, compared=0, engine=SIMULATOR)
    devices = {t.name: simulated_device(engine.ilas[t.name], reading=reading, samples=1) for t in plan.targets}
    for n in range(min(len(x) for x in inputs.values())):
        executed_before = sum(d.sim.executed for d in devices.values())
        outputs = _inference(engine, devices, {name: x[n : n + 1] for name, x in inputs.items()}, is_first=not n, stays=stays)
        yield Inference(outputs, sum(d.sim.executed for d in devices.values()) - executed_before)


Devices = Mapping[str, SimulatedDevice | SimulatedStream]


def _inference(engine: Engine, devices: Devices, inputs: Mapping[str, Data], *, is_first: bool, stays: bool) -> dict[str, Data]:
    p = engine.plan.program
    values: dict[Value, Data] = {v: inputs[p.names[v]] for v in p.inputs}
    for segment, host in engine.steps:
        if host is not None:
            values.update(host.run({v: values[v] for v in host.program.inputs}))
        for o in segment.offloads:
            device = devices[o.target.name]
            moving = {n: values[v] for n, v in tensors_of(o).items() if v in values and n not in o.mapping.axes.results}
            residents = stays_of(engine.plan, o, is_first=is_first, device=device) if stays else ()
            results, _ = engine.prepared[o.id].run(device, moving, None, residents)
            values.update(zip(o.node.outputs, results, strict=True))
    return {p.names[v]: values[v] if v in values else p.constants[v][None] for v in p.outputs}


def stays_of(plan: Plan, o: Offload, *, is_first: bool, device: Device | StreamedDevice) -> tuple[Stay, ...]:
    """Return the resident tensors of each call of an offload; lasting constants are present after the first inference."""
    residency = plan.residency.get(o.target.name)
    if residency is None:
        return ()
    lasting = [frozenset[str]() if is_first else names for names in residency.lasting[o.id]]
    pairs = zip(residency.stays[o.id], lasting, strict=True)
    return tuple(replace(s, present=s.present | names, inspect=_uncounted_read(device)) for s, names in pairs)


def _uncounted_read(device: Device | StreamedDevice) -> Callable[[Callable[[], Array]], Array]:
    """Return how a resident result is observed: as if it were read, without a command of the stream."""

    def look(load: Callable[[], Array]) -> Array:
        if not isinstance(device, SimulatedDevice):
            return load()
        executed_before = device.sim.executed
        result = load()
        device.sim.executed = executed_before
        return result

    return look
