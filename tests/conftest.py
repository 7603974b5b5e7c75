"""Where the tests find the shared folder, and what is said when it is not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from pages import skipped_blocks

ROOT = Path(__file__).resolve().parent.parent


def find_shared() -> Path | None:
    """Return the folder of shared models and golden vectors, or None."""
    given = os.environ.get("FLEXMATCH_SHARED")
    folder = Path(given) if given else ROOT.parent / "shared"
    return folder if (folder / "golden").is_dir() else None


SHARED = find_shared()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-shared", action="store_true", help="fail when the folder of shared models and golden vectors is missing")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # one cache for all processes of a run, empty at first, gone at the end
        folder = tempfile.TemporaryDirectory(prefix="flexmatch-cache-")
        config.add_cleanup(folder.cleanup)
        os.environ["FLEXMATCH_CACHE"] = folder.name
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of commands start: each module is compiled once for all
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder.name}/bytecode"
    if SHARED is None and config.getoption("--require-shared"):
        raise pytest.UsageError("--require-shared: neither FLEXMATCH_SHARED nor ../shared holds the shared models and golden vectors")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if SHARED is not None:
        return
    left_out = [i for i in items if i.get_closest_marker("shared")]
    items[:] = [i for i in items if not i.get_closest_marker("shared")]
    config.stash[_LEFT_OUT] = len(left_out)


_LEFT_OUT = pytest.StashKey[int]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(f"{count} tests need ../shared: not run")
    for line in skipped_blocks():
        terminalreporter.write_line(f"block not run: {line}")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of shared models and golden vectors; only for tests marked `shared`."""
    assert SHARED is not None
    return SHARED
