"""Candidate edits of single terms of an offload's numerics, and the isolated error of the offload under each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...compile import Offload, Plan
from ...compile.offload.execute import operand_codes
from ...compile.offload.specified import NumericsOffload
from ...compile.plan.plan import tensors_of
from ...errors import FlexmatchError
from ...ir.program import Data
from ...lang.binders import Leaf
from ..numerics.edits import WIDTHS, SourceTerms, TermEdit, bits_before, edited, edits_of, of_bits, source_terms
from ..numerics.rewriting import WIDE
from ..numerics.watch import Watched, watch
from .candidates import FloatRun

MOST_PRODUCTS = 1 << 22  # of an offload on the samples on which its edits are compared; fewer samples where it has more
LEAST_GAIN = 0.02  # of the isolated error that an edit must take away


@dataclass(frozen=True)
class TermChange:
    """An edit of the numerics of every offload that has its term, and the isolated error that it leaves in the worst of them."""

    offloads: tuple[str, ...]
    edit: TermEdit
    error: float
    gain: float = 0.0  # the share of the isolated error that it takes away, summed over the offloads

    def document(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {**self.edit.document(self.offloads[0]), "offloads": list(self.offloads)}

    def applied(self, plan: Plan) -> Plan:
        """Return the plan with the edited numerics; what a simulator of the device gives stays as it is."""
        return replace(plan, offloads=tuple(edited(o, self.edit) if o.id in self.offloads else o for o in plan.offloads))


def leaves_of(o: Offload) -> dict[str, Leaf]:
    """Return a leaf for each operand of an offload's first tile."""
    axes = o.mapping.axes.of
    names = [v.name for v in o.mapping.operands]
    return {n: Leaf(tuple(min(o.tiling.tile[d], o.tiling.sizes[d]) for d in axes[n]), o.formats[n].codes, False, n) for n in names}


def numerics_of(o: Offload, leaves: Mapping[str, Leaf] | None = None) -> SourceTerms:
    """Return the numerics of an offload's first tile, with the places of their terms."""
    operands = list((leaves or leaves_of(o)).values())
    return source_terms(o.mapping, operands, o.formats, dict(o.node.attributes))


def watched_terms(o: Offload, table: FloatRun) -> list[Watched]:
    """Return what the intermediates of an offload's numerics do in its first tile on the samples of a float run."""
    if o.mapping.codes is None:
        return []
    leaves, slices = leaves_of(o), next(o.tiling.slices())
    moving: dict[Leaf, Data] = {}
    constants: dict[Leaf, Data] = {}
    for name, value in ((n, tensors_of(o)[n]) for n in leaves):
        is_constant = value in table.plan.program.constants
        x = table.plan.program.constants[value] if is_constant else table.tensor_values[value]
        part = tuple(slices[d] for d in o.mapping.axes.of[name])
        codes = operand_codes(o.formats[name], x[part if is_constant else (slice(None), *part)]).astype(np.int64)
        (constants if is_constant else moving)[leaves[name]] = codes
    return watch(numerics_of(o, leaves), moving, constants)


def term_changes(plan: Plan, suspects: Sequence[str], alone_errors: Mapping[str, float], table: FloatRun) -> list[TermChange]:
    """Return the edits of terms that lessen the isolated error of a suspect, the most promising first.

    An edit belongs to the specification, so it is made in all offloads whose numerics have its term. The error that an
    offload causes alone says how much a share of its isolated error is worth.
    """
    lists = {o.id: edits_of(numerics_of(o)) for o in plan.offloads if o.mapping.codes is not None}
    gains: dict[TermEdit, list[tuple[float, str, float]]] = {}
    for o in (o for o in plan.offloads if o.id in suspects and o.id in lists):
        current_error = _error(o, table)
        for edit in lists[o.id]:
            error = _error(edited(o, edit, inlines=True), table)
            if error < (1 - LEAST_GAIN) * current_error:
                gains.setdefault(edit, []).append(((1 - error / current_error) * alone_errors[o.id], o.id, error))
    changes = []
    for edit, rows in gains.items():
        worst = max(rows)[1]
        others = tuple(key for key, edits in lists.items() if key != worst and edit in edits)
        changes.append(TermChange((worst, *others), edit, max(error for _, _, error in rows), sum(gain for gain, _, _ in rows)))
    return sorted(changes, key=lambda c: (-c.gain, c.edit.rank))


def with_least_width(plan: Plan, change: TermChange, table: FloatRun) -> TermChange:
    """Return a change of a width with the fewest bits that are as good as WIDE ones on the samples; any other as it is."""
    if change.edit.key not in WIDTHS:
        return change
    offloads = [o for o in plan.offloads if o.id in change.offloads]
    errors = [_error(edited(o, change.edit), table) for o in offloads]
    for bits in range(max(bits_before(numerics_of(o), change.edit) for o in offloads) + 1, WIDE):
        narrow = of_bits(change.edit, bits)
        if all(_error(edited(o, narrow), table) <= (1 + LEAST_GAIN) * error for o, error in zip(offloads, errors, strict=True)):
            return replace(change, edit=narrow)
    return change


def _error(o: Offload, table: FloatRun) -> float:
    """Return the relative error of the first result by numerics on plain arrays; infinite where an edit is refused."""
    p, tensors = table.plan.program, tensors_of(o)
    count = max(1, min(len(x) for x in table.tensor_values.values()))
    products = math.prod(o.tiling.sizes.values())
    samples = max(1, min(count, MOST_PRODUCTS // max(products, 1)))
    moving: dict[str, Data] = {}
    constants: dict[str, Data] = {}
    for name in (v.name for v in o.mapping.operands):
        value = tensors[name]
        if value in p.constants:
            constants[name] = p.constants[value]
        else:
            moving[name] = table.tensor_values[value][:samples]
    expected = table.tensor_values[o.node.outputs[0]][:samples].astype(np.float64)
    try:
        results = NumericsOffload(o, constants, is_native=False).results(moving)
    except (FlexmatchError, ValueError, OverflowError, ArithmeticError):
        return math.inf
    squared = float(np.sum((results[0] - expected) ** 2))
    return math.sqrt(squared / max(float(np.sum(expected**2)), 1e-30))
