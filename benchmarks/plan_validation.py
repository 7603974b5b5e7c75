"""Plans of whole applications, judged call by call: `flexmatch check PLAN --symbolic` from an empty cache, and again with what it kept.

Each row counts the calls by what shows them: one term, one term of elements (the block lemma), drawn codes. With `--json FILE` it goes
on where it ended; each row has the commit that it was measured at.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from applications import FLEXMATCH, MODELS, TITLES, timed, unpacked
from record import Row, commit, finish, options, recorded

TRAINED, ARCH = MODELS / "trained", MODELS / "arch"


@dataclass(frozen=True)
class Case:
    """A model on an accelerator."""

    name: str
    accelerator: str
    model: Path


def cases() -> list[Case]:
    """Return the applications."""
    resnet, mobilenet = TRAINED / "resnet20_ts17.onnx", TRAINED / "mbv2_cifar10_int8.onnx"
    words = MODELS / "wlm" / "wlm_h128_lstm_dyn18.onnx"
    return [
        *(Case("ResNet-20", name, resnet) for name in TITLES),
        *(Case("MobileNet-V2, int8", name, mobilenet) for name in ("vta", "genesys")),
        Case("language model, LSTM", "flexasr", words),
        Case("Transformer", "flexasr", ARCH / "transformer_explicit.ts17.onnx.xz"),
    ]


def judged(plan: Path, folder: Path, environment: dict[str, str], most: int) -> Row:
    """Judge the calls of a plan; return processor seconds, the largest memory, and the calls by method, none where time was up."""
    report = folder / "check.json"
    report.unlink(missing_ok=True)
    command = [*FLEXMATCH, "check", str(plan), "--symbolic", "--json", str(report), "-q"]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1) and usage.ru_utime + usage.ru_stime < most - 1:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    rows = json.loads(report.read_text())["validated"] if report.exists() else []
    return {
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_seconds": round(time.perf_counter() - started, 1),
        "peak_bytes": usage.ru_maxrss * 1024,
        "has_ended": report.exists(),
        "calls": dict(Counter(row["by"] for row in rows)),
        "open_control": sum(bool(row["unproved_control"]) for row in rows),
    }


def measure(case: Case, folder: Path, most: int) -> Row:
    """Compile, judge from an empty cache, and judge again."""
    stem = folder / "plan"
    timed([*FLEXMATCH, str(unpacked(case.model, folder)), "--accel", case.accelerator, "-o", str(stem)], folder)
    environment = {**os.environ, "FLEXMATCH_CACHE": str(folder / "cache")}
    first = judged(stem.with_suffix(".json"), folder, environment, most)
    row: Row = {"name": case.name, "accelerator": TITLES[case.accelerator], **first}
    if not first["has_ended"]:
        return row
    again = judged(stem.with_suffix(".json"), folder, environment, most)
    return {**row, "cached_cpu_seconds": again["cpu_seconds"], "cached_peak_bytes": again["peak_bytes"]}


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name and accelerator contain TEXT")
    parser.add_argument("--most", type=int, default=3600, metavar="N", help="end a plan after N processor seconds (default: %(default)s)")
    args = parser.parse_args()
    if not MODELS.is_dir():
        raise SystemExit(f"{MODELS} is missing: set FLEXMATCH_SHARED to the folder of shared models")
    rows = recorded(args.json)
    done = {(row["name"], row["accelerator"]) for row in rows}
    print(f"{'application':24}{'accelerator':12}{'CPU':>10}{'again':>10}{'memory':>11}  calls")
    for case in cases():
        if args.only not in f"{case.name} {case.accelerator}" or (case.name, TITLES[case.accelerator]) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measure(case, Path(folder), args.most)
        rows.append({**row, "commit": commit()})
        finish("plan_validation", rows, args.json)
        calls = ", ".join(f"{n} by {by}" for by, n in dict(row["calls"]).items()) if row["has_ended"] else "time was up"  # type: ignore[call-overload]
        again = f"{row['cached_cpu_seconds']} s" if "cached_cpu_seconds" in row else "–"
        memory = f"{int(str(row['peak_bytes'])) / 1e6:.0f} MB"
        print(f"{case.name:24}{TITLES[case.accelerator]:12}{row['cpu_seconds']:>8} s{again:>10}{memory:>11}  {calls}", flush=True)


if __name__ == "__main__":
    main()
