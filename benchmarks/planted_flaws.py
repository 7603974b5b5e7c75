"""Planted flaws: one field of one format of one offload is spoilt; is the culprit that attribution names the one that was planted?

A flaw counts when it costs the metric something, and when restoring the field alone takes back at least 90 % of that loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from record import Row, finish, options

import flexmatch
from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan
from rewrite_compiler.cosim.metrics.metrics import metric_of
from rewrite_compiler.data import samples_for
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.study.diagnosis.attribution import attribute
from rewrite_compiler.study.diagnosis.trials import Trials, with_formats_of

SEED, SAMPLES = 8, 32
CASES = (("digits_cnn", "flexasr"), ("digits_mlp", "flexasr"), ("digits_cnn", "hlscnn:revision=ext16"), ("digits_mlp", "vta"))
STEPS = (-4, -3, -2, 2, 3, 4)
LEAST_LOSS = 0.01  # of the cosine to the host's outputs


def flaws(plan: Plan) -> list[tuple[str, str, str, Any]]:
    """Return every flaw of a binary point or bias that a format can have: offload, tensor, field, value."""
    found = []
    for o in plan.offloads:
        for name, f in o.formats.items():
            if name in o.mapping.derived:
                continue
            for field in {"fraction", "bias"} & f.parameters.keys():
                found += [(o.id, name, field, f.parameters[field] + step) for step in STEPS]  # type: ignore[operator]
    return found


def spoilt(plan: Plan, offload: str, tensor: str, field: str, value: Any) -> Plan:
    """Return the plan with a flaw."""
    o = next(o for o in plan.offloads if o.id == offload)
    f = replace(o.formats[tensor], **{field: value})
    return with_formats_of(plan, {offload: o.mapping.with_format(o.formats, tensor, f)})


def is_right(plan: Plan, culprit: Mapping[str, Any], offload: str, tensor: str, field: str) -> bool:
    """Tell whether a culprit is a flaw that was planted, or a tensor that shares its format with it."""
    shared = next((g for o in plan.offloads if o.id == offload for g in o.mapping.shared if tensor in g), (tensor,))
    return culprit.get("offload") == offload and culprit.get("field") == field and culprit.get("tensor") in shared


def judged(app: str, accel: str, count: int, random: np.random.Generator) -> list[Row]:
    """Plant random flaws in one application until `count` of them cost something."""
    shipped = find_application(app)
    plan: Plan = flexmatch.compile(shipped.model, [accel], calibrate=shipped.calibration)
    trials = Trials(plan, samples_for(plan.source, shipped.data).evenly(SAMPLES), metric_of("cosine"))
    good = trials.run(plan).loss
    every = flaws(plan)
    rows: list[Row] = []
    for k in random.permutation(len(every)):
        offload, tensor, field, value = every[k]
        try:
            bad = spoilt(plan, offload, tensor, field, value)
            loss = trials.run(bad).loss
        except (FlexmatchError, ValueError):
            continue  # the device has no such format
        if loss - good < LEAST_LOSS:
            continue
        culprit = attribute(bad, trials)["culprit"] or {}
        rows.append({
            "application": app, "accelerator": accel, "offload": offload, "tensor": tensor, "field": field, "value": value,
            "samples": SAMPLES, "seed": SEED, "loss_before": good, "loss_after": loss, "recoverable_share": (loss - good) / loss,
            "named": f"{culprit.get('offload')}.{culprit.get('tensor')}.{culprit.get('field')}",
            "right": is_right(plan, culprit, offload, tensor, field),
        })  # fmt: skip
        print(
            rows[-1]["application"], accel, f"{offload}.{tensor}.{field} = {value}", "→", rows[-1]["named"], rows[-1]["right"], flush=True
        )
        if len(rows) == count:
            return rows
    return rows


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--count", type=int, default=13, metavar="N", help="flaws in each application (default: %(default)s)")
    args = parser.parse_args()
    random = np.random.default_rng(SEED)
    rows = [row for app, accel in CASES for row in judged(app, accel, args.count, random)]
    counted = [row for row in rows if row["recoverable_share"] >= 0.9]  # type: ignore[operator]
    right = sum(bool(r["right"]) for r in counted)
    print(f"{right} of {len(counted)} flaws named first ({len(rows) - len(counted)} more are not recoverable)")
    finish("planted_flaws", rows, args.json)


if __name__ == "__main__":
    main()
