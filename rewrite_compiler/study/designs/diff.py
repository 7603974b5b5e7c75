"""diff: one model on two targets: offloads that appear, vanish or change, and the difference in cycles, bytes and accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...compile import Options, Plan, compile_model
from ...compile.document import plan_for_data
from ...compile.plan.plan import Offload, link_bytes
from ...cosim import cosimulate
from ...cosim.cosimulate import dataset_for, with_formats
from ...cosim.metrics.metrics import compare_paired, metric_of
from ...data import Dataset
from ...fit.host import table_from
from . import specification
from .totals import Run, Totals, totals

SCHEMA = "flexmatch.diff/1"
DEFAULT = Options()
COMPARED_KEYS = ("operation", "nodes", "shape", "tiles", "device_calls", "cost")


@dataclass(frozen=True)
class Sides:
    """The plans of one model for two targets, and the texts that name the targets."""

    old: Plan
    new: Plan
    target_texts: tuple[str, str] = ("", "")


def compile_both(old: str, new: str, model: str | Path, options: Options = DEFAULT) -> Sides:
    """Return the plans of a model for two targets, each `NAME_OR_PATH[:key=value,…]`."""
    return Sides(compile_model(model, [old], options), compile_model(model, [new], options), (old, new))


def diff_document(
    sides: Sides, data: str | Path | None = None, *, calibrate: str | Path | None = None, method: str = "", metric: str = "",
    samples: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Return the differences as JSON; with data, those of calibrated plans, and the accuracy of both, too.

    Samples of `calibrate` fix the number formats, else the first of `data`.
    """
    dataset = None
    if data is not None:
        sides, dataset = _calibrated(sides, data, calibrate, method)
    old, new = _by_nodes(sides.old), _by_nodes(sides.new)
    common = [(old[key], new[key]) for key in old if key in new]
    sums = [plan_totals(plan) for plan in (sides.old, sides.new)]
    return {
        "schema": SCHEMA,
        "model": dict(sides.old.model),
        "objective": sides.old.settings["objective"],
        "targets": {"old": _target(sides.old, sides.target_texts[0]), "new": _target(sides.new, sides.target_texts[1])},
        "specification": specification.changes_document(*(plan.targets[0].ila() for plan in (sides.old, sides.new))),
        "appeared": [row for key, row in new.items() if key not in old],
        "vanished": [row for key, row in old.items() if key not in new],
        "changed": [{"old": a, "new": b} for a, b in common if any(a[key] != b[key] for key in COMPARED_KEYS)],
        "same": sum(all(a[key] == b[key] for key in COMPARED_KEYS) for a, b in common),
        "links": {"old": _link_totals(sides.old), "new": _link_totals(sides.new)},
        "totals": {"old": sums[0].document(), "new": sums[1].document(), "difference": _difference(*sums)},
        "accuracy": None if dataset is None else _accuracy(sides, dataset, metric, samples),
    }


def _by_nodes(plan: Plan) -> dict[tuple[tuple[str, ...], int], dict[str, Any]]:
    """Return offloads by the source nodes they stand for; several may stand for the same ones."""
    offloads: dict[tuple[tuple[str, ...], int], dict[str, Any]] = {}
    for o in plan.offloads:
        number = sum(nodes == tuple(o.nodes) for nodes, _ in offloads)
        offloads[tuple(o.nodes), number] = _offload(o)
    return offloads


def is_changed(document: Mapping[str, Any]) -> bool:
    """Tell whether anything differs."""
    sides = document["totals"]
    return bool(document["appeared"] or document["vanished"] or document["changed"]) or sides["old"] != sides["new"]


def plan_totals(plan: Plan) -> Totals:
    """Return the totals of a plan's program on host and device."""
    offloads = {o.node.outputs[0]: Run(o.tiling.calls, o.price) for o in plan.offloads}
    return totals(plan.program, lambda node: offloads.get(node.outputs[0]), table_from(plan.settings["host_costs"]))


def _link_totals(plan: Plan) -> dict[str, int]:
    """Return the bytes of all offloads by link."""
    sums: Counter[str] = Counter()
    for o in plan.offloads:
        sums.update(link_bytes(o))
    return dict(sums)


def _target(plan: Plan, text: str) -> dict[str, Any]:
    (target,) = plan.targets
    return {"name": target.name, "given": text, "parameters": target.values, "sha256": target.sha256}


def _offload(o: Offload) -> dict[str, Any]:
    cost = None if o.price is None else {"cycles": o.price.cycles, "bytes": o.price.bytes, "estimated": o.price.cost.estimated}
    return {
        "id": o.id, "operation": o.mapping.operation, "nodes": list(o.nodes), "shape": dict(o.tiling.sizes),
        "tiles": dict(o.tiling.tile), "device_calls": o.tiling.calls, "cost": cost,
    }  # fmt: skip


def _difference(old: Totals, new: Totals) -> dict[str, int]:
    old_sums, new_sums = old.document(), new.document()
    return {key: new_sums[key] - old_sums[key] for key in old_sums}


def _calibrated(sides: Sides, data: str | Path, calibrate: str | Path | None, method: str) -> tuple[Sides, Dataset]:
    """Return both plans with formats, and the same samples for both: where one needs formats, both leave out those that calibrate."""
    old, new = (plan_for_data(p, data) for p in (sides.old, sides.new))
    dataset = dataset_for(old, data)
    formatted = [with_formats(p, dataset, calibrate, method) for p in (old, new)]
    remaining = min((samples for _, samples in formatted), key=lambda samples: samples.count)
    return replace(sides, old=formatted[0][0], new=formatted[1][0]), remaining


def _accuracy(sides: Sides, dataset: Dataset, metric: str, samples: int) -> dict[str, Any]:
    """Run both plans on the same samples."""
    reports = [cosimulate(p, dataset, metric=metric, samples=samples) for p in (sides.old, sides.new)]
    head = reports[0].document
    old, new = (r.document["accelerated"]["value"] for r in reports)
    old_scores, new_scores = (r.scores[1] if r.scores is not None else None for r in reports)
    pairs = (
        None if old_scores is None or new_scores is None else compare_paired(metric_of(metric or head["metric"]), old_scores, new_scores)
    )
    return {
        "metric": head["metric"], "samples": head["samples"], "host": head["reference"]["value"], "old": old, "new": new,
        "difference": None if old is None or new is None else new - old,
        "interval": list(pairs.interval) if pairs is not None and pairs.interval is not None else None,
        "method": "" if pairs is None else pairs.method,
        "better": 0 if pairs is None else pairs.better, "worse": 0 if pairs is None else pairs.worse,
    }  # fmt: skip
