"""Live lines are for terminals: they come and go on standard error, and pipes, quiet runs and documents see nothing of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from command import FLEXMATCH, process


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """Run a command whose standard error is a terminal; return its exit code and what both streams got."""
    ours, theirs = os.openpty()
    with subprocess.Popen([*FLEXMATCH, *arguments], stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        assert run.stdout is not None
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:  # the other end is closed
            pass
        out = run.stdout.read()
    os.close(ours)
    return run.returncode, out.decode(), seen.decode()


def test_a_terminal_sees_what_is_done_and_a_pipe_does_not(folder: Path) -> None:
    code, out, seen = on_a_terminal("app.onnx", "--accel", "flexasr", "-o", "plan")
    assert code == 0
    assert "matching  app.onnx" in seen
    assert seen.endswith("\r\x1b[K")
    assert "\x1b" not in out
    assert process("app.onnx", "--accel", "flexasr", "-o", "plan").stderr == b""


@pytest.mark.parametrize("more", [("-q",), ("--json", "-")], ids=" ".join)
def test_quiet_runs_and_documents_have_no_live_lines(more: tuple[str, ...], folder: Path) -> None:
    code, _, seen = on_a_terminal("app.onnx", "--accel", "flexasr", "-o", "plan", *more)
    assert (code, seen) == (0, "")
