"""Does the emitted C of a trained ResNet-20 on the emitted device give every tensor of exact co-simulation, bit for bit?"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from record import ROOT, Row, finish, options

from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.emit.c_program import program_files
from rewrite_compiler.emit.device import device_files
from rewrite_compiler.emit.inference import Inference
from rewrite_compiler.hostrun import exact
from rewrite_compiler.target import simulated_device

NAME = "resnet20_ts17"
TARGETS = ("vta", "hlscnn", "flexasr")
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")


def built(plan: Plan, folder: Path) -> ctypes.CDLL:
    """Emit and compile a plan and its device; the tensors of the program are visible."""
    files = {**program_files(plan), **device_files(plan.targets[0].ila(), plan.targets[0].name)}
    for name, data in files.items():
        (folder / name).write_bytes(data.replace(b"\nstatic float v", b"\nfloat v") if name == "model.c" else data)
    sources = [name for name in files if name.endswith(".c")]
    subprocess.run(["gcc", *FLAGS, *sources, "-o", "all.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "all.so"))


def measure(target: str, images: int) -> Row:
    """Compare every tensor that is computed, image by image, on a device that is never reset."""
    models = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "trained"
    plan = compile_model(models / f"{NAME}.onnx", [target])
    plan, _ = with_formats(plan, dataset_for(plan, models / f"{NAME}.calibration.toml"), models / f"{NAME}.calibration.toml")
    data = dataset_for(plan, models / f"{NAME}.cifar10_test_600.toml")
    p, device = plan.program, simulated_device(plan.targets[0].ila(), samples=1)
    inference, tensors, different = Inference(plan), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        library = built(plan, Path(folder))
        for n in range(images):
            inputs = {name: np.ascontiguousarray(x[n]) for name, x in data.inputs.items()}
            values = inference.run(inputs, lambda o: (device, None), exact.run)
            outputs = [np.zeros(p.types[v].shape, np.float32) for v in p.outputs]
            given = (ctypes.c_void_p * len(p.inputs))(*(inputs[p.names[v]].ctypes.data for v in p.inputs))
            if library.infer(given, (ctypes.c_void_p * len(outputs))(*(y.ctypes.data for y in outputs))):
                raise SystemExit(f"{NAME} on {target}: infer failed on image {n}")
            for v in values.keys() - p.constants.keys() - set(p.inputs):
                held = (ctypes.c_float * values[v].size).in_dll(library, f"v{v}")
                tensors += 1
                different += bytes(held) != np.ascontiguousarray(values[v], np.float32).tobytes()
            for v, y in zip(p.outputs, outputs, strict=True):
                different += y.tobytes() != np.ascontiguousarray(values[v], np.float32).tobytes()
    return {"name": f"{NAME} on {target}", "images": images, "tensors": tensors, "different": different}


def main() -> None:
    """Run the command line."""
    made = options(__doc__ or "", runs=20)
    made.add_argument("--accel", choices=TARGETS, action="append")
    given = made.parse_args()
    rows = []
    for target in given.accel or TARGETS:
        rows.append(measure(target, given.runs))
        print(
            f"{rows[-1]['name']:28}{rows[-1]['images']:>4} images {rows[-1]['tensors']:>6} tensors  {rows[-1]['different']} differ",
            flush=True,
        )
    finish("emitted_resnet", rows, given.json)


if __name__ == "__main__":
    main()
