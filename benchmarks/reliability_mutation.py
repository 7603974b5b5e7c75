"""Do the tests notice a wrong engine? One small change at a time in ten of its packages; the tests that run it must fail.

The changes are drawn by seed (`--runs 78` of each package, or of those in `--only`) from all comparisons, sums, conditions, negations and
constants, limits (`max`, `min`), filters of comprehensions, entries of tables and parts of unions. A place has a name that edits
elsewhere leave as it is: later commits draw the same, but for what was edited. First the tests run once, with `--cases` of each
function's cases, on a copy of the engine that tells which of them runs a drawn place, and what each takes (`--reach FOLDER` keeps it;
processes that tests start count too). Then the tests are collected once, and for each change a copy of that process takes the changed
code and asks those that run the place, the quickest first, until one fails or they have used `--seconds`; tests of the package's own
folder count as four times as quick. Where none fails, those of files that name the module and of which nothing was measured are asked.
What is run when a module is imported, and what changes which variables an inner function shares, is asked in a fresh process.
A test that fails without the change does not count. Finished changes are in the log, from which the next call
goes on. A change that survives is printed with its line: it is either the same program, or a test is missing, or one that is slower would
notice; `--again` asks those once more, with `--tests` by these files alone. `--reasons FILE` (JSON: "PART NAME", as printed, → a
sentence) says which are known to be the same program, and why; the record has both, and the share of the others beside that of all.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from changed_code import (
    PARTS,
    Place,
    changed,
    in_function,
    line_of,
    name_of,
    new_code,
    nodes_of,
    overlay,
    parsed,
    places,
    test_files,
    with_probes,
    write_text,
)
from record import ROOT, Row, commit, finish, options
from sampled_tests import function_of
from warm_tests import NOTICED, Client, in_fresh_process, measure, restore

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from campaign_log import CampaignLog, Chunk  # noqa: E402

WANTED = 92.0
NO_TEST = "run by no test"
OWN = 4  # a test of the package's own folder may take so many times as long as another
# imported before the tests of all changes start as copies of this process
AHEAD = ("numpy", "onnx.helper", "onnx.checker", "z3", "lark", "llvmlite.binding", "highspy", "rich.console", "pytest", "hypothesis")


@dataclass
class Known:
    """Which tests run a place, what each took, and which pass; places that a module's import runs have a test with no name."""

    runs: dict[str, set[str]]
    seconds: dict[str, float]
    wrong: set[str] = field(default_factory=set)
    right: set[str] = field(default_factory=set)


def reach(drawn_places: list[Place], folder: Path, tests: list[str], more: list[str], minutes: float) -> Known:
    """Run tests, those that a call before has not run, for some minutes, and return which of them run a place.

    Tests that the time leaves out are not asked: a change that only they notice counts as a survivor, and the next call goes on.
    """
    folder.mkdir(exist_ok=True)
    keys, lines, reached = folder / "places.json", folder / "tests.jsonl", folder / "reached.txt"
    wanted = [[p.part, p.file, p.number] for p in drawn_places]
    if not keys.exists():
        keys.write_text(json.dumps(wanted), "utf-8")
    probes = [Place(*fields) for fields in json.loads(keys.read_text("utf-8"))]
    if {*drawn_places} - {*probes}:
        raise SystemExit(f"{folder} was measured for other places: name another folder")
    with tempfile.TemporaryDirectory() as name:
        copy_folder = Path(name) / "engine"
        copy_folder.mkdir()
        overlay(copy_folder)
        by_file: dict[str, dict[int, int]] = defaultdict(dict)
        for n, place in enumerate(probes):
            by_file[place.file][place.number] = n
        for file, numbers in by_file.items():
            write_text(copy_folder, file, with_probes(file, numbers))
        measure(copy_folder, lines, reached.resolve(), tests, more, 60 * minutes)
    if not lines.exists():
        raise SystemExit("the tests cannot be collected with probes")
    runs: dict[str, set[str]] = defaultdict(set)
    for number, _, test in (line.partition("\t") for line in reached.read_text("utf-8").splitlines()):
        runs[probes[int(number)].key].add(test)
    told = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    print(
        f"{len(told)} tests have run at least once on the copy with probes, {sum(not passes for *_, passes in told)} of them failed",
        flush=True,
    )
    return Known(dict(runs), {t: s for t, s, _ in told}, {t for t, _, passes in told if not passes})


def asked(place: Place, have: Known, seconds: float) -> list[str]:
    """Return the tests that a change must make fail: those that run it, quick ones first, as many as take so long.

    Of a place that no test runs by itself, those that run its file, then those of its own part, of the first functions only.
    """
    runs = have.runs.get(place.key, set()) - {""}
    if not runs:
        near = {t for key, tests in have.runs.items() if key.startswith(f"{place.file}#") for t in tests} - {""}
        runs = near or {t for t in have.seconds if t.startswith(PARTS[place.part][1])}
    names, remaining = list[str](), seconds
    own = PARTS[place.part][1][0]
    cost = {t: (have.seconds[t] / (OWN if t.startswith(own) else 1), t) for t in runs & have.seconds.keys()}
    for name in sorted(cost.keys() - have.wrong, key=lambda t: cost[t]):
        remaining -= have.seconds[name]
        if names and remaining < 0:
            break
        names.append(name)
    return names


def not_measured(place: Place, have: Known, names: list[str]) -> list[str]:
    """Return the tests of files that name a place's module and of which the first run measured none, a case of each function first."""
    measured = {t.partition("::")[0] for t in have.seconds}
    files = {name.partition("::")[0] for name in names} - measured
    module = place.file.removesuffix(".py").replace("/", ".")
    naming = {f for f in files if f.startswith(PARTS[place.part][1]) and module in (ROOT / f).read_text("utf-8")}
    cases, order = Counter[str](), dict[str, int]()
    for name in names:
        order[name] = cases[function_of(name)]
        cases[function_of(name)] += 1
    return sorted((t for t in names if t.partition("::")[0] in naming and t not in have.wrong), key=order.__getitem__)


@dataclass
class Court:
    """What judges changes: the copy of the engine, the process that has collected the tests, and what is known of them."""

    folder: Path
    client: Client
    have: Known
    seconds: float
    more: list[str]
    spent: float = 0.0
    commit: str = field(default_factory=commit)

    def judged(self, place: Place) -> tuple[str, str]:
        """Return whether the tests notice, and the line that was changed."""
        write_text(self.folder, place.file, ast.unparse(changed(place)))
        try:
            is_called = in_function(tree := parsed(place.file), nodes_of(tree)[place.number]) and new_code(place, self.folder)
            outcome = self._warm(place) if is_called else ""
            if not is_called or (outcome not in NOTICED and "" in self.have.runs.get(place.key, ())):  # run by an import
                outcome = self._fresh(place)
        finally:
            restore(self.folder, place.file)
        return outcome, line_of(place)

    def _warm(self, place: Place) -> str:
        """Return what tests say that run a place, then those of which that is not known."""
        outcome = self._said(place, lambda: asked(place, self.have, self.seconds))
        if outcome not in NOTICED and self.client.names:
            further = self._said(place, lambda: not_measured(place, self.have, self.client.names))
            outcome = outcome if further == NO_TEST else further
        return outcome

    def _said(self, place: Place, choose: Callable[[], list[str]]) -> str:
        while tests := choose():
            answer = self.client.answer(place, tests, self.seconds)
            self.spent += answer["seconds"]
            failed = answer["failed"]
            if not failed or self._is_right(failed, place):
                return str(answer["outcome"])
        return NO_TEST

    def _is_right(self, test: str, place: Place) -> bool:
        """Tell whether a test that failed passes without a change; one that does not is not asked again."""
        if test not in self.have.right | self.have.wrong:
            text = (self.folder / place.file).read_text("utf-8")
            restore(self.folder, place.file)
            answer = self.client.answer(None, [test], self.seconds)
            write_text(self.folder, place.file, text)
            self.spent += answer["seconds"]
            (self.have.right if answer["outcome"] == "survived" else self.have.wrong).add(test)
        return test in self.have.right

    def _fresh(self, place: Place) -> str:
        tests = asked(place, self.have, self.seconds / 2)
        return in_fresh_process(self.folder, tests, self.seconds / 2, self.more)


def interval(noticed: int, of: int) -> tuple[float, float]:
    """Return the bounds of a share with 95 % confidence (Wilson), in percent."""
    if not of:
        return 0.0, 100.0
    z, p = 1.96, noticed / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return tuple(round(100 * (middle + sign * half) / (1 + z * z / of), 1) for sign in (-1, 1))  # type: ignore[return-value]


def check(mine: list[Place], court: Court) -> None:
    """End here if the tests do not pass on the copy as it is."""
    tests = next(filter(None, (asked(p, court.have, court.seconds) for p in mine)), [])
    right = next((t for t in tests[:3] if court.client.answer(None, [t], court.seconds)["outcome"] == "survived"), None)
    if right is None:
        raise SystemExit(f"these tests do not pass without a change: {', '.join(tests[:3]) or 'none was measured'}")
    if in_fresh_process(court.folder, [right], court.seconds, court.more) != "survived":
        raise SystemExit(f"{right} does not pass without a change in a process of its own")


def sampled(chosen: dict[str, list[Place]], log: CampaignLog, ends: float, court: Court) -> None:
    """Judge places that have not been, one of each part in turn, until the time is over."""
    turns = sorted((n, part) for part, mine in chosen.items() for n, p in enumerate(mine) if name_of(p) not in judged_names(part, log))
    for number, part in turns:
        if time.monotonic() > ends:
            return
        place, before = chosen[part][number], sum(os.times()[:4]) + court.spent
        outcome, line = court.judged(place)
        seconds, name = sum(os.times()[:4]) + court.spent - before, name_of(place)
        findings = {} if outcome in NOTICED else {name: f"{line} {outcome}"}
        log.add(part, number, 1, 1, Chunk(Counter([outcome]), findings, {"commits": [court.commit], "places": [name]}), seconds, seconds)
        print(f"{part} {name} {outcome} {seconds:.1f} s {line}", flush=True)


AGAIN = " again"  # what a log calls changes that survived once and were judged a second time


def judged_names(part: str, log: CampaignLog) -> set[str]:
    """Return the names of the places that a log has."""
    return log.of(part).keys.get("places", set())


def judged_again(chosen: dict[str, list[Place]], log: CampaignLog, ends: float, court: Court) -> None:
    """Judge places whose change survived once more, as tests were written since then."""
    for number, (part, place) in enumerate((part, p) for part, mine in chosen.items() for p in mine):
        if time.monotonic() > ends:
            return
        outcome, line = court.judged(place)
        name = name_of(place)
        print(f"{part} {name} {outcome} {line}", flush=True)
        if outcome in NOTICED:
            log.add(part + AGAIN, number, 1, 1, Chunk(Counter([outcome]), {name: line}, {"commits": [court.commit]}), 0, 0)


def survivors(part: str, log: CampaignLog) -> dict[str, str]:
    """Return the changes by name that no test noticed, the last time they were judged."""
    later = log.of(part + AGAIN).findings
    return {name: line for name, line in log.of(part).findings.items() if name not in later}


def drawn(part: str, seed: int, runs: int) -> tuple[list[Place], int]:
    """Return the places that are changed, and how many there are."""
    mine = sorted(places(part), key=lambda p: hashlib.sha256(f"{seed} {name_of(p)}".encode()).digest())
    return mine[:runs], len(mine)


def row_of(part: str, parts: list[str], log: CampaignLog, of: int, seed: int, reasons: dict[str, str]) -> Row:
    """Return the figures of parts together; `reasons` says of which changes it is known that they change nothing."""
    rows, alive = [log.of(p) for p in parts], {f"{p} {n}": line for p in parts for n, line in survivors(p, log).items()}
    cases, first = sum(p.cases for p in rows), sum(p.outcomes[o] for p in rows for o in NOTICED)
    noticed, same = cases - len(alive), len(alive.keys() & reasons.keys())
    return {
        "name": part, "runs": cases, "places": of, "seed": seed, "noticed_at_first": first, "noticed": noticed, "same_program": same,
        "percent": round(100 * noticed / max(cases, 1), 1), "percent_95": list(interval(noticed, cases)),
        "percent_of_others": round(100 * noticed / max(cases - same, 1), 1),
        "outcomes": dict(sorted(sum((p.outcomes for p in rows), Counter[str]()).items())),
        "cpu_seconds": round(sum(p.seconds for p in rows), 1),
        "judged_at": sorted(set[str]().union(*(log.of(p + again).keys.get("commits", ()) for p in parts for again in ("", AGAIN)))),
        "survived": [] if part == "all" else [{"name": name, "change": line, "why": reasons.get(name, "")} for name, line in alive.items()],
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=78)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--reach", type=Path, default=Path("reliability_reach"), metavar="FOLDER", help="which tests run a place")
    parser.add_argument("--seconds", type=float, default=10, metavar="S", help="of tests for a change (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=3, metavar="N", help="of a test function, evenly spaced; 0: all (default: 3)")
    parser.add_argument("--longest", type=float, default=5, metavar="S", help="of one test; longer ones are not asked (default: 5)")
    parser.add_argument("--reach-minutes", type=float, default=60, metavar="N", help="of the first run of the tests (default: 60)")
    parser.add_argument("--again", action="store_true", help="judge those again that survived")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="ask these alone (default: the folders of the packages)")
    parser.add_argument("--reasons", type=Path, metavar="FILE", help="which survivors are the same program, and why (JSON)")
    parser.add_argument("--minutes", type=float, default=600, metavar="N", help="stop after so many minutes (default: %(default)s)")
    parser.add_argument("--log", type=Path, default=Path("reliability_mutation.jsonl"), metavar="FILE", help="go on in this log")
    args = parser.parse_args()
    log, ends = CampaignLog(args.log), time.monotonic() + 60 * args.minutes
    chosen = {part: drawn(part, args.seed, args.runs) for part in args.only}
    totals = {part: count for part, (_, count) in chosen.items()}
    wanted = {part: [p for p in mine if not args.again or name_of(p) in survivors(part, log)] for part, (mine, _) in chosen.items()}
    if args.minutes > 0:
        more = ["--each", str(args.cases)]
        tests, mine = args.tests or test_files(chosen), [p for places_of in wanted.values() for p in places_of]
        have = reach(mine, args.reach, tests, [*more, "--longest", str(args.longest)], args.reach_minutes)
        for name in AHEAD:
            importlib.import_module(name)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "engine"
            folder.mkdir()
            overlay(folder)
            court = Court(folder, Client(folder, tests, more), have, args.seconds, more)
            check(mine, court)
            (judged_again if args.again else sampled)(wanted, log, ends, court)
            court.client.close()
    reasons = json.loads(args.reasons.read_text("utf-8")) if args.reasons else {}
    alive = {f"{part} {name}" for part in args.only for name in survivors(part, log)}
    if foreign := sorted(reasons.keys() - alive):
        raise SystemExit(f"this change has a reason but did not survive: {foreign[0]}")
    rows = [row_of(part, [part], log, count, args.seed, reasons) for part, count in totals.items()]
    rows += [row_of("all", args.only, log, sum(totals.values()), args.seed, reasons)] if len(rows) > 1 else []
    for r in rows:
        print(f"{r['name']:10}{r['noticed']} of {r['runs']} noticed, {r['percent']} % ({r['percent_95']}); {WANTED:g} % wanted")
        print("".join(f"    {s['name']} {s['change']} {s['why']}\n" for s in r["survived"]), end="")  # type: ignore[attr-defined]
    finish("reliability_mutation", rows, args.json)


if __name__ == "__main__":
    main()
