"""A device that executes a driver on z3 terms: control is concrete, data symbolic."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ila import Ila
from ..ila.model import Instruction
from ..ila.simulate import DeviceHang
from ..lang.binders import static_shape
from ..lang.named import Data
from ..lang.smt import Symbolic


class SymbolicDevice:
    """Runs instructions by their updates on memories of terms; tables (encoders, activations) stay uninterpreted."""

    def __init__(self, ila: Ila) -> None:
        self.ila = ila
        memories = {s.leaf: np.full(static_shape(s.leaf), s.reset, object) for s in ila.states.values()}
        self.symbolic = Symbolic(memories, uninterpreted_tables=True)
        self.executed = 0

    def issue(self, instruction: str, **operands: int) -> None:
        """Send one instruction."""
        found = self.ila.instructions[instruction]
        self._run(found, {n: _objects(x) for n, x in operands.items()})

    def store(self, instruction: str, **operands: Data) -> None:
        """Send one instruction for each row."""
        found = self.ila.instructions[instruction]
        for n in range(len(next(iter(operands.values())))):
            self._run(found, {name: _objects(rows[n]) for name, rows in operands.items()})

    def load(self, instruction: str, **operands: Data) -> Data:
        """Send one read for each row; return [count, lanes]."""
        found = self.ila.instructions[instruction]
        assert found.result is not None
        rows = []
        for n in range(len(next(iter(operands.values())))):
            self._run(found, {name: _objects(values[n]) for name, values in operands.items()})
            rows.append(np.array(self.symbolic.array(found.result), object))
        return np.stack(rows)

    def wait(self) -> None:
        """Take the interrupt; DeviceHang when there is none."""
        line = self.ila.interrupt
        assert line is not None
        if not self.symbolic.memories[line][()]:
            raise DeviceHang(self.ila.name, "was not started")
        self.symbolic.memories[line][()] = 0

    def _run(self, instruction: Instruction, operands: Mapping[str, Data]) -> None:
        self.executed += 1
        for name, operand in instruction.operands.items():
            shape = static_shape(operand.leaf)
            given = operands.get(name, np.zeros(shape, object))
            self.symbolic.bind(operand.leaf, given.reshape(shape))
        self.symbolic.run(instruction.update)


def _objects(x: object) -> Data:
    """Return an array of Python integers and terms."""
    return np.asarray(x).astype(object)
