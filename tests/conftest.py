"""Where the tests find the shared folder, and what is said when it is not there."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from browser import browser, tell_what_was_missing
from campaign import in_short_run, shorten_properties
from groups import group_by_shared_work, put_longest_first
from helplines import look_at_help
from hypothesis import HealthCheck, settings
from pages import skipped_blocks
from saturation import answer_most_here
from seconds import Seconds
from shared import SHARED
from wheels import installed, sources, wheel

from rewrite_compiler.cli.verbs import prove

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a loaded one fails no test
settings.load_profile("any machine")
GARBAGE = 20_000  # objects made between two looks for garbage: a test makes many, and few of them are cyclic
FIXTURES = (browser, sources, wheel, installed)  # of every test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="run what the short run leaves out, too: see tests/campaign.py")
    parser.addoption("--seconds", metavar="FILE", help="write the processor seconds of each test: see tests/seconds.py")
    parser.addoption("--require-shared", action="store_true", help="fail when the folder of shared models and golden vectors is missing")


def pytest_configure(config: pytest.Config) -> None:
    look_at_help()
    gc.disable()  # until all tests are collected: nothing of that is garbage
    if config.getoption("--seconds"):
        config.pluginmanager.register(Seconds(Path(config.getoption("--seconds")).absolute()))
    if not hasattr(config, "workerinput"):  # one cache for all processes of a run, empty at first, gone at the end
        folder = tempfile.TemporaryDirectory(prefix="flexmatch-cache-")
        config.add_cleanup(folder.cleanup)
        os.environ["FLEXMATCH_CACHE"] = folder.name
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of commands start: each module is compiled once for all
        os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # as many processes as cores: their threads would wait turning
    os.environ.pop("COLUMNS", None)  # processes of a run get the width of some terminal
    if SHARED is None and config.getoption("--require-shared"):
        raise pytest.UsageError("--require-shared: neither FLEXMATCH_SHARED nor ../shared holds the shared models and golden vectors")


def pytest_collection_finish() -> None:
    """Take what collection has made out of garbage collection: it stays to the end, and each full collection would walk over it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()
    answer_most_here()
    prove.JOBS = 1  # the tests have as many processes as there are cores


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    group_by_shared_work(items)
    put_longest_first(items)
    if SHARED is None:
        config.stash[_LEFT_OUT] = sum(i.get_closest_marker("shared") is not None for i in items)
        items[:] = [i for i in items if not i.get_closest_marker("shared")]
    if not config.getoption("--campaign") and not any("::" in a for a in config.args):  # a test that is named is run
        kept = in_short_run([i.nodeid for i in items])
        config.stash[_LONGER] = kept.count(False)
        items[:] = [i for i, is_short in zip(items, kept, strict=True) if is_short]
        shorten_properties([getattr(i, "function", None) for i in items])


_LEFT_OUT, _LONGER = pytest.StashKey[int](), pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a process of a run tell the first one what it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counts"] = [session.config.stash.get(key, 0) for key in (_LEFT_OUT, _LONGER)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for key, count in zip((_LEFT_OUT, _LONGER), getattr(node, "workeroutput", {}).get("counts", ()), strict=False):
        node.config.stash[key] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(f"{count} tests need ../shared: not run")
    longer = config.stash.get(_LONGER, 0)
    if longer:
        terminalreporter.write_line(
            f"{longer} tests and most examples of properties are left to `python -m pytest --campaign` (tests/campaign.py): not run"
        )
    tell_what_was_missing(terminalreporter)
    for line in skipped_blocks():
        terminalreporter.write_line(f"block not run: {line}")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of shared models and golden vectors; only for tests marked `shared`."""
    assert SHARED is not None
    return SHARED
