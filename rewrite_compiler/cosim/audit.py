"""Audit: random parts of device calls computed again by the oracle, one sample and one unit of every dimension at a time.

The same driver runs on the generated-Python simulator; results must agree code for code.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..compile.execute import Prepared, Statistics
from ..ila import Ila
from ..ir.program import Data
from ..target import simulated_device

SEED = 104


@dataclass(frozen=True)
class Audit:
    """Recomputes at least `outputs` results of the first call of an offload."""

    outputs: int
    ila: Ila

    def check(
        self, prepared: Prepared, codes: Mapping[str, Data], slices: Mapping[str, slice], results: Mapping[str, Data], seen: Statistics
    ) -> None:
        """Compare random parts of one call with the oracle, until enough results were compared."""
        random = np.random.default_rng([SEED, zlib.crc32(prepared.offload.id.encode())])
        while seen.audited < self.outputs:
            before = seen.audited
            self._once(prepared, codes, slices, results, random, seen)
            if seen.audited == before:
                return

    def _once(
        self, prepared: Prepared, codes: Mapping[str, Data], slices: Mapping[str, slice], results: Mapping[str, Data],
        random: np.random.Generator, seen: Statistics,
    ) -> None:  # fmt: skip
        m = prepared.offload.mapping
        sample = int(random.integers(len(next(iter(results.values())))))
        part = {d: s if d in m.whole or d in m.axes.summed else _unit(s, m.units.get(d, 1), random) for d, s in slices.items()}
        one = {name: c[sample] if c.ndim > len(m.axes.of[name]) else c for name, c in codes.items()}
        found = prepared.call(simulated_device(self.ila, reading="oracle"), one, part)
        for name, y in found.items():
            inside = tuple(slice(part[d].start - slices[d].start, part[d].stop - slices[d].start) for d in m.axes.of[name])
            expected = results[name][sample][inside]
            seen.audited += y.size
            seen.audit_mismatches += int(np.count_nonzero(np.asarray(y) != expected))


def _unit(s: slice, unit: int, random: np.random.Generator) -> slice:
    """Return a random unit of a dimension's part."""
    start = s.start + unit * int(random.integers(-(-(s.stop - s.start) // unit)))
    return slice(start, min(start + unit, s.stop))
