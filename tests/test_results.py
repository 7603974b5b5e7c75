"""Figures in the README come from a record, not from a hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_readme_shows_the_record_of_the_applications() -> None:
    made = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "table.py")], capture_output=True, text=True, check=True)
    assert made.stdout.strip() in (ROOT / "README.md").read_text("utf-8")
