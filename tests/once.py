"""Work that several tests need, done once for all processes of a run."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path


def once(name: str, work: Callable[[], str]) -> str:
    """Return what the work gives, from whichever process of this run does it first; the others wait for it."""
    folder = Path(os.environ["FLEXMATCH_CACHE"]) / "once"  # gone at the end of the run
    folder.mkdir(exist_ok=True)
    with (folder / hashlib.sha256(name.encode()).hexdigest()).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = file.read()
        if not found:
            found = f"done {work()}"
            file.write(found)
        return found.removeprefix("done ")
