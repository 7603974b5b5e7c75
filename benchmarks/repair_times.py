"""CPU-seconds of repairs of whole applications: a flaw that costs at least ten points is planted, and its plan is repaired.

A flaw is the smallest change of one field that costs as much. Each repair has a process of its own, so that it finds nothing in
memory that another one has made; what counts is the processor time of its two threads, from the spoilt plan and its data to the
answer. The elapsed time and the load are recorded beside it: on a machine that does other work it says little. With `--json FILE`
it goes on where it ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from record import Row, finish, options, peak_bytes, recorded
from table4 import AS_DESIGNED, EXT8, EXT16, MOBILENET, NEAREST_8, RESNET, SHARED, Application, Design, planned, to_nearest

from rewrite_compiler.compile import Options, Plan
from rewrite_compiler.cosim.metrics.loss_bound import band_of
from rewrite_compiler.cosim.metrics.metrics import metric_of
from rewrite_compiler.data import Dataset, samples_for
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.study.diagnosis.repair import repair
from rewrite_compiler.study.diagnosis.trials import Trials, with_formats_of

SAMPLES, THREADS, BAND = 128, 2, "2pt"
LEAST_LOSS = 0.1
RECOVERABLE = 0.9  # of the loss: what the field alone takes back
STEPS = [sign * n for n in range(1, 9) for sign in (1, -1)]
LIMIT = 300  # CPU-seconds of all threads


@dataclass(frozen=True)
class Place:
    """Where a flaw is planted: the offload by its place among all, from 0 to 1, a tensor."""

    at: float
    tensor: str


EARLY, MIDDLE, LATE = 0.1, 0.6, 0.95
# one flaw each: of 18 flaws those of one application and platform took equally long within 11 %, wherever they were
CASES: tuple[tuple[Application, Design, Place], ...] = (
    (MOBILENET, Design("VTA", AS_DESIGNED, ("vta",)), Place(MIDDLE, "w")),
    (MOBILENET, Design("FlexASR, all layers", AS_DESIGNED, ("flexasr",)), Place(EARLY, "x")),
    (RESNET, Design("FlexASR, all layers", AS_DESIGNED, ("flexasr",)), Place(1, "y")),
    (RESNET, Design("HLSCNN, 8-bit weights", NEAREST_8, (EXT8,), nearest=True), Place(EARLY, "w")),
    (RESNET, Design("HLSCNN, 16-bit weights", AS_DESIGNED, (EXT16,)), Place(LATE, "w")),
)


@dataclass(frozen=True)
class Flaw:
    """A field with another value."""

    offload: str
    tensor: str
    field: str
    before: int
    after: int


def good(app: Application, design: Design) -> Plan:
    """Return the plan without a flaw."""
    plan = planned(app, design)
    return to_nearest(plan) if design.nearest else plan


def spoilt(plan: Plan, offload: str, tensor: str, field: str, value: Any) -> Plan:
    """Return the plan with a flaw."""
    o = next(o for o in plan.offloads if o.id == offload)
    f = replace(o.formats[tensor], **{field: value})
    return with_formats_of(plan, {offload: o.mapping.with_format(o.formats, tensor, f)})


def is_right(plan: Plan, culprit: Mapping[str, Any], offload: str, tensor: str, field: str) -> bool:
    """Tell whether a culprit is a flaw that was planted, or a tensor that shares its format with it."""
    shared = next((g for o in plan.offloads if o.id == offload for g in o.mapping.shared if tensor in g), (tensor,))
    return culprit.get("offload") == offload and culprit.get("field") == field and culprit.get("tensor") in shared


def data_of(app: Application, plan: Plan) -> Dataset:
    """Return the samples that a repair takes, half of them to judge it."""
    return samples_for(plan.source, SHARED / app.data).evenly(SAMPLES)


def planted(plan: Plan, trials: Trials, place: Place) -> Flaw | None:
    """Return the smallest change of a field at a place that costs enough and is most of the loss; None where there is none."""
    o = plan.offloads[round(place.at * (len(plan.offloads) - 1))]
    f, good = o.formats[place.tensor], trials.run(plan).loss
    (field,) = {"fraction", "bias"} & f.parameters.keys()
    for step in STEPS:
        before = int(f.parameters[field])  # type: ignore[arg-type]
        try:
            loss = trials.run(spoilt(plan, o.id, place.tensor, field, before + step)).loss
        except (FlexmatchError, ValueError):
            continue  # the device has no such format
        if loss - good >= max(LEAST_LOSS, RECOVERABLE * loss):
            return Flaw(o.id, place.tensor, field, before, before + step)
    return None


def flaw_of(app: Application, design: Design, place: Place) -> Flaw:
    """Return the flaw that is planted in an application on a design."""
    plan = good(app, design)
    flaw = planted(plan, Trials(plan, data_of(app, plan), metric_of("top1"), threads=THREADS), place)
    if flaw is None:
        raise SystemExit(f"{app.name} on {design.platform}: no change of {place.tensor} there costs {LEAST_LOSS:g} of the metric")
    return flaw


def measured(app: Application, design: Design, flaw: Flaw) -> Row:
    """Repair a plan with a flaw."""
    plan = good(app, design)
    bad = spoilt(plan, flaw.offload, flaw.tensor, flaw.field, flaw.after)
    data, wall, cpu = data_of(app, plan), time.perf_counter(), time.process_time()
    document = repair(bad, data, metric_of("top1"), band_of(BAND), options=Options(), threads=THREADS).document
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    chosen: dict[str, Any] = next((p for p in document["proposals"] if p["what"] == document["chosen"]), {})
    culprit = document["culprit"] or {}
    return {
        "application": app.name, "platform": design.platform, **vars(flaw), "samples": SAMPLES, "threads": THREADS, "within": BAND,
        "named": f"{culprit.get('offload')}.{culprit.get('tensor')}.{culprit.get('field')}",
        "right": is_right(plan, culprit, flaw.offload, flaw.tensor, flaw.field),
        "loss_before": document["before"]["verify"]["loss"], "loss_after": chosen["verify"]["loss"] if chosen else None,
        "chosen": document["chosen"], "added_bits": chosen.get("added_bits"), "proposals": len(document["proposals"]),
        "runs": document["attribution"]["runs"], "wall_seconds": wall, "cpu_seconds": cpu,
        "peak_mebibytes": peak_bytes() / (1 << 20), "load": os.getloadavg()[0],
    }  # fmt: skip


def line(row: Row) -> str:
    """Return one row of the table."""
    flaw = f"{row['offload']}.{row['tensor']}.{row['field']} {row['before']} → {row['after']}"
    after = "not repaired" if row["loss_after"] is None else f"{row['loss_after']:.3f}"
    culprit = "named first" if row["right"] else f"{row['named']} named"
    times = f"{row['cpu_seconds']:.0f} CPU-s"
    return f"{row['application']:<14}{row['platform']:<24}{flaw:<32}{culprit:<28}loss {row['loss_before']:.3f} → {after:<14}{times}"


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose application and platform contain TEXT")
    args = parser.parse_args()
    rows, recorded_pairs = recorded(args.json), {(r["application"], r["platform"]) for r in recorded(args.json)}
    cases = [c for c in CASES if args.only in f"{c[0].name} {c[1].platform}" and (c[0].name, c[1].platform) not in recorded_pairs]
    for app, design, place in cases:
        flaw = flaw_of(app, design, place)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            rows.append(alone.submit(measured, app, design, flaw).result())
        print(line(rows[-1]), flush=True)
        finish("repair_times", rows, args.json)
    late = sum(float(str(r["cpu_seconds"])) > LIMIT for r in rows)
    print(f"{sum(bool(r['right']) for r in rows)} of {len(rows)} flaws named first; {late} repairs take more than {LIMIT} CPU-seconds")


if __name__ == "__main__":
    main()
