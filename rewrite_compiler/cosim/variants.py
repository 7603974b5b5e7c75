"""Variants: outputs of many plans for the same samples, host parts and recordings of offloads made once for all of them.

Samples run in batches of one size, the last one filled up with its last sample: what a sample gives does not depend on others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from ..compile.coded import Operand
from ..compile.exact import host_program
from ..compile.host import HostProgram
from ..compile.plan import Offload, Plan
from ..ir.program import Data, Program
from ..limits import DEFAULT
from .ahead import in_order, most_ahead
from .bank import Bank, Results
from .flow import Steps, constants_of, flow, loose
from .segments import Segment, segments

KEPT_PROGRAMS = 3  # whose host parts are kept: they hold the model's weights
Hosts = tuple[HostProgram | None, ...]


@dataclass
class Variants:
    """What plans share: recordings of their offloads, and the host parts of those that have one program, the last used ones."""

    bank: Bank
    batch: int
    hosts: dict[Hashable, tuple[Program, Hosts]] = field(default_factory=dict)
    turn: Lock = field(default_factory=Lock)

    def outputs(self, plan: Plan, inputs: Mapping[str, Data], *, threads: int = 1, is_last: bool = False) -> dict[str, Data]:
        """Return the outputs of a plan for samples, some batches side by side; host parts are not kept where its program `is_last` seen."""
        steps, is_new = self._steps(plan, is_last=is_last)
        samples = min(len(x) for x in inputs.values())
        parts = [np.minimum(np.arange(at, at + self.batch), samples - 1) for at in range(0, samples, self.batch)]
        loosely = loose(plan, steps)

        def run(part: Data) -> dict[str, Data]:
            return self._batch(plan, steps, {n: x[part] for n, x in inputs.items()}, loosely)

        alone = 1 if is_new else 0  # of batches: the first one chooses how host parts are batched
        alone = len(parts) if threads == 1 else alone
        found = [run(part) for part in parts[:alone]]
        with closing(in_order(run, parts[alone:], threads, most_ahead(plan.program, self.batch, threads))) as begun:
            found += [one.result() for one in begun]
        return {name: np.concatenate([one[name] for one in found])[:samples] for name in found[0]}

    def _batch(self, plan: Plan, steps: Steps, inputs: Mapping[str, Data], loosely: frozenset[str]) -> dict[str, Data]:
        with self.bank.lane() as lane:

            def run(o: Offload, moving: Mapping[str, Operand]) -> Results:
                return self.bank.run(o, constants_of(plan.program, o), moving, lane, is_loose=o.id in loosely)

            return flow(plan.program, steps, inputs, self.batch, run)

    def _steps(self, plan: Plan, *, is_last: bool) -> tuple[Steps, bool]:
        """Return the steps of a plan, and whether their host parts are new."""
        made, key = segments(plan), (id(plan.program), *(o.id for o in plan.offloads))
        with self.turn:
            is_new = key not in self.hosts
            hosts = self.hosts.pop(key, None) or (plan.program, tuple(map(_host, made)))
            if not is_last:
                self.hosts[key] = hosts
            for old in list(self.hosts)[:-KEPT_PROGRAMS]:
                self.hosts.pop(old)
        return list(zip(made, hosts[1], strict=True)), is_new


def _host(segment: Segment) -> HostProgram | None:
    return None if segment.host is None else host_program("onnxruntime", segment.host, DEFAULT.host_seconds)
