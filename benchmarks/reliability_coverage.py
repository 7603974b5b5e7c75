"""How much of the engine do the tests run? Lines and branches of every package by coverage.py, with those that nothing runs.

It needs `pip install coverage`. `python benchmarks/reliability_coverage.py` runs one folder of tests after the other, `--tests PATH…`
a part of it. What was run stays in `--keep FOLDER`, from which the next call goes on; `missing.txt` there names what no test
runs. Processes that tests start count too. With `--each N` a test function has at most N of its cases: what is covered then is
less than what the tests cover; `--enough S` ends a function's cases after so many processor seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from record import ROOT, Row, finish, options

WANTED = 95.0  # percent of lines and branches
ENGINE = ("lang", "ila", "ir", "ops", "rewrite", "egraph", "frontend", "prove", "fit", "target", "cosim", "emit")
# what is no line to run → why
LEFT_OUT = {
    "if TYPE_CHECKING:": "names for the type checker",
    "raise AssertionError": "states that the program has ruled out, said in the text",
    r"\.\.\.$": "the bodies of protocols and overloads",
}
SETTINGS = f"""[run]
branch = True
parallel = True
source = {ROOT / "rewrite_compiler"}
patch = subprocess, fork, _exit
concurrency = thread

[report]
exclude_also =
    {"    ".join(f"{pattern}{os.linesep}" for pattern in LEFT_OUT)}
"""
Found = dict[str, dict[str, Any]]  # of a file: coverage.py's summary, its missing lines and branches


def parts(names: list[str]) -> list[str]:
    """Return what is run by itself: the folders and files of tests."""
    paths = [p for p in sorted((ROOT / "tests").iterdir()) if (p.is_dir() and any(p.glob("test_*.py"))) or p.name.startswith("test_")]
    return names or [p.relative_to(ROOT).as_posix() for p in paths]


def done(part: str, folder: Path) -> Path:
    """Return the file that says what the tests of a part took and which failed."""
    return folder / f"{part.replace('/', '.')}.done"


def measured(tests: list[str], folder: Path, ends: float, more: list[str]) -> Found:
    """Run the tests that were not run yet and return what coverage.py found in every file."""
    folder.mkdir(exist_ok=True)
    settings = folder / "coveragerc"
    settings.write_text(SETTINGS, "utf-8")
    environment = {
        **os.environ, "COVERAGE_FILE": str(folder.resolve() / "part"), "COVERAGE_RCFILE": str(settings.resolve()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH")])),
    }  # fmt: skip
    coverage = [sys.executable, "-m", "coverage"]
    for part in tests:
        if done(part, folder).exists() or time.monotonic() > ends:
            continue
        tally = folder.resolve() / "tally.json"
        tests_of_it = ["-m", "pytest", "-q", "-n", "0", "-p", "sampled_tests", "--tally", str(tally), *more, part]
        run = subprocess.run([*coverage, "run", *tests_of_it], cwd=ROOT, env=environment, check=False)
        if not tally.exists():
            raise SystemExit(f"the process of {part} ended with code {run.returncode}; `--tests` runs the other parts")
        tally.rename(done(part, folder))
    environment["COVERAGE_FILE"] = str(folder.resolve() / "data")  # the parts stay for the next call
    files = sorted(str(p) for p in folder.resolve().glob("part.*"))
    subprocess.run([*coverage, "combine", "-q", "--keep", *files], cwd=ROOT, env=environment, check=True)
    subprocess.run([*coverage, "json", "-q", "-o", str(folder.resolve() / "report.json")], cwd=ROOT, env=environment, check=True)
    return dict(json.loads((folder / "report.json").read_text("utf-8"))["files"])


def package_of(file: str) -> str:
    """Return the package of a file of the engine."""
    return Path(file).relative_to("rewrite_compiler").parts[0]


def rows_of(files: Found) -> list[Row]:
    """Return the whole, and one row a package: lines and branches, how many were run, and the files with the most that were not."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in files:
        package = package_of(name)
        groups[package].append(name)
        if package in ENGINE:
            groups["the engine"].append(name)
    return [row_of(group, {name: files[name] for name in groups[group]}) for group in ("the engine", *ENGINE)]


def row_of(group: str, files: Found) -> Row:
    """Return the figures of some files."""
    total = {key: sum(f["summary"][key] for f in files.values()) for key in
             ("num_statements", "covered_lines", "num_branches", "covered_branches")}  # fmt: skip
    run, total_items = total["covered_lines"] + total["covered_branches"], total["num_statements"] + total["num_branches"]
    worst_files = sorted(((missing(f), name) for name, f in files.items()), reverse=True)[:5]
    return {
        "name": group, "covered_percent": round(100 * run / max(total_items, 1), 2),
        "branches_percent": round(100 * total["covered_branches"] / max(total["num_branches"], 1), 2), **total,
        "most_missing": [f"{name}: {count}" for count, name in worst_files if count],
    }  # fmt: skip


def missing(file_report: dict[str, Any]) -> int:
    """Count the lines and branches of a file that nothing runs."""
    of = file_report["summary"]
    return int(of["num_statements"] - of["covered_lines"] + of["num_branches"] - of["covered_branches"])


def listed(files: Found) -> str:
    """Return every line and branch of the engine that nothing runs, the files with the most first."""
    mine = sorted(((missing(f), name, f) for name, f in files.items() if package_of(name) in ENGINE and missing(f)), reverse=True)
    return "".join(
        f"{count:4} {name}\n     lines {f['missing_lines']}\n     branches {[f'{a}→{b}' for a, b in f['missing_branches']]}\n"
        for count, name, f in mine
    )


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="only these tests")
    parser.add_argument("--keep", type=Path, default=Path("reliability_coverage"), metavar="FOLDER", help="go on with what is there")
    parser.add_argument("--minutes", type=float, default=600, metavar="N", help="start no more tests after so many (default: %(default)s)")
    parser.add_argument("--each", type=int, default=0, metavar="N", help="at most N cases of a test function (default: all)")
    parser.add_argument("--enough", type=float, default=0, metavar="S", help="of a test function, and no more cases (default: all)")
    parser.add_argument("--longest", type=float, default=0, metavar="S", help="break a test off after S processor seconds (default: never)")
    args = parser.parse_args()
    chosen, more = parts(args.tests), ["--each", str(args.each), "--enough", str(args.enough), "--longest", str(args.longest)]
    files = measured(chosen, args.keep, time.monotonic() + 60 * args.minutes, more)
    (args.keep / "missing.txt").write_text(listed(files), "utf-8")
    rows = rows_of(files)
    for r in rows:
        low = "" if float(str(r["covered_percent"])) >= WANTED else f"  below {WANTED:g} %"
        print(f"{r['name']:14}{r['covered_percent']:>7} %, branches alone {r['branches_percent']:>6} %{low}  {r['most_missing']}")
    ran = [path.name.removesuffix(".done") for path in sorted(args.keep.glob("*.done"))]
    remaining = [p for p in chosen if not done(p, args.keep).exists()]
    print(f"run: {', '.join(ran)}; left: {', '.join(remaining) or 'none'}")
    print("\n".join(f"not counted: {pattern}: {why}" for pattern, why in LEFT_OUT.items()))
    rows.append({"name": "how", "tests": ran, "left": remaining, "cases_of_a_function": args.each or "all", "left_out": LEFT_OUT})
    finish("reliability_coverage", rows, args.json)


if __name__ == "__main__":
    main()
