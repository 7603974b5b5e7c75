"""How accurate are quantised models on VTA, and how many codes differ from the models' own?

onnxruntime's quantiser makes int8 and uint8 models in both of its formats from float models and calibration samples; every
offload's codes are compared with their meaning on the first samples, the application's outputs on all of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from record import Row, finish, options, recorded

import flexmatch
from rewrite_compiler.data import Dataset, samples_for
from rewrite_compiler.frontend.load import load

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "models" / "trained"
CALIBRATION = 64
# name, codes, format, scales of weights by channel
WAYS = (
    ("QDQ int8", QuantType.QInt8, QuantFormat.QDQ, True),
    ("QLinear uint8", QuantType.QUInt8, QuantFormat.QOperator, False),
)
MODELS = {
    "digits_cnn": tuple(ROOT / "apps" / "digits" / name for name in ("cnn.onnx", "test.npz", "calibration.npz")),
    "resnet20": (SHARED / "resnet20_ts17.onnx", SHARED / "resnet20_ts17.cifar10_test_600.toml", SHARED / "resnet20_ts17.calibration.toml"),
}


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Calibration samples, one at a time."""

    def __init__(self, samples: Dataset, count: int) -> None:
        self.rows: Iterator[dict[str, Any]] = iter(
            [{name: np.ascontiguousarray(x[n]) for name, x in samples.inputs.items()} for n in range(min(count, samples.count))]
        )

    def get_next(self) -> dict[str, Any] | None:
        """Return the inputs of the next sample, None after the last."""
        return next(self.rows, None)


def quantised(model: Path, samples: Dataset, way: tuple[Any, ...], path: Path) -> Path:
    """Write a model quantised in one way."""
    _, codes, form, by_channel = way
    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared), str(path), Reader(samples, CALIBRATION), quant_format=form, activation_type=codes, weight_type=QuantType.QInt8,
        per_channel=by_channel,
    )  # fmt: skip
    return path


def measured(name: str, way: tuple[Any, ...], folder: Path, samples: int) -> Row:
    """Return a row: what is offloaded, how accurate it stays, and how many codes differ."""
    model, data, calibration = MODELS[name]
    source = load(model).program
    made = quantised(model, samples_for(source, calibration or data), way, folder / f"{name}.onnx")
    started = time.process_time()
    plan = flexmatch.compile(made, accel=["vta"])
    report = flexmatch.cosimulate(plan, data, metric="top1", samples=samples, batch=8, threads=1).document
    float_plan = flexmatch.compile(model, accel=["vta"])
    offloads = report["offloads"]
    return {
        "model": name, "way": way[0], "counts": {k: dict(v) for k, v in plan.counts.items()}, "samples": report["samples"],
        "float_offloads": {k: dict(v) for k, v in float_plan.counts.items()},
        "host_operations": dict(Counter(n.op for n in plan.program.nodes if "." not in n.op)),
        "reference_top1": report["reference"]["value"], "vta_top1": report["accelerated"]["value"],
        "same_predictions": report["paired"].get("same_predictions"),
        "compared_codes": sum(o["compared_codes"] or 0 for o in offloads),
        "differing_codes": sum(o["differing_codes"] or 0 for o in offloads),
        "cpu_seconds": time.process_time() - started,
    }  # fmt: skip


def main() -> int:
    """Print a line a model and way, write the record; 1 when codes differ."""
    parser = options(__doc__ or "", 100)
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose name has it")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the record has")
    args = parser.parse_args()
    rows = recorded(args.json) if args.resume else list[Row]()
    known = {(row["model"], row["way"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            for way in (w for w in WAYS if args.only in name and (name, w[0]) not in known):
                row = measured(name, way, Path(folder), args.runs)
                rows.append(row)
                shown = f"{row['reference_top1']:.4f} on the host, {row['vta_top1']:.4f} on VTA"
                codes = f"{row['differing_codes']} of {row['compared_codes']} codes differ"
                print(f"{name:<12}{way[0]:<16}{row['counts']}  top-1 of {row['samples']}: {shown}; {codes}", flush=True)
                finish("quantised", rows, args.json)
    return int(any(r["differing_codes"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
