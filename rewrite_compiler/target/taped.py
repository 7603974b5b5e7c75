"""A device that learns from one batch of samples what it does for every batch, and then does only that.

Drivers run as they always do. What they send is compared with what was sent when the tape was made; the simulator's
part, whose terms and addresses do not depend on samples, is the calls of the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..lang.kernels import kernels_in_use
from ..lang.named import Data
from ..lang.tape import Call, Diverged, Tape
from ..lang.twin import Twin
from .device import SimulatedDevice, SimulatedStream

LONG = 8  # calls of an event from which on they are chained


@dataclass(frozen=True)
class _Event:
    """One command of a driver: what was given, what depends on samples in it, what it did, what it returned."""

    given: tuple[Any, ...]
    inputs: tuple[Data, ...]
    calls: tuple[Call, ...]
    result: Any

    @cached_property
    def chains(self) -> Sequence[Call]:
        """The calls, those of machine code that follow each other as one."""
        if len(self.calls) < LONG or kernels_in_use() is None:
            return self.calls
        from ..lang.native_chain import chained

        return chained(self.calls)


@dataclass
class TapedDevice:
    """A simulated device that records its first batch and plays the others."""

    inner: SimulatedDevice | SimulatedStream | None
    tape: Tape
    events: list[_Event] = field(default_factory=list)
    at: int = 0
    is_recording: bool = True
    sent: int = 0
    unsupported: Mapping[str, str] = field(default_factory=dict)
    step: Callable[[Call], None] | None = None  # what is done with each call in place of playing it
    shortcuts: dict[str, Any] = field(default_factory=dict)  # by offload: its calls without the moves between
    ranks: dict[str, dict[str, int]] = field(default_factory=dict)  # of the operands of instructions that were sent as rows
    twin_of: tuple[TapedDevice, Twin] | None = None  # what it plays on memory of its own
    made: dict[int, _Event] = field(default_factory=dict)  # events of that on this memory, by number

    @property
    def executed(self) -> int:
        """How many instructions one batch executes."""
        return self.sent if self.inner is None else self.inner.sim.executed

    @property
    def not_native(self) -> Mapping[str, str]:
        """The instructions that ran without machine code, and why."""
        return self.unsupported if self.inner is None else self.inner.sim.not_native

    @property
    def sim(self) -> TapedDevice:
        """What counts instructions: itself, in place of the simulator."""
        return self

    # -- what drivers call

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        self._event("issue", (instruction,), operands, {})

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        self._rows("store", instruction, operands)

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row."""
        found: Data = self._rows("load", instruction, operands)
        return found

    def wait(self) -> None:
        """Wait for the interrupt."""
        self._event("wait", (), {}, {})

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory."""
        self._event("attach", (memory, words), {}, {})

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        moving = {"words": words} if words.ndim == 2 else {}
        self._event("place", (memory, address), {} if moving else {"words": words}, moving)

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory."""
        found: Data = self._event("fetch", (memory, address, count), {}, {})
        return found

    # -- recording and playing

    def rewind(self) -> None:
        """Play from the start on."""
        if self.is_recording:
            assert self.inner is not None
            sim = self.inner.sim
            self.sent, self.unsupported, self.is_recording = sim.executed, dict(sim.not_native), False
            self.tape.stop()
            self.inner = None
        self.at = 0

    def twin(self) -> TapedDevice:
        """Return a device that plays the same, once recorded, on memory of its own, also at the same time.

        It raises NoTwin at the first command with a call that cannot be made for other memory.
        """
        first, _ = self.twin_of or (self, None)
        twin = Twin(first.tape.arena)
        tape = Tape(first.tape.sample, twin.arena)
        return TapedDevice(
            None, tape, first.events, is_recording=False, sent=first.sent, unsupported=first.unsupported, ranks=first.ranks,
            twin_of=(first, twin),
        )  # fmt: skip

    def calls(self, start: int, events: int) -> list[Any]:
        """Return the calls of some events."""
        return [call for n in range(start, start + events) for call in self._at(n).calls]

    def _at(self, number: int) -> _Event:
        """Return an event as it is on this memory."""
        if self.twin_of is None:
            return self.events[number]
        if number not in self.made:
            (_, twin), event = self.twin_of, self.events[number]
            calls, inputs = tuple(map(twin.call, event.calls)), tuple(map(twin.of, event.inputs))
            self.made[number] = _Event(event.given, inputs, calls, twin.of(event.result))
        return self.made[number]

    def _rows(self, method: str, instruction: str, operands: Mapping[str, Data]) -> Any:
        ranks = self.ranks.setdefault(instruction, {})
        if not ranks and self.inner is not None:
            ranks.update({n: o.leaf.rank for n, o in self.inner.sim.ila.instructions[instruction].operands.items()})
        moving = {n: x for n, x in operands.items() if np.ndim(x) == ranks.get(n, np.ndim(x)) + 2}
        return self._event(method, (instruction,), {n: x for n, x in operands.items() if n not in moving}, moving)

    def _event(self, method: str, given: tuple[Any, ...], fixed: Mapping[str, Any], moving: Mapping[str, Data]) -> Any:
        key = (method, *given, *moving, *(_plain(item) for item in fixed.items()))
        if not self.is_recording:
            return self._played(key, moving)
        assert self.inner is not None
        before = len(self.tape.calls)
        slots = {n: self._slot(x) for n, x in moving.items()}
        result = METHODS[method](self.inner, *given, **fixed, **slots)
        inputs = tuple(self.tape.steady(x) for x in slots.values())
        calls = tuple(self.tape.calls[before:])
        self.events.append(_Event(key, inputs, calls, self.tape.steady(result)))
        return result

    def _slot(self, x: Data) -> Data:
        slot = self.tape.empty(x.shape, x.dtype)
        slot[...] = x
        return slot

    def _played(self, key: tuple[Any, ...], moving: Mapping[str, Data]) -> Any:
        if self.at == len(self.events):
            raise Diverged
        event = self._at(self.at)
        self.at += 1
        if key != event.given:
            raise Diverged
        for slot, x in zip(event.inputs, moving.values(), strict=True):
            if slot.shape != x.shape or slot.dtype != x.dtype:
                raise Diverged
            np.copyto(slot, x)
        if self.step is None:
            for call in event.chains:
                call()
        else:
            for call in event.calls:
                self.step(call)
        return event.result


METHODS: dict[str, Callable[..., Any]] = {
    "issue": lambda device, *given, **operands: device.issue(*given, **operands),
    "store": lambda device, *given, **operands: device.store(*given, **operands),
    "load": lambda device, *given, **operands: device.load(*given, **operands),
    "wait": lambda device: device.wait(),
    "attach": lambda device, *given: device.attach(*given),
    "place": lambda device, *given, words: device.place(*given, words),
    "fetch": lambda device, *given: device.fetch(*given),
}


def _plain(item: tuple[str, Any]) -> tuple[Any, ...]:
    """Return an operand that does not depend on samples in a form that is compared at once."""
    name, x = item
    return (name, x.dtype.str, x.shape, x.tobytes()) if isinstance(x, np.ndarray) else item
