"""Attribution: which offloads, and which fields of their formats, the loss of the application comes from.

Runs are exact but for some offloads. Each offload is put on the device *alone*; those that then lose most are *restored*,
alone in float while all others are on the device. Then single fields of their formats are changed, the best of them by the
error of the offload alone, and each change is judged by the whole application again.
"""

from __future__ import annotations

from typing import Any

from ..compile import Plan
from ..errors import UsageError
from .candidates import Bench, Change, bench
from .trials import Trial, Trials, with_float, with_formats_of

RESTORED = 5  # offloads whose restoring is tried
SUSPECTS = 3  # offloads whose formats are looked at
JUDGED = 8  # changes that are judged by the whole application
AS_GOOD = 0.95  # of the most that a change takes back: then the one back to the usual format is the likelier cause


def attribute(plan: Plan, trials: Trials, table: Bench | None = None) -> dict[str, Any]:
    """Return the attribution document: losses alone and restored by offload, the most guilty first, and changes of fields."""
    if not plan.offloads:
        raise UsageError("C100", "the plan has no offloads: there is no loss to attribute", help="compile for an accelerator that has some")
    whole = trials.run(plan)
    ids = [o.id for o in plan.offloads]
    others = [plan if len(ids) == 1 else with_float(plan, set(ids) - {key}) for key in ids]
    alone = dict(zip(ids, trials.every(others, are_last=True), strict=True))
    order = sorted(ids, key=lambda key: (-alone[key].loss, -alone[key].error))
    most = order[:RESTORED]
    restored = dict(zip(most, trials.every([with_float(plan, {key}) for key in most], are_last=True), strict=True))
    guilty = sorted(restored, key=lambda key: _recovery(whole, restored[key]), reverse=True)
    found = _judged(plan, trials, whole, guilty[:SUSPECTS], alone, table or bench(plan, trials.data))
    rows = [*guilty, *(key for key in order if key not in restored)]
    return {
        "metric": trials.metric.name, "samples": trials.data.count, "reference": trials.value,
        "accelerated": {"value": whole.value, "loss": whole.loss, "output_error": whole.error},
        "offloads": [_offload(key, whole, alone[key], restored.get(key)) for key in rows],
        "fields": [{**c.document(), **_figures(whole, t)} for c, t in found],
        "culprit": _culprit(whole, found),
        "runs": trials.runs,
    }  # fmt: skip


def _judged(
    plan: Plan, trials: Trials, whole: Trial, suspects: list[str], alone: dict[str, Trial], table: Bench
) -> list[tuple[Change, Trial]]:
    """Judge the changes that promise most by the whole application, the best first.

    Two formats that do not fit each other can be mended at either; what deviates from the calibration's choice goes first.
    """
    promising: list[tuple[float, Change]] = []
    for o in (o for o in plan.offloads if o.id in suspects):
        now, better = table.tried(o)
        promising += [((1 - c.error / now) * alone[o.id].error, c) for c in better]
    promising.sort(key=lambda item: -item[0])
    judged = [c for _, c in promising[:JUDGED]]
    found = list(zip(judged, trials.every([with_formats_of(plan, {c.offload: c.formats}) for c in judged]), strict=True))
    found.sort(key=lambda item: _recovery(whole, item[1]), reverse=True)
    least = AS_GOOD * max((whole.loss - t.loss for _, t in found), default=0.0)
    return sorted(found, key=lambda item: not (item[0].is_usual and 0 < least <= whole.loss - item[1].loss))


def _recovery(whole: Trial, trial: Trial) -> tuple[float, float]:
    """How much of the loss a trial takes back, and of the error of the outputs."""
    return whole.loss - trial.loss, whole.error - trial.error


def _figures(whole: Trial, trial: Trial) -> dict[str, Any]:
    return {
        "value": trial.value, "loss": trial.loss, "output_error": trial.error,
        "recovered_loss": (whole.loss - trial.loss) / whole.loss if whole.loss > 0 else None,
        "recovered_error": (whole.error - trial.error) / whole.error if whole.error > 0 else None,
    }  # fmt: skip


def _offload(key: str, whole: Trial, alone: Trial, restored: Trial | None) -> dict[str, Any]:
    return {
        "id": key, "alone": {"value": alone.value, "loss": alone.loss, "output_error": alone.error},
        "restored": None if restored is None else _figures(whole, restored),
    }  # fmt: skip


def _culprit(whole: Trial, found: list[tuple[Change, Trial]]) -> dict[str, Any] | None:
    """Return the field whose change takes most back, if one takes anything back."""
    if not found or _recovery(whole, found[0][1]) <= (0.0, 0.0):
        return None
    return found[0][0].document()
