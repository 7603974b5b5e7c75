"""Does the emitted C program on the emitted device give the bits of co-simulation for every test image, and how long does it take?"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from record import Row, finish, options

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.emit.c.device_model import device_files
from rewrite_compiler.emit.c.program import program_files

CASES = (("digits_cnn", "flexasr"), ("digits_cnn", "hlscnn"), ("digits_cnn", "vta"), ("digits_mlp", "flexasr"), ("digits_mlp", "vta"))
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-c")


def images(path: Path) -> np.ndarray:
    """Return the images of an application as samples of its input."""
    with np.load(path) as data:
        return np.ascontiguousarray(data["image"].reshape(-1, 1, 1, 8, 8), np.float32)


def built(plan: Plan, folder: Path) -> tuple[ctypes.CDLL, dict[str, float]]:
    """Emit and compile a plan and its device; return the library and the processor seconds of each part."""
    started = time.process_time()
    program = program_files(plan)
    seconds = {"emit_cpu_seconds": time.process_time() - started}
    device = device_files(plan.targets[0].ila(), plan.targets[0].name)
    for name, data in {**program, **device}.items():
        (folder / name).write_bytes(data)
    for part, files in (("program", program), ("device", device)):
        before = _children()
        for name in files:
            if name.endswith(".c"):
                subprocess.run(["gcc", *FLAGS, name], cwd=folder, check=True)
        seconds[f"{part}_gcc_cpu_seconds"] = _children() - before
    objects = sorted(str(path) for path in folder.glob("*.o"))
    subprocess.run(["gcc", "-shared", *objects, "-o", "all.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "all.so")), seconds


def _children() -> float:
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(app: str, target: str) -> Row:
    """Compare every test image and time the C program beside the co-simulator."""
    a = find_application(app)
    plan = calibrated(compile_model(a.model, [target]), {"image": images(a.calibration)}, "calibration.npz", "")
    x = images(a.data)
    started = time.process_time()
    expected = Engine(plan, host="exact").run({"image": x}, batch=100).outputs["logits"]
    simulated = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        library, seconds = built(plan, Path(folder))
        outputs = np.zeros((len(x), 1, 10), np.float32)
        started = time.process_time()
        for n in range(len(x)):
            if library.infer((ctypes.c_void_p * 1)(x[n].ctypes.data), (ctypes.c_void_p * 1)(outputs[n].ctypes.data)):
                raise SystemExit(f"{app} on {target}: infer failed on image {n}")
        c = time.process_time() - started
    differ = sum(f.tobytes() != e.tobytes() for f, e in zip(outputs, expected.reshape(outputs.shape), strict=True))
    times = {"c_cpu_seconds_per_image": c / len(x), "cosim_cpu_seconds_per_image": simulated / len(x)}
    return {"name": f"{app} on {target}", "images": len(x), "different": differ, **seconds, **times}


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=1).parse_args()
    rows = []
    for app, target in CASES:
        rows.append(measure(app, target))
        row = rows[-1]
        print(f"{row['name']:24}{row['images']:>6} images  {row['different']} differ  " + "  ".join(
            f"{key} {x:.4f}" for key, x in row.items() if key.endswith(("seconds", "image")) and isinstance(x, float)))  # fmt: skip
    finish("emitted_c", rows, args.json)


if __name__ == "__main__":
    main()
