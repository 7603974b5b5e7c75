"""diff: one model on two targets: which offloads appear, vanish or change, and what that does to cycles, bytes and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compile import Options, Plan, compile_model
from ..compile.plan import Offload
from ..cosim import cosimulate
from ..fit.host import table_from
from .totals import Run, Totals, totals

SCHEMA = "flexmatch.diff/1"
DEFAULT = Options()
COMPARED = ("operation", "nodes", "shape", "tiles", "device_calls", "cost")


@dataclass(frozen=True)
class Sides:
    """The plans of one model for two targets."""

    old: Plan
    new: Plan


def compared(old: str, new: str, model: str | Path, options: Options = DEFAULT) -> Sides:
    """Return the plans of a model for two targets, each `NAME_OR_PATH[:key=value,…]`."""
    return Sides(compile_model(model, [old], options), compile_model(model, [new], options))


def diff_document(sides: Sides, data: str | Path | None = None, *, metric: str = "", samples: int = 0) -> dict[str, Any]:
    """Return what differs as JSON; with data, the accuracy of both."""
    old, new = _by_nodes(sides.old), _by_nodes(sides.new)
    kept = [(old[key], new[key]) for key in old if key in new]
    sums = [plan_totals(plan) for plan in (sides.old, sides.new)]
    return {
        "schema": SCHEMA,
        "model": dict(sides.old.model),
        "objective": sides.old.settings["objective"],
        "targets": {side: _target(plan) for side, plan in (("old", sides.old), ("new", sides.new))},
        "appeared": [row for key, row in new.items() if key not in old],
        "vanished": [row for key, row in old.items() if key not in new],
        "changed": [{"old": a, "new": b} for a, b in kept if any(a[key] != b[key] for key in COMPARED)],
        "same": sum(all(a[key] == b[key] for key in COMPARED) for a, b in kept),
        "totals": {"old": sums[0].document(), "new": sums[1].document(), "difference": _difference(*sums)},
        "accuracy": None if data is None else _accuracy(sides, data, metric, samples),
    }


def _by_nodes(plan: Plan) -> dict[tuple[tuple[str, ...], int], dict[str, Any]]:
    """Return offloads by the source nodes they stand for; several may stand for the same ones."""
    found: dict[tuple[tuple[str, ...], int], dict[str, Any]] = {}
    for o in plan.offloads:
        number = sum(nodes == tuple(o.nodes) for nodes, _ in found)
        found[tuple(o.nodes), number] = _offload(o)
    return found


def is_changed(document: Mapping[str, Any]) -> bool:
    """Tell whether anything differs."""
    sides = document["totals"]
    return bool(document["appeared"] or document["vanished"] or document["changed"]) or sides["old"] != sides["new"]


def plan_totals(plan: Plan) -> Totals:
    """Return the sums over a plan's program."""
    offloads = {o.node.outputs[0]: Run(o.tiling.calls, o.price) for o in plan.offloads}
    return totals(plan.program, lambda node: offloads.get(node.outputs[0]), table_from(plan.settings["host_costs"]))


def _target(plan: Plan) -> dict[str, Any]:
    (target,) = plan.targets
    return {"name": target.name, "parameters": target.values, "sha256": target.sha256}


def _offload(o: Offload) -> dict[str, Any]:
    cost = None if o.price is None else {"cycles": o.price.cost.cycles, "bytes": o.price.bytes, "estimated": o.price.cost.estimated}
    return {
        "id": o.id, "operation": o.mapping.operation, "nodes": list(o.nodes), "shape": dict(o.tiling.sizes),
        "tiles": dict(o.tiling.tile), "device_calls": o.tiling.calls, "cost": cost,
    }  # fmt: skip


def _difference(old: Totals, new: Totals) -> dict[str, int]:
    before, after = old.document(), new.document()
    return {key: after[key] - before[key] for key in before}


def _accuracy(sides: Sides, data: str | Path, metric: str, samples: int) -> dict[str, Any]:
    """Run both plans on the same data."""
    reports: Sequence[Mapping[str, Any]] = [cosimulate(p, data, metric=metric, samples=samples).document for p in (sides.old, sides.new)]
    old, new = (r["accelerated"]["value"] for r in reports)
    return {
        "metric": reports[0]["metric"], "samples": reports[0]["samples"], "host": reports[0]["reference"]["value"], "old": old, "new": new,
        "difference": None if old is None or new is None else new - old,
    }  # fmt: skip
