"""Tapes of whole batches: the first batch of a size is recorded, played once on scrambled memory, and the next ones are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ila import Ila
from ..lang.tape import Tape
from ..target import TapedDevice, simulated_device

Group = dict[str, TapedDevice]  # by target: what one batch runs on


@dataclass
class Tapes:
    """The tapes of an engine by batch size; a batch takes one for itself, so that threads never share one."""

    reading: str
    ilas: Mapping[str, Ila]
    idle: dict[int, list[Group]] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    expected: int = 0  # batches: a single one is not worth a tape

    @property
    def are_wanted(self) -> bool:
        """Whether batches are recorded: machine code is called again; numpy's own time is no less on a tape."""
        return self.reading == "native" and self.expected > 1 and not self.refused

    def taken(self, samples: int) -> Group | None:
        """Return the devices of an earlier batch of this size, ready to play; None when none is free."""
        idle = self.idle.get(samples)
        if not idle or self.refused:
            return None
        found = idle.pop()
        for device in found.values():
            device.rewind()
        return found

    def recording(self, target: str, samples: int) -> TapedDevice:
        """Return a device that records."""
        inner = simulated_device(self.ilas[target], reading=self.reading, samples=samples)
        tape = inner.sim.machine.axes.tape = Tape(inner.sim.sample_axis)
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
