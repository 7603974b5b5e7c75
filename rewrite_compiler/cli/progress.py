"""Live lines: what a command is doing and for how long, on a terminal only; nothing of them stays."""

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
def phase(given: argparse.Namespace, text: str) -> Iterator[Callable[[str], None]]:
    """Show a line with the seconds while the body runs, on standard error if that is a terminal; take it away at the end.

    The body gets a function that says in another line what it is doing now.
    """
    if not is_live(given):
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
