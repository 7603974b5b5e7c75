"""How long do an emitted trace and the emitted digits CNN take: writing, compiling, running beside the native tier?

The machine may be busy, so times are processor seconds; the program and the native tier run in turns and the ratio is of the
smallest of each.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from emitted_c import built, images
from record import ROOT, Row, finish, options

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.emit.mmio.trace import traces_of
from rewrite_compiler.ila.traces.writer import to_binary, to_json_lines

TARGETS = ("hlscnn", "vta", "flexasr")
BATCH = 500  # images that the native tier takes at once, which is its fast way: what a run costs is spread over all of them
USUAL = 32  # images at once unless `flexmatch cosim` is told another number
FEW = 20  # images that it takes one by one, as the program does


def seconds(run: Callable[[], object]) -> float:
    """Return the processor seconds of a call, all threads."""
    started = time.process_time()
    run()
    return time.process_time() - started


def digits(target: str, runs: int) -> Row:
    """Compare the program with the native tier on the same images, both after a first run that prepares them."""
    a = find_application("digits_cnn")
    plan: Plan = calibrated(compile_model(a.model, [target]), {"image": images(a.calibration)}, "calibration.npz", "")
    x = images(a.data)[:BATCH]
    y = np.zeros((BATCH, 10), np.float32)
    engine = Engine(plan, reading="native", host="onnxruntime")
    for _ in range(3):  # the first batches make machine code and a tape of it
        engine.run({"image": x}, batch=BATCH)
    with tempfile.TemporaryDirectory() as folder:
        library, spent = built(plan, Path(folder))

        pointer = ctypes.c_void_p * 1
        calls = [(pointer(x[n].ctypes.data), pointer(y[n].ctypes.data)) for n in range(BATCH)]  # the program is timed, not ctypes

        def program() -> None:
            for inputs, outputs in calls:
                assert not library.infer(inputs, outputs)

        for size, several in ((USUAL, x), (1, x[:FEW])):
            for _ in range(3):
                engine.run({"image": several}, batch=size)
        pairs = [
            (
                seconds(program) / BATCH,
                seconds(lambda: engine.run({"image": x}, batch=BATCH)) / BATCH,
                seconds(lambda: engine.run({"image": x}, batch=USUAL)) / BATCH,
                seconds(lambda: engine.run({"image": x[:FEW]}, batch=1)) / FEW,
            )
            for _ in range(runs)
        ]
    c, native, usual, single = (min(p[k] for p in pairs) for k in range(4))
    times = {
        "c_cpu_seconds_per_image": c, "native_cpu_seconds_per_image": native, "ratio": c / native,
        "native_usual_batch_cpu_seconds_per_image": usual, "ratio_usual_batch": c / usual,
        "native_one_by_one_cpu_seconds_per_image": single, "ratio_one_by_one": c / single,
    }  # fmt: skip
    return {"name": f"digits_cnn on {target}", **spent, **times}


def resnet(target: str, runs: int) -> Row:
    """Time the trace of one inference: recording it, and writing it, in both forms."""
    models = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "trained"
    plan = compile_model(models / "resnet20_ts17.onnx", [target])
    calibration = models / "resnet20_ts17.calibration.toml"
    plan, _ = with_formats(plan, dataset_for(plan, calibration), calibration)
    traces_of(plan)  # imports, and what is made once for each model of an accelerator
    emitted = traces_of(plan)[target]
    spent = {
        "record_cpu_seconds": min(seconds(lambda: traces_of(plan)) for _ in range(runs)),
        "binary_cpu_seconds": min(seconds(lambda: to_binary(emitted.trace, emitted.ila)) for _ in range(runs)),
        "json_cpu_seconds": min(seconds(lambda: to_json_lines(emitted.trace, emitted.ila)) for _ in range(runs)),
    }
    return {"name": f"trace of resnet20_ts17 on {target}", "commands": emitted.trace.commands, **spent}


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=3)
    parser.add_argument("--accel", choices=TARGETS, action="append")
    args = parser.parse_args()
    rows: list[Row] = []
    for measure in (digits, resnet):
        for target in args.accel or TARGETS:
            rows.append(measure(target, args.runs))
            row = rows[-1]
            print(f"{row['name']:34}" + "  ".join(f"{key} {x:.4g}" for key, x in row.items() if isinstance(x, int | float)), flush=True)
    finish("emitted_times", rows, args.json)


if __name__ == "__main__":
    main()
