"""Attribution of an application's loss to offloads, to single terms of their numerics, and to single fields of their formats.

Each offload is run *alone* on the device, all else in float. The offloads that then lose most are *restored*: run in float
while all others are on the device. Then single terms of their numerics and single fields of their formats are changed,
preselected by the isolated error of the offload, and each change is judged by the whole application again; what the terms of
the worst offloads do on data (range, values that leave their word) is in the document. A change is the
culprit only if it alone takes back SHARE of the loss, by more than the samples' own variation, on samples other than those on
which it was ranked first; else no single change explains it.
Where changes at several places are as likely and each alone takes back as much, data cannot tell which is wrong: all of them are named.
Where no change explains the loss, all formats are chosen anew by these samples: the plan may have been calibrated on others.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compile import Offload, Plan
from ...cosim.metrics.metrics import FEWEST
from ...data import Dataset
from ...errors import UsageError
from ...ir.program import Data
from ..numerics.edits import READ_STEPS, Rank
from ..numerics.rewriting import WIDE
from .candidates import Change, FloatRun, float_run, recalibrated_on
from .change_text import Explanation
from .common_changes import common_changes
from .term_candidates import LEAST_GAIN, TermChange, bases_of, least_width, term_changes, watched_terms, with_width
from .trials import Trial, Trials, with_float

MAX_RESTORED = 5  # offloads whose restoring is tried
MAX_SUSPECTS = 3  # offloads whose formats and terms are looked at
MAX_COMMON = 4  # changes of many offloads at once that are judged beside those of one
MAX_JUDGED = 8  # changes of each kind that are judged by the whole application
NEARLY_EQUAL = 0.95  # of the most that a change takes back: then the likelier cause goes first
EQUAL_ERRORS = 1.1  # ratio of two output errors that do not tell two changes apart
EQUAL_RESULTS = 2.0  # ratio of two output errors from which on one of two changes explains more
WORST = 2  # samples on which edits are tried first
SHARE = 0.8  # of the loss that a culprit takes back


@dataclass(frozen=True)
class Attribution:
    """An attribution's document, and the plans with single terms changed, best first: for trials, no device computes them."""

    document: dict[str, Any]
    terms: tuple[tuple[TermChange, Plan], ...]
    culprits: tuple[Plan, ...] = ()  # with the change of each that is named, in the order of the document


def attribute(plan: Plan, trials: Trials, table: FloatRun | None = None) -> dict[str, Any]:
    """Return the document of `attribute_with_plans`."""
    return attribute_with_plans(plan, trials, table).document


def attribute_with_plans(plan: Plan, trials: Trials, table: FloatRun | None = None) -> Attribution:
    """Attribute a loss: alone and restored by offload, the guiltiest first, and changes of terms and fields.

    Raises:
        UsageError: the plan has no offloads (C100).
    """
    if not plan.offloads:
        remedy = next((note for note in plan.notes if " is not used" in note), "compile for an accelerator that has some")
        raise UsageError("C100", "the plan has no offloads: there is no loss to attribute", help=remedy)
    device_trial = trials.run(plan)
    ids = [o.id for o in plan.offloads]
    variants = [plan if len(ids) == 1 else with_float(plan, set(ids) - {key}) for key in ids]
    alone_trials = dict(zip(ids, trials.run_all(variants, are_last=True), strict=True))
    order = sorted(ids, key=lambda key: (-alone_trials[key].loss, -alone_trials[key].error))
    candidates = order[:MAX_RESTORED]
    restored_trials = dict(zip(candidates, trials.run_all([with_float(plan, {key}) for key in candidates], are_last=True), strict=True))
    ranked = sorted(restored_trials, key=lambda key: _recovery(device_trial, restored_trials[key]), reverse=True)
    table = table or float_run(plan, trials.data)
    suspects = ranked[:MAX_SUSPECTS]
    fields = _judge_fields(plan, trials, suspects, alone_trials, table)
    telling = trials.data.take(_telling(trials, device_trial))
    term_plans = _judge_terms(plan, trials, telling, suspects, alone_trials)
    terms: list[Judged] = [(c, trials.run(p)) for c, p in term_plans.items()]
    changes = _ordered(trials, device_trial, [*fields, *terms])
    rows = [*ranked, *(key for key in order if key not in restored_trials)]
    explaining = _culprits(trials, device_trial, changes)
    is_open = device_trial.loss > 0 and (not explaining or any(isinstance(c, Change) and c.other_formats for c in explaining))
    recalibrated_trial = trials.run(recalibrated_on(plan, trials.data)) if is_open else None
    has_other_formats = recalibrated_trial is not None and explains(trials, device_trial, recalibrated_trial)
    culprits = [] if has_other_formats else explaining  # what a mapping chooses wrongly it chooses so again
    documents = [c.document() for c in culprits]
    document = {
        "metric": trials.metric.name, "samples": trials.data.count, "reference": trials.value,
        "accelerated": {"value": device_trial.value, "loss": device_trial.loss, "output_error": device_trial.error},
        "offloads": [_offload(key, device_trial, alone_trials[key], restored_trials.get(key)) for key in rows],
        "fields": [{**c.document(), **_figures(device_trial, t)} for c, t in changes if isinstance(c, Change)],
        "terms": [{**c.document(), **_figures(device_trial, t)} for c, t in changes if isinstance(c, TermChange)],
        "intermediates": [row for o in plan.offloads if o.id in suspects for row in _intermediates(o, table)],
        "culprit": documents[0] if len(documents) == 1 else None, "either": documents if len(documents) > 1 else [], "share": SHARE,
        "recalibrated": None if recalibrated_trial is None else _figures(device_trial, recalibrated_trial),
        "explanation": Explanation.CALIBRATION if has_other_formats else _explanation(device_trial, len(culprits)),
        "runs": trials.runs,
    }  # fmt: skip
    plans = tuple(term_plans[c] if isinstance(c, TermChange) else c.applied(plan) for c in culprits)
    return Attribution(document, tuple((c, term_plans[c]) for c, _ in changes if isinstance(c, TermChange)), plans)


AnyChange = Change | TermChange
Judged = tuple[AnyChange, Trial]


def _judge_fields(plan: Plan, trials: Trials, suspects: list[str], alone_trials: dict[str, Trial], table: FloatRun) -> list[Judged]:
    """Judge the changes of formats that promise most by the whole application."""
    promising: list[tuple[float, Change]] = []
    for o in (o for o in plan.offloads if o.id in suspects):
        current_error, improvements = table.improvements(o)
        promising += [((1 - c.error / current_error) * alone_trials[o.id].error, c) for c in improvements]
    common = common_changes(plan, table, suspects, {key: t.error for key, t in alone_trials.items()})
    promising += sorted(common, key=lambda item: -item[0])[:MAX_COMMON]
    promising.sort(key=lambda item: -item[0])
    changes = [c for _, c in promising[:MAX_JUDGED]]
    return list(zip(changes, trials.run_all([c.applied(plan) for c in changes]), strict=True))


def _judge_terms(plan: Plan, trials: Trials, data: Dataset, suspects: list[str], alone_trials: dict[str, Trial]) -> dict[TermChange, Plan]:
    """Judge the edits of terms that promise most by the whole application, widths as small as they may be; return the plans with them."""
    alone_errors = {key: t.error for key, t in alone_trials.items()}
    promising = term_changes(bases_of(plan, float_run(plan, data), data), suspects, alone_errors)[:MAX_JUDGED]
    widths = [least_width(c) for c in promising]
    plans = [with_width(c, bits).applied(plan) for c, bits in zip(promising, widths, strict=True)]
    first_trials = trials.run_all(plans)
    judged: dict[TermChange, Plan] = {}
    for change, bits, p, trial in zip(promising, widths, plans, first_trials, strict=True):
        if bits is not None and _falls_short(trials.run(plan), trial):
            bits, p = _wide_enough(plan, trials, change, bits)
        judged[with_width(change, bits)] = p
    return judged


def _falls_short(device_trial: Trial, trial: Trial) -> bool:
    """Tell whether a change leaves so much of a loss that it explains nothing."""
    return device_trial.loss - trial.loss < SHARE * device_trial.loss


def _wide_enough(plan: Plan, trials: Trials, change: TermChange, bits: int) -> tuple[int, Plan]:
    """Return the bits of a changed width that all samples need, at least those that the first ones say suffice, and the plan with them."""
    wide_error = trials.run(change.applied(plan)).error
    while True:
        variant = with_width(change, bits).applied(plan)
        if bits >= WIDE or trials.run(variant).error <= (1 + LEAST_GAIN) * wide_error:
            return bits, variant
        bits += 1


def _halves(count: int) -> tuple[Data, Data]:
    """Return the samples on which changes are ranked, and those on which the first is judged: every other one, all of very few."""
    indices = np.arange(count)
    return (indices[::2], indices[1::2]) if count >= 2 * FEWEST else (indices, indices)


def _telling(trials: Trials, device_trial: Trial) -> Data:
    """Return the samples in the order in which edits of terms are tried on them: some of the worst first, then as they are.

    A word that is too narrow may be left by few samples. The worst are of those on which changes are ranked.
    """
    first, _ = _halves(trials.data.count)
    errors, sizes = device_trial.squares[:, first]
    worst = first[np.argsort(-errors / np.maximum(sizes, 1e-30), kind="stable")[:WORST]]
    return np.concatenate([worst, np.setdiff1d(np.arange(trials.data.count), worst)])


def _ordered(trials: Trials, device_trial: Trial, changes: list[Judged]) -> list[Judged]:
    """Return changes by what they take back on half of the samples; of those that take back as much, the likelier cause first.

    Two formats that do not fit each other can be mended at either, and a wrong shift by a binary point: what deviates from the
    calibration's choice is likelier, then a term that exact arithmetic restores, one of another structure, another format.
    A whole table that is replaced hides any mistake in its function: a term of that function is as likely.
    """
    first, _ = _halves(trials.data.count)
    base = trials.on(device_trial, first)
    ranked = sorted(((c, t, trials.on(t, first)) for c, t in changes), key=lambda item: _recovery(base, item[2]), reverse=True)
    if not ranked or ranked[0][2].loss >= base.loss:
        return [(c, t) for c, t, _ in ranked]
    threshold = NEARLY_EQUAL * (base.loss - ranked[0][2].loss)
    best = [item for item in ranked if base.loss - item[2].loss >= threshold]
    least = min(t.error for *_, t in best)
    likely = sorted((item for item in best if item[2].error <= EQUAL_ERRORS * least), key=lambda item: _likelihood(item[0]))
    return [(c, t) for c, t, _ in (*likely, *(item for item in ranked if item not in likely))]


def _likelihood(change: AnyChange) -> tuple[int, int]:
    """Return a key that is less for likelier causes, and for changes that hardware can make: saturation before endless words.

    Left shifts decode operands, several at once: the right shift of their product is the plainer cause. A whole table comes last.
    """
    if isinstance(change, Change):
        return 0 if change.is_calibrated else 4, int(bool(change.other_formats))
    if change.edit.key in READ_STEPS:
        return 3, 0
    if change.edit.aspect == "table":
        return 2, 2
    return (1 if change.edit.rank is Rank.EXACT else 2), int(change.edit.aspect == "width" or change.edit.op == "shl")


def _intermediates(o: Offload, table: FloatRun) -> list[dict[str, Any]]:
    return [{"offload": o.id, **row.document()} for row in watched_terms(o, table)]


def _recovery(device_trial: Trial, trial: Trial) -> tuple[float, float]:
    """How much of the loss a trial takes back, and of the error of the outputs."""
    return device_trial.loss - trial.loss, device_trial.error - trial.error


def _figures(device_trial: Trial, trial: Trial) -> dict[str, Any]:
    return {
        "value": trial.value, "loss": trial.loss, "output_error": trial.error,
        "recovered_loss": (device_trial.loss - trial.loss) / device_trial.loss if device_trial.loss > 0 else None,
        "recovered_error": (device_trial.error - trial.error) / device_trial.error if device_trial.error > 0 else None,
    }  # fmt: skip


def _offload(key: str, device_trial: Trial, alone_trial: Trial, restored_trial: Trial | None) -> dict[str, Any]:
    return {
        "id": key, "alone": {"value": alone_trial.value, "loss": alone_trial.loss, "output_error": alone_trial.error},
        "restored": None if restored_trial is None else _figures(device_trial, restored_trial),
    }  # fmt: skip


def _culprits(trials: Trials, device_trial: Trial, changes: list[Judged]) -> list[AnyChange]:
    """Return the first change if it alone explains the loss, and those at other places that are as likely and take back as much.

    Two shifts in series mend one another, and so do two choices: restoring either gives the same results.
    """
    if not changes or device_trial.loss <= 0 or not explains(trials, device_trial, changes[0][1]):
        return []
    first, trial = changes[0]
    threshold = NEARLY_EQUAL * (device_trial.loss - trial.loss)
    by_place = {_place(first): first}
    for change, t in changes[1:]:
        is_equal = _likelihood(change)[0] == _likelihood(first)[0] and device_trial.loss - t.loss >= threshold
        is_equal = is_equal and t.error <= EQUAL_RESULTS * trial.error
        if is_equal and explains(trials, device_trial, t):
            by_place.setdefault(_place(change), change)
    return list(by_place.values())


def _place(change: AnyChange) -> Hashable:
    """Return what a change is at: a line of the target's file, a field of many offloads, or the formats of one that it sets."""
    if isinstance(change, TermChange):
        return str(change.edit.place)
    return (change.tensor, change.field, *change.other_formats) if change.other_formats else (change.offload, *change.formats.items())


def explains(trials: Trials, device_trial: Trial, trial: Trial) -> bool:
    """Tell whether a change alone takes back SHARE of the loss, and not by chance.

    Of many changes one takes back much of a few samples' loss by chance: the share must hold on the samples on which changes
    are not ranked, too. A few samples that turn are no evidence: either the paired interval of what it takes back excludes
    zero, or it takes back SHARE of the error of all outputs, too.
    """
    _, others = _halves(trials.data.count)
    if _falls_short(device_trial, trial) or _falls_short(trials.on(device_trial, others), trials.on(trial, others)):
        return False
    interval = trials.compare(trial, device_trial).interval
    is_certain = interval is not None and not interval[0] <= 0.0 <= interval[1]
    return is_certain or trial.error <= (1 - SHARE) * device_trial.error


def _explanation(device_trial: Trial, culprits: int) -> Explanation:
    if device_trial.loss <= 0:
        return Explanation.NO_LOSS
    return Explanation.NONE if culprits == 0 else Explanation.CULPRIT if culprits == 1 else Explanation.EITHER
