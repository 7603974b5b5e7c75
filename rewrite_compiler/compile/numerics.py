"""Numerics: an offload by what its operation is specified to return bit by bit, without a device.

It is many times faster than instructions on a simulator, and gives the same where the two are proved to agree. Terms run as
machine code of vectors; those that have none run on plain arrays, which a note says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..errors import FlexmatchError, SpecError
from ..lang.binders import Array, Leaf
from ..lang.formats import Format
from ..lang.kernels import loaded_kernels
from ..lang.named import Data
from ..prove.lockstep import evaluated_together
from ..prove.operations import judged_operation
from ..target import Device, Stay, StreamedDevice, Target, simulated_device
from ..target import Mapping as Operation
from .execute import Prepared
from .plan import Offload

if TYPE_CHECKING:
    from ..lowering import Lowered

KEPT_TERMS = 256
Shapes = tuple[tuple[str, tuple[int, ...], bool], ...]  # of each operand: its name, its own axes, whether samples come before


@dataclass(frozen=True)
class Terms:
    """The numerics of one tile: leaves of the operands, a term for each result, and their code, or why there is none."""

    leaves: Mapping[str, Leaf]
    results: tuple[Array, ...]
    code: Lowered | None
    notes: tuple[str, ...]

    def __call__(self, operands: Mapping[str, Data]) -> tuple[Data, ...]:
        """Return the results with the samples as their first axis."""
        given = {self.leaves[n]: x for n, x in operands.items()}
        if self.code is not None:
            with contextlib.suppress(SpecError):  # plain arrays say better what is wrong
                return tuple(self.code(given))
        wide = {leaf: x.astype(np.int64) for leaf, x in given.items()}
        moving = {leaf: x for leaf, x in wide.items() if x.ndim > leaf.rank}
        shared = {leaf: x for leaf, x in wide.items() if leaf not in moving}
        return tuple(evaluated_together(term, moving, shared) for term in self.results)


@lru_cache(maxsize=KEPT_TERMS)
def terms_of(
    operation: Operation, formats: tuple[tuple[str, Format], ...], attributes: tuple[tuple[str, Any], ...], shapes: Shapes, samples: int
) -> Terms:  # fmt: skip
    """Return the numerics of an operation on operands of these shapes."""
    known = dict(formats)
    leaves = {n: Leaf(shape, known[n].codes, False, n) for n, shape, _ in shapes}
    found = operation.result_codes(list(leaves.values()), known, dict(attributes))
    results = found if isinstance(found, tuple) else (found,)
    why = loaded_kernels()
    if isinstance(why, str):
        return Terms(leaves, results, None, (why,))
    from ..lowering import Lowered, NotLowered

    place = f"{operation.name} ({operation.rule.place})"
    try:
        code = Lowered(results, [leaves[n] for n, _, moves in shapes if moves], samples)
    except NotLowered as refusal:
        return Terms(leaves, results, None, (f"{place} runs on plain arrays: {refusal.problem.sentence}",))
    return Terms(leaves, results, code, tuple(f"{place} runs in part on plain arrays: {note}" for note in code.notes))


@dataclass
class Specified(Prepared):
    """An offload ready to run by its numerics; `notes` say what of them ran without machine code, and why."""

    notes: dict[str, None] = field(default_factory=dict)

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
        own = {n: x.ndim - len(axes.of[n]) for n, x in parts.items()}
        shapes = tuple((n, x.shape[own[n] :], own[n] > 0) for n, x in parts.items())
        samples = max(len(x) for n, x in parts.items() if own[n])
        terms = terms_of(o.mapping, tuple(o.formats.items()), o.node.attributes, shapes, samples)
        self.notes.update(dict.fromkeys(terms.notes))
        return dict(zip(axes.results, terms(parts), strict=True))


def is_certified(target: Target, variant: str) -> bool:
    """Tell whether driver and numerics of an operation are proved to agree, as both are written now and at these parameters."""
    return judged_operation(target, target.mappings[variant]).is_proved


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
