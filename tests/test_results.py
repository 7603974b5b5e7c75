"""Figures in the README come from a record, not from a hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_readme_shows_the_record_of_the_applications() -> None:
    made = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "table.py")], capture_output=True, text=True, check=True)
    assert made.stdout.strip() in (ROOT / "README.md").read_text("utf-8")


def record(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))["rows"]
    return rows


def cells_of_table_2() -> list[str]:
    """Return the cells of each application: its counts on an accelerator, those of its exports in order, and the paper's."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in record("table2"):
        text = ", ".join(f"{n} {operation}" for operation, n in row["counts"].items()) or "0"
        counts.setdefault((row["name"], row["target"]), {})[text] = row["paper"]
    names = dict.fromkeys(name for name, _ in counts)
    cells = {name: [counts[name, target] for target in ("flexasr", "hlscnn", "vta")] for name in names}
    return [" | ".join(f"{' or '.join(c)} ({next(iter(c.values()))})" for c in row) for row in cells.values()]


def cells_of_figure_6() -> list[str]:
    return [
        f"| {len(r['offloads'])} | {r['device']} | {r['ratio_low']:.1f} | {r['ratio_median']:.1f} | {r['ratio_high']:.1f} |"
        for r in record("figure6")
    ]


@pytest.mark.parametrize("cells", [cells_of_table_2, cells_of_figure_6])
def test_the_page_of_benchmarks_shows_the_records(cells: Callable[[], list[str]]) -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    assert [row for row in cells() if row not in page] == []
