"""Tapes of whole batches: the first batch of a size is recorded, played once on scrambled memory, and the next ones are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..compile.execute import Prepared, Statistics
from ..compile.moves import Moved
from ..ila import Ila
from ..lang.array_kernels import ArrayKernels
from ..lang.named import Data
from ..lang.tape import Diverged, Tape
from ..target import TapedDevice, simulated_device
from .affine import AffineShortcut
from .provenance import NoShortcut
from .shortcut import Shortcut, shortcut
from .steps import Scratch

Group = dict[str, TapedDevice]  # by target: what one batch runs on
LEAST_BATCHES = {"native": 2, "arrays": 8}  # by reading: from how many batches on they are recorded


@dataclass
class Tapes:
    """The tapes of an engine by batch size; a batch takes one for itself, so that threads never share one."""

    reading: str
    ilas: Mapping[str, Ila]
    idle: dict[int, list[Group]] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    shortening: set[int] = field(default_factory=set)  # devices for which shortcuts are looked for
    moving: dict[str, str] = field(default_factory=dict)  # offloads without a shortcut, and why
    known: dict[tuple[str, int], Shortcut | AffineShortcut] = field(default_factory=dict)  # by offload and batch size
    expected: int = 0  # batches: a single one is not worth a tape
    rare: frozenset[int] = frozenset()  # sizes of which there is one batch only, such as the rest at the end

    @property
    def are_wanted(self) -> bool:
        """Whether batches are recorded: from as many on as a recorded one costs, more by numpy."""
        least = LEAST_BATCHES.get(self.reading)
        return least is not None and self.expected >= least and not self.refused

    def taken(self, samples: int) -> Group | None:
        """Return the devices of an earlier batch of this size, ready to play; None when none is free."""
        idle = self.idle.get(samples)
        if not idle or self.refused:
            return None
        found = idle.pop()
        self.rewind(found)
        return found

    def rewind(self, group: Group) -> None:
        """Play from the start on."""
        for device in group.values():
            device.rewind()

    def run(
        self, prepared: Prepared, device: TapedDevice, operands: Mapping[str, Data | Moved], *, is_loose: bool = False
    ) -> tuple[tuple[Data, ...], Statistics]:  # fmt: skip
        """Run an offload on a tape: by its shortcut where there is one, whose results lie in any order where `is_loose`."""
        name = prepared.offload.id
        if id(device) in self.shortening:
            self._shorten(prepared, device, operands)
        if name not in device.shortcuts:
            return prepared.run(device, operands)
        found: Shortcut | AffineShortcut = device.shortcuts[name]
        device.at += found.events
        return found.run(prepared, operands, is_loose=is_loose)

    def _shorten(self, prepared: Prepared, device: TapedDevice, operands: Mapping[str, Data | Moved]) -> None:
        """Give the device a shortcut through an offload, if there is one."""
        start, name = device.at, prepared.offload.id
        scratch = next((s.scratch for s in device.shortcuts.values()), None) or Scratch()
        samples = min(len(x.root if isinstance(x, Moved) else x) for x in operands.values())
        known = self.known.get((name, samples))
        if known is not None:
            device.shortcuts[name] = known.on(device, scratch)
        elif name not in self.moving:
            self._find(prepared, device, operands, scratch)
            if name in device.shortcuts:
                self.known[name, samples] = device.shortcuts[name]
        device.at = start

    def _find(self, prepared: Prepared, device: TapedDevice, operands: Mapping[str, Data | Moved], scratch: Scratch) -> None:
        name = prepared.offload.id
        try:
            device.shortcuts[name] = shortcut(prepared, device, operands, scratch)
        except (NoShortcut, Diverged) as why:
            self.moving[name] = str(why)

    def recording(self, target: str, samples: int) -> TapedDevice:
        """Return a device that records."""
        inner = simulated_device(self.ilas[target], reading=self.reading, samples=samples)
        tape = inner.sim.machine.axes.tape = Tape(inner.sim.sample_axis)
        if self.reading == "arrays":
            inner.sim.machine.evaluator.kernels = ArrayKernels()
        return TapedDevice(inner, tape)

    def keep(self, samples: int, group: Group) -> None:
        """Give devices back after a batch."""
        self.idle.setdefault(samples, []).append(group)

    def refuse(self, why: str) -> None:
        """Record and play nothing from now on."""
        self.refused[why] = None


def why_not(group: Group) -> Sequence[str]:
    """Return why the tapes of a batch cannot be played."""
    return [d.tape.refused for d in group.values() if d.tape.refused]
