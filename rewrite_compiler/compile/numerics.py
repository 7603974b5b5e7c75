"""Numerics: an offload by what its operation is specified to return bit by bit, without a device.

It is many times faster than instructions on a simulator, and gives the same where the two are proved to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from ..errors import FlexmatchError
from ..lang.binders import Leaf
from ..lang.named import Data
from ..prove.lockstep import evaluated_together
from ..prove.shipped import certificate_of_operation
from ..target import Device, Stay, StreamedDevice, Target, simulated_device
from .execute import Prepared
from .plan import Offload


@dataclass
class Specified(Prepared):
    """An offload ready to run by its numerics."""

    def results(self, operands: Mapping[str, Data]) -> tuple[Data, ...]:
        """Return the results [samples, …] for moving operands."""
        return self.run(cast(Device, None), operands)[0]

    def call(
        self, device: Device | StreamedDevice, codes: Mapping[str, Data], slices: Mapping[str, slice], stay: Stay | None = None
    ) -> dict[str, Data]:  # fmt: skip
        """Return the result codes of one tile."""
        del device, stay
        o, parts = self.offload, self.parts(codes, slices)
        axes = o.mapping.axes
        leaves = {n: Leaf(x.shape[x.ndim - len(axes.of[n]) :], o.formats[n].codes, False, n) for n, x in parts.items()}
        found = o.mapping.result_codes(list(leaves.values()), o.formats, dict(o.node.attributes))
        given = {leaves[n]: x.astype(np.int64) for n, x in parts.items()}
        moving = {leaf: x for leaf, x in given.items() if x.ndim > len(leaf.shape)}
        shared = {leaf: x for leaf, x in given.items() if leaf not in moving}
        terms = found if isinstance(found, tuple) else (found,)
        return {n: evaluated_together(term, moving, shared) for n, term in zip(axes.results, terms, strict=True)}


def is_certified(target: Target, variant: str) -> bool:
    """Tell whether driver and numerics of an operation are proved to agree, as both are written now and at these parameters."""
    found = certificate_of_operation(target, variant)
    return found is not None and found.verdict == "proved"


def refused(o: Offload) -> str:
    """Return why a device does not take an offload's formats, nothing where it does: its smallest tile tells, of zeros."""
    m = o.mapping
    sizes = m.unit_sizes(o.tiling.sizes)
    zeros = {v.name: np.zeros([sizes[d] for d in m.axes.of[v.name]], np.int64) for v in m.operands}
    try:
        m.run_driver(simulated_device(o.target.ila()), zeros, o.formats, dict(o.node.attributes))
    except (FlexmatchError, ValueError, OverflowError) as error:
        return str(error)
    return ""
