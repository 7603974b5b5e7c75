"""Entry points of installed packages, read anew only where a folder that Python imports from has changed."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

GROUPS = 2  # of accelerators and of rules


def installed_entries(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group: reading those of all packages takes longer than loading an accelerator."""
    return _entries(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=GROUPS)
def _entries(group: str, folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _changed(folder: str) -> int:
    """Return when something was last installed into a folder, in nanoseconds; 0 where there is none."""
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0
