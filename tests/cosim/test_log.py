"""Finished samples survive: records that are read back bit for bit, torn and foreign logs, real kills."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import FLEXMATCH, flexmatch, perceptron, refused, samples

from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.cosim.journal import Journal
from rewrite_compiler.cosim.journal_records import FinishedBatch
from rewrite_compiler.cosim.metrics.scores import Scores
from rewrite_compiler.disk_cache import user_key
from rewrite_compiler.errors import FlexmatchError

KEY = {"plan": "p", "batch": 4}
SOME = Settings(batch=4, threads=1, metric="f1")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("plan")
    onnx.save(perceptron((16, 8, 4)), folder / "app.onnx")
    data = samples(folder / "calibration.npz", 8, 16, seed=2)
    return compile_model(folder / "app.onnx", ["flexasr"], calibrate=data)


def timeless(document: Any) -> str:
    return json.dumps({k: v for k, v in document.items() if k != "run"})


class Stopped(Exception):
    pass


def interrupted(plan: Plan, data: Path, log: Path, after: int) -> None:
    """Run until so many samples are reported."""

    def stop(done: int, _total: int) -> None:
        if done >= after:
            raise Stopped

    with pytest.raises(Stopped):
        cosimulate(plan, data, settings=replace(SOME, log=log), progress=stop)


@pytest.mark.parametrize("after", [1, 9])
def test_a_resumed_run_gives_the_bits_of_an_unbroken_one(plan: Plan, tmp_path: Path, after: int) -> None:
    data, log = samples(tmp_path / "data.npz", 22, 16, classes=4), tmp_path / "run.log"
    unbroken = cosimulate(plan, data, settings=SOME)
    interrupted(plan, data, log, after)
    reported = []
    report = cosimulate(plan, data, settings=replace(SOME, log=log), progress=lambda done, _: reported.append(done))
    assert timeless(report.document) == timeless(unbroken.document)
    finished = min(-(-after // 4) * 4, 22)
    assert report.document["run"]["resumed_samples"] == finished
    assert all(n > finished for n in reported)
    again = cosimulate(plan, data, settings=replace(SOME, log=log), progress=lambda *_: pytest.fail("nothing was left to run"))
    assert timeless(again.document) == timeless(unbroken.document)


def test_every_damage_costs_at_most_the_samples_behind_it(plan: Plan, tmp_path: Path) -> None:
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    wanted = timeless(cosimulate(plan, data, settings=replace(SOME, log=log)).document)
    whole = log.read_bytes()
    random = np.random.default_rng(0)
    for cut in random.integers(80, len(whole), 3):  # the header says by then whose it is
        spoilt = bytearray(whole)
        spoilt[cut] ^= 1
        for content in (whole[:cut], bytes(spoilt)):
            log.write_bytes(content)
            if cut < whole.index(b"\n") and len(content) == len(whole):
                continue  # a damaged first line is another test's
            found, said = "", ""
            try:
                found = timeless(cosimulate(plan, data, settings=replace(SOME, log=log)).document)
            except FlexmatchError as error:  # a whole line that says something else
                said = str(error)
            if content == whole[:cut] or not said:
                assert (found, said, log.read_bytes()) == (wanted, "", whole)
            assert said == "" or "a line that this user's runs did not write" in said


def refusal(path: Path, key: dict[str, Any], offloads: list[str] | None = None) -> str:
    with pytest.raises(FlexmatchError) as caught:
        Journal(path, key, offloads)
    return str(caught.value)


def test_a_log_of_something_else_is_refused_and_kept(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    interrupted(plan, samples(tmp_path / "data.npz", 12, 16, classes=4), path, 4)
    before = path.read_bytes()
    named = json.loads(before[33 : before.index(b"\n")])["plan"]
    assert refusal(path, KEY) == (
        f"{path}: error[C106]: the log belongs to another run: its plan is {named[:12]}…, not p\n"
        "  help: delete it, or give the plan, data and options it was made with"
    )
    hexadecimal = (b"0123456789abcdef", b"7" * 32, b"7" * 32 + b" ", b"7" * 32 + b' {"schema":"flexmatch')
    for content in (b"a letter to my aunt\n", b"another letter without an end", b"\0" * 40, *hexadecimal):
        path.write_bytes(content)
        assert refusal(path, KEY) == f"{path}: error[C106]: the file is not a log of samples\n  help: name another file"
        assert path.read_bytes() == content
    path.write_bytes(b"7" * 32 + b' {"schema":"flexmatch log of samples 2","pl')  # a header that a full disk left torn
    Journal(path, KEY).close()
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert refusal(path, KEY).startswith(f"{path}: error[F100]: a log must be a regular file")


def spelt(*lines: Any) -> bytes:
    """Return lines as they would be written by who has the user's key."""
    found, seal, secret = b"", b"", user_key()
    assert secret is not None
    for line in lines:
        text = json.dumps(line, separators=(",", ":")).encode()
        seal = hmac.digest(secret, seal + text, "sha256").hex()[:32].encode()
        found += seal + b" " + text + b"\n"
    return found


WRONG: dict[str, Callable[[list[Any]], None]] = {
    "a score is a text": lambda lines: lines[2].update(reference=["linear", 1.0]),
    "a score is missing": lambda lines: lines[2].pop("accelerated"),
    "a sample twice": lambda lines: lines[2].update(sample=0),
    "a batch of another place": lambda lines: lines[5].update(batch=8),
    "a gap of a batch": lambda lines: [line.update(sample=line["sample"] + 4) for line in lines[1:5]] + [lines[5].update(batch=4)],
    "a batch twice": lambda lines: lines.extend(lines[1:6]),
    "other offloads": lambda lines: lines[5].update(statistics={"conv_0": lines[5]["statistics"]["linear_0"]}),
    "figures that are none": lambda lines: lines[5]["statistics"].update(linear_0=3),
    "numerics that are none": lambda lines: lines[5].update(numerics=[1]),
}


@pytest.mark.parametrize("case", WRONG)
def test_lines_that_no_run_wrote_are_refused(case: str, plan: Plan, tmp_path: Path) -> None:
    """Their seals are right: the user's own key made them."""
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    interrupted(plan, data, log, 4)
    lines = [json.loads(line[33:]) for line in log.read_bytes().splitlines()]
    assert log.read_bytes() == spelt(*lines)
    WRONG[case](lines)
    log.write_bytes(spelt(*lines))
    with pytest.raises(FlexmatchError) as caught:
        cosimulate(plan, data, settings=replace(SOME, log=log))
    at = 4 if case == "a batch twice" else 0
    assert str(caught.value) == (
        f"{log}: error[C106]: the log has lines that no run wrote, behind {at} samples\n  help: delete it, or name another file"
    )
    assert log.read_bytes() == spelt(*lines)


@pytest.mark.parametrize(
    "change",
    [
        "none",
        "a number that is spelt in another way",
        "a sample beyond the last",
        "more samples than the run has",
        "empty batch",
        "offload without statistics",
    ],
)
def test_lines_of_a_log_are_those_that_a_run_of_its_samples_writes(change: str, tmp_path: Path) -> None:
    """Without a run: four samples of six, then lines that are sealed with the user's key."""
    scores = Scores(np.arange(4.0), np.ones(4))
    batch, path, key = FinishedBatch(0, scores, scores, {}, {}, 7), tmp_path / "run.log", {"plan": "p", "samples": 6}
    log = Journal(path, key, [])
    log.append(batch)
    log.close()
    header, *lines = [json.loads(line[33:]) for line in path.read_bytes().splitlines()]
    if change.startswith("a number"):
        lines[0]["reference"][0] = 0
    elif change.startswith("a sample"):
        lines += replace(batch, first=4).lines()
    elif change.startswith("more"):
        lines += [{**lines[0], "sample": 4 + n} for n in range(8)]
    elif change.startswith("empty"):
        lines += replace(batch, first=4, reference=scores.take(np.arange(0)), accelerated=scores.take(np.arange(0))).lines()
    path.write_bytes(spelt(header, *lines))
    if change == "none":
        found = Journal(path, key, [])
        assert [b.first for b in found.batches] == [0]
        found.close()
    else:
        behind = 0 if change.startswith(("a number", "offload")) else 4
        told = refusal(path, key, ["conv_0"] if change.startswith("offload") else [])
        assert told.startswith(f"{path}: error[C106]: the log has lines that no run wrote, behind {behind} samples")


def test_a_log_that_goes_on_several_times_is_one_log(tmp_path: Path) -> None:
    """Each line is sealed with those before it, whichever process wrote them; a header says the whole key."""
    scores, path, key = Scores(np.arange(2.0), np.ones(2)), tmp_path / "run.log", {"plan": "p", "samples": 6}
    for first in (0, 2, 4):
        log = Journal(path, key, [])
        assert [b.first for b in log.batches] == list(range(0, first, 2))
        log.append(FinishedBatch(first, scores, scores, {}, {}, 7))
        log.close()
    header, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + b"".join(lines[3:6] + lines[:3] + lines[6:]))  # two batches exchanged
    assert "the log has a line that this user's runs did not write, behind 0 samples" in refusal(path, key, [])
    path.write_bytes(header)
    assert "the log belongs to another run: its batch is None, not 2" in refusal(path, {**key, "batch": 2})


def test_a_log_is_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.txt").write_bytes(b"")
    (tmp_path / "run.log").symlink_to(tmp_path / "elsewhere.txt")
    assert f"{tmp_path / 'run.log'}: error[F100]: the log cannot be written: " in refusal(tmp_path / "run.log", KEY)
    assert (tmp_path / "elsewhere.txt").read_bytes() == b""


def with_checksums(*lines: Any) -> bytes:
    """Return lines as anybody could write them, without the key."""
    texts = [json.dumps(line, separators=(",", ":")).encode() for line in lines]
    return b"".join(hashlib.sha256(t).hexdigest()[:32].encode() + b" " + t + b"\n" for t in texts)


def foreign_key(whole: bytes, lines: list[Any]) -> bytes:
    Path(os.environ["FLEXMATCH_CACHE"], "key").write_bytes(bytes(32))
    return whole


FORGED: dict[str, tuple[int, Callable[[bytes, list[Any]], bytes]]] = {
    "a number": (0, lambda whole, lines: whole.replace(b'"accelerated":[', b'"accelerated":[100', 1)),
    "a number with fresh checksums": (0, lambda whole, lines: with_checksums(*lines)),
    "a batch left out": (0, lambda whole, lines: b"".join(whole.splitlines(True)[:1] + whole.splitlines(True)[6:])),
    "a batch put in": (4, lambda whole, lines: b"".join(whole.splitlines(True)[:6] + whole.splitlines(True)[1:6])),
    "the key of somebody else": (0, foreign_key),
}


@pytest.mark.parametrize("case", FORGED)
def test_lines_that_somebody_else_wrote_are_refused(case: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "cache"))
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    interrupted(plan, data, log, 8)
    behind, change = FORGED[case]
    log.write_bytes(change(log.read_bytes(), [json.loads(line[33:]) for line in log.read_bytes().splitlines()]))
    before = log.read_bytes()
    with pytest.raises(FlexmatchError) as caught:
        cosimulate(plan, data, settings=replace(SOME, log=log))
    assert str(caught.value) == (
        f"{log}: error[C106]: the log has a line that this user's runs did not write, behind {behind} samples\n"
        "  help: delete it, or name another file"
    )
    assert log.read_bytes() == before


def test_without_a_place_for_a_key_a_log_still_resumes(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "file"))
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    interrupted(plan, data, log, 4)
    assert cosimulate(plan, data, settings=replace(SOME, log=log)).document["run"]["resumed_samples"] == 4


@pytest.mark.parametrize("line", [[], 3, "x", None])
def test_a_line_that_is_no_object_ends_a_log(line: Any, plan: Plan, tmp_path: Path) -> None:
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    interrupted(plan, data, log, 4)
    log.write_bytes(log.read_bytes() + spelt(line))
    assert cosimulate(plan, data, settings=replace(SOME, log=log)).document["run"]["resumed_samples"] == 4
    log.write_bytes(spelt(line))
    assert refusal(log, KEY) == f"{log}: error[C106]: the file is not a log of samples\n  help: name another file"


def test_two_runs_do_not_share_a_log(tmp_path: Path) -> None:
    first = Journal(tmp_path / "run.log", KEY)
    assert refusal(tmp_path / "run.log", KEY).startswith(f"{tmp_path / 'run.log'}: error[F100]: another run writes this log")
    first.close()
    assert not (tmp_path / "run.log").exists()  # it held no sample


def test_a_full_disk_keeps_what_was_finished(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    unbroken = timeless(cosimulate(plan, data, settings=SOME).document)
    write, written = os.write, []

    def full(file: int, content: bytes) -> int:
        written.append(write(file, content[:100]) if len(written) == 2 else write(file, content))
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written[-1]

    with monkeypatch.context() as m:
        m.setattr("rewrite_compiler.cosim.journal.os.write", full)
        with pytest.raises(
            FlexmatchError, match=r"error\[F100\]: the log cannot be written: no space left on device\n  help: what was finished"
        ):
            cosimulate(plan, data, settings=replace(SOME, log=log))
    report = cosimulate(plan, data, settings=replace(SOME, log=log))
    assert timeless(report.document) == unbroken
    assert report.document["run"]["resumed_samples"] == 4


def test_the_log_is_forced_to_disk_once_a_second_and_at_the_end(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, forced = [0.0], []
    monkeypatch.setattr("rewrite_compiler.cosim.journal.time.monotonic", lambda: now[0])
    monkeypatch.setattr("rewrite_compiler.cosim.journal.os.fsync", lambda file: forced.append(now[0]))

    def later(*_: int) -> None:
        now[0] += 0.4

    data = samples(tmp_path / "data.npz", 24, 16, classes=4)
    cosimulate(plan, data, settings=replace(SOME, log=tmp_path / "run.log"), progress=later)
    assert [round(t, 1) for t in forced] == [0.0, 1.2, 2.4]


def test_a_log_that_does_not_reach_the_disk_is_told_at_the_end(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = []

    def lost(file: int) -> None:
        forced.append(file)
        if len(forced) > 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rewrite_compiler.cosim.journal.os.fsync", lost)
    data, log = samples(tmp_path / "data.npz", 12, 16, classes=4), tmp_path / "run.log"
    with pytest.raises(FlexmatchError, match=r"error\[F100\]: the log cannot be written: input/output error\n  help: what was finished"):
        cosimulate(plan, data, settings=replace(SOME, log=log))


def test_every_sample_has_a_line_with_its_scores(plan: Plan, tmp_path: Path) -> None:
    data, log = samples(tmp_path / "data.npz", 6, 16, classes=4), tmp_path / "run.log"
    report = cosimulate(plan, data, settings=replace(SOME, metric="top1", log=log))
    lines = [json.loads(line[33:]) for line in log.read_bytes().splitlines()]
    rows = [line for line in lines if "sample" in line]
    assert [r["sample"] for r in rows] == list(range(6))
    assert np.mean([r["accelerated"][0] for r in rows]) == report.document["accelerated"]["value"]
    assert report.scores is not None
    opened = Journal(log, {k: v for k, v in lines[0].items() if k != "schema"})
    assert all(isinstance(b, FinishedBatch) for b in opened.batches)
    assert np.concatenate([b.reference.values for b in opened.batches]).tolist() == report.scores[0].values.tolist()
    opened.close()


# -- real processes


PAUSES = """
import os, time

def top1(outputs, labels):
    '''Top-1, and where a file says so a long wait in the middle of the run, for a signal to come.'''
    if os.path.exists("wait") and os.stat("report.json.log").st_size > 4000:
        open("waits", "w").close()
        time.sleep(60)
    return (outputs.reshape(len(outputs), -1).argmax(axis=1) == labels).astype(float)
"""


def killed(command: list[str], log: Path, number: signal.Signals) -> tuple[int, int]:
    """Start a run, send a signal when it waits in the middle; return its exit code and the samples in the log."""
    Path("wait").touch()
    run = subprocess.Popen([*FLEXMATCH, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and run.poll() is None and not Path("waits").exists():
        time.sleep(0.005)
    run.send_signal(number)
    code = run.wait(20)
    Path("wait").unlink()
    return code, log.read_bytes().count(b'{"sample":') if log.exists() else -1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_goes_on_where_it_was(number: signal.Signals, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(perceptron((16, 8, 4)), "app.onnx")
    samples(Path("calibration.npz"), 8, 16, seed=2)
    samples(Path("data.npz"), 80, 16, classes=4)
    Path("pauses.py").write_text(PAUSES, "utf-8")
    assert flexmatch("app.onnx", "--accel", "flexasr", "--calibrate", "calibration.npz", "-o", "plan", "-q").code == 0
    command = ["cosim", "plan.json", "--data", "data.npz", "--batch", "4", "--threads", "1", "-q", "--metric", "pauses:top1"]
    assert flexmatch(*command, "--json", "unbroken.json").code == 0
    code, before = killed([*command, "--json", "report.json"], Path("report.json.log"), number)
    assert code == (-9 if number == signal.SIGKILL else 130)
    assert 0 < before < 80
    assert not Path("report.json").exists()
    refused(
        flexmatch(*command[:5], "3", *command[6:], "--json", "report.json"), 3,
        "report.json.log: error[C106]: the log belongs to another run: its batch is 4, not 3\n"
        "  help: delete it, or give the plan, data and options it was made with",
    )  # fmt: skip
    assert flexmatch(*command, "--json", "report.json").code == 0
    found, unbroken = (json.loads(Path(name).read_bytes()) for name in ("report.json", "unbroken.json"))
    assert timeless(found) == timeless(unbroken)
    assert found["run"]["resumed_samples"] >= before - 3
    assert not Path("report.json.log").exists()
