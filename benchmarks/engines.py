"""Numerics beside onnxruntime float32, in turns on the same batches in one process: steady state and totals.

A row is an application on a design. "first" is the first batch, in which code is made or found; its code is that of an empty
cache. The totals are whole processes: 64 samples from the model and an empty cache (compile, calibrate, validate, simulate), and 600
samples with a cache that a run filled, from the model and from its plan; of ImageNet all samples. One thread, processor seconds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
from pathlib import Path

import numpy as np
from cosim_speed import BATCH, CASES, FIRST, SHARED, Case
from record import Row, finish, options, peak_bytes, recorded, spread
from table4 import IMAGENET, VTA, planned

from rewrite_compiler.compile.document import plan_files, read_plan
from rewrite_compiler.cosim.cosimulate import Settings, cosimulate, dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.cosim.metrics.float_reference import Reference
from rewrite_compiler.readings.native.jit import counts

NATIVE = {c.name: c for c in CASES if c.tier == "native"}
WHOLE = {**NATIVE, IMAGENET.name: Case(IMAGENET.name, IMAGENET, VTA[0], "native", 0.0)}
FEW, MANY = 64, 600


def measured(name: str, rounds: int) -> Row:
    """Return the times of the engine and of the host over `rounds` batches behind the first ones."""
    case = NATIVE[name]
    plan = planned(case.app, case.design)
    data = dataset_for(plan, SHARED / case.app.data)
    plan, data = with_formats(plan, data, SHARED / case.app.calibration if case.app.calibration else None)
    parts = [slice(at, at + BATCH) for at in range(0, data.count - BATCH + 1, BATCH)]
    parts = [parts[n % len(parts)] for n in range(rounds + FIRST)]
    reference = Reference(plan.source, data.rows(parts[0]).inputs)
    engine = Engine(plan, reading="native", compared=0, audit=0)
    times: dict[str, list[float]] = {"onnxruntime": [], "numerics": []}
    for part in parts:
        x = data.rows(part).inputs
        times["onnxruntime"].append(_cpu(lambda x=x: reference.run(x)))
        times["numerics"].append(_cpu(lambda part=part: engine.batch(lambda p: data.rows(p).inputs, part)))
    later = {k: statistics.median(v[FIRST:]) for k, v in times.items()}
    ratios = spread([a / b for a, b in zip(times["numerics"][FIRST:], times["onnxruntime"][FIRST:], strict=True)])
    return {
        "name": name, "batch": BATCH, "rounds": rounds,
        **{f"numerics_to_onnxruntime_{k}": round(v, 3) for k, v in ratios.items()},
        **{f"{k}_cpu_ms_per_batch": round(1e3 * v, 2) for k, v in later.items()},
        "numerics_first_cpu_seconds": round(times["numerics"][0], 3), "peak_mebibytes": peak_bytes() >> 20,
    }  # fmt: skip


def whole(name: str, samples: int, plan_file: Path) -> tuple[float, int, int]:
    """Return the processor seconds of this process for a whole run, its peak of memory, and how many modules LLVM compiled.

    The plan is read where its file is there, else compiled, calibrated and written.
    """
    case: Case = WHOLE[name]
    if plan_file.is_file():
        plan = read_plan(plan_file)
        data = dataset_for(plan, SHARED / case.app.data)
    else:
        plan = planned(case.app, case.design)
        data = dataset_for(plan, SHARED / case.app.data)
        plan, data = with_formats(plan, data, SHARED / case.app.calibration if case.app.calibration else None)
        plan_file.write_text(json.dumps(plan_files(plan).document), "utf-8")
    data = data.take(np.arange(samples or data.count) % data.count)
    cosimulate(plan, data, settings=Settings(threads=1, keep_outputs=False, tier="native"))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, peak_bytes() >> 20, counts.compiled


def totals(name: str, runs: int) -> Row:
    """Return whole processes: few samples from the model and an empty cache, then many from the model and from the plan, cache filled."""
    del runs
    row: Row = {"name": f"{name}: whole runs"}
    few, many = (0, 0) if name == IMAGENET.name else (FEW, MANY)
    with tempfile.TemporaryDirectory() as folder:
        plan_file = Path(folder) / "plan.json"
        for samples, note in ((few, "empty_cache"), (many, "model"), (many, "plan")):
            if note == "model":
                plan_file.unlink()
            code = f"import engines; print(*engines.whole({name!r}, {samples}, engines.Path({str(plan_file)!r})))"
            run = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
                env={**os.environ, "FLEXMATCH_CACHE": folder},
            )  # fmt: skip
            seconds, peak, compiled = run.stdout.split()[-3:]
            count = samples or "all"
            row[f"{count}_samples_{note}_cpu_seconds"] = round(float(seconds), 2)
            row[f"{count}_samples_{note}_peak_mebibytes"] = int(peak)
            row[f"{count}_samples_{note}_modules_compiled"] = int(compiled)
    return row


def _cpu(run: object) -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    run()  # type: ignore[operator]
    later = resource.getrusage(resource.RUSAGE_SELF)
    return later.ru_utime + later.ru_stime - usage.ru_utime - usage.ru_stime


def line(row: Row) -> str:
    """Return a row as it is printed."""
    return "\n  ".join(f"{name}: {value}" if n else str(value) for n, (name, value) in enumerate(row.items()))


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=9)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    args = parser.parse_args()
    if not SHARED.is_dir():
        raise SystemExit(f"{SHARED} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = recorded(args.json)
    recorded_names = {row["name"] for row in rows}
    for make in (measured, totals):
        for name in NATIVE if make is measured else WHOLE:
            shown = name if make is measured else f"{name}: whole runs"
            if args.only not in shown or shown in recorded_names:
                continue
            with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as process:
                os.environ["FLEXMATCH_CACHE"] = folder
                rows.append(process.submit(make, name, args.runs).result())
                os.environ.pop("FLEXMATCH_CACHE")
            finish("engines", rows, args.json)
            print(line(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
