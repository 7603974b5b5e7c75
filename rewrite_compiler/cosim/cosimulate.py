"""cosimulate: a plan over a data set against the float32 reference, as one document."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..compile import Plan, calibrated
from ..compile.execute import Statistics
from ..compile.host import HostProgram
from ..errors import FlexmatchError, InputError
from ..ir.program import Data, Program
from ..lang.named import Data as Array
from .data import CALIBRATION_SAMPLES, Dataset, load_data
from .metrics import Metric, Scores, metric_of, paired, truth_for
from .run import COMPARED_SAMPLES, Engine, Outcome, Progress

SCHEMA = "flexmatch.cosim/1"
BATCH = 32
TOLERANCE = 1e-5  # of a batched reference run against single runs
RECURRENT = ("lstm", "gru", "rnn")


@dataclass(frozen=True)
class Settings:
    """What steers a co-simulation."""

    metric: str = ""
    samples: int = 0  # 0: all
    batch: int = BATCH
    threads: int = 0  # 0: one for each core
    tier: str = "arrays"
    audit: int = 0


@dataclass(frozen=True)
class Report:
    """A co-simulation: the document, and the outputs of both runs by name, samples first."""

    document: Mapping[str, Any]
    reference: Mapping[str, Data]
    accelerated: Mapping[str, Data]


def cosimulate(
    plan: Plan, data: str | Path | Dataset, *, calibrate: str | Path | Dataset | None = None, settings: Settings | None = None,
    metric: str = "", samples: int = 0, progress: Progress | None = None,
) -> Report:  # fmt: skip
    """Run the whole application on the host and with its offloads on simulators, and compare.

    Formats come from the plan, else from `calibrate`, else from the first 32 samples, which then are not part of the metric.
    """
    s = settings or Settings()
    s = replace(s, metric=metric or s.metric, samples=samples or s.samples, threads=s.threads or os.cpu_count() or 1)
    s = replace(s, batch=1) if s.tier == "oracle" else s
    dataset = dataset_for(plan, data)
    plan, dataset = with_formats(plan, dataset, calibrate)
    if s.samples:
        dataset = dataset.evenly(s.samples)
    inputs = dataset.inputs
    reference, seconds = _reference(plan.source, inputs, s.batch)
    started, cpu = time.perf_counter(), time.process_time()
    outcome = Engine(plan, reading=s.tier, threads=s.threads, audit=s.audit).run(inputs, batch=s.batch, progress=progress)
    run = {
        "wall_seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds_per_sample": round((time.process_time() - cpu) / dataset.count, 6),
        "reference_cpu_seconds_per_sample": round(seconds / dataset.count, 6), "batch": s.batch, "threads": s.threads,
    }  # fmt: skip
    document = _document(plan, dataset, metric_of(s.metric, dataset.task), reference, outcome, s)
    return Report({**document, "run": run}, reference, outcome.outputs)


def with_formats(plan: Plan, data: Dataset, calibrate: str | Path | Dataset | None) -> tuple[Plan, Dataset]:
    """Return the plan with formats, and the samples that are left for the metric."""
    if calibrate is not None:
        samples = dataset_for(plan, calibrate)
        return calibrated(plan, samples.inputs, Path(samples.place).name, samples.sha256), data
    if plan.calibrated:
        return plan, data
    first, rest = data.split(CALIBRATION_SAMPLES)
    source = f"the first {CALIBRATION_SAMPLES} samples of {Path(data.place).name}"
    return calibrated(plan, first.inputs, source, data.sha256), rest


def dataset_for(plan: Plan, data: str | Path | Dataset) -> Dataset:
    """Return data for a plan's model, read when a path is given."""
    if isinstance(data, Dataset):
        return data
    p = plan.source
    dataset = load_data(data, {p.names[v]: p.types[v] for v in p.inputs}, zeros=_states(p))
    for name, samples in dataset.inputs.items():
        _check_finite(name, samples, dataset.place)
    return dataset


def _check_finite(name: str, samples: Array, place: str) -> None:
    if samples.dtype.kind != "f" or np.isfinite(samples).all():
        return
    odd = sum(not np.isfinite(x).all() for x in samples)
    raise InputError("C102", f'the input "{name}" must be finite, not so in {odd} of {len(samples)} samples', place=place)


def _states(p: Program) -> list[str]:
    """Return the inputs that recurrent operators read as their initial state: data may leave them at zero."""
    read = {v for n in p.nodes if n.op in RECURRENT for v in n.inputs[1:]}
    return [p.names[v] for v in p.inputs if v in read]


def _reference(p: Program, inputs: Mapping[str, Array], batch: int) -> tuple[dict[str, Data], float]:
    """Return the outputs of the source program in float32, and the CPU seconds they took."""
    host = HostProgram(p, p.inputs, tolerance=TOLERANCE)
    count = len(next(iter(inputs.values())))
    host.run({v: inputs[p.names[v]][:batch] for v in p.inputs})  # builds the session
    started = time.process_time()
    parts = [host.run({v: inputs[p.names[v]][at : at + batch] for v in p.inputs}) for at in range(0, count, batch)]
    seconds = time.process_time() - started
    return {p.names[v]: np.concatenate([part[v] for part in parts]) for v in p.outputs}, seconds


def _document(plan: Plan, data: Dataset, metric: Metric, reference: Mapping[str, Data], outcome: Outcome, s: Settings) -> dict[str, Any]:
    scores = _scores(plan, data, metric, reference, outcome)
    first, second = (metric.value(x) for x in scores)
    found = paired(metric, *scores)
    output = plan.source.names[plan.source.outputs[0]]
    same = _same_predictions(reference[output], outcome.outputs[output]) if metric.name in ("top1", "top5") else None
    return {
        "schema": SCHEMA,
        "model": {"path": Path(plan.model["path"]).name, "sha256": plan.model["sha256"]},
        "targets": [t.name for t in plan.targets],
        "metric": metric.name,
        "samples": data.count,
        "data": {"source": Path(data.place).name, "sha256": data.sha256},
        "calibration": None if plan.calibration is None else vars(plan.calibration),
        "reference": {"value": first},
        "accelerated": {"value": second},
        "paired": {**vars(found), "same_predictions": same},
        "offloads": [_offload(o.id, outcome.statistics[o.id]) for o in plan.offloads],
        "simulator": {
            "tier": s.tier,
            "audited": sum(x.audited for x in outcome.statistics.values()),
            "audit_mismatches": sum(x.audit_mismatches for x in outcome.statistics.values()),
            "instructions": outcome.instructions,
        },
        "compared_samples": min(COMPARED_SAMPLES, data.count),
        "notes": [*plan.notes, *(f"host part ran one sample at a time: {why}" for why in outcome.host_batching)],
    }


def _scores(plan: Plan, data: Dataset, metric: Metric, reference: Mapping[str, Data], outcome: Outcome) -> tuple[Scores, Scores]:
    output = plan.source.names[plan.source.outputs[0]]
    try:
        truth = truth_for(metric, data, reference[output])
        return metric.score(reference[output], truth), metric.score(outcome.outputs[output], truth)
    except FlexmatchError as error:
        raise error.at(data.place) from None


def _same_predictions(a: Data, b: Data) -> float:
    flat = [x.reshape(len(x), -1).argmax(1) for x in (a, b)]
    return float(np.mean(flat[0] == flat[1]))


def _offload(key: str, s: Statistics) -> dict[str, Any]:
    relative = (s.squared_error / s.squared_reference) ** 0.5 if s.squared_reference else None
    return {
        "id": key, "relative_error": relative, "max_abs_error": s.max_abs_error if s.compared else None,
        "saturated": s.saturated / s.values if s.values else 0.0, "range_in": list(s.range_in), "range_out": list(s.range_out),
    }  # fmt: skip
