"""Validate: what offloads return by their numerics, computed again by commands on the simulator, for some samples.

Control is the same for all samples, so one sample takes every command, address and bound of a batch. The first sample of a run
is taken, and a random one of every few batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..compile.coded import Operand, looked_at
from ..compile.execute import Prepared, Statistics
from ..compile.numerics import Specified
from ..compile.plan import Offload
from ..errors import AnswerNo
from ..ila import Ila
from ..ir.program import Data
from ..target import SimulatedDevice, SimulatedStream, simulated_device

RECORDED, NUMERICS, SIMULATOR = ENGINES = ("recorded", "numerics", "simulator")
EVERY = 8  # batches, of which one has a random sample that is computed again
SEED = 105


def chosen(part: slice, size: int, every: int) -> tuple[int, ...]:
    """Return which samples of a batch are computed again; `size` is that of all batches but the last, `every` 0 for none."""
    if not every:
        return ()
    first = (0,) if not part.start else ()
    several, number = divmod(part.start // size, every)
    random = np.random.default_rng([SEED, several])
    sample, count = int(random.integers(1 << 31)), part.stop - part.start
    return tuple(sorted({*first, sample % count})) if int(random.integers(every)) == number else first


@dataclass
class Validation:
    """The simulators of one batch, and the samples that run on them."""

    part: slice
    samples: Sequence[int]
    ilas: Mapping[str, Ila]
    reading: str
    devices: dict[tuple[str, int], SimulatedDevice | SimulatedStream] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        """How many instructions were executed."""
        return sum(d.sim.executed for d in self.devices.values())

    def check(self, prepared: Specified, moving: Mapping[str, Operand], results: Sequence[Operand], seen: Statistics) -> None:
        """Run an offload's driver for the chosen samples; AnswerNo C104 where a result is another one."""
        o = prepared.offload
        for n in self.samples:
            device = self._device(o.target.name, n)
            before = device.sim.executed
            operands = {name: looked_at(x)[n : n + 1] for name, x in moving.items()}
            expected, _ = Prepared(o, prepared.constants, prepared.codes).run(device, operands)
            for name, y, z in zip(o.mapping.axes.results, results, expected, strict=True):
                wrong = np.argwhere(looked_at(y)[n] != z[0])
                if len(wrong):
                    raise self._refusal(o, name, tuple(wrong[0].tolist()), (looked_at(y)[n], z[0]), n, device.sim.executed - before)
            seen.validated += 1

    def _device(self, target: str, n: int) -> SimulatedDevice | SimulatedStream:
        key = target, n
        if key not in self.devices:
            self.devices[key] = simulated_device(self.ilas[target], reading=self.reading, samples=1)
        return self.devices[key]

    def _refusal(self, o: Offload, name: str, place: tuple[int, ...], values: tuple[Data, Data], n: int, commands: int) -> AnswerNo:
        found, expected = (float(x[place]) for x in values)
        sizes = ", ".join(f"{d} = {size}" for d, size in o.tiling.sizes.items())
        sentence = (
            f"{name}{list(place)} of {o.id} ({o.mapping.name} at {sizes}) must be {expected:g}, as the {commands:,} commands of its driver "
            f"give, not {found:g}, as its numerics say, for sample {self.part.start + n}"
        )
        remedy = "correct the driver or the numerics, which flexmatch prove compares, or run with --engine simulator"
        return AnswerNo("C104", sentence, place=o.mapping.rule.place, help=remedy)
