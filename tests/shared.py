"""The folder of shared models and golden vectors."""

from __future__ import annotations

import os
from pathlib import Path


def find_shared() -> Path | None:
    """Return the folder, or None where it is not there."""
    given = os.environ.get("FLEXMATCH_SHARED")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared"
    return folder if (folder / "golden").is_dir() else None


SHARED = find_shared()
