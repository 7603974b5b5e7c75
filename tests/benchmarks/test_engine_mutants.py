"""Faults planted in driver, numerics, rewrite and schedule of an application are refused; without an audit they are seen to escape."""

from __future__ import annotations

import json
import subprocess
import sys

from house import ROOT

CODE = """
import json
from engine_mutants import KINDS, Application, judged
app = Application("digits_mlp", "flexasr")
rows = [judged(app, kind, seed, 1) for kind in KINDS for seed in (11, 12)]
print(json.dumps([rows, judged(app, "schedule", 11, 0)]))
"""


def test_planted_faults_are_refused() -> None:
    found = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True).stdout
    rows, unaudited = json.loads(found)
    assert len({(r["kind"], r["change"]) for r in rows}) >= 7
    assert [r for r in rows if not r["verdict"].startswith("refused ")] == []
    assert unaudited["verdict"] == "escaped"
