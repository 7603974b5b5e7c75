"""What the tests of generated programs need from outside."""

from __future__ import annotations

import pytest
from icarus import MISSING


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that generated Verilog was not simulated."""
    if MISSING:
        terminalreporter.write_line(f"THE VERILOG WAS NOT SIMULATED: {MISSING[0]}")
