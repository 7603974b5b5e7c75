"""What does the first sample of an application cost on the strict simulator, and the second one?

One sample at a time: every offload's driver, command by command, in a new process with an empty cache, races and reads of what
nothing has written refused. The seconds of offloads are those that the engine counts in its statistics, operands encoded and results
decoded; the whole batch, with the host's part and whatever its threads did, is beside them. With `--json FILE` it goes on where it ended.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from cosim_speed import CASES, Case
from record import Row, finish, options, recorded
from table4 import SHARED, planned

from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.readings.native.jit import counts

SAMPLES = 3
NATIVE = {c.name: c for c in CASES if c.tier == "native"}
# processor seconds: the first sample, and later ones
TARGETS = {"WLM": (1.5, 0.5), "HLSCNN": (1.5, 0.5), "FlexASR": (2.5, 0.5), "VTA": (2.0, 0.5)}


def measured(name: str) -> Row:
    """Return the processor seconds of each of the first samples: of its offloads, and of the whole batch."""
    case: Case = NATIVE[name]
    plan = planned(case.app, case.design)
    calibration = SHARED / case.app.calibration if case.app.calibration else None
    plan, data = with_formats(plan, dataset_for(plan, SHARED / case.app.data), calibration)
    engine = Engine(plan, reading="native", compared=0, audit=0, engine="simulator")
    seconds, whole = [], []
    commands, compiled = 0, counts.compiled
    for sample in range(SAMPLES):
        begun = time.process_time()
        outcome = engine.batch(lambda part: data.rows(part).inputs, slice(sample, sample + 1))
        whole.append(round(time.process_time() - begun, 3))
        seconds.append(round(sum(s.seconds for s in outcome.statistics.values()), 3))
        commands = outcome.instructions
    first, later = next(t for word, t in TARGETS.items() if word in name)
    return {
        "name": name, "commands": commands, "first_cpu_seconds": seconds[0], "target_first_cpu_seconds": first,
        "later_cpu_seconds": seconds[1:], "target_later_cpu_seconds": later, "whole_batch_cpu_seconds": whole,
        "modules_compiled": counts.compiled - compiled,
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    args = parser.parse_args()
    rows = recorded(args.json)
    for name in (n for n in NATIVE if args.only in n and all(r["name"] != n for r in rows)):
        with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as process:
            os.environ["FLEXMATCH_CACHE"] = folder
            rows.append(process.submit(measured, name).result())
            os.environ.pop("FLEXMATCH_CACHE")
        finish("first_sample", rows, args.json)
        print(*(f"{k}: {v}" for k, v in rows[-1].items()), sep=", ", flush=True)


if __name__ == "__main__":
    main()
