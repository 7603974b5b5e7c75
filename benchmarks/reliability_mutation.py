"""Do the tests notice a wrong engine? One small change at a time in ten of its packages; the tests that run it must fail.

The changes are drawn by seed (`--runs 80` of each package) from all comparisons, sums, conditions, negations and constants,
limits (`max`, `min`), filters of comprehensions, entries of tables and parts of unions; each is made in a copy of the engine
that stands before the real one. Which tests run a line is known from `--coverage FOLDER`, what `reliability_coverage.py --keep
FOLDER` left: of those a change meets the ones of its own part first, then the quickest, as many as take `--seconds`, each with
`--cases` of its cases; those written since are asked before. Without a measurement it meets the files of tests that import the
changed module, those of its own part first, until they have used `--seconds`. Finished changes are in the log, from which the next
call goes on.
A change that survives is printed with its line: it is either the same program, or a test is missing, or one that is slower
would notice; `--again` asks those once more.
"""

from __future__ import annotations

import ast
import compileall
import copy
import importlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from record import ROOT, Row, finish, options

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

sys.path.insert(0, str(ROOT / "tests"))

from campaign import in_short_run  # noqa: E402
from campaign_log import CampaignLog, Chunk  # noqa: E402

WANTED = 80.0
WALL_SECONDS = 600  # of one change; then it has changed the program into one that waits
BYTES = 8 << 30
FILES = 8  # of tests that a change meets, each of which is imported
# files of a part → the tests that are asked first
PARTS = {
    "prove": ("prove/**/*.py", ("tests/prove/", "tests/rules/")),
    "egraph": ("egraph/**/*.py", ("tests/egraph/", "tests/compile/")),
    "lang": ("lang/**/*.py", ("tests/lang/", "tests/ila/")),
    "ila": ("ila/**/*.py", ("tests/ila/", "tests/ila_models/")),
    "cosim": ("cosim/**/*.py", ("tests/cosim/", "tests/cli/")),
    "compile": ("compile/**/*.py", ("tests/compile/", "tests/cli/")),
    "fit": ("fit/**/*.py", ("tests/fit/", "tests/compile/")),
    "frontend": ("frontend/**/**/*.py", ("tests/frontend/", "tests/bad_inputs/")),
    "sched": ("sched/**/*.py", ("tests/sched/", "tests/compile/")),
    "study": ("study/**/*.py", ("tests/study/", "tests/cosim/")),
}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn}
SUMS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
LIMITS = ("max", "min")
# imported before the tests of all changes start as copies of this process
AHEAD = ("numpy", "onnx.helper", "onnx.checker", "z3", "lark", "llvmlite.binding", "highspy", "rich.console", "pytest", "hypothesis")


@dataclass(frozen=True)
class Place:
    """The n-th node of a file that can be changed."""

    part: str
    file: str
    number: int


@dataclass(frozen=True)
class Known:
    """What the measured tests ran, by file and line, and what each took; `wrong` are those that fail without a change."""

    lines: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]
    cases: int  # of a test function
    wrong: set[str] = field(default_factory=set)
    right: set[str] = field(default_factory=set)


def can_change(node: ast.AST) -> bool:
    """Tell whether a node has a wrong copy."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS
    if isinstance(node, ast.BinOp):
        return type(node.op) in SUMS
    if isinstance(node, ast.If):
        return ast.unparse(node.test) != "TYPE_CHECKING"
    if isinstance(node, ast.Dict):
        return len(node.keys) > 1
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in LIMITS and len(node.args) == 2
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.comprehension):
        return bool(node.ifs)
    return isinstance(node, ast.BoolOp) or (isinstance(node, ast.Constant) and type(node.value) in (int, float))


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
    elif isinstance(node, ast.Dict):
        del node.keys[len(node.keys) // 2], node.values[len(node.values) // 2]
    elif isinstance(node, ast.Call):
        node.args = [node.args[0], node.args[0]]
    elif isinstance(node, ast.UnaryOp):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.comprehension):
        node.ifs = []
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1 if isinstance(node.value, int) else 2 * node.value + 1  # type: ignore[assignment, operator]


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that can be changed, in order; annotations are never evaluated."""
    annotations = {id(a) for n in ast.walk(tree) for a in (getattr(n, "annotation", None), getattr(n, "returns", None)) if a is not None}
    found, work = [], [tree]
    while work:
        node = work.pop(0)
        found += [node] if can_change(node) else []
        work += [c for c in ast.iter_child_nodes(node) if id(c) not in annotations]
    return found


@cache
def parsed(file: str) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse((ROOT / file).read_text("utf-8"))


def places() -> Iterator[Place]:
    """Yield every place."""
    for part, (files, _) in PARTS.items():
        for path in sorted((ROOT / "rewrite_compiler").glob(files)):
            file = path.relative_to(ROOT).as_posix()
            yield from (Place(part, file, number) for number in range(len(nodes_of(parsed(file)))))


def known(folder: Path, cases: int) -> Known:
    """Read what a measurement of coverage kept."""
    if not (folder / "data").exists():
        return Known({}, {}, cases)
    from coverage import CoverageData

    data = CoverageData(str(folder / "data"))
    data.read()
    lines: dict[str, dict[int, set[str]]] = {}
    for file in {p.file for p in places()}:
        lines[file] = {line: set(names) - {""} for line, names in data.contexts_by_lineno(str(ROOT / file)).items()}
    seconds: dict[str, float] = {}
    for tally in folder.glob("*.done"):
        seconds |= json.loads(tally.read_text("utf-8"))["seconds"]
    return Known(lines, seconds, cases)


def in_function(tree: ast.Module, node: ast.AST) -> bool:
    """Tell whether a node is run by a call, not by the import of its file."""
    functions = (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(node in ast.walk(statement) for f in functions for statement in f.body)


def lines_of(node: ast.AST) -> range:
    """Return the lines of a node; of a condition, not of what it decides on."""
    at: Any = node.test if isinstance(node, ast.If) else node.ifs[0] if isinstance(node, ast.comprehension) else node
    return range(at.lineno, at.end_lineno + 1)


def asked(place: Place, have: Known, seconds: float) -> list[str]:
    """Return the test functions that a change must make fail: those that run it, of its own part first, as many as take so long."""
    if not have.seconds:
        return [*importing(place), *(f"--deselect={name}" for name in sorted(have.wrong))]
    tree, of_file = parsed(place.file), have.lines[place.file]
    node = nodes_of(tree)[place.number]
    runs = set().union(*(of_file.get(line, set()) for line in lines_of(node)))
    if not in_function(tree, node):
        runs = set().union(*of_file.values())
    part_tests = PARTS[place.part][1]
    runs = runs or started_by(place.file, have) or {name for name in have.seconds if name.startswith(part_tests)}
    names, files, remaining = unmeasured(part_tests, have), set[str](), seconds
    for name in sorted(runs - have.wrong, key=lambda n: (not n.startswith(part_tests), have.seconds.get(n, seconds), n)):
        file = name.partition("::")[0]
        if names and (have.seconds.get(name, seconds) > remaining or (file not in files and len(files) == FILES)):
            continue
        remaining -= have.seconds.get(name, seconds)
        names.append(name)
        files.add(file)
    return names


@cache
def tests_by_module() -> dict[str, set[str]]:
    """Return which files of tests import each module, or name it in a text."""
    files: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"rewrite_compiler(?:\.\w+)+", path.read_text("utf-8")):
            files.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return files


def importing(place: Place) -> list[str]:
    """Return the files of tests that import the changed module, then those that import the folder around it, of its own part first."""
    part_tests, module = PARTS[place.part][1], place.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    names: list[str] = []
    while module.count("."):
        near = {f for name, files in tests_by_module().items() if f"{name}.".startswith(f"{module}.") for f in files}
        names += sorted(near - {*names}, key=lambda f: (not f.startswith(part_tests), f))
        module = module.rpartition(".")[0]
    return names[:FILES]


def unmeasured(part_tests: tuple[str, ...], have: Known) -> list[str]:
    """Return the test functions of a part that were written since coverage was measured."""
    unmeasured_names = []
    for path in (p for folder in part_tests for p in sorted((ROOT / folder).glob("test_*.py"))):
        file = path.relative_to(ROOT).as_posix()
        names = [f"{file}::{f.name}" for f in parsed(file).body if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")]
        unmeasured_names += [n for n in names if n not in have.seconds.keys() | have.wrong and in_short_run([n])[0]]
    return unmeasured_names


def started_by(file: str, have: Known) -> set[str]:
    """Return the tests that run a file which starts this one as a process: lines there are not known by test."""
    name = file.removesuffix(".py").replace("/", ".")
    above = [f for f in have.lines if f != file and f'"{name}"' in (ROOT / f).read_text("utf-8")]
    return set().union(*(names for f in above for names in have.lines[f].values()))


def overlay(folder: Path) -> None:
    """Copy the engine, compiled, with links to the content where an installation has it."""
    shutil.copytree(ROOT / "rewrite_compiler", folder / "rewrite_compiler", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("rules", "ila_models", "targets", "apps"):
        link = folder / "rewrite_compiler" / name
        if not link.exists():
            link.symlink_to(ROOT / name)
    compileall.compile_dir(folder / "rewrite_compiler", quiet=2)


def judged(place: Place, folder: Path, have: Known, seconds: float) -> tuple[str, str]:
    """Return whether the tests notice, and the line that was changed."""
    tree = copy.deepcopy(parsed(place.file))
    node = nodes_of(tree)[place.number]
    line, text = lines_of(node)[0], (ROOT / place.file).read_text("utf-8")
    mutant_text = f"{place.file}:{line}: {text.splitlines()[line - 1].strip()} [{type(node).__name__}]"
    change(node)
    ast.fix_missing_locations(tree)
    while tests := asked(place, have, seconds):
        outcome, failed = with_text(place.file, ast.unparse(tree), tests, folder, have.cases, seconds)
        if outcome != "noticed" or all(right(f, folder, have, seconds) for f in failed):
            return outcome, mutant_text
    return "run by no test", mutant_text


def with_text(file: str, text: str, tests: list[str], folder: Path, cases: int, seconds: float) -> tuple[str, list[str]]:
    """Run tests while a file of the copy has another text."""
    path, status = folder / file, (folder / file).stat()
    before = path.read_text("utf-8")
    path.write_text(text, "utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 7_000_000_000))  # what was compiled is not of this text
    try:
        return told_by(tests, folder, cases, seconds)
    finally:
        path.write_text(before, "utf-8")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def right(test: str, folder: Path, have: Known, seconds: float) -> bool:
    """Tell whether the function of a test that failed passes without a change; one that does not is not asked again."""
    name = test.partition("[")[0]
    if name not in have.right | have.wrong:
        passes = told_by([name], folder, have.cases, seconds)[0] == "survived"
        (have.right if passes else have.wrong).add(name)
    return name in have.right


def told_by(tests: list[str], folder: Path, cases: int, seconds: float) -> tuple[str, list[str]]:
    """Run tests on the copy in a folder until one fails, in a copy of this process; return the outcome and what failed."""
    tally = folder / "tally.json"
    tally.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os._exit(tested(tests, folder, tally, cases, seconds))
    status = waited(child)
    failed = json.loads(tally.read_text("utf-8"))["failed"] if tally.exists() else []
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        return "without an end", []
    return ("survived" if status == 0 else "noticed"), failed


def waited(child: int) -> int | None:
    """Return the status of a child, None if it had to be ended."""
    ends = time.monotonic() + WALL_SECONDS
    while time.monotonic() < ends:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def tested(tests: list[str], folder: Path, tally: Path, cases: int, seconds: float) -> int:
    """Run tests in this process, which has nothing of the engine yet."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(3 * seconds), int(3 * seconds) + 10))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    for name in [n for n in sys.modules if n.partition(".")[0] == "rewrite_compiler"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    more = os.pathsep.join([str(folder), str(ROOT / "benchmarks")])
    os.environ.update(PYTHONPATH=more, PYTHONSAFEPATH="1", PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    import pytest

    plugins = ["-p", "sampled_tests", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # imported ahead
    try:
        return int(
            pytest.main(["-q", "-x", "-n", "0", *plugins, "--each", str(cases), "--until", str(seconds), "--tally", str(tally), *tests])
        )
    except BaseException:  # whatever a changed program does: it is noticed
        return 1


def interval(noticed: int, of: int) -> tuple[float, float]:
    """Return the bounds of a share with 95 % confidence (Wilson), in percent."""
    if not of:
        return 0.0, 100.0
    z, p = 1.96, noticed / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return tuple(round(100 * (middle + sign * half) / (1 + z * z / of), 1) for sign in (-1, 1))  # type: ignore[return-value]


def check(mine: list[Place], folder: Path, have: Known, seconds: float) -> None:
    """End here if the tests do not run on the copy as it is."""
    tests = next(filter(None, (asked(p, have, seconds) for p in mine)), [])
    if not any(told_by([t], folder, have.cases, seconds)[0] == "survived" for t in tests[:3]):
        raise SystemExit(f"these tests do not pass without a change: {', '.join(tests[:3]) or 'none was measured'}")


def sampled(part: str, mine: list[Place], log: CampaignLog, ends: float, judge: Any) -> None:
    """Judge places until the time is over."""
    for place in mine[log.of(part).cases :]:
        if time.monotonic() > ends:
            return
        before = sum(os.times()[:4])
        outcome, line = judge(place)
        number, seconds = log.of(part).cases, sum(os.times()[:4]) - before
        alive = outcome not in NOTICED
        log.add(part, number, 1, 1, Chunk(Counter([outcome]), {str(number): f"{line} {outcome}"} if alive else {}), seconds, seconds)
        print(f"{part} {number} {outcome} {seconds:.1f} s {line}", flush=True)


NOTICED = ("noticed", "without an end")
AGAIN = " again"  # what a log calls changes that survived once and were judged a second time


def judged_again(part: str, mine: list[Place], log: CampaignLog, ends: float, judge: Any) -> None:
    """Judge the places once more whose change survived, as tests were written since then."""
    for number in sorted(int(n) for n in survivors(part, log)):
        if time.monotonic() > ends:
            return
        outcome, line = judge(mine[number])
        print(f"{part} {number} {outcome} {line}", flush=True)
        if outcome in NOTICED:
            log.add(part + AGAIN, number, 1, 1, Chunk(Counter([outcome]), {str(number): line}), 0, 0)


def survivors(part: str, log: CampaignLog) -> dict[str, str]:
    """Return the changes by number that no test noticed, the last time they were judged."""
    later = log.of(part + AGAIN).findings
    return {number: line for number, line in log.of(part).findings.items() if number not in later}


def drawn(part: str, seed: int, runs: int) -> tuple[list[Place], int]:
    """Return the places that are changed, and how many there are."""
    mine = [p for p in places() if p.part == part]
    random.Random(seed).shuffle(mine)
    return mine[:runs], len(mine)


def row_of(part: str, log: CampaignLog, of: int, seed: int) -> Row:
    """Return the figures of a part, or of all together."""
    rows = [log.of(p) for p in PARTS if part in (p, "all")]
    cases, first = sum(p.cases for p in rows), sum(p.outcomes[o] for p in rows for o in NOTICED)
    noticed = cases - sum(len(survivors(p, log)) for p in PARTS if part in (p, "all"))
    return {
        "name": part, "runs": cases, "places": of, "seed": seed, "noticed_at_first": first, "noticed": noticed,
        "percent": round(100 * noticed / max(cases, 1), 1), "percent_95": list(interval(noticed, cases)),
        "outcomes": dict(sorted(sum((p.outcomes for p in rows), Counter[str]()).items())),
        "cpu_seconds": round(sum(p.seconds for p in rows), 1),
        "survived": [] if part == "all" else list(survivors(part, log).values()),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=80)
    parser.add_argument("--only", default="", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--coverage", type=Path, default=Path("reliability_coverage"), metavar="FOLDER", help="which tests run a line")
    parser.add_argument(
        "--seconds", type=float, default=20, metavar="S", help="of tests for a change, as coverage.py saw them (default 20)"
    )
    parser.add_argument("--cases", type=int, default=4, metavar="N", help="of a test function, evenly spaced; 0: all (default 4)")
    parser.add_argument("--again", action="store_true", help="judge those again that survived")
    parser.add_argument("--minutes", type=float, default=600, metavar="N", help="stop after so many minutes (default: %(default)s)")
    parser.add_argument("--log", type=Path, default=Path("reliability_mutation.jsonl"), metavar="FILE", help="go on in this log")
    args = parser.parse_args()
    log, ends, totals = CampaignLog(args.log), time.monotonic() + 60 * args.minutes, dict[str, int]()
    chosen = {part: drawn(part, args.seed, args.runs) for part in PARTS if args.only in ("", part)}
    if args.minutes > 0:
        have = known(args.coverage, args.cases)
        for name in AHEAD:
            importlib.import_module(name)
        with tempfile.TemporaryDirectory() as folder:
            overlay(Path(folder))
            for part, (mine, _) in chosen.items():
                check(mine, Path(folder), have, args.seconds)
                judge = judged_again if args.again else sampled
                judge(part, mine, log, ends, lambda place: judged(place, Path(folder), have, args.seconds))
    totals = {part: count for part, (_, count) in chosen.items()}
    rows = [row_of(part, log, count, args.seed) for part, count in totals.items()]
    rows = [*rows, row_of("all", log, sum(totals.values()), args.seed)] if len(rows) == len(PARTS) else rows
    for r in rows:
        print(f"{r['name']:10}{r['noticed']} of {r['runs']} noticed, {r['percent']} % ({r['percent_95']}); {WANTED:g} % wanted")
        print("".join(f"    {line}\n" for line in r["survived"]), end="")  # type: ignore[attr-defined]
    finish("reliability_mutation", rows, args.json)


if __name__ == "__main__":
    main()
