"""Do offloads of whole applications give the same when simulators, oracle and plain numerics compute them again?

The audit is that of `flexmatch cosim --audit N`: whole samples by commands on the simulator, of each offload a random unit by plain
numerics and by the generated Python of the accelerator, too; a difference ends it. With `--json FILE` rows that the file has are
not run again.
"""

from __future__ import annotations

import time

from cosim_speed import CASES, Case
from record import Row, finish, options, recorded
from table4 import SHARED, planned

from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine

SAMPLES = 32


def audited(case: Case, rate: int) -> Row:
    """Return what the audit of one application says."""
    plan = planned(case.app, case.design)
    calibration = SHARED / case.app.calibration if case.app.calibration else None
    plan, data = with_formats(plan, dataset_for(plan, SHARED / case.app.data), calibration)
    begun = time.process_time()
    statistics = Engine(plan, reading=case.tier, audit=rate, compared=0).run(data.rows(slice(0, SAMPLES)).inputs).statistics.values()
    return {
        "name": case.name, "tier": case.tier, "offloads": len(statistics), "samples_of_each": min(s.validated for s in statistics),
        "least_audited_of_an_offload": min(s.audited for s in statistics), "audited": sum(s.audited for s in statistics),
        "cpu_seconds": round(time.process_time() - begun, 1),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--rate", type=int, default=1, metavar="N", help="batches for a random sample (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    args = parser.parse_args()
    rows = recorded(args.json)
    print(f"{'application and accelerator':<44}{'offloads':>9}{'least':>8}{'audited':>9}{'samples':>9}{'CPU s':>8}")
    for case in (c for c in CASES if c.tier == "native" and args.only in c.name):
        row = next((r for r in rows if r["name"] == case.name), None)
        if row is None:
            row = audited(case, args.rate)
            rows.append(row)
            finish("audits", rows, args.json)
        keys = ("offloads", "least_audited_of_an_offload", "audited", "samples_of_each", "cpu_seconds")
        print(f"{case.name:<44}" + "".join(f"{row[k]!s:>{w}}" for k, w in zip(keys, (9, 8, 9, 9, 8), strict=True)), flush=True)


if __name__ == "__main__":
    main()
