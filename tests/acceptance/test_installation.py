"""The README's first command, word for word, in a fresh clone and without a network; part of the campaign."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

from pages import ROOT, blocks, commands

SECONDS = 60  # of CPU time, from the clone to the first result


def test_the_first_command_works_word_for_word_in_a_fresh_clone(tmp_path: Path) -> None:
    first = next(b for b in blocks(ROOT / "README.md") if "flexmatch demo" in b.text)
    ((command, _),) = commands(first)
    assert command.startswith("python -m venv .venv && .venv/bin/pip install -e . ")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    # what pip would fetch is borrowed from this environment, and pip is told to fetch nothing
    offline = {"PYTHONPATH": sysconfig.get_path("purelib"), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    before = os.times()
    run = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path / "clone", env={**os.environ, **offline}, capture_output=True, text=True, check=False
    )
    after = os.times()
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^host +top1 0\.9", run.stdout, re.MULTILINE), run.stdout
    assert after.children_user + after.children_system - before.children_user - before.children_system < SECONDS
