"""The log of long campaigns: append-only, a line for each chunk of seeds, so that a campaign goes on where it was stopped."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Chunk:
    """What some cases of a campaign gave: outcomes, the findings by seed, and keys of which only different ones count."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Progress:
    """What a log has of one campaign; `seconds` are of processor time."""

    next_seed: int = 0
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: float = 0.0

    def see(self, line: dict[str, Any]) -> None:
        """Add a line."""
        self.next_seed = max(self.next_seed, line["first_seed"] + line["seeds"])
        self.cases += line["cases"]
        self.outcomes.update(line["outcomes"])
        self.findings.update(line["findings"])
        self.seconds += line["cpu_seconds"]
        self.slowest = max(self.slowest, line["slowest_seconds"])
        for name, keys in line["keys"].items():
            self.keys.setdefault(name, set()).update(keys)


class CampaignLog:
    """A log on disk; what a kill leaves torn at its end is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress: dict[str, Progress] = {}
        text = path.read_text("utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(path, len(whole.encode()))
        for line in whole.splitlines():
            row = json.loads(line)
            self.of(row["campaign"]).see(row)

    def of(self, campaign: str) -> Progress:
        """Return what there is of a campaign."""
        return self.progress.setdefault(campaign, Progress())

    def add(self, campaign: str, first: int, seeds: int, cases: int, chunk: Chunk, seconds: float, slowest: float) -> None:
        """Write a chunk and force it to disk."""
        row = {
            "campaign": campaign, "first_seed": first, "seeds": seeds, "cases": cases, "outcomes": dict(chunk.outcomes),
            "findings": chunk.findings, "keys": chunk.keys, "cpu_seconds": round(seconds, 3), "slowest_seconds": round(slowest, 3),
        }  # fmt: skip
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.of(campaign).see(row)
