"""What do whole networks cost on one accelerator, and on all of them together? And what does each offload cost beside the host?

Host figures are those of the shipped table; of devices, FlexASR's cycles equal measured ones, the others are estimated.
Of every shared model, the plan by energy times time is compared with that by offloads, both priced by the same mappers.
With `--json FILE` it goes on where it ended; each row has the commit that it was measured at.
"""

from __future__ import annotations

import lzma
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from record import ROOT, Row, commit, finish, fresh_answers, options, recorded

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.matching.objective import MAPPED, objective_for
from rewrite_compiler.fit.mapped_cost import MappedCost
from rewrite_compiler.study.designs.diff import plan_totals
from rewrite_compiler.target import find_target

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared"))
MODELS = (
    "resnet20_b.ts17",
    "mobilenetv2_cifar.ts17",
    "efficientnet_nose.ts17",
    "resmlp_cifar.ts17",
    "lstm_wlm.ts17",
    "transformer_explicit.ts17",
    "tv_resnet50.ts17",
)
TARGETS = ("flexasr", "hlscnn", "vta")


def planned(name: str, accel: tuple[str, ...], objective: str) -> tuple[Plan, float]:
    """Return the plan of a shared model and the processor seconds that making it took, child processes included."""
    with tempfile.TemporaryDirectory() as folder, fresh_answers():
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(lzma.decompress((SHARED / "models" / "arch" / f"{name}.onnx.xz").read_bytes()))
        before = os.times()
        plan = compile_model(path, accel, Options(objective=objective))
        after = os.times()
    return plan, sum(after[k] - before[k] for k in range(4))


def ratios(plan: Plan) -> list[float]:
    """Return of every offload with a cost how many times as long the host takes."""
    return sorted(o.host_picoseconds / o.price.picoseconds for o in plan.offloads if o.price is not None and o.price.picoseconds)


def row(name: str, accel: tuple[str, ...], objective: str) -> Row:
    """Return one plan's sums."""
    plan, seconds = planned(name, accel, objective)
    found, total = ratios(plan), plan_totals(plan)
    return {
        "model": name, "targets": list(accel), "objective": objective,
        "extraction_cost": plan.extraction["cost"], "status": plan.extraction["status"], "gap_fraction": plan.extraction["gap"],
        "offloads": total.offloads, "program_nanoseconds": total.nanoseconds, "program_bytes": total.bytes, "host_macs": total.host_macs,
        "unpriced_offloads": total.unpriced, "host_over_device": [round(x, 5) for x in found],
        "host_over_device_median": round(statistics.median(found), 5) if found else None,
        "estimated": sum(o.price is not None and o.price.cost.estimated for o in plan.offloads), "processor_seconds": round(seconds, 2),
        "commit": commit(),
    }  # fmt: skip


def product_row(name: str) -> Row:
    """Return the sums of energy times time of the plans by `edp` and by `offloads` on all targets, and what each leaves to the host."""
    (best, seconds), (other, _) = planned(name, TARGETS, "edp"), planned(name, TARGETS, "offloads")
    objective = objective_for("edp", [find_target(t) for t in TARGETS])
    costs = [
        objective.mapped_cost(o.mapping, [other.program.types[v] for v in o.node.inputs], dict(o.node.attributes)) for o in other.offloads
    ]
    host = [[plan.extraction["cost"][level] for level in ("host_macs", "host_operators")] for plan in (best, other)]
    return {
        "model": name, "targets": list(TARGETS), "objective": "edp", "status": best.extraction["status"],
        MAPPED: best.extraction["cost"][MAPPED], f"{MAPPED}_of_offloads": sum(c.amount(MAPPED) for c in costs if isinstance(c, MappedCost)),
        "unpriced_of_offloads": sum(not isinstance(c, MappedCost) for c in costs), "host": host[0], "host_of_offloads": host[1],
        "operations": uses(best), "operations_of_offloads": uses(other), "processor_seconds": round(seconds, 2), "commit": commit(),
    }  # fmt: skip


def uses(plan: Plan) -> dict[str, int]:
    """Return how often a plan uses each operation of the targets."""
    return dict(sorted(Counter(o.mapping.name for o in plan.offloads).items()))


def is_worse(rows: list[Row]) -> bool:
    """Tell whether all targets together, where there is that row, take longer than one of them alone."""
    taken: dict[tuple[str, ...], int] = {tuple(r["targets"]): int(r["extraction_cost"]["nanoseconds"]) for r in rows}  # type: ignore[arg-type, index]
    return TARGETS in taken and taken[TARGETS] > min(taken.values())


def products(rows: list[Row], known: set[tuple[object, ...]], models: Sequence[str], path: Path | None) -> None:
    """Add and print the rows of energy times time that are not there."""
    every = sorted(p.name.removesuffix(".onnx.xz") for p in (SHARED / "models" / "arch").glob("*.onnx.xz"))
    for name in models or every:
        if (name, TARGETS, "edp") not in known:
            made_row = product_row(name)
            rows.append(made_row)
            finish("objectives", rows, path)
            print(
                f"{name:>31} edp {made_row[MAPPED]} against {made_row[f'{MAPPED}_of_offloads']}  {made_row['processor_seconds']} s",
                flush=True,
            )


def main() -> None:
    """Compile every model for each accelerator and for all, by time; and by offloads for the ratios."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--model", action="append", default=[], choices=MODELS, help="only this model; repeat it for several")
    args = parser.parse_args()
    if not (SHARED / "models" / "arch").is_dir():
        sys.exit(f"the shared models are not in {SHARED}; set FLEXMATCH_SHARED")
    rows = recorded(args.json)
    known: set[tuple[object, ...]] = {(r["model"], tuple(r["targets"]), r["objective"]) for r in rows}  # type: ignore[arg-type]
    started = time.perf_counter()
    for name in args.model or MODELS:
        for accel, objective in (*(((t,), "offloads") for t in TARGETS), *(((t,), "cycles") for t in TARGETS), (TARGETS, "cycles")):
            if (name, accel, objective) in known:
                continue
            made_row = row(name, accel, objective)
            rows.append(made_row)
            finish("objectives", rows, args.json)
            print(
                f"{name:>26} {'+'.join(accel):>20} {objective:>8}: {made_row['offloads']:4} offloads  "
                f"{int(str(made_row['program_nanoseconds'])) / 1e6:10.3f} ms  host/device {made_row['host_over_device_median']}  "
                f"{made_row['status']}  {made_row['processor_seconds']} s",
                flush=True,
            )
    products(rows, known, args.model, args.json)
    worse = [name for name in MODELS if is_worse([r for r in rows if r["model"] == name and r["objective"] == "cycles"])]
    print(f"{time.perf_counter() - started:.0f} s; what stays counted, together worse than the best one: {', '.join(worse) or 'never'}")


if __name__ == "__main__":
    main()
