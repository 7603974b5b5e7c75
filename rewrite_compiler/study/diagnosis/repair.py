"""Repair: the smallest change of number formats, or of a target's parameters, that brings an application's accuracy back.

Changes are searched on one half of the samples and judged on the other. A change costs the bits it adds to stored values;
another rounding or binary point adds none. The order is lexicographic: added bits, other designs after the same one, number
of fields, loss. Another design is recalibrated, and proposed only where it beats this design recalibrated. A change is chosen
only if the paired interval on the samples held back says that it loses less than the design as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from ...compile import Options, Plan, compile_model
from ...cosim.batch_size import batch_size
from ...cosim.metrics.loss_bound import Band
from ...cosim.metrics.metrics import Metric, PairedComparison
from ...data import Dataset
from ...errors import FlexmatchError, UsageError
from ...lang.formats import Format
from ...target import Target
from .attribution import Attribution, attribute_with_plans
from .candidates import Change, FloatRun, float_run, recalibrated_on
from .change_text import change_text
from .trials import Trial, Trials, variants_of, with_formats_of

MIN_SAMPLES = 8
NO_OPTIONS = Options()
MAX_JUDGED_FIELDS = 4  # fields of all offloads of an operation that are judged by the whole application
Formats = Mapping[str, Mapping[str, Format]]


class ProposalKind(StrEnum):
    """What a proposal changes."""

    NONE = "none"
    """Nothing: the design as it is."""
    ROUNDING = "rounding"
    """The rounding of a number format."""
    BINARY_POINT = "binary point"
    """The binary point of a fixed-point format, or the exponent bias of a float format."""
    FORMAT = "format"
    """Another field of a number format."""
    SEVERAL = "several"
    """Two of these at once."""
    CALIBRATION = "calibration"
    """All formats, to those that calibration chooses."""
    TERM = "term"
    """A term of the target's numerics, in its file."""
    PARAMETER = "parameter"
    """A parameter of the accelerator: another design."""


KIND_OF_FIELD = {"rounding": ProposalKind.ROUNDING, "fraction": ProposalKind.BINARY_POINT, "bias": ProposalKind.BINARY_POINT}


@dataclass(frozen=True)
class Proposal:
    """One change of a design: its description and plan, changed fields, parameters that are set, bits that it adds."""

    kind: ProposalKind
    description: str
    plan: Plan
    changes: tuple[Change, ...] = ()
    parameters: tuple[tuple[str, str, str], ...] = ()  # target, parameter, value
    added_bits: int = 0


@dataclass(frozen=True)
class JudgedProposal:
    """A proposal with its trial on the samples of the search and, for the promising ones, on those held back."""

    proposal: Proposal
    search: Trial
    verify: Trial | None = None


@dataclass(frozen=True)
class Repair:
    """The document of a repair, and the plan of the chosen change, if there is one."""

    document: Mapping[str, Any]
    plan: Plan | None


def repair(
    plan: Plan,
    data: Dataset,
    metric: Metric,
    band: Band,
    *,
    options: Options = NO_OPTIONS,
    batch: int = 0,
    threads: int = 1,
    tier: str = "auto",
) -> Repair:
    """Search the changes of a calibrated plan that keep the metric's loss within a band; `options` are those it was compiled with.

    Raises:
        UsageError: there are too few samples to split, or the plan has no offloads (C100).
    """
    if data.count < MIN_SAMPLES:
        raise UsageError(
            "C100", f"repair needs at least {MIN_SAMPLES} samples, one half to search on and one to judge by, not {data.count}",
            place=data.place, help="give more samples in --data, or a larger --samples",
        )  # fmt: skip
    halves = [data.take(np.arange(k, data.count, 2)) for k in (0, 1)]
    batch = batch or batch_size(plan.source)
    shared = variants_of(halves[0].count, batch, tier)
    search, verify = (Trials(plan, half, metric, batch=batch, threads=threads, shared=shared) for half in halves)
    baseline = JudgedProposal(Proposal(ProposalKind.NONE, "as it is", plan), search.run(plan), verify.run(plan))
    table = float_run(plan, halves[0])
    attributed = attribute_with_plans(plan, search, table)
    attribution = attributed.document
    candidates = _judge(search, _of_formats(plan, table, attribution))
    candidates += _judge(search, _combined(plan, candidates))
    recalibrated = _judge(search, _of_calibration(plan, halves[0]))
    redesigned = _judge(search, _of_parameters(plan, table, attribution, options, halves[0]))
    candidates += [*recalibrated, *(j for j in redesigned if not _is_same(j.search, (recalibrated or [baseline])[0].search))]
    front = _front([baseline, *candidates])
    candidates = [replace(j, verify=verify.run(j.proposal.plan)) if j in front or _holds(j.search, search, band) else j for j in candidates]
    within = [j for j in candidates if _holds(j.search, search, band) and j.verify is not None and _holds(j.verify, verify, band)]
    acceptable = [j for j in within if _is_less(j, baseline, verify)]
    is_within = baseline.verify is not None and _holds(baseline.search, search, band) and _holds(baseline.verify, verify, band)
    proposal = None if is_within or not acceptable else min(acceptable, key=_rank)
    terms = [replace(j, verify=verify.run(j.proposal.plan)) for j in _judge(search, _of_terms(attributed))]
    document = {
        "schema": "flexmatch.repair/1", "model": {"sha256": plan.model["sha256"]}, "targets": [t.name for t in plan.targets],
        "metric": metric.name, "lower_is_better": metric.lower_is_better, "within": band.text,
        "samples": {"search": halves[0].count, "verify": halves[1].count}, "reference": {"search": search.value, "verify": verify.value},
        "before": _document(baseline, baseline, search, verify, band), "holds_already": is_within,
        "culprit": attribution["culprit"], "attribution": attribution,
        "proposals": [_document(j, baseline, search, verify, band) for j in sorted(candidates, key=_rank)],
        "specification": [_document(j, baseline, search, verify, band) for j in terms],
        "front": [j.proposal.description for j in front],
        "chosen": None if proposal is None else proposal.proposal.description,
        "undecided": None if is_within or acceptable or not within else _undecided(min(within, key=_rank), baseline, verify),
    }  # fmt: skip
    return Repair(document, None if proposal is None else proposal.proposal.plan)


def _judge(trials: Trials, proposals: Sequence[Proposal]) -> list[JudgedProposal]:
    return [JudgedProposal(p, t) for p, t in zip(proposals, trials.run_all([p.plan for p in proposals]), strict=True)]


def _holds(trial: Trial, trials: Trials, band: Band) -> bool:
    return band.holds(trial.loss, trials.value)


def _rank(j: JudgedProposal) -> tuple[float, ...]:
    """What a change costs, then what it loses."""
    p = j.proposal
    fields = len({(c.tensor, c.field) for c in p.changes})
    return p.added_bits, len(p.parameters), fields, len(p.changes), j.search.loss, j.search.error


def _is_same(left: Trial, right: Trial) -> bool:
    return (left.loss, left.error) == (right.loss, right.error)


def _front(candidates: Iterable[JudgedProposal]) -> list[JudgedProposal]:
    """Return the proposals that no other beats in bits and loss, by bits."""
    front: list[JudgedProposal] = []
    for j in sorted(candidates, key=lambda j: (j.proposal.added_bits, j.search.loss, j.search.error, *_rank(j)[1:4])):
        if not front or (j.search.loss, j.search.error) < (front[-1].search.loss, front[-1].search.error):
            front = [*(f for f in front if f.proposal.added_bits < j.proposal.added_bits), j]
    return front


# -- what can be changed


def _of_formats(plan: Plan, table: FloatRun, attribution: Mapping[str, Any]) -> list[Proposal]:
    """Return single fields of single offloads, and fields of all offloads of an operation."""
    improvements = {o.id: table.improvements(o) for o in plan.offloads}
    single = []
    for row in (row for row in attribution["fields"] if "offloads" not in row):
        match = next((c for c in improvements[row["offload"]][1] if c.document() == {k: row[k] for k in c.document()}), None)
        if match is not None:
            single.append(_of_changes(_kind(match), plan, (match,)))
    return [*single, *_of_operations(plan, improvements)]


def _of_operations(plan: Plan, improvements: Mapping[str, tuple[float, list[Change]]]) -> list[Proposal]:
    """Return one field of one tensor, in all offloads of an operation that gain by it, the best value for each of them."""
    groups: dict[tuple[str, str, str], list[tuple[float, Change]]] = {}
    for o in plan.offloads:
        current_error, changes = improvements[o.id]
        for c in changes:
            groups.setdefault((f"{o.target.name}.{o.mapping.operation}", c.tensor, c.field), []).append((1 - c.error / current_error, c))
    ranked = sorted(groups.values(), key=lambda g: -sum(gain for gain, _ in g))
    return [_of_changes(_kind(g[0][1]), plan, tuple(c for _, c in g)) for g in ranked[:MAX_JUDGED_FIELDS] if len(g) > 1]


def _kind(change: Change) -> ProposalKind:
    return KIND_OF_FIELD.get(change.field, ProposalKind.FORMAT)


def _of_changes(kind: ProposalKind, plan: Plan, changes: tuple[Change, ...]) -> Proposal:
    formats: Formats = {c.offload: c.formats for c in changes}
    bits = sum(max(0, new_width - old_width) for _, old_width, new_width in _widths(plan, formats))
    return Proposal(kind, _text(changes), with_formats_of(plan, formats), changes, (), bits)


def _text(changes: tuple[Change, ...]) -> str:
    first = changes[0]
    values = sorted({f"{c.before} → {c.after}" for c in changes})
    place = first.offload if len(changes) == 1 else f"{len(changes)} offloads"
    return f"{first.field} of {first.tensor} of {place}: {', '.join(values)}"


def _widths(plan: Plan, formats: Formats) -> set[tuple[str, int, int]]:
    """Return the widths of every tensor of every operation, before and after."""
    widths = set()
    for o in plan.offloads:
        for name, f in formats.get(o.id, {}).items():
            widths.add((f"{o.target.name}.{o.mapping.operation}.{name}", o.formats[name].width, f.width))
    return widths


def _of_calibration(plan: Plan, data: Dataset) -> list[Proposal]:
    """Return the formats that calibration chooses, where they are others than those of the plan."""
    recalibrated = recalibrated_on(plan, data)
    changes = [
        Change(o.id, tensor, field, value, f.parameters.get(field, value), offload.formats)
        for o, offload in zip(plan.offloads, recalibrated.offloads, strict=True)
        for tensor, f in offload.formats.items()
        for field, value in o.formats[tensor].parameters.items()
        if f.parameters.get(field, value) != value
    ]
    if not changes:
        return []
    bits = sum(max(0, new_width - old_width) for _, old_width, new_width in _widths(plan, {o.id: o.formats for o in recalibrated.offloads}))
    return [Proposal(ProposalKind.CALIBRATION, "formats as calibration chooses them", recalibrated, tuple(changes), (), bits)]


def _of_parameters(plan: Plan, table: FloatRun, attribution: Mapping[str, Any], options: Options, data: Dataset) -> list[Proposal]:
    """Return the plan for every other value of every parameter of its targets, compiled and calibrated again.

    Values with which the guiltiest offload of each operation gives the same are left out: they are no matter of numbers.
    """
    ranked = sorted(plan.offloads, key=lambda o: [row["id"] for row in attribution["offloads"]].index(o.id))
    guiltiest = {(o.target.name, o.mapping.operation): o for o in reversed(ranked)}
    proposals = []
    for target in plan.targets:
        offloads = [o for o in guiltiest.values() if o.target.name == target.name]
        for name, values in target.parameters.items():
            for value in (v for v in values if v != target.values[name]):
                if any(table.differs(o, target.configured({name: value})) for o in offloads):
                    proposals.append(_with_parameter(plan, target, name, value, options, data))
    return [p for p in proposals if p is not None]


def _with_parameter(plan: Plan, target: Target, name: str, value: str, options: Options, data: Dataset) -> Proposal | None:
    targets = [t.configured({name: value}) if t is target else t for t in plan.targets]
    try:
        variant = compile_model(plan.model["path"], targets, options)
    except FlexmatchError:
        return None
    variant = recalibrated_on(variant, data)
    widths = {(role, after) for role, _, after in _widths(variant, {o.id: o.formats for o in variant.offloads})}
    old_widths = {role: width for role, width, _ in _widths(plan, {o.id: o.formats for o in plan.offloads})}
    added_bits = sum(max(0, after - old_widths.get(role, after)) for role, after in widths)
    return Proposal(ProposalKind.PARAMETER, f"{target.name} {name} = {value}", variant, (), ((target.name, name, value),), added_bits)


def _combined(plan: Plan, candidates: list[JudgedProposal]) -> list[Proposal]:
    """Return the best rounding of all offloads together with each other change without added bits, where they do not meet."""
    unwidened = [j for j in candidates if j.proposal.changes and not j.proposal.added_bits]
    if not unwidened:
        return []
    best = min(unwidened, key=lambda j: (j.search.loss, j.search.error)).proposal
    proposals = []
    for j in unwidened:
        merged = _merged(plan, best, j.proposal)
        if merged is not None:
            proposals.append(merged)
    return proposals[:MAX_JUDGED_FIELDS]


def _merged(plan: Plan, left: Proposal, right: Proposal) -> Proposal | None:
    """Return two proposals in one; None when they change the same field."""
    fields = [{(c.offload, c.tensor, c.field) for c in p.changes} for p in (left, right)]
    if left is right or fields[0] & fields[1]:
        return None
    formats = {o.id: dict(o.formats) for o in plan.offloads}
    for c in (*left.changes, *right.changes):
        o = next(o for o in plan.offloads if o.id == c.offload)
        for name, f in c.formats.items():
            parameters = {k: v for k, v in f.parameters.items() if v != o.formats[name].parameters.get(k)}
            formats[c.offload][name] = replace(formats[c.offload][name], **parameters)  # type: ignore[arg-type]
    merged_plan = with_formats_of(plan, formats)
    return Proposal(
        ProposalKind.SEVERAL,
        f"{left.description}; {right.description}",
        merged_plan,
        (*left.changes, *right.changes),
        (),
        left.added_bits + right.added_bits,
    )


def _of_terms(attributed: Attribution) -> list[Proposal]:
    """Return single terms of the target's numerics: changes of its specification, which no plan can hold."""
    return [Proposal(ProposalKind.TERM, change_text(c.document()), p) for c, p in attributed.terms]


def _document(j: JudgedProposal, baseline: JudgedProposal, search: Trials, verify: Trials, band: Band) -> dict[str, Any]:
    p, pairs = j.proposal, _pairs(j, baseline, verify)
    return {
        "what": p.description, "kind": p.kind, "added_bits": p.added_bits, "changes": [c.document() for c in p.changes],
        "parameters": [{"target": t, "parameter": n, "value": v} for t, n, v in p.parameters],
        "search": _figures(j.search, search, band), "verify": None if j.verify is None else _figures(j.verify, verify, band),
        "against_now": None if pairs is None else pairs.interval, "distinguishable": _is_distinguishable(pairs),
    }  # fmt: skip


def _is_distinguishable(pairs: PairedComparison | None) -> bool:
    """Tell whether samples tell a change from the design as it is: the paired interval of their difference excludes 0."""
    return pairs is not None and pairs.interval is not None and not pairs.interval[0] <= 0.0 <= pairs.interval[1]


def _is_less(j: JudgedProposal, baseline: JudgedProposal, verify: Trials) -> bool:
    """Tell whether a change loses less than the design as it is, by the paired interval on the samples held back."""
    is_less = j.verify is not None and baseline.verify is not None and j.verify.loss < baseline.verify.loss
    return is_less and _is_distinguishable(_pairs(j, baseline, verify))


def _pairs(j: JudgedProposal, baseline: JudgedProposal, verify: Trials) -> PairedComparison | None:
    """Return what a change does to the metric of the samples held back, pair by pair; None where it was not run on them."""
    return None if j.verify is None or baseline.verify is None else verify.compare(j.verify, baseline.verify)


def _undecided(j: JudgedProposal, baseline: JudgedProposal, verify: Trials) -> dict[str, Any]:
    """Return the smallest change that is within the band although no interval says that it helps, and how many samples that is on."""
    pairs = _pairs(j, baseline, verify)
    assert pairs is not None
    return {"what": j.proposal.description, "samples": verify.data.count, "interval": pairs.interval, "method": pairs.method}


def _figures(trial: Trial, trials: Trials, band: Band) -> dict[str, Any]:
    pairs = trials.compare(trial)
    return {
        "value": trial.value, "loss": trial.loss, "output_error": trial.error, "interval": pairs.interval, "better": pairs.better,
        "worse": pairs.worse, "within": _holds(trial, trials, band),
    }  # fmt: skip
