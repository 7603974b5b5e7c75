"""SIGINT and SIGTERM: one sentence, nothing half-written, no child left, and the process ends at once.

A thread of its own answers, because the main thread may be inside a long call of a library when the signal comes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from .files import remove_unfinished

INTERRUPTED, TERMINATED = 130, 143
ENDS = {signal.SIGINT: (INTERRUPTED, "interrupted"), signal.SIGTERM: (TERMINATED, "terminated")}


def handle_signals() -> None:
    """Let SIGINT and SIGTERM end this process; call once, in the main thread of a process that is the command."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in ENDS:
        signal.signal(number, _nothing)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(reader,), name="signals", daemon=True).start()


def _nothing(_signal: int, _frame: object) -> None:
    """Keep the default action away: the thread acts."""


def _wait(reader: int) -> None:
    while number := os.read(reader, 1):
        if number[0] in ENDS:
            end_process(*ENDS[signal.Signals(number[0])])


def end_process(code: int, event: str) -> None:
    """Print what happened and end the process with an exit code, its children and temporary files with it."""
    stop_children()
    remove_unfinished()
    try:
        os.write(2, f"{event}: no file is half-written; what was written before is complete\n".encode())
    finally:
        os._exit(code)


def stop_children() -> None:
    """End the saturation processes that this process started; where the system lists children, also one just being started."""
    module = sys.modules.get("rewrite_compiler.egraph.saturation.saturate")
    pids = {child.pid for child in module.CHILDREN} if module is not None else set()
    for pid in pids | _child_pids():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _child_pids() -> set[int]:
    """Return the children of this process that Linux lists."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            pids.update(map(int, task.read_text("ascii").split()))
    return pids
