"""Candidate edits of single terms of an offload's numerics, and the isolated error of the offload under each."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...compile import Offload, Plan, calibrated
from ...compile.offload.execute import operand_codes
from ...compile.offload.specified import NumericsOffload
from ...compile.plan.plan import tensors_of
from ...compile.rescaling import unscaled
from ...data import CALIBRATION_SAMPLES, Dataset
from ...errors import FlexmatchError
from ...ir.program import Data
from ...lang.binders import Leaf
from ..numerics.edits import (
    READ_STEPS,
    WIDTHS,
    SourceTerms,
    TermEdit,
    bits_before,
    edited,
    edits_of,
    next_step,
    of_bits,
    read_edits,
    result_edits,
    segment_edits,
    source_terms,
)
from ..numerics.rewriting import WIDE
from ..numerics.watch import Watched, watch
from .candidates import FloatRun, float_run
from .trials import with_formats_of

MOST_PRODUCTS = 1 << 22  # of an offload on the samples on which its edits are compared; fewer samples where it has more
LEAST_GAIN = 0.02  # of the isolated error that an edit must take away


@dataclass(frozen=True, eq=False)
class Basis:
    """A plan whose terms are edited, the float run on which they are compared, and which offloads compute on operands as they are.

    Scaled operands hide a term that is wrong, and what they lose stays when it is mended: an edit is tried without them, too.
    """

    plan: Plan
    table: FloatRun
    unscaled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TermChange:
    """An edit of the numerics of every offload that has its term, and the isolated error that it leaves in the worst of them."""

    offloads: tuple[str, ...]
    edit: TermEdit
    error: float
    basis: Basis = field(repr=False)
    gain: float = 0.0  # the share of the isolated error that it takes away, summed over the offloads

    @property
    def unscaled(self) -> frozenset[str]:
        """The offloads of the edit that compute on operands as they are, where the plan scales them."""
        return self.basis.unscaled & {*self.offloads}

    def document(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {**self.edit.document(self.offloads[0]), "offloads": list(self.offloads), "unscaled": sorted(self.unscaled)}

    def applied(self, plan: Plan) -> Plan:
        """Return the plan with the edited numerics; what a simulator of the device gives stays as it is."""
        formats = {o.id: o.formats for o in self.basis.plan.offloads if o.id in self.unscaled}
        base = with_formats_of(unscaled(plan, self.unscaled), formats)
        return replace(base, offloads=tuple(edited(o, self.edit) if o.id in self.offloads else o for o in base.offloads))


def bases_of(plan: Plan, table: FloatRun, data: Dataset) -> list[Basis]:
    """Return the plan as it is, and with no offload on scaled operands where it has some, calibrated on the first samples."""
    scaled = frozenset(text.partition(":")[0] for text in plan.settings["scaled"])
    if not scaled:
        return [Basis(plan, table)]
    first = data.take(np.arange(min(CALIBRATION_SAMPLES, data.count)))
    bare = calibrated(unscaled(plan, scaled), first.inputs, "samples of the attribution", first.sha256)
    return [Basis(plan, table), Basis(bare, float_run(bare, data), scaled)]


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


def term_changes(bases: Sequence[Basis], suspects: Sequence[str], alone_errors: Mapping[str, float]) -> list[TermChange]:
    """Return the edits of terms that lessen the isolated error of a suspect, the most promising first.

    An edit belongs to the specification, so it is made in all offloads whose numerics have its term. The error that an
    offload causes alone says how much a share of its isolated error is worth, of the first basis.
    """
    now = bases[0]
    errors = {o.id: _error(o, now.table) for o in now.plan.offloads if o.id in suspects and o.mapping.codes is not None}
    changes = [c for basis in bases for c in _changes_in(basis, errors, alone_errors)]
    of_terms = {c.gain for c in changes if c.edit.key not in READ_STEPS}
    distinct = (c for c in changes if c.edit.key not in READ_STEPS or c.gain not in of_terms)  # a shift by what is read gives the same
    return sorted(distinct, key=lambda c: (-c.gain, c.edit.rank))


def _changes_in(basis: Basis, current_errors: Mapping[str, float], alone_errors: Mapping[str, float]) -> Iterator[TermChange]:
    """Yield the edits on one basis that leave less than the current isolated error of a suspect."""
    numerics = {o.id: numerics_of(o) for o in basis.plan.offloads if o.mapping.codes is not None}
    lists = {o.id: _edits(o, numerics[o.id]) for o in basis.plan.offloads if o.id in numerics}
    gains: dict[TermEdit, list[tuple[float, str, float]]] = {}
    first: dict[TermEdit, TermEdit] = {}  # the edit after which one is tried
    for o in (o for o in basis.plan.offloads if o.id in current_errors):
        if basis.unscaled and o.id not in basis.unscaled:
            continue
        least = min(current_errors[o.id], _error(o, basis.table))  # other operands alone are no merit of an edit
        remaining = deque((edit, edit) for edit in lists[o.id])
        while remaining:
            edit, origin = remaining.popleft()
            error = _error(edited(o, edit, inlines=True), basis.table)
            if error < (1 - LEAST_GAIN) * least:
                first[edit] = origin
                gains.setdefault(edit, []).append(((1 - error / current_errors[o.id]) * alone_errors[o.id], o.id, error))
                remaining.extendleft((e, origin) for e in (next_step(edit), *segment_edits(numerics[o.id], edit)) if e is not None)
    for edit in _best_steps(gains):
        rows = gains[edit]
        worst = max(rows)[1]
        others = tuple(key for key, edits in lists.items() if key != worst and first[edit] in edits)
        yield TermChange((worst, *others), edit, max(error for _, _, error in rows), basis, sum(gain for gain, _, _ in rows))


def _best_steps(gains: Mapping[TermEdit, Sequence[tuple[float, str, float]]]) -> Iterable[TermEdit]:
    """Return edits, of those that differ in the number of their steps only the one that gains most."""
    best: dict[TermEdit, TermEdit] = {}
    for edit in sorted(gains, key=lambda e: sum(gain for gain, _, _ in gains[e])):
        best[replace(edit, step=1)] = edit
    return best.values()


def _edits(o: Offload, w: SourceTerms) -> list[TermEdit]:
    """Return the edits of an offload's numerics."""
    return [*edits_of(w), *result_edits(w, [o.formats[n] for n in o.mapping.axes.results]), *read_edits(w)]


def least_width(change: TermChange) -> int | None:
    """Return the fewest bits of a changed width that are as good as WIDE ones on the samples of the float run; None of other changes."""
    if change.edit.key not in WIDTHS:
        return None
    basis = change.basis
    offloads = [o for o in basis.plan.offloads if o.id in change.offloads]
    errors = [_error(edited(o, change.edit), basis.table) for o in offloads]
    for bits in range(max(bits_before(numerics_of(o), change.edit) for o in offloads) + 1, WIDE):
        narrow = of_bits(change.edit, bits)
        if all(_error(edited(o, narrow), basis.table) <= (1 + LEAST_GAIN) * e for o, e in zip(offloads, errors, strict=True)):
            return bits
    return WIDE


def with_width(change: TermChange, bits: int | None) -> TermChange:
    """Return a change of a width to so many bits; any other as it is."""
    return change if bits is None else replace(change, edit=of_bits(change.edit, bits))


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
