"""The exact host in place of onnxruntime: reproducible values, one sample after another; and the choice of a host program."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...hostrun import exact_host as exact
from ...ir.program import Data, Program, Value
from ...limits import DEFAULT
from .data_movement import MovingProgram, moves_of
from .host_program import HostProgram
from .lazy_host import FastHostProgram, has_fast_path

HOSTS = ("onnxruntime", "exact")


class ExactProgram(HostProgram):
    """A program evaluated by the operators' own meaning in float32, sums in order."""

    def run(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs: sampled inputs [samples, …], others as they are; outputs [samples, …]."""
        samples = len(values[self.sampled[0]]) if self.sampled else 1
        rows = [exact.run(self.program, {v: x[n] if v in self.sampled else x for v, x in values.items()}) for n in range(samples)]
        return {v: np.stack([row[v] for row in rows]) for v in self.program.outputs}


def host_program(kind: str, program: Program, seconds: int = DEFAULT.host_seconds) -> HostProgram:
    """Return the evaluator of a host part on one of HOSTS, all inputs sampled; `seconds` limit the run of a sample."""
    if kind == "exact":
        return ExactProgram(program, program.inputs, seconds=seconds)
    if has_fast_path(program):
        return FastHostProgram(program, seconds)
    moves = moves_of(program)
    return MovingProgram(program, moves, seconds) if moves else HostProgram(program, program.inputs, seconds=seconds, is_part=True)
