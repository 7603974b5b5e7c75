"""Attribution of an application's loss to offloads, and to single fields of their number formats.

Each offload is run *alone* on the device, all else in float. The offloads that then lose most are *restored*: run in float
while all others are on the device. Then single fields of their formats are changed, preselected by the isolated error of the
offload, and each change is judged by the whole application again.
"""

from __future__ import annotations

from typing import Any

from ..compile import Plan
from ..errors import UsageError
from .candidates import Change, FloatRun, float_run
from .trials import Trial, Trials, with_float, with_formats_of

MAX_RESTORED = 5  # offloads whose restoring is tried
MAX_SUSPECTS = 3  # offloads whose formats are looked at
MAX_JUDGED = 8  # changes that are judged by the whole application
NEARLY_EQUAL = 0.95  # of the most that a change takes back: then the one back to the usual format is the likelier cause


def attribute(plan: Plan, trials: Trials, table: FloatRun | None = None) -> dict[str, Any]:
    """Return the attribution document: losses alone and restored by offload, the guiltiest first, and changes of fields.

    Raises:
        UsageError: the plan has no offloads (C100).
    """
    if not plan.offloads:
        raise UsageError("C100", "the plan has no offloads: there is no loss to attribute", help="compile for an accelerator that has some")
    device_trial = trials.run(plan)
    ids = [o.id for o in plan.offloads]
    variants = [plan if len(ids) == 1 else with_float(plan, set(ids) - {key}) for key in ids]
    alone_trials = dict(zip(ids, trials.run_all(variants, are_last=True), strict=True))
    order = sorted(ids, key=lambda key: (-alone_trials[key].loss, -alone_trials[key].error))
    candidates = order[:MAX_RESTORED]
    restored_trials = dict(zip(candidates, trials.run_all([with_float(plan, {key}) for key in candidates], are_last=True), strict=True))
    ranked = sorted(restored_trials, key=lambda key: _recovery(device_trial, restored_trials[key]), reverse=True)
    judged_changes = _judge_changes(plan, trials, device_trial, ranked[:MAX_SUSPECTS], alone_trials, table or float_run(plan, trials.data))
    rows = [*ranked, *(key for key in order if key not in restored_trials)]
    return {
        "metric": trials.metric.name, "samples": trials.data.count, "reference": trials.value,
        "accelerated": {"value": device_trial.value, "loss": device_trial.loss, "output_error": device_trial.error},
        "offloads": [_offload(key, device_trial, alone_trials[key], restored_trials.get(key)) for key in rows],
        "fields": [{**c.document(), **_figures(device_trial, t)} for c, t in judged_changes],
        "culprit": _culprit(device_trial, judged_changes),
        "runs": trials.runs,
    }  # fmt: skip


def _judge_changes(
    plan: Plan, trials: Trials, device_trial: Trial, suspects: list[str], alone_trials: dict[str, Trial], table: FloatRun
) -> list[tuple[Change, Trial]]:
    """Judge the changes that promise most by the whole application, the best first.

    Two formats that do not fit each other can be mended at either; what deviates from the calibration's choice goes first.
    """
    promising: list[tuple[float, Change]] = []
    for o in (o for o in plan.offloads if o.id in suspects):
        current_error, improvements = table.improvements(o)
        promising += [((1 - c.error / current_error) * alone_trials[o.id].error, c) for c in improvements]
    promising.sort(key=lambda item: -item[0])
    changes = [c for _, c in promising[:MAX_JUDGED]]
    trial_pairs = list(zip(changes, trials.run_all([with_formats_of(plan, {c.offload: c.formats}) for c in changes]), strict=True))
    trial_pairs.sort(key=lambda item: _recovery(device_trial, item[1]), reverse=True)
    threshold = NEARLY_EQUAL * max((device_trial.loss - t.loss for _, t in trial_pairs), default=0.0)
    return sorted(trial_pairs, key=lambda item: not (item[0].is_calibrated and 0 < threshold <= device_trial.loss - item[1].loss))


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


def _culprit(device_trial: Trial, judged_changes: list[tuple[Change, Trial]]) -> dict[str, Any] | None:
    """Return the field whose change takes most back, if one takes anything back."""
    if not judged_changes or _recovery(device_trial, judged_changes[0][1]) <= (0.0, 0.0):
        return None
    return judged_changes[0][0].document()
