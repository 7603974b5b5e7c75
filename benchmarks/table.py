"""The README's table of results, from the record of `applications.py`."""

from __future__ import annotations

import json
from pathlib import Path

RECORD = Path(__file__).parent / "results" / "applications.json"
IN_RECORD_ALONE = {"image codec", "spectrogram", "spoken keywords", "Keccak-f[1600]"}  # beyond deep learning; the README is one page
TITLES = (
    "application",
    "accelerator",
    "offloads",
    "as written",
    "metric",
    "on the host",
    "on the accelerator",
    "difference (95 %)",
    "same answers",
    "processor time",
)
HEAD = "| " + " | ".join(TITLES) + " |"


def line(row: dict[str, object]) -> str:
    """Return one application as a row of the table."""
    accelerator = row.get("accelerator", "FlexASR")  # the only one of earlier records
    cells = [str(x) for x in (row["name"], accelerator, row["operations"], row["offloads_exact"])]
    if "metric" not in row:
        return "| " + " | ".join([*cells, *["–"] * 6]) + " |"
    interval = row["interval"]
    assert isinstance(interval, list)
    digits = 2 if row["metric"] == "perplexity" else 4
    low, high = (f"{x:+.{digits}f}" for x in interval)
    agreement = "–" if row["same_predictions"] is None else f"{100 * float(str(row['same_predictions'])):.1f} %"
    values = [f"{float(str(row[k])):.{digits}f}" for k in ("reference", "accelerated")]
    difference = f"{float(str(row['difference'])):+.{digits}f} ({low} … {high})"
    processor = float(str(row["cosim_cpu_seconds"]))
    seconds = f"{processor:.{0 if processor >= 10 else 1}f} s for {row['samples']}"
    return "| " + " | ".join([*cells, f"{row['metric']}", *values, difference, agreement, seconds]) + " |"


def table() -> str:
    """Return the whole table."""
    rows = [row for row in json.loads(RECORD.read_text("utf-8"))["rows"] if row["name"] not in IN_RECORD_ALONE]
    return "\n".join([HEAD, "|" + "---|" * len(TITLES), *map(line, rows)])


if __name__ == "__main__":
    print(table())
