"""What every benchmark writes: its rows with the machine and how loaded it was, the versions and the commit they were measured on."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from rewrite_compiler.disk_cache import KEY, private_cache_folder, user_key

ROOT = Path(__file__).resolve().parent.parent
RECORDS = Path("benchmarks/results")
PACKAGES = ("flexmatch", "egglog", "numpy", "onnx", "onnxruntime", "z3-solver", "llvmlite", "highspy")

Row = dict[str, object]
Group = Callable[[int], list[Row]]  # what it is measured with: how many times


def options(description: str, runs: int) -> argparse.ArgumentParser:
    """Return the command line that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record there too")
    parser.add_argument("--runs", type=int, default=runs, metavar="N", help="measure N times (default: %(default)s)")
    return parser


def peak_bytes() -> int:
    """Return the largest memory of this process; what getrusage tells begins with that of the process that started it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    known = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "")
    return 1024 * int(known or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


@contextmanager
def fresh_answers() -> Iterator[None]:
    """Let everything be computed and not found: a new folder for what is kept, with the user's verdicts in it and the key they have."""
    before, court = os.environ.get("FLEXMATCH_CACHE"), private_cache_folder("court")
    with tempfile.TemporaryDirectory() as folder:
        if court and user_key():
            (Path(folder) / "court").symlink_to(court)
            shutil.copy(court.with_name(KEY), folder)
        os.environ["FLEXMATCH_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("FLEXMATCH_CACHE")
            os.environ.update({} if before is None else {"FLEXMATCH_CACHE": before})


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median and both quartiles, in the unit of the values."""
    if len(values) < 2:
        return dict.fromkeys(("low", "median", "high"), values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": statistics.median(values), "high": high}


def processor() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def commit() -> str:
    """Return the commit that is measured, marked when files other than records differ from it."""
    revision = _git("rev-parse", "HEAD") or "unknown"
    is_dirty = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return f"{revision}-dirty" if is_dirty else revision


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def command_of(name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command as it runs from the root of a checkout: paths outside of it by their last part, records in their folder."""

    def portable(argument: str) -> str:
        key, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        path = Path(value)
        if not path.is_absolute():
            return argument
        relative = path.relative_to(ROOT) if path.is_relative_to(ROOT) else RECORDS / path.name
        return f"{key}{equals}{relative.as_posix()}"

    return ["python", f"benchmarks/{name}.py", *map(portable, arguments)]


def document(name: str, rows: list[Row]) -> dict[str, object]:
    """Return the record of one benchmark."""
    machine = {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform(), "load": round(os.getloadavg()[0], 1)}
    versions = {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
    command = command_of(name, sys.argv[1:])
    return {
        "schema": "flexmatch.record/1",
        "benchmark": name,
        "command": command,
        "commit": commit(),
        "machine": machine,
        "versions": versions,
        "rows": rows,
    }


def finish(name: str, rows: list[Row], path: Path | None) -> None:
    """Write the record if a file is wanted; none of a dirty tree among the records of the project."""
    if path:
        if path.resolve().parent == ROOT / RECORDS and commit().endswith("-dirty"):
            raise SystemExit(f"{path} is not written: files differ from the commit; commit them, or write the record elsewhere")
        path.write_text(json.dumps(document(name, rows), indent=2, ensure_ascii=False) + "\n", "utf-8")


def recorded(path: Path | None) -> list[Row]:
    """Return the rows that a record has already, from which a benchmark goes on."""
    return list(json.loads(path.read_text("utf-8"))["rows"]) if path is not None and path.exists() else []


def in_groups(
    name: str, description: str, runs: int, groups: Mapping[str, Callable[[int], list[Row]]], shown: Callable[[Row], str]
) -> None:
    """Run the command line of a benchmark in groups of rows: those asked for, those that the record lacks, or all."""
    parser = options(description, runs=runs)
    parser.add_argument("--only", choices=groups, action="append", help="measure this group (default: all)")
    parser.add_argument("--resume", action="store_true", help="keep the groups that the record has")
    args = parser.parse_args()
    rows = recorded(args.json) if args.resume or args.only else []
    for group in args.only or groups:
        if args.resume and any(row.get("group") == group for row in rows):
            continue
        started = time.process_time()
        group_rows = [{**row, "group": group} for row in groups[group](args.runs)]
        print(*map(shown, group_rows), f"{group}: {time.process_time() - started:.0f} s", sep="\n", flush=True)
        rows = [row for row in rows if row.get("group") != group] + group_rows
        finish(name, rows, args.json)
