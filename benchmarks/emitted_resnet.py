"""Does the emitted C of ResNet-20 and of the word language model, on the emitted device, give every tensor of exact co-simulation?

With `--json FILE` it goes on where it ended: rows that the file has are not run again; each has the commit that it was measured at.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from record import ROOT, Row, commit, finish, options, recorded

from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.emit.c.device_model import device_files
from rewrite_compiler.emit.c.program import program_files
from rewrite_compiler.emit.mmio.inference import Inference
from rewrite_compiler.hostrun import exact_host as exact
from rewrite_compiler.target import simulated_device


@dataclass(frozen=True)
class Case:
    """A model on one accelerator: its file, the data that calibrate it, its samples."""

    name: str
    model: str
    calibration: str
    data: str
    target: str


RESNET = ("trained/resnet20_ts17.onnx", "trained/resnet20_ts17.calibration.toml", "trained/resnet20_ts17.cifar10_test_600.toml")
WLM = ("wlm/wlm_h128_lstm_dyn18.onnx", "wlm/wlm_h128_lstm_dyn18.toml", "wlm/wlm_h128_lstm_dyn18.toml")
CASES = (
    *(Case("resnet20_ts17", *RESNET, target) for target in ("vta", "hlscnn", "flexasr")),
    Case("wlm_h128", *WLM, "flexasr"),
)
VALUE = re.compile(rb"\nstatic (float|int64_t) v(?=\d)")
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC")


def built(plan: Plan, folder: Path) -> ctypes.CDLL:
    """Emit and compile a plan and its device; the tensors of the program are visible."""
    files = {**program_files(plan), **device_files(plan.targets[0].ila(), plan.targets[0].name)}
    for name, data in files.items():
        (folder / name).write_bytes(VALUE.sub(rb"\n\1 v", data) if name == "model.c" else data)
    sources = [name for name in files if name.endswith(".c")]
    subprocess.run(["gcc", *FLAGS, *sources, "-o", "all.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "all.so"))


def measure(case: Case, samples: int) -> Row:
    """Compare every tensor that is computed, sample by sample, on a device that is never reset."""
    models = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models"
    plan = compile_model(models / case.model, [case.target])
    calibration = models / case.calibration
    plan, _ = with_formats(plan, dataset_for(plan, calibration), calibration)
    data = dataset_for(plan, models / case.data)
    p, device = plan.program, simulated_device(plan.targets[0].ila(), samples=1)
    inference, tensors, different = Inference(plan), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        library = built(plan, Path(folder))
        emitted = time.process_time() - started
        for n in range(samples):
            inputs = {name: np.ascontiguousarray(x[n]) for name, x in data.inputs.items()}
            values = inference.run(inputs, lambda o: (device, None), exact.run)
            outputs = [np.zeros(p.types[v].shape, p.types[v].dtype) for v in p.outputs]
            addresses = (ctypes.c_void_p * len(p.inputs))(*(inputs[p.names[v]].ctypes.data for v in p.inputs))
            if library.infer(addresses, (ctypes.c_void_p * len(outputs))(*(y.ctypes.data for y in outputs))):
                raise SystemExit(f"{case.name} on {case.target}: infer failed on sample {n}")
            for v in values.keys() - p.constants.keys() - set(p.inputs):
                expected = np.ascontiguousarray(values[v], p.types[v].dtype)
                buffer = (ctypes.c_char * expected.nbytes).in_dll(library, f"v{v}")
                tensors += 1
                different += bytes(buffer) != expected.tobytes()
            for v, y in zip(p.outputs, outputs, strict=True):
                different += y.tobytes() != np.ascontiguousarray(values[v], y.dtype).tobytes()
    name = f"{case.name} on {case.target}"
    counts = {"samples": samples, "tensors": tensors, "different": different}
    return {"name": name, **counts, "emit_cpu_seconds": emitted, "commit": commit()}


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=20)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name or target has this")
    args = parser.parse_args()
    rows = recorded(args.json)
    for case in CASES:
        name = f"{case.name} on {case.target}"
        if args.only not in name or any(row["name"] == name for row in rows):
            continue
        row = measure(case, args.runs)
        rows.append(row)
        print(f"{name:28}{row['samples']:>4} samples {row['tensors']:>6} tensors  {row['different']} differ", flush=True)
        finish("emitted_resnet", rows, args.json)


if __name__ == "__main__":
    main()
