"""Lockstep runs of a driver on one simulated device: equal commands are sent once, data that differ become samples.

Each run has a thread, and goes on until it asks the device for something; then all that the runs have sent is executed.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ...lang.binders import Array, Leaf
from ...lang.expr import var
from ...readings.arrays.labelled_array import Axes, Data, Store, axis_of
from ...readings.kernels.evaluate import evaluator_of
from ...target import SimulatedDevice, SimulatedStream

END = "end"
METHODS: dict[str, Callable[..., Any]] = {
    "issue": lambda device, *arguments, **operands: device.issue(*arguments, **operands),
    "store": lambda device, *arguments, **operands: device.store(*arguments, **operands),
    "load": lambda device, *arguments, **operands: device.load(*arguments, **operands),
    "wait": lambda device: device.wait(),
    "attach": lambda device, *arguments: device.attach(*arguments),
    "place": lambda device, *arguments, words: device.place(*arguments, words),
    "fetch": lambda device, *arguments: device.fetch(*arguments),
}
_SAMPLE = var("sample", (0, None))


class DivergentRuns(Exception):
    """The runs send different commands, so they cannot share a device."""


@dataclass(frozen=True)
class _Call:
    """One command of a run: the method, its arguments, which must be the same in all runs, and its data."""

    method: str
    arguments: tuple[Any, ...]
    data: Mapping[str, Data]


@dataclass
class _Run:
    """The device as one run sees it."""

    gate: threading.Barrier
    calls: list[_Call] = field(default_factory=list)
    result: Any = None

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        self._send("issue", (instruction,), operands)

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        self._send("store", (instruction,), operands)

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row."""
        return np.asarray(self.ask("load", (instruction,), operands))

    def wait(self) -> None:
        """Wait for the interrupt."""
        self._send("wait", (), {})

    def attach(self, memory: str, words: int) -> None:
        """Give it a new external memory."""
        self._send("attach", (memory, words), {})

    def place(self, memory: str, address: int, words: Data) -> None:
        """Write words to an external memory."""
        self._send("place", (memory, address), {"words": words})

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return words of an external memory."""
        return np.asarray(self.ask("fetch", (memory, address, count)))

    def _send(self, method: str, arguments: tuple[Any, ...], data: Mapping[str, Any]) -> None:
        self.calls.append(_Call(method, arguments, {name: np.array(x) for name, x in data.items()}))

    def ask(self, method: str, arguments: tuple[Any, ...] = (), data: Mapping[str, Any] | None = None) -> Any:
        """Send a command, wait at the barrier for all other runs, and return this run's part of the result."""
        self._send(method, arguments, data or {})
        self.gate.wait()
        return self.result


def run_together(device: SimulatedDevice | SimulatedStream, drivers: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """Run drivers on one device with a sample for each, and return the result of each.

    Raises:
        DivergentRuns: the runs send different commands.
        Exception: whatever a driver or the simulator raises.
    """
    runs: list[_Run] = []
    gate = threading.Barrier(len(drivers), lambda: _perform(device, runs))
    runs += [_Run(gate) for _ in drivers]
    results: list[Any] = [None] * len(runs)
    errors: list[Exception] = []

    def drive(n: int) -> None:
        try:
            results[n] = drivers[n](runs[n])
            runs[n].ask(END)
        except Exception as error:  # of the driver or of the simulator: the caller's
            errors.append(error)
            gate.abort()

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(drive, n), daemon=True) for n in range(len(runs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return results


def _perform(device: Any, runs: Sequence[_Run]) -> None:
    """Execute what all runs have sent, and give each its part of the last result."""
    if len({len(r.calls) for r in runs}) > 1:
        raise DivergentRuns
    result = None
    for calls in zip(*(r.calls for r in runs), strict=True):
        result = _execute(device, calls)
    for n, r in enumerate(runs):
        r.calls.clear()
        r.result = None if result is None else result[n if len(result) > 1 else 0]


def _execute(device: Any, calls: Sequence[_Call]) -> Any:
    first = calls[0]
    if any((c.method, c.arguments, c.data.keys()) != (first.method, first.arguments, first.data.keys()) for c in calls):
        raise DivergentRuns
    if first.method == END:
        return None
    data = {name: _joined([c.data[name] for c in calls]) for name in first.data}
    if first.method == "issue":
        if any(x.shape != first.data[name].shape for name, x in data.items()):
            raise DivergentRuns
        data = {name: x if x.ndim else x.item() for name, x in data.items()}
    return METHODS[first.method](device, *first.arguments, **data)


def _joined(parts: Sequence[Data]) -> Data:
    """Return data that are the same in all runs, or those of all runs with the sample axis first."""
    first = parts[0]
    if any(x.shape != first.shape or x.dtype != first.dtype for x in parts):
        raise DivergentRuns
    return first if all(np.array_equal(x, first) for x in parts) else np.stack(parts)


def evaluated_together(array: Array, operands: Mapping[Leaf, Data], shared: Mapping[Leaf, Data] = MappingProxyType({})) -> Data:
    """Return the elements of an array term for each sample: [samples, …].

    `operands` have the sample axis first, those that are `shared` have none.
    """
    axis, axes = axis_of(_SAMPLE), Axes()
    count = len(next(iter(operands.values())))
    axes.add(axis, count)
    contents = {leaf: Store(x, (axis,)) for leaf, x in operands.items()}
    evaluator = evaluator_of({**contents, **{leaf: Store(x) for leaf, x in shared.items()}}, axes)
    with np.errstate(all="ignore"):
        store = evaluator.store_of(array)
    if store.batch:
        return store.data
    return np.broadcast_to(store.data, (count, *store.data.shape))
