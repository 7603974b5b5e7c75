"""Whole applications on accelerators: offloads found, accuracy beside that of the model on the host, seconds of each stage.

Each row is measured with nothing kept by runs before it but verdicts. With `--json FILE` it goes on where it ended; each row has the
commit that it was measured at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from record import ROOT, Row, commit, finish, fresh_answers, options, recorded

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared"))
MODELS = SHARED / "models"
TITLES = {"flexasr": "FlexASR", "hlscnn": "HLSCNN", "vta": "VTA", "hvx": "HVX", "genesys": "GeneSys"}
WIDE_WEIGHTS = "hlscnn:revision=ext16"  # the cure for what 8-bit weights lose
FLEXMATCH = [sys.executable, "-m", "rewrite_compiler.cli.main"]


@dataclass(frozen=True)
class Case:
    """A model on an accelerator, with its data; no data: it is only compiled."""

    name: str
    accelerator: str
    model: Path
    data: Path | None = None
    calibration: Path | None = None
    samples: int = 0
    metric: str = ""

    @property
    def title(self) -> str:
        """The accelerator as the table shows it."""
        return "HLSCNN, 16-bit weights" if self.accelerator == WIDE_WEIGHTS else TITLES[self.accelerator]


def cases() -> list[Case]:
    """Return the shipped applications and the shared ones."""
    apps, trained, wlm = ROOT / "apps", MODELS / "trained", MODELS / "wlm" / "wlm_h128_lstm_dyn18"
    digits, keccak = apps / "digits", apps / "keccak"
    of_codec = tuple(apps / "codec" / file for file in ("codec.onnx", "test.npz", "calibration.npz"))
    of_words = tuple(apps / "keywords" / file for file in ("keywords.onnx", "test.npz", "calibration.npz"))
    spectrogram = (apps / "keywords" / "spectrogram.onnx", *of_words[1:])
    of_digits = (digits / "cnn.onnx", digits / "test.npz", digits / "calibration.npz")
    resnet = (trained / f"resnet20_ts17.{ending}" for ending in ("onnx", "cifar10_test_600.toml", "calibration.toml"))
    keywords = (trained / f"kws_dscnn_mlperf_int8qdq.{ending}" for ending in ("onnx", "kws_mfcc_500.toml"))
    mobilenet = (trained / f"mbv2_cifar10_int8.{ending}" for ending in ("onnx", "cifar10_test_600.toml", "calibration.toml"))
    of_resnet, of_keywords = tuple(resnet), tuple(keywords)
    return [
        *(Case("digits CNN", name, *of_digits) for name in TITLES),
        *(Case("ResNet-20", name, *of_resnet) for name in TITLES),
        Case("ResNet-20", WIDE_WEIGHTS, *of_resnet),
        Case("keywords DS-CNN, int8", "vta", *of_keywords),
        Case("MobileNet-V2, int8", "genesys", *mobilenet),
        Case("language model, LSTM", "flexasr", wlm.with_suffix(".onnx"), wlm.with_suffix(".toml"), wlm.with_suffix(".toml"), 100),
        *(Case("image codec", name, *of_codec, metric="psnr") for name in ("flexasr", "vta", WIDE_WEIGHTS)),
        *(Case("spectrogram", name, *spectrogram, metric="psnr") for name in ("flexasr", "vta")),
        *(Case("spoken keywords", name, *of_words, metric="top1") for name in ("flexasr", "vta")),
        Case("Keccak-f[1600]", "vta", keccak / "keccak.onnx", keccak / "test.npz", metric="pixel-accuracy"),
        *(Case("Transformer", name, MODELS / "arch" / "transformer_explicit.ts17.onnx.xz") for name in ("flexasr", "vta")),
    ]


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
    compile_wall, compile_cpu = timed([*FLEXMATCH, str(model), "--accel", case.accelerator, "-o", str(stem)], folder)
    plan = json.loads(stem.with_suffix(".json").read_text())
    counts = {key: plan[key].get(case.accelerator.partition(":")[0], {}) for key in ("counts", "exact_counts", "device_calls")}
    row: Row = {
        "name": case.name,
        "accelerator": case.title,
        "offloads": sum(counts["counts"].values()),
        "operations": ", ".join(f"{n} {operation}" for operation, n in counts["counts"].items()),
        "offloads_exact": sum(counts["exact_counts"].values()),
        "device_calls": sum(counts["device_calls"].values()),
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
    chosen = [*(["--samples", str(case.samples)] if case.samples else []), *(["--metric", case.metric] if case.metric else [])]
    command = [*FLEXMATCH, "cosim", str(model), "--accel", case.accelerator, "--data", str(case.data), *calibrate, *chosen]
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
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name and accelerator contain TEXT")
    args = parser.parse_args()
    if not MODELS.is_dir():
        raise SystemExit(f"{MODELS} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = recorded(args.json)
    titles = {
        "application": -24,
        "accelerator": -23,
        "offloads": 9,
        "exact": 7,
        "compile": 11,
        "metric": 12,
        "on the host": 13,
        "on it": 10,
        "difference": 12,
    }
    print("".join(f"{t:<{-n}}" if n < 0 else f"{t:>{n}}" for t, n in titles.items()) + f"{'co-simulation':>16}")
    measured = {(row["name"], row["accelerator"]) for row in rows}
    for case in cases():
        if args.only not in f"{case.name} {case.accelerator}" or (case.name, case.title) in measured:
            continue
        with tempfile.TemporaryDirectory() as folder, fresh_answers():
            row = measure(case, Path(folder))
        rows.append({**row, "commit": commit()})
        finish("applications", rows, args.json)
        line = f"{row['name']:24}{row['accelerator']:23}{row['offloads']:>9}{row['offloads_exact']:>7}{row['compile_wall_seconds']:>9} s"
        if "metric" in row:
            values = f"{row['reference']:>13.5g}{row['accelerated']:>10.5g}{row['difference']:>+12.4g}"
            line += f"{row['metric']:>12}{values}{row['cosim_wall_seconds']:>14} s"
        print(line, flush=True)


if __name__ == "__main__":
    main()
