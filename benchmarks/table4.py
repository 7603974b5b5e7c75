"""Whole applications on accelerators before and after numerics tuning: accuracy and time of a sample, as in the paper's Table 4.

Every row is one design on one application. "as designed" is the first design with its own host conversion; the other rows
change one thing: how the host rounds weights (no bit of hardware), how formats are calibrated, or the revision of the design.
Conventions: all 600 CIFAR images, calibrated on training images; all 50 ImageNet images and 100 windows of WikiText-2, calibrated
on the samples themselves, because there are no others; times are processor seconds of this machine, onnxruntime's beside.
With `--json FILE` it goes on where it ended: rows that the file has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from record import ROOT, Row, finish, options

import flexmatch
from rewrite_compiler.compile import Options, Plan
from rewrite_compiler.compile.matching.pins import HOST
from rewrite_compiler.cosim import Settings
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.study.diagnosis.trials import with_formats_of

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models"
NEAREST = "half_even"


@dataclass(frozen=True)
class Application:
    """A model with its data, and the seconds that the paper gives for one sample on each platform."""

    name: str
    model: str
    data: str
    calibration: str = ""
    samples: int = 0  # 0: all
    note: str = ""


@dataclass(frozen=True)
class Design:
    """Accelerators, how the model is matched, and what is tuned; `paper_seconds` is the paper's time of a sample, where it gives one."""

    platform: str
    tuning: str
    accel: tuple[str, ...]
    dense_only: bool = False
    nearest: bool = False
    method: str = ""
    paper_seconds: float | None = None
    paper: float | None = None  # the paper's figure on the accelerator: perplexity, or the share of images


RESNET = Application(
    "ResNet-20", "trained/resnet20_ts17.onnx", "trained/resnet20_ts17.cifar10_test_600.toml", "trained/resnet20_ts17.calibration.toml"
)
MOBILENET = Application(
    "MobileNet-V2", "trained/mbv2_cifar10_float.onnx", "trained/mbv2_cifar10_float.cifar10_test_600.toml",
    "trained/mbv2_cifar10_float.calibration.toml",
)  # fmt: skip
IMAGENET = Application(
    "MobileNet-V2 ImageNet", "trained/mobilenetv2-12-float.onnx", "trained/mobilenetv2-12-float.imagenet_sample_50.toml",
    "trained/mobilenetv2-12-float.imagenet_sample_50.toml", 0, "50 images, which calibrate, too: there are no others",
)  # fmt: skip
WLM = Application(
    "LSTM-WLM", "wlm/wlm_h128_lstm_dyn18.onnx", "wlm/wlm_h128_lstm_dyn18.toml", "wlm/wlm_h128_lstm_dyn18.toml", 100,
    "100 evenly spaced windows of those that calibrate",
)  # fmt: skip

AS_DESIGNED, TUNED = "as designed", "formats by least squared error"
NEAREST_8, BITS_16 = "weights rounded to nearest, 8 bits", "16-bit weights (the paper's repair)"
EXT8, EXT16 = "hlscnn:revision=ext8", "hlscnn:revision=ext16"


def repaired(platform: str, other_platforms: tuple[str, ...], seconds: float, before: float, after: float) -> tuple[Design, ...]:
    """Return HLSCNN's rows: the first design, the host's rounding, the revision; with what the paper has for the first and last."""
    return (
        Design(platform, AS_DESIGNED, (*other_platforms, EXT8), paper_seconds=seconds, paper=before),
        Design(platform, NEAREST_8, (*other_platforms, EXT8), nearest=True),
        Design(platform, BITS_16, (*other_platforms, EXT16), paper_seconds=seconds, paper=after),
    )


def both(seconds: float, before: float, after: float) -> tuple[Design, ...]:
    """Return the rows of both accelerators together."""
    return repaired("FlexASR + HLSCNN", ("flexasr",), seconds, before, after)


def flexasr(seconds: float, on_device: float) -> tuple[Design, ...]:
    """Return FlexASR's rows: the paper's, with the classifier alone, and every layer that it takes."""
    return (
        Design("FlexASR, classifier only", AS_DESIGNED, ("flexasr",), dense_only=True, paper_seconds=seconds, paper=on_device),
        Design("FlexASR, all layers", AS_DESIGNED, ("flexasr",)),
        Design("FlexASR, all layers", TUNED, ("flexasr",), method="mse"),
    )


def vta(seconds: float, on_device: float) -> tuple[Design, ...]:
    """Return VTA's rows."""
    return (
        Design("VTA", AS_DESIGNED, ("vta",), paper_seconds=seconds, paper=on_device),
        Design("VTA", TUNED, ("vta",), method="mse"),
    )


HLSCNN = repaired("HLSCNN", (), 423, 0.2975, 0.921)
FLEXASR = flexasr(11.6, 0.915)
VTA = vta(1215, 0.894)
WLM_DESIGNS = (
    Design("FlexASR", AS_DESIGNED, ("flexasr",), paper_seconds=22.4, paper=121.97),
    Design("FlexASR", TUNED, ("flexasr",), method="mse"),
)
TABLE: Sequence[tuple[Application, tuple[Design, ...]]] = (
    (WLM, WLM_DESIGNS),
    (RESNET, (*FLEXASR, *HLSCNN, *both(426, 0.2915, 0.9185))),
    (MOBILENET, (*VTA, *flexasr(18.1, 0.923), *repaired("HLSCNN", (), 1233, 0.1035, 0.915), *both(1261, 0.1035, 0.912))),
    (IMAGENET, (vta(903, 0.7055)[0], *flexasr(38.1, 0.721)[:2], *repaired("HLSCNN", (), 2794, 0.001, 0.6885), *both(2900, 0.001, 0.6825))),
)


def convolutions(app: Application) -> list[str]:
    """Return the names of a model's convolutions."""
    program = load(SHARED / app.model).program
    return [s.name for s in program.sources if s.op_type == "Conv"]


def planned(app: Application, design: Design) -> Plan:
    """Return the plan, calibrated where the application has samples for it."""
    calibration = SHARED / app.calibration if app.calibration else None
    on = tuple(f"{HOST}={name}" for name in convolutions(app)) if design.dense_only else ()
    plan: Plan = flexmatch.compile(
        SHARED / app.model, list(design.accel), Options(on=on), calibrate=calibration, calibration_method=design.method
    )
    return plan


def to_nearest(plan: Plan) -> Plan:
    """Return a calibrated plan whose constants in fixed point are rounded to nearest by the host."""
    changed = {}
    for o in plan.offloads:
        if o.target.name == "hlscnn" and "rounding" in o.formats["w"].parameters:
            nearest = replace(o.formats["w"], rounding=NEAREST)  # type: ignore[call-arg]
            changed[o.id] = o.mapping.with_format(o.formats, "w", nearest)
    if not changed:
        raise SystemExit("no offload has weights in fixed point")
    return with_formats_of(plan, changed)


def measured(app: Application, design: Design, samples: int, threads: int, tier: str) -> Row:
    """Compile and co-simulate one row."""
    plan = planned(app, design)
    plan, data = with_formats(plan, dataset_for(plan, SHARED / app.data), None, design.method)
    plan = to_nearest(plan) if design.nearest else plan
    sample_count = samples or app.samples
    if app.samples:
        sample_count = min(sample_count, app.samples)
    settings = Settings(samples=sample_count, threads=threads, tier=tier, keep_outputs=False)
    document = flexmatch.cosimulate(plan, data, settings=settings).document
    paired, run = document["paired"], document["run"]
    counts = {f"{t}.{operation}": n for t, found in plan.counts.items() for operation, n in found.items()}
    return {
        "application": app.name, "platform": design.platform, "tuning": design.tuning, "note": app.note,
        "offloads": ", ".join(f"{n} {operation}" for operation, n in counts.items()),
        "metric": document["metric"], "samples": document["samples"], "reference": document["reference"]["value"],
        "accelerated": document["accelerated"]["value"], **{k: paired[k] for k in ("difference", "interval", "better", "worse")},
        "worst_offload_error": max((o["relative_error"] or 0.0 for o in document["offloads"]), default=0.0),
        "cpu_seconds_per_sample": run["cpu_seconds_per_sample"],
        "reference_cpu_seconds_per_sample": run["reference_cpu_seconds_per_sample"], "wall_seconds": run["wall_seconds"],
        "batch": run["batch"], "threads": run["threads"], "tier": document["simulator"]["tier"],
        "paper_seconds_per_sample": design.paper_seconds, "paper_accelerated": design.paper,
    }  # fmt: skip


def line(row: Row) -> str:
    """Return one row of the table."""
    if "failed" in row:
        return f"{row['application']:<22}{row['platform']:<26}{row['tuning']:<38}{row['failed']}"
    time = "" if row["paper_seconds_per_sample"] is None else f"{row['paper_seconds_per_sample']:g} s"
    paper = "" if row["paper_accelerated"] is None else f"{row['paper_accelerated']:g}"
    figures = f"{row['metric']:>11}{row['reference']:>10.4f}{row['accelerated']:>10.4f}{row['difference']:>+10.4f}{paper:>9}"
    return f"{row['application']:<22}{row['platform']:<26}{row['tuning']:<38}{figures}{row['cpu_seconds_per_sample']:>11.4f} s{time:>9}"


def kept(path: Path | None) -> list[Row]:
    """Return the rows that a record has already, those that failed aside."""
    if path is None or not path.exists():
        return []
    return [row for row in json.loads(path.read_text("utf-8"))["rows"] if "failed" not in row]


def tried(app: Application, design: Design, args: argparse.Namespace) -> Row:
    """Return a row; one that cannot be run says why."""
    try:
        return measured(app, design, args.samples, args.threads, args.tier)
    except FlexmatchError as error:
        key_columns = {"application": app.name, "platform": design.platform, "tuning": design.tuning}
        return {**key_columns, "failed": error.problem.sentence}


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose application, platform and tuning contain TEXT")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="N evenly spaced samples of each application (default: all)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="batches side by side (default: %(default)s)")
    parser.add_argument("--tier", default="auto", metavar="TIER", help="how simulators compute (default: %(default)s)")
    args = parser.parse_args()
    if not SHARED.is_dir():
        raise SystemExit(f"{SHARED} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = kept(args.json)
    rows_by_key = {(row["application"], row["platform"], row["tuning"]): row for row in rows}
    heads = {"application": 22, "platform": 26, "tuning": 38}
    figures = {"metric": 11, "float32": 10, "device": 10, "change": 10, "paper": 9, "CPU/sample": 13, "paper's": 9}
    print("".join(f"{t:<{n}}" for t, n in heads.items()) + "".join(f"{t:>{n}}" for t, n in figures.items()))
    for app, designs in TABLE:
        for design in designs:
            key = app.name, design.platform, design.tuning
            if args.only not in " ".join(key):
                continue
            if key not in rows_by_key:
                rows.append(tried(app, design, args))
                finish("table4", rows, args.json)
            print(line(rows_by_key.get(key) or rows[-1]), flush=True)


if __name__ == "__main__":
    main()
