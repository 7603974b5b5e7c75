"""Does a killed run lose a sample, do hash seed or threads change a byte of a plan, does 1 GB of memory suffice or end in a sentence?

Kills: a co-simulation with a log is killed (SIGKILL) at random moments and started again until it has finished, over and
over; every sample reported as finished must be in the log, none twice, and the figures must be those of an unbroken run.
Plans: the command in a new process with a random PYTHONHASHSEED and 1 or 2 threads. Memory: the command with 1 GB of
address space on every application. Finished cases are in the log, from which the next call goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import ROOT, Row, finish, options

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from campaign_log import CampaignLog, Chunk  # noqa: E402

from rewrite_compiler.compile import Plan, compile_model  # noqa: E402
from rewrite_compiler.cosim import Settings, cosimulate  # noqa: E402

DIGITS = ROOT / "apps" / "digits"
FLEXMATCH = (sys.executable, "-m", "rewrite_compiler.cli.main")
SAMPLES, BATCH = 64, 4  # of the run that is killed
MEMORY = 1 << 30
ENDED = "ended before the kill"  # with the figures of an unbroken run; counts as no kill
VOLATILE = ("run", "wall_seconds", "seconds")  # keys of documents that hold times


@dataclass(frozen=True)
class Campaign:
    """One kind of case: how many are wanted, and what yields their outcomes, from a first number on."""

    name: str
    goal: int
    run: Callable[[int], Iterator[tuple[str, str]]]  # outcome, and what is wrong


def still(document: Any) -> Any:
    """Return a document without what a clock wrote."""
    if isinstance(document, dict):
        return {k: still(v) for k, v in document.items() if "seconds" not in k and k not in VOLATILE}
    return [still(x) for x in document] if isinstance(document, list) else document


def settings(log: Path | None) -> Settings:
    """Return the settings of the run that is killed."""
    return Settings(samples=SAMPLES, batch=BATCH, threads=1, log=log, keep_outputs=False)


def figures(plan: Plan, log: Path | None) -> str:
    """Run to the end and return the hash of all figures."""
    report = cosimulate(plan, DIGITS / "test.npz", settings=settings(log))
    document = {k: v for k, v in still(dict(report.document)).items() if k not in ("simulator", "log")}
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()


def child(plan: Plan, log: Path, writer: int) -> None:
    """Be the process that is killed: say every finished sample, and at the end the figures."""
    try:
        report = cosimulate(
            plan, DIGITS / "test.npz", settings=settings(log), progress=lambda done, _: os.write(writer, f"{done}\n".encode()) and None
        )
        document = {k: v for k, v in still(dict(report.document)).items() if k not in ("simulator", "log")}
        os.write(writer, hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest().encode() + b"\n")
    finally:
        os._exit(0)


def logged(log: Path) -> list[int]:
    """Return the numbers of the samples in a log; its last line may be torn."""
    samples: list[int] = []
    if not log.exists():
        return samples
    for line in log.read_bytes().split(b"\n")[:-1]:
        row = json.loads(line[17:])
        if "sample" in row:
            samples.append(int(row["sample"]))
    return samples


def kills(first: int) -> Iterator[tuple[str, str]]:
    """Kill runs, one moment after the other."""
    with tempfile.TemporaryDirectory() as folder:
        plan = compile_model(DIGITS / "mlp.onnx", ["flexasr"], calibrate=DIGITS / "calibration.npz")
        started = time.monotonic()
        expected = figures(plan, None)
        span = time.monotonic() - started
        log = Path(folder) / "log"
        rng = random.Random(first)
        while True:
            yield killed(plan, log, rng.uniform(0, span / 2), expected)


def killed(plan: Plan, log: Path, after: float, expected: str) -> tuple[str, str]:
    """Start or go on with a run, kill it after some time, and return the outcome and what is wrong."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        child(plan, log, writer)
    os.close(writer)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        words = pipe.read().decode().split()
    counts = [int(x) for x in words if len(x) < 32]
    samples = logged(log)
    wrong = ""
    if counts and len(samples) < max(counts):
        wrong = f"{max(counts)} samples were reported, {len(samples)} are in the log"
    if len(samples) != len(set(samples)):
        wrong = "a sample is in the log twice"
    ended = [x for x in words if len(x) == 64]
    if ended:
        log.unlink(missing_ok=True)
        wrong = wrong if ended[0] == expected else "the figures are not those of an unbroken run"
    return (ENDED if ended else f"killed with {'some' if samples else 'no'} samples", wrong)


def plans(first: int) -> Iterator[tuple[str, str]]:
    """Compile in new processes with random hash seeds, one thread and two in turn."""
    rng, expected = random.Random(first), ""
    while True:
        with tempfile.TemporaryDirectory() as folder:
            threads = str(1 + rng.randint(0, 1))
            environment = {
                **os.environ, "PYTHONHASHSEED": str(rng.randrange(1 << 32)), "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
            }  # fmt: skip
            command = [*FLEXMATCH, str(DIGITS / "mlp.onnx"), "--accel", "flexasr", "--calibrate", str(DIGITS / "calibration.npz"), "-q"]
            run = subprocess.run([*command, "-o", "plan"], cwd=folder, env=environment, capture_output=True, text=True)
            if run.returncode:
                yield "failed", run.stderr[-200:]
                continue
            document = still(json.loads((Path(folder) / "plan.json").read_text("utf-8")))
            digest = hashlib.sha256(json.dumps(document).encode() + (Path(folder) / "plan.onnx").read_bytes()).hexdigest()
        expected = expected or digest
        yield f"{threads} threads", "" if digest == expected else "other bytes"


def applications() -> list[Path]:
    """Return the models of every application, those of the shared folder too where it is there."""
    shared = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models"
    return [*sorted(DIGITS.glob("*.onnx")), *sorted(shared.rglob("*.onnx"))]


def limited() -> None:
    """Let this process have no more memory than that."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def memory(first: int) -> Iterator[tuple[str, str]]:
    """Compile every application with 1 GB of address space."""
    for path in applications()[first:]:
        with tempfile.TemporaryDirectory() as folder:
            command = [*FLEXMATCH, str(path), "--accel", "flexasr", "-q", "-o", "plan"]
            run = subprocess.run(command, cwd=folder, preexec_fn=limited, capture_output=True, text=True)
            files = sorted(os.listdir(folder))
        message = run.stderr.strip()
        wrong = ""
        if run.returncode not in (0, 3, 4) or "Traceback" in message or (run.returncode and (not message or files)):
            wrong = f"{path.name}: code {run.returncode}, {files}, {message[-160:]}"
        yield "completed" if run.returncode == 0 else f"refused with code {run.returncode}", wrong


CAMPAIGNS = (
    Campaign("kill -9 of a co-simulation", 200, kills), Campaign("plans of random hash seeds", 100, plans),
    Campaign("1 GB of memory", 0, memory),
)  # fmt: skip


def done(log: CampaignLog, c: Campaign) -> int:
    """Return how many cases count."""
    p = log.of(c.name)
    return p.cases - p.outcomes[ENDED]


def spend(c: Campaign, log: CampaignLog, ends: float, goal: int) -> None:
    """Run cases until the goal or the time is reached."""
    outcomes = c.run(log.of(c.name).cases)
    while done(log, c) < goal and time.monotonic() < ends:
        number, at = log.of(c.name).cases, time.process_time()
        outcome, wrong = next(outcomes)
        chunk = Chunk(findings={str(number): wrong} if wrong else {})
        chunk.outcomes[outcome] += 1
        seconds = time.process_time() - at
        log.add(c.name, number, 1, 1, chunk, seconds, seconds)
        if wrong:
            print(f"  {c.name} {number}: {wrong}", flush=True)


def main() -> None:
    """Go on with every campaign, or those named, and write the record."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--only", default="", metavar="WORD", help="campaigns whose name has this word")
    parser.add_argument("--minutes", type=float, default=120, metavar="N", help="stop after so many minutes (default: %(default)s)")
    parser.add_argument("--log", type=Path, default=Path("reliability_processes.jsonl"), metavar="FILE", help="go on in this log")
    args = parser.parse_args()
    log, ends = CampaignLog(args.log), time.monotonic() + 60 * args.minutes
    rows: list[Row] = []
    for c in (c for c in CAMPAIGNS if args.only in c.name):
        goal = c.goal or len(applications())
        spend(c, log, ends, goal)
        p = log.of(c.name)
        rows.append(
            {"case": c.name, "runs": done(log, c), "goal": goal, "findings": len(p.findings), "outcomes": dict(sorted(p.outcomes.items()))}
        )
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    finish("reliability_processes", rows, args.json)
    if any(r["findings"] for r in rows):
        raise SystemExit("there are findings")


if __name__ == "__main__":
    main()
