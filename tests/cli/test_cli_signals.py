"""Ctrl-C and SIGTERM in every phase: the exit code within two seconds, one sentence, no half-written file, no child left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command import FLEXMATCH, flexmatch, onnx_model, samples
from onnx import helper, numpy_helper

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in Linux's /proc")
SIGNALS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}
SECONDS = 2.0
JUDGING_SECONDS = 2.5  # of the processor, after which a process that judges has imported what it needs


def convolutions(layers: int) -> bytes:
    """Return a chain of convolutions: minutes of saturation are not needed, some seconds are."""
    random = np.random.default_rng(0)
    nodes, constants = [], []
    for n in range(layers):
        constants.append(numpy_helper.from_array(random.normal(0, 0.1, (8, 8, 3, 3)).astype(np.float32), f"w{n}"))
        nodes.append(helper.make_node("Conv", [f"r{n}", f"w{n}"], [f"c{n}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n + 1}"]))
    nodes[0].input[0] = "x"
    return bytes(onnx_model(nodes, {"x": [1, 8, 6, 6]}, [f"r{layers}"], constants).SerializeToString())


def children(pid: int) -> list[int]:
    """Return the running children of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text("ascii").split())
        except OSError:  # the thread has ended
            continue
    return found


def is_running(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False


def wait_for(condition: object, run: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # type: ignore[operator]
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)
    assert condition()  # type: ignore[operator]


@pytest.fixture
def started(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands that a test starts; whatever still runs at its end is killed."""
    runs: list[subprocess.Popen[bytes]] = []
    yield runs
    for run in runs:
        run.kill()
        run.communicate()


def ends(run: subprocess.Popen[bytes], number: signal.Signals, before: set[str]) -> None:
    """Send a signal and assert that the command ends as promised."""
    code, what = SIGNALS[number]
    begun = time.monotonic()
    run.send_signal(number)
    out, err = run.communicate(timeout=20)
    assert time.monotonic() - begun < SECONDS
    sentence = f"{what}: no file is half-written; what was written before is complete\n"
    assert (run.returncode, out, err.decode()) == (code, b"", sentence)
    assert set(os.listdir()) == before


def have_ended(workers: list[int]) -> None:
    """Assert that children end as promised."""
    end = time.monotonic() + SECONDS
    while any(map(is_running, workers)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not [w for w in workers if is_running(w)]


def start(runs: list[subprocess.Popen[bytes]], *arguments: str) -> subprocess.Popen[bytes]:
    runs.append(subprocess.Popen([*FLEXMATCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return runs[-1]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_during_saturation(number: signal.Signals, started: list[subprocess.Popen[bytes]]) -> None:
    Path("long.onnx").write_bytes(convolutions(40))
    before = set(os.listdir())
    run = start(started, "long.onnx", "--accel", "flexasr")
    wait_for(lambda: children(run.pid), run)
    workers = children(run.pid)
    ends(run, number, before)
    have_ended(workers)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_during_simulation(number: signal.Signals, started: list[subprocess.Popen[bytes]]) -> None:
    """More threads than one: some samples are finished, most are not; a child that saturation did not ask ends, too."""
    samples(Path("many.npz"), 50_000, 16, classes=4)
    before = set(os.listdir())
    run = start(started, "cosim", "ready.json", "--data", "many.npz", "--threads", "2", "--json", "report.json")
    log = Path("report.json.log")
    wait_for(lambda: log.exists() and b'"batch":' in log.read_bytes(), run)
    wait_for(lambda: len(list(Path(f"/proc/{run.pid}/task").iterdir())) > 2, run)
    workers = children(run.pid)
    ends(run, number, before | {log.name})  # the samples that were finished
    have_ended(workers)


def test_a_worker_ends_with_its_parent_even_when_that_is_killed(started: list[subprocess.Popen[bytes]]) -> None:
    Path("long.onnx").write_bytes(convolutions(40))
    run = start(started, "long.onnx", "--accel", "flexasr")
    wait_for(lambda: children(run.pid), run)
    wait_for(lambda: any("bindings" in Path(f"/proc/{w}/maps").read_text("utf-8") for w in children(run.pid)), run)
    workers = children(run.pid)
    run.kill()
    run.communicate()
    have_ended(workers)


def test_processes_that_judge_end_with_a_killed_prove(started: list[subprocess.Popen[bytes]]) -> None:
    """In the middle of a case; one that waits for its next case would end by itself."""
    run = start(started, "prove", "--accel", "flexasr", "--no-rules", "--no-cache", "--jobs", "2")
    wait_for(lambda: len([w for w in children(run.pid) if processor_seconds(w) > JUDGING_SECONDS]) == 2, run, 300.0)
    workers = children(run.pid)
    run.kill()
    run.communicate()
    have_ended(workers)


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_interrupt_inside_of_a_program_that_calls_main(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rewrite_compiler.cli.verbs.list.listing", interrupted)
    answer = flexmatch("list")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == "interrupted: no file is half-written; what was written before is complete\n"
