"""The wheel, built and installed once for all tests that need it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from house import CONTENT, ENGINE, PUBLIC, ROOT

FOLDERS = (PUBLIC, ENGINE, *CONTENT)
BUILD_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def call(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command outside the checkout and return what it printed."""
    run = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, env=os.environ | environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the sources, so that no earlier build leaves files in the wheel."""
    folder = tmp_path_factory.mktemp("sources")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILD_FILES:
        shutil.copy2(ROOT / name, folder / name)
    return folder


def build(sources: Path, folder: Path) -> Path:
    """Build the wheel from a copy of the sources in `folder`."""
    shutil.copytree(sources, folder / "sources")
    options = ("--no-deps", "--no-build-isolation", "--no-cache-dir", "--quiet", "--wheel-dir", folder)
    call(sys.executable, "-m", "pip", "wheel", *options, folder / "sources", cwd=folder, SOURCE_DATE_EPOCH="1700000000")
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once."""
    return build(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment that borrows this one's dependencies; return its folder of programs."""
    folder = tmp_path_factory.mktemp("installed")
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    call(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-deps", "--quiet", wheel, cwd=folder)
    purelib = call(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(purelib) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return programs
