"""Sweep: one application over the values of its targets' parameters and over calibration methods, as one table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...compile import Options, compile_model
from ...compile.formats.range_methods import METHODS
from ...cosim import Settings, cosimulate
from ...cosim.cluster import connect
from ...cosim.remote import target_text
from ...errors import UsageError
from ...target import Target, find_target

METHOD, ACCEL = "calibration-method", "accel"
NO_OPTIONS, DEFAULT_SETTINGS = Options(), Settings()
MAX_POINTS = 256


@dataclass(frozen=True)
class Axis:
    """One axis of a sweep, `TARGET.PARAMETER`, `calibration-method` or `accel` (sets of targets, A+B), and its values."""

    name: str
    values: tuple[str, ...]


def axes_of(texts: Sequence[str], targets: Sequence[Target]) -> list[Axis]:
    """Read axes as NAME=VALUE,…; a name alone has all its values; without texts every parameter of every target is an axis.

    Raises:
        UsageError: an axis or value is unknown, an axis comes twice, or there are no points or too many (F203).
    """
    values_by_name = {f"{t.name}.{name}": values for t in targets for name, values in t.parameters.items()}
    parameters = [*values_by_name]
    values_by_name |= {METHOD: METHODS, ACCEL: _subsets([t.name for t in targets])}
    axes = [_axis(text, values_by_name) for text in texts or parameters]
    duplicate = next((a.name for a in axes if [b.name for b in axes].count(a.name) > 1), None)
    if duplicate is not None:
        raise UsageError("F203", f"--over names {duplicate} twice")
    if not axes:
        names = " and ".join(t.name for t in targets)
        remedy = f'a target file declares them, Target(…, parameters={{"width": ("20", "14")}}); --over {METHOD} needs none'
        raise UsageError("F203", f"there is nothing to sweep over: {names} declares no parameters", help=remedy)
    point_count = 1
    for a in axes:
        point_count *= len(a.values)
    if point_count > MAX_POINTS:
        raise UsageError("F203", f"a sweep must have at most {MAX_POINTS} points, not {point_count}", help="name fewer values with --over")
    return axes


def _subsets(names: Sequence[str]) -> tuple[str, ...]:
    """Return all sets of names but the empty one, small ones first."""
    return tuple("+".join(subset) for n in range(1, len(names) + 1) for subset in itertools.combinations(names, n))


def _axis(text: str, values_by_name: Mapping[str, tuple[str, ...]]) -> Axis:
    name, has_values, values_text = text.partition("=")
    if name not in values_by_name:
        raise UsageError("F203", f'--over must name a parameter, not "{name}"', help=f"known: {', '.join(values_by_name)}")
    values = tuple(v.strip() for v in values_text.split(",")) if has_values else values_by_name[name]
    unknown = next((v for v in values if v not in values_by_name[name]), None)
    if unknown is not None:
        remedy = f"{name} alone takes all of them; other values are for the target's parameters to list"
        raise UsageError("F203", f'{name} must be one of {", ".join(values_by_name[name])}, not "{unknown}"', help=remedy)
    return Axis(name, tuple(dict.fromkeys(values)))


def points(axes: Sequence[Axis]) -> Iterator[dict[str, str]]:
    """Yield every combination of values, without the parameters of accelerators that it leaves out, each once."""
    earlier_points = []
    for values in itertools.product(*(a.values for a in axes)):
        point = dict(zip((a.name for a in axes), values, strict=True))
        target_names = point.get(ACCEL, "").split("+")
        point = {k: v for k, v in point.items() if k in (ACCEL, METHOD) or target_names == [""] or k.partition(".")[0] in target_names}
        if point not in earlier_points:
            earlier_points.append(point)
            yield point


def sweep(
    model: Path, targets: Sequence[Target], data: Path, axes: Sequence[Axis], *, calibrate: Path | None = None,
    options: Options = NO_OPTIONS, settings: Settings = DEFAULT_SETTINGS, progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Compile, calibrate and co-simulate a model at every point; return the document with one row for each."""
    every = list(points(axes))
    place = Path.resolve if settings.scheduler else Path  # workers may have other folders
    job = _Job(place(model), tuple(map(target_text, targets)), place(data), calibrate and place(calibrate), options, settings)
    rows = []
    for row in _rows(job, targets, every):
        rows.append(row)
        if progress is not None:
            progress(len(rows), len(every))
    head = rows[0]["report"]
    return {
        "schema": "flexmatch.sweep/1", "model": head["model"], "metric": head["metric"], "lower_is_better": head["lower_is_better"],
        "samples": head["samples"], "data": head["data"], "over": [{"name": a.name, "values": list(a.values)} for a in axes],
        "reference": head["reference"], "points": [_document(row) for row in rows],
        "run": {"points": [row["report"]["run"] for row in rows]},
    }  # fmt: skip


@dataclass(frozen=True)
class _Job:
    """What is the same at every point, without code: a worker finds the targets by their texts."""

    model: Path
    targets: tuple[str, ...]
    data: Path
    calibrate: Path | None
    options: Options
    settings: Settings


def _rows(job: _Job, targets: Sequence[Target], every: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all points in order, a whole point on each worker of a cluster where there is one."""
    if not job.settings.scheduler:
        yield from (_row(point, job, targets) for point in every)
        return
    with connect(job.settings.scheduler) as cluster:
        shared = cluster.share(replace(job, settings=replace(job.settings, scheduler="", threads=1)))
        yield from cluster.map(_row, every, shared)


def _row(point: Mapping[str, str], job: _Job, targets: Sequence[Target] = ()) -> dict[str, Any]:
    all_targets = targets or [find_target(text) for text in job.targets]
    target_names = point.get(ACCEL, "").split("+")
    point_targets = [
        t.configured({k.partition(".")[2]: v for k, v in point.items() if k.partition(".")[0] == t.name})
        for t in all_targets
        if target_names == [""] or t.name in target_names
    ]
    s = replace(job.settings, calibration_method=point.get(METHOD, job.settings.calibration_method), keep_outputs=False)
    compiled = compile_model(job.model, point_targets, job.options)
    report = cosimulate(compiled, job.data, calibrate=job.calibrate, settings=s)
    plan = report.plan or compiled  # samples may leave fewer offloads
    out_of_range = [pin.partition("=")[2] for pin in plan.settings["on"] if pin not in compiled.settings["on"]]
    return {
        "point": point, "report": report.document, "counts": plan.counts, "device_calls": plan.device_calls, "out_of_range": out_of_range,
    }  # fmt: skip


def _document(row: Mapping[str, Any]) -> dict[str, Any]:
    report = row["report"]
    worst = max((o["relative_error"] or 0.0 for o in report["offloads"]), default=0.0)
    return {
        "at": dict(row["point"]), "value": report["accelerated"]["value"], "difference": report["paired"]["difference"],
        "interval": report["paired"]["interval"], "better": report["paired"]["better"], "worse": report["paired"]["worse"],
        "worst_offload_error": worst, "counts": row["counts"], "device_calls": row["device_calls"],
        "out_of_range": row["out_of_range"],
    }  # fmt: skip
