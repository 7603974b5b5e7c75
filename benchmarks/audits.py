"""How many outputs of each offload does the oracle find different when it computes them again, in whole applications?

The audit is that of `flexmatch cosim --audit N`: random elements of an offload's results, each computed once more by the
generated Python of the accelerator. With `--json FILE` rows that the file has are not run again.
"""

from __future__ import annotations

import time

from cosim_speed import CASES, Case
from record import Row, finish, options, recorded
from table4 import SHARED, planned

from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.cosim.run import Engine

SAMPLES = 32


def audited(case: Case, outputs: int) -> Row:
    """Return what the audit of one application says."""
    plan = planned(case.app, case.design)
    calibration = SHARED / case.app.calibration if case.app.calibration else None
    plan, data = with_formats(plan, dataset_for(plan, SHARED / case.app.data), calibration)
    begun = time.process_time()
    found = Engine(plan, reading=case.tier, audit=outputs, compared=0).run(data.rows(slice(0, SAMPLES)).inputs).statistics.values()
    return {
        "name": case.name, "tier": case.tier, "offloads": len(found), "outputs_asked_of_each": outputs,
        "least_audited_of_an_offload": min(s.audited for s in found), "audited": sum(s.audited for s in found),
        "mismatches": sum(s.audit_mismatches for s in found), "cpu_seconds": round(time.process_time() - begun, 1),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--outputs", type=int, default=1000, metavar="N", help="outputs of each offload (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    given = parser.parse_args()
    rows = recorded(given.json)
    print(f"{'application and accelerator':<44}{'offloads':>9}{'least':>8}{'audited':>9}{'differ':>8}{'CPU s':>8}")
    for case in (c for c in CASES if c.tier == "native" and given.only in c.name):
        row = next((r for r in rows if r["name"] == case.name), None)
        if row is None:
            row = audited(case, given.outputs)
            rows.append(row)
            finish("audits", rows, given.json)
        shown = ("offloads", "least_audited_of_an_offload", "audited", "mismatches", "cpu_seconds")
        print(f"{case.name:<44}" + "".join(f"{row[k]!s:>{w}}" for k, w in zip(shown, (9, 8, 9, 8, 8), strict=True)), flush=True)


if __name__ == "__main__":
    main()
