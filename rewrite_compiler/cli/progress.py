"""Live lines on a terminal: what a command is doing and for how long; they are erased at the end."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from .output import is_live

TICK = 0.25  # seconds between two looks at the clock


@contextlib.contextmanager
def phase(args: argparse.Namespace, text: str) -> Iterator[Callable[[str], None]]:
    """Show a line with the elapsed seconds while the body runs, if standard error is a terminal; erase it at the end.

    Yields a function that replaces the text of the line.
    """
    if not is_live(args):
        yield lambda _: None
        return
    stop_event, started, lines = threading.Event(), time.monotonic(), [text]

    def show() -> None:
        print(f"\r\x1b[K{lines[-1]}  {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)

    def tick() -> None:
        while not stop_event.wait(TICK):
            show()

    show()  # before the first tick: a short phase is seen too
    clock = threading.Thread(target=tick, daemon=True)
    clock.start()
    try:
        yield lines.append
    finally:
        stop_event.set()
        clock.join()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
