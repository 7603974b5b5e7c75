"""What a sample costs in co-simulation beside the same model in onnxruntime float32, re-batched to the same batch, one thread.

Both take turns on the same batches in one run; a ratio is that of their CPU times on one batch. The first two batches, in
which code is compiled, are measured apart ("first"). Both results are compared with another reading.
Rows of machine code then have wall times of two threads, a batch each, also beside onnxruntime's two on one batch. Two more
rows are wall times on two threads, medians of five: 2000 images in one run (`--only "2000 images"`), and 1000 after a change
of the design (`--only changed`). Every row runs in a process of its own, whose peak of memory it has (up to the wall times);
with `--json FILE` rows that the file has are not run again.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from typing import Any

import numpy as np
from record import Row, finish, fresh_answers, options, peak_bytes, recorded, spread
from table4 import FLEXASR, HLSCNN, MOBILENET, RESNET, SHARED, VTA, WLM, WLM_DESIGNS, Application, Design, planned

from rewrite_compiler.compile import Plan
from rewrite_compiler.compile.host.host_program import HostProgram
from rewrite_compiler.cosim.cosimulate import Settings, cosimulate, dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.cosim.metrics.float_reference import TOLERANCE, Reference
from rewrite_compiler.cosim.prefetch import in_order

BATCH = 32
FIRST = 2  # batches that compile and record
IMAGES, EDITED_IMAGES = 2000, 1000
PEAK = "peak_mebibytes_of_the_process_of_the_row"
WALL_RUNS = 5
THREADS, TURNS = 2, 5  # of wall times; the first turn, which compiles and records, is left out
WHOLE, EDITED = "{} images, ResNet-20, HLSCNN 8-bit weights", "a parameter changed, then {} images, ResNet-20, HLSCNN"


@dataclass(frozen=True)
class Case:
    """A design on an application, in a tier, and the ratio that it has to reach."""

    name: str
    app: Application
    design: Design
    tier: str
    target: float


CASES = (
    Case("ResNet-20, HLSCNN 8-bit weights", RESNET, HLSCNN[0], "native", 1.5),
    Case("ResNet-20, HLSCNN 16-bit revision", RESNET, HLSCNN[2], "native", 3.5),
    Case("ResNet-20, FlexASR, all layers", RESNET, FLEXASR[1], "native", 6.0),
    Case("MobileNet-V2, VTA", MOBILENET, VTA[0], "native", 1.5),
    Case("LSTM-WLM, FlexASR", WLM, WLM_DESIGNS[0], "native", 1.2),
    Case("ResNet-20, HLSCNN 8-bit weights, numpy", RESNET, HLSCNN[0], "arrays", 15.0),
    Case("ResNet-20, HLSCNN 16-bit revision, numpy", RESNET, HLSCNN[2], "arrays", 80.0),
    Case("ResNet-20, FlexASR, all layers, numpy", RESNET, FLEXASR[1], "arrays", 15.0),
    Case("MobileNet-V2, VTA, numpy", MOBILENET, VTA[0], "arrays", 15.0),
)


def measured(case: Case, rounds: int) -> Row:
    """Return the times of both programs over `rounds` batches after the first ones."""
    plan = planned(case.app, case.design)
    data = dataset_for(plan, SHARED / case.app.data)
    plan, data = with_formats(plan, data, SHARED / case.app.calibration if case.app.calibration else None)
    take = lambda part: data.rows(part).inputs  # noqa: E731
    parts = [slice(at, at + BATCH) for at in range(0, data.count - BATCH + 1, BATCH)]
    if not parts:
        raise SystemExit(f"{case.app.data} has fewer than {BATCH} samples")
    parts = [parts[n % len(parts)] for n in range(rounds + FIRST)]
    engine, reference = Engine(plan, reading=case.tier, compared=0, audit=0), Reference(plan.source, take(parts[0]))
    host, simulated = [], []
    for part in parts:
        x = take(part)
        host.append(_cpu(lambda x=x: reference.run(x)))
        simulated.append(_cpu(lambda part=part: engine.batch(take, part)))
    differing = _differing(plan, case.tier, take(parts[-1]), engine.batch(take, parts[-1]).outputs)
    later = slice(FIRST, None)
    ratio = spread([s / h for s, h in zip(simulated[later], host[later], strict=True)])
    beside = {PEAK: peak_bytes() >> 20} | (_beside(plan, reference, take, parts) if case.tier == "native" else {})
    return {
        "name": case.name, "tier": case.tier, "batch": BATCH, "rounds": rounds, "target_ratio": case.target,
        **{f"ratio_{k}": round(v, 3) for k, v in ratio.items()},
        **{f"onnxruntime_cpu_ms_per_sample_{k}": round(1e3 * v / BATCH, 4) for k, v in spread(host[later]).items()},
        **{f"simulated_cpu_ms_per_sample_{k}": round(1e3 * v / BATCH, 4) for k, v in spread(simulated[later]).items()},
        "first_cpu_seconds": [round(x, 3) for x in simulated[:FIRST]],
        "outputs_that_differ_from_the_other_reading": differing,
        "offloads": len(plan.offloads), **beside,
    }  # fmt: skip


def _beside(plan: Plan, reference: Reference, take: Callable[[slice], Any], parts: list[slice]) -> Row:
    """Return the wall time of a sample on two threads, in turns: a batch each, and of onnxruntime also both on one batch."""
    engine, parts = Engine(plan, reading="native", compared=0, audit=0, threads=THREADS), parts * 2 * THREADS  # as many for each thread
    p = plan.source
    inside = HostProgram(p, p.inputs, threads=THREADS, tolerance=TOLERANCE)
    runs: dict[str, tuple[Callable[[slice], Any], int]] = {
        "onnxruntime": (lambda part: reference.run(take(part)), THREADS),
        "onnxruntime_both_on_one_batch": (lambda part: inside.run({v: take(part)[p.names[v]] for v in p.inputs}), 1),
        "simulated": (lambda part: engine.batch(take, part), THREADS),
    }
    turn_seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(1 + TURNS):
        for name, (run, threads) in runs.items():
            begun = time.perf_counter()
            for future in in_order(run, parts, threads, len(parts)):
                future.result()
            turn_seconds[name] += [time.perf_counter() - begun] * (turn > 0)
    seconds = {name: statistics.median(times) / (len(parts) * BATCH) for name, times in turn_seconds.items()}
    return {
        "threads": THREADS, **{f"{name}_wall_ms_per_sample": round(1e3 * s, 4) for name, s in seconds.items()},
        "wall_ratio_a_batch_each": round(seconds["simulated"] / seconds["onnxruntime"], 3),
        "wall_ratio_to_both_on_one_batch": round(seconds["simulated"] / seconds["onnxruntime_both_on_one_batch"], 3),
    }  # fmt: skip


def whole(images: int, threads: int) -> Row:
    """Return what so many images of CIFAR's size take through ResNet-20 on HLSCNN, plan and formats given, all in one run."""
    plan = planned(RESNET, HLSCNN[0])
    data = dataset_for(plan, SHARED / RESNET.data)
    data = data.take(np.arange(images) % data.count)
    begun, cpu = time.perf_counter(), time.process_time()
    document = cosimulate(plan, data, settings=Settings(threads=threads, keep_outputs=False)).document
    return {
        "name": WHOLE.format(images), "samples": images, "threads": threads, "target_wall_seconds": 5.0,
        "wall_seconds": round(time.perf_counter() - begun, 2), "cpu_seconds": round(time.process_time() - cpu, 2),
        "without_reference_wall_seconds": document["run"]["wall_seconds"],
    }  # fmt: skip


def edited(images: int, threads: int) -> Row:
    """Return what it takes from a changed parameter of the design to its accuracy: compiled anew, nothing kept of it."""
    begun, cpu = time.perf_counter(), time.process_time()
    with fresh_answers():
        plan = planned(RESNET, replace(HLSCNN[0], accel=("hlscnn:revision=ext16_a3p16",)))
        data = dataset_for(plan, SHARED / RESNET.data)
        data = data.take(np.arange(images) % data.count)
        document = cosimulate(plan, data, settings=Settings(threads=threads, keep_outputs=False)).document
    return {
        "name": EDITED.format(images), "samples": images, "threads": threads,
        "target_wall_seconds": 15.0, "wall_seconds": round(time.perf_counter() - begun, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2), "accelerated": document["accelerated"]["value"],
    }  # fmt: skip


def _cpu(run: object) -> float:
    begun = time.thread_time()
    run()  # type: ignore[operator]
    return time.thread_time() - begun


def _differing(plan: object, tier: str, x: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> int:
    """Compare the outputs of some samples with another reading's, run by itself."""
    few = {name: values[:2] for name, values in x.items()}
    reference = Engine(plan, reading="arrays" if tier == "native" else "native", compared=0).run(few).outputs  # type: ignore[arg-type]
    return sum(int(np.count_nonzero(outputs[name][:2] != y)) for name, y in reference.items())


def work(rounds: int) -> dict[str, tuple[str, Callable[[], Row]]]:
    """Return every row by name: its tier, and what measures it."""
    cases: dict[str, tuple[str, Callable[[], Row]]] = {c.name: (c.tier, partial(measured, c, rounds)) for c in CASES}
    cases[WHOLE.format(IMAGES)] = "native", partial(whole, IMAGES, 2)
    cases[EDITED.format(EDITED_IMAGES)] = "native", partial(edited, EDITED_IMAGES, 2)
    return cases


def by_itself(name: str, rounds: int) -> Row:
    """Measure a row in this process, which does nothing else."""
    row = work(rounds)[name][1]()
    return {PEAK: peak_bytes() >> 20, **row, "load_of_the_machine": [round(n, 1) for n in os.getloadavg()]}


def alone(name: str, rounds: int) -> Row:
    """Return a row from a process of its own; a wall time is the median of several, each of a new process."""
    results: list[Any] = []
    for _ in range(1 if rounds < 2 or name in {c.name for c in CASES} else WALL_RUNS):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            results.append(process.submit(by_itself, name, rounds).result())
    middle: Row = sorted(results, key=lambda row: row.get("wall_seconds", 0))[len(results) // 2]
    return middle if len(results) == 1 else {**middle, "wall_seconds_of_runs": [row["wall_seconds"] for row in results]}


def line(row: Row) -> str:
    """Return a row as it is printed."""
    if "ratio_median" not in row:
        return f"{row['name']:<60}{row['wall_seconds']:>8} s{row['target_wall_seconds']:>8} s"
    times = f"{row['onnxruntime_cpu_ms_per_sample_median']:>10} ms{row['simulated_cpu_ms_per_sample_median']:>9} ms"
    beside = "".join(f"{row[name]:>10}" for name in ("wall_ratio_a_batch_each", "wall_ratio_to_both_on_one_batch") if name in row)
    return f"{row['name']:<44}{row['tier']:>8}{times}{row['ratio_median']:>9}{row['target_ratio']:>9}{beside}"


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=7)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains TEXT")
    parser.add_argument("--tier", default="", metavar="NAME", help="only rows of this tier")
    args = parser.parse_args()
    if not SHARED.is_dir():
        raise SystemExit(f"{SHARED} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = recorded(args.json)
    rows_by_name = {row["name"]: row for row in rows}
    beside = f"{'2 threads':>10}{'inside':>10}"
    print(f"{'application and accelerator':<44}{'tier':>8}{'onnxruntime':>13}{'simulated':>12}{'ratio':>9}{'target':>9}{beside}")
    for name, (tier, _) in work(args.runs).items():
        if args.only not in name or args.tier not in ("", tier):
            continue
        if name not in rows_by_name:
            rows_by_name[name] = alone(name, args.runs)
            rows.append(rows_by_name[name])
            finish("cosim_speed", rows, args.json)
        print(line(rows_by_name[name]), flush=True)


if __name__ == "__main__":
    main()
