"""Tapes of whole batches: the first batch of a size is recorded, played once on scrambled memory, and the next ones are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..compile.coded import Operand
from ..compile.execute import Prepared, Statistics
from ..ila import Ila
from ..lang.array_kernels import ArrayKernels
from ..lang.named import Data
from ..lang.tape import Tape
from ..target import TapedDevice, simulated_device
from .affine import AffineShortcut
from .search import Asked, asked, searched
from .shortcut import Shortcut
from .steps import Scratch

Group = dict[str, TapedDevice]  # by target: what one batch runs on
LEAST_BATCHES = {"native": 2, "arrays": 4}  # by reading: from how many on they are recorded, which costs 2, by numpy 2 to 6


@dataclass
class First:
    """A recording that groups of other threads are twins of, and a batch with the outputs that each has to give again."""

    group: Group
    inputs: Mapping[str, Data]
    part: slice
    outputs: Mapping[str, Data]
    twins: int = 0

    def twin(self) -> Group:
        """Return devices that play the same on memory of their own."""
        self.twins += 1
        return {name: twin_of(device) for name, device in self.group.items()}


def twin_of(device: TapedDevice) -> TapedDevice:
    """Return a device that plays the same, by the same shortcuts, on memory of its own."""
    found, scratch = device.twin(), Scratch()
    found.shortcuts.update({name: known.beside(scratch) for name, known in device.shortcuts.items()})
    return found


@dataclass
class Tapes:
    """The tapes of an engine by batch size; a batch takes one for itself, so that threads never share one."""

    reading: str
    ilas: Mapping[str, Ila]
    idle: dict[int, list[Group]] = field(default_factory=dict)
    first: dict[int, First] = field(default_factory=dict)  # by batch size, as long as other threads may need it
    refused: dict[str, None] = field(default_factory=dict)
    asking: dict[int, list[Asked]] = field(default_factory=dict)  # by device: the offloads that it plays, to look for shortcuts
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
        if self.refused:
            return None
        try:
            found = self.idle.get(samples, []).pop()
        except IndexError:  # another thread may take the last one at any time
            return None
        self.rewind(found)
        return found

    def rewind(self, group: Group) -> None:
        """Play from the start on."""
        for device in group.values():
            device.rewind()

    def scramble(self, group: Group) -> None:
        """Play from the start on, on memory that is overwritten."""
        self.rewind(group)
        for device in group.values():
            device.tape.arena.scramble()

    def run(
        self, prepared: Prepared, device: TapedDevice, operands: Mapping[str, Operand], *, is_loose: bool = False
    ) -> tuple[tuple[Operand, ...], Statistics]:  # fmt: skip
        """Run an offload on a tape: by its shortcut where there is one, whose results lie in any order, as codes too, where `is_loose`."""
        name = prepared.offload.id
        if id(device) in self.asking:
            self.asking[id(device)].append(asked(prepared, device, operands))
        if name not in device.shortcuts:
            return prepared.run(device, operands)
        found: Shortcut | AffineShortcut = device.shortcuts[name]
        device.at += found.events
        return found.run(prepared, operands, is_loose=is_loose)

    def ask(self, group: Group) -> None:
        """Note what a group plays from now on."""
        self.asking.update({id(device): [] for device in group.values()})

    def answers(self, group: Group) -> list[Asked]:
        """Return what a group has played."""
        return [a for device in group.values() for a in self.asking.pop(id(device))]

    def shorten(self, wanted: Sequence[Asked], threads: int) -> None:
        """Give devices the shortcuts that there are through offloads."""
        new = [a for a in wanted if a.key not in self.known and a.name not in self.moving]
        found = searched(new, threads)
        self.moving.update(found.moving)
        self.known.update({a.key: found.found[a.name] for a in new if a.name in found.found})
        scratches: dict[int, Scratch] = {}
        for a in wanted:
            if a.key in self.known:
                scratch = scratches.setdefault(id(a.device), Scratch())
                a.device.shortcuts[a.name] = self.known[a.key].on(a.device, a.start).beside(scratch)

    def recording(self, target: str, samples: int) -> TapedDevice:
        """Return a device that records."""
        return recording(self.ilas[target], self.reading, samples)

    def keep(self, samples: int, group: Group) -> None:
        """Give devices back after a batch."""
        self.idle.setdefault(samples, []).append(group)

    def refuse(self, why: str) -> None:
        """Record and play nothing from now on."""
        self.refused[why] = None


def recording(ila: Ila, reading: str, samples: int) -> TapedDevice:
    """Return a device that records."""
    inner = simulated_device(ila, reading=reading, samples=samples, is_taped=True)
    tape = inner.sim.machine.axes.tape = Tape(inner.sim.sample_axis)
    if reading == "arrays":
        inner.sim.machine.evaluator.kernels = ArrayKernels()
    return TapedDevice(inner, tape)


def why_not(group: Group) -> Sequence[str]:
    """Return why the tapes of a batch cannot be played."""
    return [d.tape.refused for d in group.values() if d.tape.refused]
