"""The Dockerfile: its lines say what a build needs, and where a docker daemon answers it is built and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from house import ROOT
from wheels import BUILD_FILES, FOLDERS

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
IMAGE = re.compile(r"python:3\.11\.\d+-slim-[a-z]+( AS \w+)?")
NEEDED = {*FOLDERS, *BUILD_FILES, "requirements.lock"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pairs = [line.partition(" ") for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, " ".join(rest.split())) for word, _, rest in pairs]


def complaints(text: str) -> list[str]:
    """Return what is wrong with a Dockerfile."""
    steps = instructions(text)
    images = [rest for word, rest in steps if word == "FROM"]
    start = max(n for n, (word, _) in enumerate(steps) if word == "FROM")
    users = [rest for word, rest in steps[start:] if word == "USER"]
    copied = {name for word, rest in steps[:start] if word == "COPY" for name in rest.split()[:-1]}
    runs = " && ".join(rest for word, rest in steps if word == "RUN").split("&&")
    pip = [run for run in runs if re.search(r"\bpip (install|wheel)\b", run)]
    checks = {
        "an image is not pinned": all(IMAGE.fullmatch(image) for image in images),
        "stages have different images": len({image.partition(" ")[0] for image in images}) == 1,
        "it runs as root": bool(users) and users[-1] not in ("root", "0"),
        "files are not those of the build": copied == NEEDED,
        "a package comes from outside of the lock": all(
            "--require-hashes" in run or "--no-index" in run or run.strip().endswith(" .") for run in pip
        ),
        "the lock is not installed with its hashes": any("--require-hashes" in run and "requirements.lock" in run for run in pip),
        "it does not start the command": ("ENTRYPOINT", '["flexmatch"]') in steps[start:],
    }
    return [sentence for sentence, holds in checks.items() if not holds]


def test_the_lines_of_the_dockerfile() -> None:
    assert complaints(DOCKERFILE) == []


@pytest.mark.parametrize(
    ("line", "instead", "complaint"),
    [
        (r"FROM \S+ AS", "FROM python:3.11-slim AS", "an image is not pinned"),
        (r"FROM \S+\n", "FROM python:3.11.1-slim-bookworm\n", "stages have different images"),
        ("USER flexmatch\n", "", "it runs as root"),
        ("USER flexmatch", "USER root", "it runs as root"),
        ("COPY rules rules\n", "", "files are not those of the build"),
        ("--no-index --find-links wheels flexmatch", "flexmatch", "a package comes from outside of the lock"),
        ("--require-hashes ", "", "the lock is not installed with its hashes"),
        ("ENTRYPOINT .*", "", "it does not start the command"),
    ],
)
def test_a_line_that_is_wrong_is_noticed(line: str, instead: str, complaint: str) -> None:
    wrong = re.sub(line, instead, DOCKERFILE)
    assert wrong != DOCKERFILE
    assert complaint in complaints(wrong)


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    kept = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert kept[0] == "*"
    assert {name.removeprefix("!") for name in kept if name.startswith("!")} == NEEDED


def docker(*arguments: str, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)


def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    if shutil.which("docker") is None or docker("info").returncode:
        pytest.skip("no docker daemon answers: the image is not built, only its lines are read")
    built = docker("build", "--quiet", "--tag", "flexmatch-test", ".", seconds=1200)
    assert built.returncode == 0, built.stderr
    user = docker("run", "--rm", "--entrypoint", "id", "flexmatch-test", "-u")
    assert user.stdout == "1000\n"
    run = docker("run", "--rm", "--network", "none", "flexmatch-test", "demo", "digits_mlp", "--samples", "20", seconds=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "plan      3 linear on flexasr" in run.stdout
