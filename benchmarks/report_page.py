"""Measure the report of a wide model: seconds to write the page of a compiled ResNet-50, its size, and seconds until a browser shows it.

Needs Chromium and playwright (extra `test`).  python benchmarks/report_page.py [--json FILE] [--samples N] [MODEL]
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from record import finish, options, spread

from rewrite_compiler.apps import Architecture, find_application
from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.report.page.html import report_page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def measured(name: str, samples: int, runs: int) -> dict[str, Any]:
    """Return what writing and opening the page of an architecture takes, after a co-simulation of some samples."""
    app = find_application(name)
    assert isinstance(app, Architecture)
    model = app.build()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(model, path)
        plan = compile_model(path, ["flexasr"])
        document = None
        if samples:
            shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
            samples_array = np.random.default_rng(0).normal(0, 1, (samples + 2, *shape[1:])).astype(np.float32)
            np.savez(Path(folder) / "data.npz", **{model.graph.input[0].name: samples_array[2:]})
            np.savez(Path(folder) / "calibration.npz", **{model.graph.input[0].name: samples_array[:2]})
            report = cosimulate(plan, Path(folder) / "data.npz", calibrate=Path(folder) / "calibration.npz", metric="mse", batch=1)
            assert report.plan is not None
            plan, document = report.plan, report.document
        walls, cpus, text = [], [], ""
        for _ in range(runs):
            wall, cpu = time.perf_counter(), time.process_time()
            text = report_page(plan, document)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        page = Path(folder) / "report.html"
        page.write_text(text, "utf-8", "backslashreplace")
        return {
            "model": name, "nodes": plan.model["ops"], "offloads": len(plan.offloads), "samples": samples, "runs": runs,
            "page_bytes": page.stat().st_size, "first_wall_seconds": walls[0], "write_wall_seconds": spread(walls),
            "write_cpu_seconds": spread(cpus), "open_seconds": opened(page),
        }  # fmt: skip


def opened(page: Path) -> float | None:
    """Return the seconds from asking for a page until it is loaded and drawn; None without a browser."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        return None
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        shown = browser.new_page()
        shown.goto(page.as_uri())
        drawn = "new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(performance.now()))))"
        seconds = float(shown.evaluate(drawn)) / 1000
        browser.close()
    return round(seconds, 3)


def main() -> None:
    """Print and record the measurements."""
    parser = options(str(__doc__), 3)
    parser.add_argument("model", nargs="?", default="resnet50")
    parser.add_argument("--samples", type=int, default=1, help="co-simulated before the page is written; 0: the page of a plan")
    args = parser.parse_args()
    row = measured(args.model, args.samples, args.runs)
    print(*(f"{key}: {value}" for key, value in row.items()), sep="\n")
    finish("report_page", [row], args.json)


if __name__ == "__main__":
    main()
