"""How much of the engine do the tests run? Line and branch coverage of every package by coverage.py, with the lines that nothing runs.

It needs `pip install coverage`. `python benchmarks/reliability_coverage.py` runs one folder of tests after the other, `--tests DIR…`
a part of it. What was run stays in `--keep FOLDER`, from which the next call goes on. Processes that tests start count too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from record import ROOT, Row, finish, options

WANTED = 95.0  # percent of lines and branches of a package
SETTINGS = f"""[run]
branch = True
parallel = True
source = {ROOT / "rewrite_compiler"}
patch = subprocess
concurrency = thread, multiprocessing

[report]
exclude_also =
    if TYPE_CHECKING:
    raise AssertionError
"""


def parts(given: list[str]) -> list[str]:
    """Return what is run by itself: the folders and files of tests."""
    found = [p for p in sorted((ROOT / "tests").iterdir()) if (p.is_dir() and any(p.glob("test_*.py"))) or p.name.startswith("test_")]
    return given or [p.relative_to(ROOT).as_posix() for p in found]


def measured(tests: list[str], folder: Path, ends: float) -> dict[str, dict[str, object]]:
    """Run the tests that were not run yet and return coverage.py's summary and missing lines of every file."""
    folder.mkdir(exist_ok=True)
    settings = folder / "coveragerc"
    settings.write_text(SETTINGS, "utf-8")
    environment = {**os.environ, "COVERAGE_FILE": str(folder.resolve() / "data"), "COVERAGE_RCFILE": str(settings.resolve())}
    coverage = [sys.executable, "-m", "coverage"]
    for part in tests:
        done = folder / f"{part.replace('/', '.')}.done"
        if done.exists() or time.monotonic() > ends:
            continue
        run = subprocess.run([*coverage, "run", "-m", "pytest", "-q", "-n", "0", part], cwd=ROOT, env=environment, check=False)
        done.write_text(f"{run.returncode}\n", "utf-8")
    subprocess.run([*coverage, "combine", "-q", "--keep"], cwd=ROOT, env=environment, check=True)
    subprocess.run([*coverage, "json", "-q", "-o", str(folder.resolve() / "report.json")], cwd=ROOT, env=environment, check=True)
    return dict(json.loads((folder / "report.json").read_text("utf-8"))["files"])


def rows_of(files: dict[str, dict[str, object]]) -> list[Row]:
    """Return one row a package: lines and branches, how many were run, and the files with the most that were not."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    missing: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, found in files.items():
        package = Path(name).relative_to("rewrite_compiler").parts[0]
        summary = dict(found["summary"])  # type: ignore[call-overload]
        run = summary["covered_lines"] + summary["covered_branches"]
        whole = summary["num_statements"] + summary["num_branches"]
        counts[package][0] += run
        counts[package][1] += whole
        if whole > run:
            missing[package].append((whole - run, f"{name}: {found['missing_lines']}"))
    return [
        {
            "name": package, "covered_percent": round(100 * run / max(whole, 1), 1), "lines_and_branches": whole,
            "most_missing": [text[:200] for _, text in sorted(missing[package], reverse=True)[:3]],
        }
        for package, (run, whole) in sorted(counts.items())
    ]  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="only these tests")
    parser.add_argument("--keep", type=Path, default=Path("reliability_coverage"), metavar="FOLDER", help="go on with what is there")
    parser.add_argument("--minutes", type=float, default=600, metavar="N", help="start no more tests after so many (default: %(default)s)")
    given = parser.parse_args()
    chosen = parts(given.tests)
    rows = rows_of(measured(chosen, given.keep, time.monotonic() + 60 * given.minutes))
    left = [p for p in chosen if not (given.keep / f"{p.replace('/', '.')}.done").exists()]
    for r in rows:
        low = "" if float(str(r["covered_percent"])) >= WANTED else f"  below {WANTED:g} %"
        print(f"{r['name']:24}{r['covered_percent']:>7} %  of {r['lines_and_branches']:>6}{low}")
        for text in r["most_missing"]:  # type: ignore[attr-defined]
            print(f"    {text}")
    print(f"{len(chosen) - len(left)} of {len(chosen)} parts of the tests were run; left: {', '.join(left) or 'none'}")
    finish("reliability_coverage", rows, given.json)


if __name__ == "__main__":
    main()
