"""Do the tests notice a wrong engine? One small change at a time in prove, extract and simulate; the tests of that part must fail.

The changes are drawn by seed from all comparisons, sums, conditions and constants of those files (`--runs 60`); each is made
in a copy of the engine that stands before the real one in PYTHONPATH. Finished changes are in the log, from which the next
call goes on. A change that survives is printed with its line: it is either the same program, or a test is missing.
"""

from __future__ import annotations

import ast
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from record import ROOT, Row, finish, options

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from campaign_log import CampaignLog, Chunk  # noqa: E402

WANTED, SECONDS = 80.0, 900
# files of a part → the tests that must notice
PARTS = {
    "prove": ("prove/*.py", ["tests/prove", "tests/rules"]),
    "extract": ("egraph/*.py", ["tests/egraph", "tests/compile/test_compile.py"]),
    "simulate": ("ila/*.py", ["tests/ila", "tests/ila_models"]),
}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn}
SUMS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Place:
    """The n-th node of a file that can be changed."""

    part: str
    file: str
    number: int


def can_change(node: ast.AST) -> bool:
    """Tell whether a node has a wrong copy."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS
    if isinstance(node, ast.BinOp):
        return type(node.op) in SUMS
    return isinstance(node, ast.If | ast.BoolOp) or (isinstance(node, ast.Constant) and type(node.value) is int)


def change(node: ast.AST) -> None:
    """Make a node wrong."""
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp):
        node.op = SUMS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant):
        node.value = int(str(node.value)) + 1


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that can be changed, in order."""
    return [n for n in ast.walk(tree) if can_change(n)]


def places() -> Iterator[Place]:
    """Yield every place."""
    for part, (files, _) in PARTS.items():
        for path in sorted((ROOT / "rewrite_compiler").glob(files)):
            for number in range(len(nodes_of(ast.parse(path.read_text("utf-8"))))):
                yield Place(part, path.relative_to(ROOT).as_posix(), number)


def overlay(folder: Path) -> None:
    """Copy the engine, with links to the content where an installation has it."""
    shutil.copytree(ROOT / "rewrite_compiler", folder / "rewrite_compiler", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("rules", "ila_models", "targets", "apps"):
        (folder / "rewrite_compiler" / name).symlink_to(ROOT / name)


def judged(place: Place, folder: Path) -> tuple[str, str]:
    """Return whether the tests notice, and the line that was changed."""
    source = (ROOT / place.file).read_text("utf-8")
    tree = ast.parse(source)
    node = nodes_of(tree)[place.number]
    line = int(getattr(node, "lineno", 0))
    change(node)
    ast.fix_missing_locations(tree)
    (folder / place.file).write_text(ast.unparse(tree), "utf-8")
    try:
        passed = passes(in_order(place), folder)
    finally:
        (folder / place.file).write_text(source, "utf-8")
    return "survived" if passed else "noticed", f"{place.file}:{line}: {source.splitlines()[line - 1].strip()}"


def in_order(place: Place) -> list[str]:
    """Return the tests of a part; those in a file named after the changed one come first."""
    tests = PARTS[place.part][1]
    word = Path(place.file).stem.split("_")[0]
    first = [t.relative_to(ROOT).as_posix() for d in tests for t in sorted((ROOT / d).glob("test_*.py")) if word in t.stem]
    return [*first, *tests]


def passes(tests: list[str], folder: Path) -> bool:
    """Run tests on the copy in a folder until one fails; the working directory is no place to import from."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def interval(noticed: int, of: int) -> tuple[float, float]:
    """Return the bounds of a share with 95 % confidence (Wilson), in percent."""
    if not of:
        return 0.0, 100.0
    z, p = 1.96, noticed / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return tuple(round(100 * (middle + sign * half) / (1 + z * z / of), 1) for sign in (-1, 1))  # type: ignore[return-value]


def sampled(part: str, mine: list[Place], log: CampaignLog, ends: float, folder: Path) -> None:
    """Judge places until the time is over; before the first the tests must pass on the copy as it is."""
    left = mine[log.of(part).cases :]
    if left and not log.of(f"{part} unchanged").cases:
        if not passes(PARTS[part][1], folder):
            raise SystemExit(f"the tests of {part} do not pass without a change")
        log.add(f"{part} unchanged", 0, 1, 1, Chunk(), 0, 0)
    for place in left:
        if time.monotonic() > ends:
            return
        outcome, line = judged(place, folder)
        number = log.of(part).cases
        log.add(part, number, 1, 1, Chunk(Counter([outcome]), {str(number): line} if outcome == "survived" else {}), 0, 0)


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=60)
    parser.add_argument("--only", default="", metavar="PART", help="prove, extract or simulate")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--minutes", type=float, default=600, metavar="N", help="stop after so many minutes (default: %(default)s)")
    parser.add_argument("--log", type=Path, default=Path("reliability_mutation.jsonl"), metavar="FILE", help="go on in this log")
    given = parser.parse_args()
    log, ends, rows = CampaignLog(given.log), time.monotonic() + 60 * given.minutes, list[Row]()
    every = list(places())
    with tempfile.TemporaryDirectory() as name:
        overlay(Path(name))
        for part in (p for p in PARTS if given.only in p):
            mine = [p for p in every if p.part == part]
            sampled(part, random.Random(given.seed).sample(mine, min(given.runs, len(mine))), log, ends, Path(name))
            p = log.of(part)
            noticed, (low, high) = p.outcomes["noticed"], interval(p.outcomes["noticed"], p.cases)
            rows.append(
                {
                    "name": part, "runs": p.cases, "places": len(mine), "noticed": noticed, "percent_95": [low, high],
                    "survived": list(p.findings.values()),
                }
            )  # fmt: skip
            print(f"{part:10}{noticed} of {p.cases} noticed ({low}–{high} %), seed {given.seed} of {len(mine)} places; {WANTED:g} % wanted")
            print("\n".join(f"    {line}" for line in p.findings.values()), flush=True)
    finish("reliability_mutation", rows, given.json)


if __name__ == "__main__":
    main()
