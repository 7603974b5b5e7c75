"""A browser for the tests of the page; without one they do not run, and the end of the run says so. In CI that is a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING: list[str] = []


def browser_program() -> str | None:
    """Return the browser that is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    program = browser_program()
    if program is None or find_spec("playwright") is None:
        MISSING.append("no Chromium or no playwright")
        if os.environ.get("FLEXMATCH_BROWSER") == "required":
            pytest.fail("FLEXMATCH_BROWSER=required, and there is no Chromium or no playwright")
        pytest.skip("no Chromium or no playwright: install Debian's chromium and the extra `test`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def tell_what_was_missing(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that the page was not looked at."""
    if MISSING:
        terminalreporter.write_line(f"THE PAGE WAS NOT TESTED IN A BROWSER: {MISSING[0]}")
