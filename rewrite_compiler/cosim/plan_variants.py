"""Plan variants: the outputs of many plans for the same samples, host programs and offloads prepared once for all of them.

Samples run in batches of one size, the last one padded with its last sample: the outputs of a sample do not depend on others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock
from typing import cast

import numpy as np

from ..compile.host.exact_host import host_program
from ..compile.host.host_program import HostProgram
from ..compile.host.lazy_codes import Operand
from ..compile.offload.execute import PreparedOffload
from ..compile.offload.specified import NumericsOffload
from ..compile.plan.plan import Offload, Plan
from ..ila import Ila
from ..ir.program import Data, Program
from ..limits import DEFAULT
from ..target import Device, simulated_device
from .metrics.segmentation import Segment, segments
from .prefetch import in_order, prefetch_limit
from .schedule import Steps, constants_of, layout_free_offloads, run_segments

KEPT_PROGRAMS = 3  # whose host parts are kept: they hold the model's weights
CAPACITY_BYTES = 1 << 28  # bytes of codes of constants that are kept
Hosts = tuple[HostProgram | None, ...]


@dataclass
class Variants:
    """The caches that plans share: prepared offloads, host programs of plans with one program, and device models."""

    reading: str
    batch: int
    capacity_bytes: int = CAPACITY_BYTES
    hosts: dict[Hashable, tuple[Program, Hosts]] = field(default_factory=dict)
    prepared: dict[Hashable, PreparedOffload] = field(default_factory=dict)
    ilas: dict[Hashable, Ila] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def outputs(self, plan: Plan, inputs: Mapping[str, Data], *, threads: int = 1, is_last: bool = False) -> dict[str, Data]:
        """Return the outputs [samples, …] of a plan; host programs are not cached where no later plan has its program (`is_last`)."""
        steps, is_new = self._steps(plan, is_last=is_last)
        samples = min(len(x) for x in inputs.values())
        parts = [np.minimum(np.arange(start, start + self.batch), samples - 1) for start in range(0, samples, self.batch)]
        layout_free = layout_free_offloads(plan, steps)

        def run(part: Data) -> dict[str, Data]:
            return self._batch(plan, steps, {n: x[part] for n, x in inputs.items()}, layout_free)

        sequential = 1 if is_new else 0  # of batches: the first one chooses how host parts are batched
        sequential = len(parts) if threads == 1 else sequential
        results = [run(part) for part in parts[:sequential]]
        with closing(in_order(run, parts[sequential:], threads, prefetch_limit(plan.program, self.batch, threads))) as futures:
            results += [future.result() for future in futures]
        return {name: np.concatenate([result[name] for result in results])[:samples] for name in results[0]}

    def _batch(self, plan: Plan, steps: Steps, inputs: Mapping[str, Data], layout_free: frozenset[str]) -> dict[str, Data]:
        def run(o: Offload, moving: Mapping[str, Operand]) -> Sequence[Operand]:
            prepared = self._prepared(o, constants_of(plan.program, o))
            if not isinstance(prepared, NumericsOffload):
                return prepared.run(simulated_device(self._ila(o), reading=self.reading, samples=self.batch), moving)[0]
            return (prepared.run_lazily(moving) if o.id in layout_free else prepared.run(cast(Device, None), moving))[0]

        return run_segments(plan.program, steps, inputs, self.batch, run)

    def _prepared(self, o: Offload, constants: Mapping[str, Data]) -> PreparedOffload:
        """Return a prepared offload; constants are equal where they are one array, which is cached with what is derived from it."""
        places = ((n, id(x)) for n, x in constants.items())
        key = (_design(o), o.mapping.variant, o.mapping.codes, o.node.attributes, *o.tiling.tile.items(), *o.formats.items(), *places)
        with self.lock:
            prepared = self.prepared.pop(key, None)
            if prepared is None:
                is_specified = o.mapping.codes is not None and self.reading != "oracle"
                prepared = (
                    NumericsOffload(o, constants, is_native=self.reading == "native") if is_specified else PreparedOffload(o, constants)
                )
            self.prepared[key] = prepared
            sizes = {k: sum(x.nbytes for x in p.codes.values()) for k, p in self.prepared.items()}
            size = sum(sizes.values())
            for old in list(self.prepared)[:-1]:
                if size <= self.capacity_bytes:
                    break
                size -= sizes[old]
                self.prepared.pop(old)
            return prepared

    def _ila(self, o: Offload) -> Ila:
        with self.lock:
            if _design(o) not in self.ilas:
                self.ilas[_design(o)] = o.target.ila()
            return self.ilas[_design(o)]

    def _steps(self, plan: Plan, *, is_last: bool) -> tuple[Steps, bool]:
        """Return the steps of a plan, and whether their host programs are new."""
        plan_segments, key = segments(plan), (id(plan.program), *(o.id for o in plan.offloads))
        with self.lock:
            is_new = key not in self.hosts
            hosts = self.hosts.pop(key, None) or (plan.program, tuple(map(_host, plan_segments)))
            if not is_last:
                self.hosts[key] = hosts
            for old in list(self.hosts)[:-KEPT_PROGRAMS]:
                self.hosts.pop(old)
        return list(zip(plan_segments, hosts[1], strict=True)), is_new


def _design(o: Offload) -> Hashable:
    return o.target.build, *o.target.values.items()


def _host(segment: Segment) -> HostProgram | None:
    return None if segment.host is None else host_program("onnxruntime", segment.host, DEFAULT.host_seconds)
