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
        found.append(
            Case(stem, trained / f"{stem}.onnx", trained / f"{stem}.cifar10_test_600.toml", trained / f"{stem}.calibration.toml")
        )
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
    calibrate = [] if case.calibration is None else ["--calibrate", str(case.calibration)]
    compile_wall, compile_cpu = timed([*FLEXMATCH, str(model), "--accel", "flexasr", "-o", str(stem)], folder)
    plan = json.loads(stem.with_suffix(".json").read_text())
    row: Row = {
        "name": case.name, "linear": plan["counts"]["flexasr"].get("linear", 0), "linear_exact": plan["exact_counts"]["flexasr"].get("linear", 0),
        "device_calls": plan["device_calls"]["flexasr"].get("linear", 0), "extraction": plan["extraction"]["status"],
        "plan_relative_difference": plan["run"]["check"]["relative_difference"],
        "compile_wall_seconds": round(compile_wall, 3), "compile_cpu_seconds": round(compile_cpu, 3),
    }  # fmt: skip
    if case.data is None:
        return row
    report = folder / "report.json"
    command = [*FLEXMATCH, "cosim", str(model), "--accel", "flexasr", "--data", str(case.data), *calibrate, "--json", str(report), "-q"]
    timed([*command, *(["--samples", str(case.samples)] if case.samples else [])], folder)
    found = json.loads(report.read_text())
    return row | {
        "metric": found["metric"], "samples": found["samples"], "reference": found["reference"]["value"], "accelerated": found["accelerated"]["value"],
        "difference": found["paired"]["difference"], "interval": found["paired"]["interval"], "better": found["paired"]["better"],
        "worse": found["paired"]["worse"], "same_predictions": found["paired"]["same_predictions"], "batch": found["run"]["batch"],
        "threads": found["run"]["threads"], "instructions": found["simulator"]["instructions"], "cosim_wall_seconds": found["run"]["wall_seconds"],
        "cosim_cpu_seconds": round(found["run"]["cpu_seconds_per_sample"] * found["samples"], 3),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    given = parser.parse_args()
    if not MODELS.is_dir():
        raise SystemExit(f"{MODELS} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = []
    print(f"{'application':24}{'offloads':>9}{'exact':>7}{'compile':>11}{'metric':>12}{'float32':>10}{'FlexASR':>10}{'difference':>12}{'co-simulation':>16}")
    for case in cases():
        if given.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measure(case, Path(folder))
        rows.append(row)
        shown = f"{row['name']:24}{row['linear']:>9}{row['linear_exact']:>7}{row['compile_wall_seconds']:>9} s"
        if "metric" in row:
            shown += f"{row['metric']:>12}{row['reference']:>10.5g}{row['accelerated']:>10.5g}{row['difference']:>+12.4g}{row['cosim_wall_seconds']:>14} s"
        print(shown, flush=True)
    finish("applications", rows, given.json)


if __name__ == "__main__":
    main()
