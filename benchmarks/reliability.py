"""Does any mutant, random model, instruction stream or random limit make the tool crash, hang, accept silently, or compute something else?

Without `--log` the table of all records is printed, with the commands that made them. With `--log FILE` chunks of all campaigns
take turns, the one that is furthest from its goal first; each ends as a line of the log, from which the next call goes on. A finding
is also written as a file, to become a case of tests/bad_inputs. `--minutes 0 --log FILE` prints the table of what a log has.
"""

from __future__ import annotations

import json
import random
import shlex
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from record import ROOT, Row, finish, options

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "fuzz")]

from campaign_log import CampaignLog, Chunk  # noqa: E402
from generate import valid_model  # noqa: E402
from harness import Finding, compiled, imported  # noqa: E402
from mutants import byte_mutant, structural_mutant  # noqa: E402
from streams import MODELS, Bench  # noqa: E402
from streams import run as run_stream  # noqa: E402
from together import compiled_in_process, judged  # noqa: E402

from rewrite_compiler.limits import DEFAULT  # noqa: E402

SEEDS = 60  # starting models of mutants, of up to 24 operators, in two operator sets
SLOW = 5.0  # seconds after which a case counts as a hang
TARGETS = (("flexasr",), ("hlscnn",), ("vta",), ("flexasr", "hlscnn"), ("flexasr", "vta"), ("flexasr", "hlscnn", "vta"))
CHILDREN = 10  # each so many random limits of matching's time and memory, which only a process of its own can keep
SECOND = 5  # each so many batches also with onnx's reference evaluator
RECORDS = {
    "reliability": "campaigns", "reliability_processes": "processes",
    "reliability_mutation": "small changes of the engine that its tests notice",
}  # fmt: skip
# what is held → the tests that hold it, as pytest's arguments
TESTED = (
    (
        "onnx's node tests of known operators: at least 300 run, none computes something else",
        "tests/frontend/test_onnx_cases.py --campaign",
    ),
    ("external data: no traversal, links, devices, other files; lengths before allocation", "tests/frontend/test_external.py"),
    ("signals in every phase end within 2 s with exit 130 or 143, finished work kept", "tests/cli/test_cli_signals.py"),
    ("a log that was killed, cut off or changed costs at most the samples behind it", "tests/cosim/test_log.py"),
    ("lock, hashes and bill of materials; two wheels are the same bytes", "tests/benchmarks/test_supply_chain.py tests/test_wheel.py"),
    ("ruff, mypy strict on what ships, layers, sizes, no block twice", "tests/test_house.py tests/test_types.py"),
)
Judge = Callable[[range, Path], Chunk]
BENCHES: dict[str, Bench] = {}


@dataclass(frozen=True)
class Campaign:
    """One kind of case: how many are wanted, seeds of a chunk, cases of a seed, and what judges the seeds of a chunk."""

    name: str
    goal: int
    chunk: int
    judge: Judge
    cases: int = 1


def one_by_one(case: Callable[[int, Path], str | Finding]) -> Judge:
    """Return the judge of cases that are judged each for itself."""

    def judge(seeds: range, path: Path) -> Chunk:
        chunk = Chunk()
        for seed in seeds:
            at = time.process_time()
            outcome = case(seed, path)
            if isinstance(outcome, str) and time.process_time() - at > SLOW:
                outcome = Finding(f"took {time.process_time() - at:.1f} s", path.read_bytes())
            tell(chunk, seed, outcome)
        return chunk

    return judge


def tell(chunk: Chunk, seed: int, outcome: str | Finding) -> None:
    """Count an outcome; a finding is written as a file, too."""
    if isinstance(outcome, Finding):
        folder = Path("findings")
        folder.mkdir(exist_ok=True)
        (folder / f"{seed}.onnx").write_bytes(outcome.model)
        chunk.findings[str(seed)] = outcome.what[:300]
        print(f"  seed {seed}: {outcome.what[:300]}", flush=True)
    chunk.outcomes["finding" if isinstance(outcome, Finding) else outcome] += 1


def source(seed: int) -> bytes:
    """Return a starting model."""
    return bytes(valid_model(seed % SEEDS, 24, 21 if seed % 2 else 17).SerializeToString())


def _bytes(seed: int, path: Path) -> str | Finding:
    path.write_bytes(byte_mutant(source(seed), seed))
    return imported(path)


def _structure(seed: int, path: Path) -> str | Finding:
    path.write_bytes(structural_mutant(valid_model(seed % SEEDS, 24, 21 if seed % 2 else 17), seed).SerializeToString())
    return imported(path)


def _model(seed: int, path: Path) -> str | Finding:
    path.write_bytes(valid_model(seed, 40, 21 if seed % 2 else 17).SerializeToString())
    return imported(path)


def _plans(seeds: range, path: Path) -> Chunk:
    number = seeds.start // len(seeds)
    findings = judged(seeds, path, TARGETS[number % len(TARGETS)], second=number % SECOND == 0)
    chunk = Chunk(Counter({"equal": len(seeds) - len(findings)}))
    for seed, finding in findings.items():
        tell(chunk, seed, finding)
    return chunk


def _limit(seed: int, path: Path) -> str | Finding:
    rng = random.Random(seed)
    limits = replace(DEFAULT, e_nodes=rng.choice((1, 10, 100, 1000)), rounds=rng.randint(1, 4), extraction_seconds=rng.choice((1, 60)))
    path.write_bytes(valid_model(seed, 40).SerializeToString())
    accel = rng.choice(TARGETS)
    if seed % CHILDREN:  # counted limits need no process of their own
        return compiled_in_process(path, accel, limits)
    kept = {"saturation_seconds": rng.choice((1, 2, 60)), "saturation_bytes": rng.choice((1 << 28, 1 << 29, 1 << 32))}
    return compiled(path, accel, replace(limits, **kept))


def _streams(seeds: range, path: Path) -> Chunk:
    chunk = Chunk()
    for seed in seeds:
        name = list(MODELS)[seed % len(MODELS)]
        if name not in BENCHES:
            BENCHES[name] = Bench(name, MODELS[name]())
        outcome = run_stream(BENCHES[name], seed)
        chunk.outcomes.update({"commands": outcome.commands, "refused in every reading": outcome.refused})
        if outcome.difference:
            chunk.findings[str(seed)] = f"{name}: {outcome.difference[:300]}"
            print(f"  stream {seed}: {chunk.findings[str(seed)]}", flush=True)
        for engine, keys in outcome.triggers.items():
            chunk.keys.setdefault(engine, []).extend(sorted(keys))
    return chunk


CAMPAIGNS = (
    Campaign("byte mutants imported", 50_000, 100, one_by_one(_bytes)),
    Campaign("structural mutants imported", 200_000, 100, one_by_one(_structure)),
    Campaign("random models imported", 20_000, 50, one_by_one(_model)),
    Campaign("random models compiled", 100_000, 40, _plans),
    Campaign("random limits", 1_000, 1, one_by_one(_limit)),
    Campaign("random commands", 1_000_000, 2, _streams, 400),
)  # fmt: skip


def spend(chosen: Iterable[Campaign], log: CampaignLog, seconds: float, start: int) -> None:
    """Run chunks until the time is over or every campaign has reached its goal; a campaign's first seed is `start`."""
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < ends:
            remaining = [c for c in chosen if log.of(c.name).cases < c.goal]
            if not remaining:
                return
            c = min(remaining, key=lambda c: log.of(c.name).cases / c.goal)
            first = max(log.of(c.name).next_seed, start)
            marker = log.path.with_suffix(".now")
            marker.write_text(json.dumps([c.name, first, c.chunk]))
            at = time.process_time()
            chunk = c.judge(range(first, first + c.chunk), Path(folder) / "m.onnx")
            spent = time.process_time() - at
            marker.unlink()
            log.add(c.name, first, c.chunk, c.chunk * c.cases, chunk, spent, spent / c.chunk)


def note_fall(log: CampaignLog) -> None:
    """Note the chunk in which the last process ended without a word, as a fault of native code does, and go on behind it."""
    marker = log.path.with_suffix(".now")
    if not marker.exists():
        return
    name, first, seeds = json.loads(marker.read_text("utf-8"))
    sentence = f"the process ended in the {seeds} seeds from here: it was stopped, or fell in native code"
    log.add(name, first, seeds, 0, Chunk(findings={str(first): sentence}), 0.0, 0.0)
    marker.unlink()


def row_of(c: Campaign, log: CampaignLog) -> Row:
    """Return the figures of a campaign."""
    p = log.of(c.name)
    distinct = sum(map(len, p.keys.values()))
    return {
        "case": c.name, "runs": p.cases, "goal": c.goal, "findings": len(p.findings), "outcomes": dict(sorted(p.outcomes.items())),
        **({"distinct_triggers": distinct, "engines": {n: len(k) for n, k in sorted(p.keys.items())}} if distinct else {}),
        "next_seed": p.next_seed, "slowest_seconds": p.slowest, "cpu_seconds": round(p.seconds, 1),
    }  # fmt: skip


def show(rows: Iterable[Row], log: Path) -> None:
    """Print the table."""
    print(f"{'campaign':30}{'cases':>10}{'of':>10}{'findings':>10}{'CPU s':>9}  command")
    for r in rows:
        command = f'python benchmarks/reliability.py --only "{r["case"]}" --log {log}'
        print(f"{r['case']:30}{r['runs']:>10,}{r['goal']:>10,}{r['findings']:>10}{r['cpu_seconds']:>9}  {command}")
        if "distinct_triggers" in r:
            print(f"{'  triggers with distinct states':30}{r['distinct_triggers']:>10,}{20_000:>10,}")


def figure(r: Row) -> tuple[str, str]:
    """Return what a row of a record says, and what is wanted of it."""
    if "findings" in r:
        return f"{r['runs']:,} cases, {r['findings']} findings", f"{r['goal']:,} cases, 0 findings"
    low, high = list(r["percent_95"])  # type: ignore[call-overload]
    return f"{r['noticed']} of {r['runs']} changes noticed: {r['percent']} % ({low}–{high} %)", "80 %"


def table() -> Iterator[str]:
    """Yield the lines of the table of all records, and of what tests hold."""
    for name, part in RECORDS.items():
        path = ROOT / "benchmarks" / "results" / f"{name}.json"
        if not path.exists():
            yield f"{part}\n  not measured: python benchmarks/{name}.py --json benchmarks/results/{name}.json\n"
            continue
        record = json.loads(path.read_text("utf-8"))
        yield f"{part}\n  $ {shlex.join(record['command'])}  (at {record['commit'][:12]})\n"
        for r in record["rows"]:
            actual, goal = figure(r)
            yield f"  {r.get('case', r.get('name')):32}{actual:70} wanted: {goal}\n"
            if "distinct_triggers" in r:
                yield f"  {'  triggers, distinct states':32}{r['distinct_triggers']:<70,} wanted: 20,000\n"
    kinds = len(tomllib.loads((ROOT / "tests" / "bad_inputs" / "expected.toml").read_text("utf-8")))
    yield f"what tests hold\n  $ python -m pytest tests/bad_inputs\n  {'kinds of bad input':32}{kinds:<70} wanted: 120\n"
    yield from (f"  $ python -m pytest {command}\n  {what}\n" for what, command in TESTED)


def main() -> None:
    """Go on with every campaign, or those named, and write the record."""
    if not any(a.startswith(("-h", "--help", "--log")) for a in sys.argv[1:]):
        print("".join(table()), end="")
        return
    parser = options(__doc__ or "", 1)
    parser.add_argument("--only", default="", metavar="WORD", help="campaigns whose name has this word")
    parser.add_argument("--goal", type=int, default=0, metavar="N", help="cases of each campaign (default: the table's)")
    parser.add_argument("--minutes", type=float, default=600, metavar="N", help="stop after so many minutes (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, metavar="SEED", help="first seed of a new log (default 0)")
    parser.add_argument("--log", type=Path, required=True, metavar="FILE", help="go on in this log")
    args = parser.parse_args()
    chosen = [replace(c, goal=args.goal or c.goal) for c in CAMPAIGNS if args.only in c.name]
    log = CampaignLog(args.log)
    note_fall(log)
    spend(chosen, log, 60 * args.minutes, args.start)
    rows = [row_of(c, log) for c in chosen]
    show(rows, args.log)
    finish("reliability", rows, args.json)
    if any(r["findings"] for r in rows):
        raise SystemExit("there are findings")


if __name__ == "__main__":
    main()
