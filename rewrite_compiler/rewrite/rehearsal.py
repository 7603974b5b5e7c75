"""Rehearsal: a user's file is imported once in a child process with limits of time and memory, before this process imports it.

Python cannot stop a call into C, nor a body that catches everything; a child can be killed. It reports the line it was at.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import BudgetError
from ..limits import Limits

GRACE = 1.0  # seconds in which a child that is over its time tells where it was
SUCCESS, NO_MEMORY = 0, 3
END_MARK = "\0"  # what a child says that came to the end of the file
REMEDY = "move work out of module level"
_is_child = False  # a file that imports another one does so within the limits of its own rehearsal


def rehearse(path: Path, kind: str, body: Callable[[], object], limits: Limits) -> None:
    """Run the import of a file in a child process.

    Any failure but these is left to the import itself. Where there is no fork nothing is rehearsed, nor inside of a rehearsal.

    Raises:
        BudgetError: R107, it does not end in time, needs too much memory, or is killed.
    """
    if _is_child or not hasattr(os, "fork"):
        return
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child touches none of their locks
        child = os.fork()
    if not child:
        _run_child(body, limits, writer)
    os.close(writer)
    try:
        output = _read_output(reader, limits.import_seconds + GRACE)
    finally:
        os.close(reader)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    _judge(path, kind, output, os.waitstatus_to_exitcode(status), limits)


def _run_child(body: Callable[[], object], limits: Limits, writer: int) -> None:
    """Run in the child: import quietly, report the line when time is over, and exit without the parent's clean-up."""
    global _is_child
    _is_child = True
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    faulthandler.dump_traceback_later(limits.import_seconds, file=writer, exit=True)
    code, message = SUCCESS, END_MARK
    try:
        _limit_memory(limits.import_bytes)
        body()
    except MemoryError as error:
        frames = traceback.extract_tb(error.__traceback__)
        code, message = NO_MEMORY, "".join(f'File "{f.filename}", line {f.lineno}\n' for f in reversed(frames))
    except BaseException:
        code = SUCCESS  # the import itself will say what it is
    os.write(writer, message.encode())
    os._exit(code)


def _limit_memory(size: int) -> None:
    """Let allocation fail in this process beyond `size` bytes more than it has."""
    try:
        import resource

        current = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # not on this system: the limit of time remains
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = current + size
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _read_output(reader: int, seconds: float) -> str:
    """Return what the child writes until it ends or the time is over."""
    return b"".join(_pieces(reader, time.monotonic() + seconds)).decode("utf-8", "replace")


def _pieces(reader: int, deadline: float) -> Iterator[bytes]:
    while select.select([reader], [], [], max(deadline - time.monotonic(), 0))[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            return
        yield piece


def _judge(path: Path, kind: str, output: str, code: int, limits: Limits) -> None:
    if output == END_MARK:
        return
    match = re.search(rf'File "{re.escape(str(path.absolute()))}", line (\d+)', output)
    place = f"{path}:{match[1]}" if match else str(path)
    if code == NO_MEMORY:
        sentence = f"the {kind} file must be imported within {limits.import_bytes} bytes"
    elif output or code == -signal.SIGKILL:
        sentence = f"the {kind} file must be imported within {limits.import_seconds} seconds"
    else:
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        sentence = f"importing the {kind} file ended the process with {cause}"
    raise BudgetError("R107", sentence, place=place, help=REMEDY)
