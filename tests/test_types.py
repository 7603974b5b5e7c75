"""Static checks of what ships: strict types over every file under its installed name, lint and format over the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from house import CONTENT, ENGINE, ROOT, modules

CACHE = ROOT / ".mypy_cache" / "installed"


def lay_out(folder: Path) -> None:
    """Copy engine and content into `folder` as an installation lays them out; the wheel's test compares both layouts."""
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / ENGINE, folder / ENGINE, ignore=leave_out)
    for name in CONTENT:
        shutil.copytree(ROOT / name, folder / ENGINE / name, ignore=leave_out)


def test_every_file_is_typed_strictly(tmp_path: Path) -> None:
    lay_out(tmp_path)
    options = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(CACHE), "-p", ENGINE)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options], cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"MYPYPATH": "."}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = re.fullmatch(r"Success: no issues found in (\d+) source files\n", run.stdout)
    assert found, run.stdout
    assert int(found[1]) == len(modules())


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")], ids=lambda arguments: arguments[0])
def test_ruff_finds_nothing(arguments: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--output-format", "concise", str(ROOT)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
