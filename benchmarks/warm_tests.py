"""Tests that are collected once: what each takes and runs, and a process for each change that asks some of them."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from changed_code import Place, new_code, parsed, write_text
from record import ROOT

WALL_SECONDS = 300  # of one change; then it has changed the program into one that waits
BYTES = 8 << 30
PLUGINS = ("-p", "sampled_tests", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
NOTICED = ("noticed", "without an end")


def in_copy(folder: Path) -> None:
    """Let this process, which has nothing of the engine yet, and those that it starts take the engine from a folder."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "rewrite_compiler"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    more = os.pathsep.join([str(folder), str(ROOT / "benchmarks")])
    os.environ.update(PYTHONPATH=more, PYTHONSAFEPATH="1", PYTHONDONTWRITEBYTECODE="1")
    os.environ.pop("PYTEST_ADDOPTS", None)  # options of a run of all tests, some of them of plugins that are not loaded here
    sys.dont_write_bytecode = True
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)


def bound_process(seconds: float) -> None:
    """Bound processor time and memory of this process, which leads a group of its own."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(3 * seconds), int(3 * seconds) + 10))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


def status_of(child: int, wall: float = WALL_SECONDS) -> int | None:
    """Return the status of a child, None if it had to be ended; its group ends with it."""
    ends, status = time.monotonic() + wall, None
    while status is None and time.monotonic() < ends:
        pid, found = os.waitpid(child, os.WNOHANG)
        status = found if pid else None
        time.sleep(0 if pid else 0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def outcome_of(status: int | None) -> str:
    """Return what the status of a process that asked tests says."""
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        return "without an end"
    return "survived" if status == 0 else "noticed"


class Reach:
    """A plugin that writes, a line for each test, its processor seconds and whether it failed; tests with a line do not run."""

    def __init__(self, lines: Path) -> None:
        self.lines, self.failed = lines, set[str]()
        text = lines.read_text("utf-8") if lines.exists() else ""
        self.known = {json.loads(line)[0] for line in text.splitlines()}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is known; the files come in any order, so that a run that is cut off has something of each folder."""
        files = sorted({i.location[0] for i in items})
        random.Random(0).shuffle(files)
        order = {file: n for n, file in enumerate(files)}
        items[:] = sorted((i for i in items if i.nodeid not in self.known), key=lambda i: order[i.location[0]])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        probe, before = sys.modules.get("campaign_probe"), os.times()
        if probe:
            probe.next_test(item.nodeid)
        yield
        seconds = sum(os.times()[:4]) - sum(before[:4])
        if probe:
            probe.next_test("")
        with open(self.lines, "a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, round(seconds, 3), item.nodeid not in self.failed]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def measure(folder: Path, lines: Path, reached: Path, tests: list[str], more: list[str], wall: float) -> None:
    """Run tests on a copy with probes in a process of its own, for some time."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ["REACHED_PLACES"] = str(reached)
        in_copy(folder)
        os._exit(int(pytest.main(["-q", "-n", "0", *PLUGINS, *more, *tests], plugins=[Reach(lines)])))
    status_of(child, wall)


class Server:
    """A plugin that, instead of running tests, answers on a socket what tests say of a change."""

    def __init__(self, folder: Path, line: socket.socket) -> None:
        self.folder, self.line = folder, line

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Write the ids of all tests, then answer until the other side closes."""
        self.items = {i.nodeid: i for i in session.items}
        self._index_functions()
        with self.line.makefile("rw", encoding="utf-8") as file:
            file.write(json.dumps([*self.items]) + "\n")
            file.flush()
            for request in file:
                answer = self._answer(**json.loads(request))
                file.write(json.dumps(answer) + "\n")
                file.flush()
        return True

    def _index_functions(self) -> None:
        gc.unfreeze()
        self.functions: dict[str, list[FunctionType]] = defaultdict(list)
        self.caches = []
        for x in gc.get_objects():
            if isinstance(x, FunctionType) and x.__code__.co_filename.startswith(str(self.folder)):
                self.functions[x.__code__.co_filename].append(x)
            elif isinstance(x, functools._lru_cache_wrapper) and (x.__module__ or "").startswith("rewrite_compiler"):
                self.caches.append(x)
        gc.freeze()

    def _answer(self, place: list[Any] | None, tests: list[str], seconds: float) -> dict[str, Any]:
        """Return the outcome, the test that failed, whether the change is in this process, and what it took."""
        before = os.times()
        work = Path(tempfile.mkdtemp(dir=self.folder.parent))
        code = new_code(Place(*place), self.folder) if place else {}
        child = os.fork()
        if child == 0:
            os._exit(self._asked(place, code, [self.items[t] for t in tests if t in self.items], seconds, work))
        outcome = outcome_of(status_of(child))
        failed = (work / "failed").read_text("utf-8") if (work / "failed").exists() else ""
        shutil.rmtree(work, ignore_errors=True)
        spent = sum(os.times()[:4]) - sum(before[:4])
        return {"outcome": outcome, "failed": failed, "seconds": round(spent, 3)}

    def _asked(self, place: list[Any] | None, code: dict[CodeType, CodeType], items: list[pytest.Item], seconds: float, work: Path) -> int:
        bound_process(seconds)
        os.environ["FLEXMATCH_CACHE"] = str(work / "cache")
        if not items:
            return 0
        factory: Any = items[0].config
        factory._tmp_path_factory._basetemp = work
        for f in self.functions[str(self.folder / place[1])] if place else ():
            f.__code__ = code.get(f.__code__, f.__code__)
        for wrapper in self.caches:
            wrapper.cache_clear()
        ends = sum(os.times()[:4]) + seconds
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                if self._fails(item, following):
                    (work / "failed").write_text(item.nodeid, "utf-8")
                    return 1
                if sum(os.times()[:4]) > ends:
                    return 0
        except BaseException:  # whatever a changed program does: it is noticed
            return 1
        return 0

    def _fails(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        reports: list[bool] = []

        class Told:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                reports.append(report.failed)

        item.config.pluginmanager.register(told := Told())
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            item.config.pluginmanager.unregister(told)
        return any(reports)


class Client:
    """The other side of a server in a process of its own; `close` ends it."""

    def __init__(self, folder: Path, tests: list[str], more: list[str]) -> None:
        self.folder = folder
        mine, other = socket.socketpair()
        self.child = os.fork()
        if self.child == 0:
            mine.close()
            os.setsid()
            in_copy(folder)
            os._exit(int(pytest.main(["-q", "-n", "0", *PLUGINS, *more, *tests], plugins=[Server(folder, other)])))
        other.close()
        self.socket, self.file = mine, mine.makefile("rw", encoding="utf-8")

    @functools.cached_property
    def names(self) -> list[str]:
        """The ids of all tests that were collected."""
        return list(self._line())

    def answer(self, place: Place | None, tests: list[str], seconds: float) -> dict[str, Any]:
        """Return what tests say of a change, or of none."""
        assert self.names  # the first line
        fields = None if place is None else [place.part, place.file, place.number]
        self.file.write(json.dumps({"place": fields, "tests": tests, "seconds": seconds}) + "\n")
        self.file.flush()
        return dict(self._line())

    def _line(self) -> Any:
        line = self.file.readline()
        if not line:
            raise SystemExit("the process that has collected the tests ended")
        return json.loads(line)

    def close(self) -> None:
        """End the server."""
        self.file.close()
        self.socket.close()
        status_of(self.child, 10)


def in_fresh_process(folder: Path, tests: list[str], seconds: float, more: list[str]) -> str:
    """Return what tests say of the copy as it is, in a process that imports it anew."""
    child = os.fork()
    if child == 0:
        bound_process(seconds + 10)
        in_copy(folder)
        try:
            os._exit(int(pytest.main(["-q", "-x", "-n", "0", *PLUGINS, "--until", str(seconds), *more, *tests])))
        except BaseException:  # whatever a changed program does: it is noticed
            os._exit(1)
    return outcome_of(status_of(child))


def restore(folder: Path, file: str) -> None:
    """Give a file of the copy its text again."""
    assert parsed(file)
    write_text(folder, file, (ROOT / file).read_text("utf-8"))
