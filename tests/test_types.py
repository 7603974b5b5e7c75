"""Static checks of what ships: strict types over every file under its installed name, lint and format over the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from house import CONTENT, ENGINE, PUBLIC, ROOT, modules
from once import once

CACHE = ROOT / ".mypy_cache" / "installed"


def lay_out(folder: Path) -> None:
    """Copy engine and content into `folder` as an installation lays them out; the wheel's test compares both layouts."""
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / ENGINE, folder / ENGINE, ignore=leave_out)
    shutil.copytree(ROOT / PUBLIC, folder / PUBLIC, ignore=leave_out)
    for name in CONTENT:
        shutil.copytree(ROOT / name, folder / ENGINE / name, ignore=leave_out)


USER = """from pathlib import Path
from typing import assert_type
import flexmatch
from rewrite_compiler.compile import Plan
from rewrite_compiler.cosim import Report
from rewrite_compiler.ila import DeviceHang
from rewrite_compiler.prove import Verdicts

plan = flexmatch.compile("app.onnx", accel=["flexasr", "hlscnn:revision=ext16"])
assert_type(plan, Plan)
report = flexmatch.cosimulate(plan, data=Path("val.npz"), metric="top1", samples=2000)
assert_type(report, Report)
assert_type(flexmatch.prove([]), Verdicts)
try:
    flexmatch.ila("flexasr").simulator(strict=True).wait_for_interrupt()
except DeviceHang as hang:
    print(hang.problem.sentence, plan.offloads[0].because, flexmatch.check("flexasr").problems)
"""


def typed() -> str:
    """Return what mypy --strict says of everything that ships and of a user's program, asked once."""
    return once("types", _asked)


def _asked() -> str:
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder))
        (Path(folder) / "users_program.py").write_text(USER, "utf-8")
        options = (
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(CACHE),
            "-p",
            ENGINE,
            "-p",
            PUBLIC,
            "-m",
            "users_program",
        )
        environment = os.environ | {"MYPYPATH": "."}
        run = subprocess.run([sys.executable, "-m", "mypy", *options], cwd=folder, capture_output=True, text=True, env=environment)
    return run.stdout + run.stderr


def test_every_file_and_a_users_program_are_typed_strictly() -> None:
    found = re.fullmatch(r"Success: no issues found in (\d+) source files\n", typed())
    assert found, typed()
    assert int(found[1]) == len(modules()) + 3  # the two files of the package of public names, and the user's program


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")], ids=lambda arguments: arguments[0])
def test_ruff_finds_nothing(arguments: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--output-format", "concise", str(ROOT)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
