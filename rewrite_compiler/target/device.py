"""Device: what drivers talk to. The same driver runs on a simulator, is recorded as a stream, or is executed on terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..ila.simulate import Simulator
from ..lang.named import Data


class Device(Protocol):
    """An accelerator as its driver sees it: instructions by name, single or as blocks of like ones."""

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row: operands [count(, lanes)], [samples, count, …] where they depend on samples."""

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; return [samples, count, lanes], without the sample axis when nothing depends on it."""

    def wait(self) -> None:
        """Wait for the interrupt."""


@dataclass(frozen=True)
class SimulatedDevice:
    """A device that is a simulator; sampled operands make its data state carry the sample axis."""

    sim: Simulator

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        self.sim.execute(self.sim.ila.instructions[instruction], self._complete(instruction, operands))

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        rows, sampled, count = self._rows(instruction, operands)
        self.sim.block(instruction, count, rows, sampled)

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row."""
        rows, sampled, count = self._rows(instruction, operands)
        result = self.sim.block(instruction, count, rows, sampled)
        if result is None:
            raise AssertionError(f"{instruction} reads nothing")
        return result[:, 0] if result.shape[1] == 1 and self.sim.samples == 0 else np.swapaxes(result, 0, 1)

    def wait(self) -> None:
        """Take the interrupt."""
        self.sim.wait_for_interrupt()

    def _complete(self, instruction: str, operands: Mapping[str, Any]) -> dict[str, Any]:
        """Return all operands, absent ones 0."""
        known = self.sim.ila.instructions[instruction].operands
        return {name: operands.get(name, np.zeros([int(n) for n in o.leaf.shape], np.int64)) for name, o in known.items()}  # type: ignore[arg-type]

    def _rows(self, instruction: str, operands: Mapping[str, Data]) -> tuple[dict[str, Data], frozenset[str], int]:
        known = self.sim.ila.instructions[instruction].operands
        sampled = frozenset(n for n, x in operands.items() if np.ndim(x) == known[n].leaf.rank + 2)
        rows = {n: np.swapaxes(x, 0, 1) if n in sampled else x for n, x in operands.items()}
        return rows, sampled, len(next(iter(rows.values())))
