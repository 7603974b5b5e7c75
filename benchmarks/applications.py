"""Whole applications: offloads found, accuracy on FlexASR beside float32, and the time each stage takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from record import ROOT, Row, finish, options

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared"))
MODELS = SHARED / "models"
FLEXMATCH = [sys.executable, "-m", "rewrite_compiler.cli.main"]


@dataclass(frozen=True)
class Case:
    """A model with its data; no data: it is only compiled."""

    name: str
    model: Path
    data: Path | None = None
    calibration: Path | None = None
    samples: int = 0


def cases() -> list[Case]:
    """Return the shipped applications and the shared ones."""
    digits = ROOT / "apps" / "digits"
    found = [Case(f"digits {kind}", digits / f"{kind}.onnx", digits / "test.npz", digits / "calibration.npz") for kind in ("cnn", "mlp")]
    trained = MODELS / "trained"
    for style in ("ts17", "dyn18", "ts13_bn"):
        stem = f"resnet20_{style}"
        found.append(Case(stem, trained / f"{stem}.onnx", trained / f"{stem}.cifar10_test_600.toml", trained / f"{stem}.calibration.toml"))
    wlm = MODELS / "wlm" / "wlm_h128_lstm_dyn18"
    found.append(Case("wlm lstm", wlm.with_suffix(".onnx"), wlm.with_suffix(".toml"), wlm.with_suffix(".toml"), 100))
    found += [Case(f.name.removesuffix(".onnx.xz"), f) for f in sorted((MODELS / "arch").glob("resnet20_b.*.onnx.xz"))]
    return found


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a command in a folder; return its wall and processor seconds."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def unpacked(model: Path, folder: Path) -> Path:
    """Return the model, unpacked when it is compressed."""
    if model.suffix != ".xz":
        return model
    import lzma

    plain = folder / model.stem
    plain.write_bytes(lzma.decompress(model.read_bytes()))
    return plain


def measure(case: Case, folder: Path) -> Row:
    """Compile, and co-simulate where there is data."""
    model = unpacked(case.model, folder)
    stem = folder / "plan"
    compile_wall, compile_cpu = timed([*FLEXMATCH, str(model), "--accel", "flexasr", "-o", str(stem)], folder)
    plan = json.loads(stem.with_suffix(".json").read_text())
    row: Row = {
        "name": case.name,
        "offloads": sum(plan["counts"]["flexasr"].values()),
        "operations": ", ".join(f"{n} {operation}" for operation, n in plan["counts"]["flexasr"].items()),
        "offloads_exact": sum(plan["exact_counts"]["flexasr"].values()),
        "device_calls": sum(plan["device_calls"]["flexasr"].values()),
        "extraction": plan["extraction"]["status"],
        "plan_relative_difference": plan["run"]["check"]["relative_difference"],
        "compile_wall_seconds": round(compile_wall, 3),
        "compile_cpu_seconds": round(compile_cpu, 3),
    }
    return row if case.data is None else row | simulated(case, model, folder)


def simulated(case: Case, model: Path, folder: Path) -> Row:
    """Co-simulate and return what the report says."""
    report = folder / "report.json"
    calibrate = [] if case.calibration is None else ["--calibrate", str(case.calibration)]
    samples = ["--samples", str(case.samples)] if case.samples else []
    command = [*FLEXMATCH, "cosim", str(model), "--accel", "flexasr", "--data", str(case.data), *calibrate, *samples]
    timed([*command, "--json", str(report), "-q"], folder)
    document = json.loads(report.read_text())
    paired, run = document["paired"], document["run"]
    return {
        "metric": document["metric"],
        "samples": document["samples"],
        "reference": document["reference"]["value"],
        "accelerated": document["accelerated"]["value"],
        **{key: paired[key] for key in ("difference", "interval", "better", "worse", "same_predictions")},
        **{key: run[key] for key in ("batch", "threads")},
        "instructions": document["simulator"]["instructions"],
        "cosim_wall_seconds": run["wall_seconds"],
        "cosim_cpu_seconds": round(run["cpu_seconds_per_sample"] * document["samples"], 3),
    }


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    args = parser.parse_args()
    if not MODELS.is_dir():
        raise SystemExit(f"{MODELS} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = []
    titles = {"application": -24, "offloads": 9, "exact": 7, "compile": 11, "metric": 12, "float32": 10, "FlexASR": 10, "difference": 12}
    print("".join(f"{t:<{-n}}" if n < 0 else f"{t:>{n}}" for t, n in titles.items()) + f"{'co-simulation':>16}")
    for case in cases():
        if args.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measure(case, Path(folder))
        rows.append(row)
        line = f"{row['name']:24}{row['offloads']:>9}{row['offloads_exact']:>7}{row['compile_wall_seconds']:>9} s"
        if "metric" in row:
            values = f"{row['reference']:>10.5g}{row['accelerated']:>10.5g}{row['difference']:>+12.4g}"
            line += f"{row['metric']:>12}{values}{row['cosim_wall_seconds']:>14} s"
        print(line, flush=True)
    finish("applications", rows, args.json)


if __name__ == "__main__":
    main()
