"""The audit: offloads of some samples computed again by commands on the simulator, by the oracle and by plain numerics.

Control is the same for all samples, so one sample exercises every command, address and bound of a batch. The first sample of a
run is audited, and a random one of every few batches; of each of their offloads also a random unit of a random tile by the oracle.
With the first sample, each offload is computed on drawn operands, too. What agreed in an earlier process is not simulated again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np

from ...compile.host.data_movement import samples_of
from ...compile.host.lazy_codes import Operand, elements_of
from ...compile.offload.execute import PreparedOffload, Statistics, hash_of_arrays
from ...compile.offload.specified import NumericsOffload, plain_results
from ...compile.plan.plan import Offload
from ...errors import AnswerNo, SpecError
from ...ila import Ila
from ...ir.program import Data
from ...target import Device, simulated_device
from .device_history import DeviceHistory, DeviceRun, Simulated
from .drawn_operands import with_drawn_sample

SEED = 105
MOST_MACS = 1 << 14  # of a unit that the oracle computes again, which takes microseconds for each
DATA_DIAGNOSTICS = ("I102", "I103")  # values that do not fit, indices outside, divisions by zero
Slices = Mapping[str, slice]


def audited_samples(part: slice, size: int, every: int) -> tuple[int, ...]:
    """Return the audited samples of a batch, none when `every` is 0; `size` is that of all batches but the last."""
    if not every:
        return ()
    first = (0,) if not part.start else ()
    several, number = divmod(part.start // size, every)
    random = np.random.default_rng([SEED, several])
    sample, count = int(random.integers(1 << 31)), part.stop - part.start
    return tuple(sorted({*first, sample % count})) if int(random.integers(every)) == number else first


@dataclass
class Audit:
    """The simulators of one batch, and the samples that run on them."""

    part: slice
    samples: Sequence[int]
    ilas: Mapping[str, Ila]
    reading: str
    histories: dict[tuple[str, int], DeviceHistory] = field(default_factory=dict)  # by target and sample
    notes: dict[str, None] = field(default_factory=dict)  # what could not be computed again, and why
    instructions: int = 0  # executed commands, kept runs included

    def check(self, prepared: PreparedOffload, moving: Mapping[str, Operand], results: Sequence[Operand], statistics: Statistics) -> None:
        """Compare an offload of the audited samples with the simulator, whose results of an earlier process are stored.

        Raises:
            AnswerNo: C104, an element of a result differs.
        """
        driven = prepared.by_driver if isinstance(prepared, NumericsOffload) else prepared
        for n in self.samples:
            part = slice(n, n + 1)
            operands = {name: np.array(elements_of(samples_of(x, part))) for name, x in moving.items()}
            returned = zip(driven.offload.mapping.axes.results, results, strict=True)
            actual = {name: elements_of(samples_of(y, part))[0] for name, y in returned}
            self._check_sample(driven, n, operands, actual, statistics)
            statistics.validated += 1
        if isinstance(prepared, NumericsOffload) and 0 in self.samples and not self.part.start:
            self._check_drawn(prepared, moving)

    def _check_sample(
        self, driven: PreparedOffload, n: int, operands: Mapping[str, Data], actual: Mapping[str, Data], statistics: Statistics
    ) -> None:
        """Compare the results of one sample, and a random unit of them."""
        history = self._history(driven.offload.target.name, n)
        stored = history.begin(driven, operands, driven.offload.id, self.part.start + n)
        if stored is not None and stored.results == hash_of_arrays(actual):
            history.leave_out(lambda device: driven.run(device, operands))
            statistics.audited += stored.audited
            self.instructions += stored.commands
            return
        device, unit, audited_before = history.ready(), _SampledUnit(self, driven, n), statistics.audited
        executed_before = device.sim.executed
        expected, _ = driven.run(device, operands, unit.take)
        commands = device.sim.executed - executed_before
        self._compare_with_driver(driven.offload, actual, expected, commands, n)
        unit.check(statistics)
        history.keep(DeviceRun(hash_of_arrays(actual), commands, statistics.audited - audited_before))

    def _check_drawn(self, prepared: NumericsOffload, moving: Mapping[str, Operand]) -> None:
        """Compare numerics and driver on drawn operands, in place of those of the first sample."""
        o, driven = prepared.offload, prepared.by_driver
        random = np.random.default_rng([SEED, zlib.crc32(o.id.encode())])
        drawn = {name: with_drawn_sample(x, 0, o.formats[name], random) for name, x in moving.items()}
        operands = {name: np.array(elements_of(samples_of(x, slice(0, 1)))) for name, x in drawn.items()}
        history = self._history(o.target.name, 0)
        stored = history.begin(driven, operands, "drawn")
        actual = {} if stored is None or stored.refusal else _first_results(prepared, drawn)
        if stored is not None and stored.results == hash_of_arrays(actual):
            history.leave_out(lambda device: _results_or_refusal(driven, device, operands))
            self.instructions += stored.commands
            self._note_refusal(o, stored.refusal)
            return
        device = history.ready()
        executed_before = device.sim.executed
        expected, refusal = _results_or_refusal(driven, device, operands)
        commands = device.sim.executed - executed_before
        actual = {} if refusal else _first_results(prepared, drawn)
        self._compare_with_driver(o, actual, expected, commands, None)
        self._note_refusal(o, refusal)
        history.keep(DeviceRun(hash_of_arrays(actual), commands, refusal=refusal))

    def _note_refusal(self, o: Offload, refusal: str) -> None:
        if refusal:
            self.notes[f"{o.mapping.name} was not computed on drawn operands, which its model refuses: {refusal}"] = None

    def _compare_with_driver(self, o: Offload, actual: Mapping[str, Data], expected: Sequence[Data], commands: int, n: int | None) -> None:
        """Compare results of one sample with those that the commands of the driver gave."""
        self.instructions += commands
        for (name, y), z in zip(actual.items(), expected, strict=True):
            self._compare(o, name, y, z[0], ("it", f"the {commands:,} commands of its driver"), n)

    def _compare(
        self, o: Offload, name: str, actual: Data, expected: Data, sources: tuple[str, str], n: int | None, offset: Sequence[int] = ()
    ) -> None:
        """Raise AnswerNo C104 for the first element of sample `n` that differs; `offset` is where the compared part begins."""
        differing = np.argwhere(actual != expected)
        if not len(differing):
            return
        place = tuple(differing[0].tolist())
        index = [a + b for a, b in zip(place, offset or (0,) * len(place), strict=True)]
        sizes = ", ".join(f"{d} = {size}" for d, size in o.tiling.sizes.items())
        sentence = (
            f"{name}{index} of {o.id} ({o.mapping.name} at {sizes}) must be {float(expected[place]):g}, as {sources[1]} give, not "
            f"{float(actual[place]):g}, as {sources[0]} returned, for {'drawn operands' if n is None else f'sample {self.part.start + n}'}"
        )
        remedy = "correct driver, numerics or model: flexmatch prove compares all three"
        raise AnswerNo("C104", sentence, place=o.mapping.rule.place, help=remedy)

    def _history(self, target: str, n: int) -> DeviceHistory:
        if (target, n) not in self.histories:
            make = partial(simulated_device, self.ilas[target], reading=self.reading, samples=1)
            self.histories[target, n] = DeviceHistory(make, self.reading)
        return self.histories[target, n]


def _first_results(prepared: NumericsOffload, operands: Mapping[str, Operand]) -> dict[str, Data]:
    """Return the results of the first sample by the numerics."""
    results, _ = prepared.run(cast(Device, None), operands)
    return {name: y[0] for name, y in zip(prepared.offload.mapping.axes.results, results, strict=True)}


def _results_or_refusal(driven: PreparedOffload, device: Simulated, operands: Mapping[str, Data]) -> tuple[Sequence[Data], str]:
    """Return the results of a driver, or why its model refuses these operands."""
    try:
        return driven.run(device, operands)[0], ""
    except SpecError as refusal:
        if refusal.problem.code not in DATA_DIAGNOSTICS:  # of commands, which are the same for all operands
            raise
        return (), refusal.problem.sentence


class _SampledUnit:
    """A random unit of a random tile of an offload, as commands on the simulator gave it."""

    def __init__(self, audit: Audit, driven: PreparedOffload, n: int) -> None:
        self.audit, self.driven, self.n = audit, driven, n
        o = driven.offload
        self.random = np.random.default_rng([SEED, zlib.crc32(o.id.encode()), audit.part.start + n])
        self.tiles_before = int(self.random.integers(sum(1 for _ in o.tiling.slices())))
        self.sample: tuple[Mapping[str, Data], Slices, Slices, Mapping[str, Data]] | None = None

    def take(self, codes: Mapping[str, Data], slices: Slices, results: Mapping[str, Data], statistics: Statistics) -> None:
        """Store a unit of the tile that was drawn."""
        del statistics
        self.tiles_before -= 1
        if self.tiles_before == -1:
            m = self.driven.offload.mapping
            fixed = (*m.whole, *m.axes.summed)
            part = {d: s if d in fixed else _unit(s, m.units.get(d, 1), self.random) for d, s in slices.items()}
            sample_codes = {name: c[0] if c.ndim > len(m.axes.of[name]) else c for name, c in codes.items()}
            self.sample = sample_codes, slices, part, {name: y[0] if y.ndim > len(m.axes.of[name]) else y for name, y in results.items()}

    def check(self, statistics: Statistics) -> None:
        """Compare the unit, code by code, with the oracle and with the numerics."""
        if self.sample is None:
            return
        codes, slices, part, results = self.sample
        o, compare = self.driven.offload, partial(self.audit._compare, n=self.n)
        axes, references = o.mapping.axes, {}
        if o.mapping.codes is not None:
            references["its numerics"] = plain_results(self.driven, codes, part)
        if _work(o, part) <= MOST_MACS:
            device = simulated_device(self.audit.ilas[o.target.name], reading="oracle")
            references["generated Python"] = self.driven.call(device, codes, part)
        for source, expected in references.items():
            for name, y in expected.items():
                window = tuple(slice(part[d].start - slices[d].start, part[d].stop - slices[d].start) for d in axes.of[name])
                offset = [part[d].start for d in axes.of[name]]
                compare(o, name, results[name][window], np.asarray(y), ("the simulator", f"codes of {source}"), offset=offset)
                statistics.audited += y.size


def _work(o: Offload, part: Slices) -> float:
    """Return the approximate number of multiply-accumulates of a part of an offload."""
    share = np.prod([(part[d].stop - part[d].start) / max(o.tiling.sizes[d], 1) for d in part], dtype=float)
    return float(max(o.macs, np.prod(list(o.tiling.sizes.values()), dtype=float) if not o.macs else 0) * share)


def _unit(s: slice, unit: int, random: np.random.Generator) -> slice:
    """Return a random unit of a dimension's slice."""
    start = s.start + unit * int(random.integers(-(-(s.stop - s.start) // unit)))
    return slice(start, min(start + unit, s.stop))
