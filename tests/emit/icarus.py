"""Generated Verilog run by Icarus; where it is missing, tests are skipped and the run says so (FLEXMATCH_RTL=required: they fail)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from rewrite_compiler.ila import Ila

PROGRAMS = ("iverilog", "vvp")
MISSING: list[str] = []


def installed() -> bool:
    """Tell whether Icarus is there; a test that is skipped for it says so at the end of the run."""
    return all(map(shutil.which, PROGRAMS))


def needed() -> None:
    """Skip the test, or fail it, where Icarus is missing."""
    if not installed():
        _missing("Icarus Verilog", "iverilog")


def synthesis_needed() -> None:
    """Skip the test, or fail it, where Yosys is missing."""
    if shutil.which("yosys") is None:
        _missing("Yosys", "yosys")


def _missing(tool: str, package: str) -> None:
    MISSING.append(f"no {package}")
    if os.environ.get("FLEXMATCH_RTL") == "required":
        pytest.fail(f"FLEXMATCH_RTL=required, and there is no {tool}")
    pytest.skip(f"no {tool}: install Debian's {package}")


def compiled(files: Mapping[str, bytes], folder: Path) -> Path:
    """Compile generated files, every warning an error."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    done = subprocess.run(
        ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-o", "bench", *files], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "bench"


def run(bench: Path, ila: Ila, commands: Iterable[Mapping[str, int]]) -> tuple[list[tuple[int, int, int]], dict[tuple[str, int], int]]:
    """Return (instruction, outside, result) of each command and what is not 0 in the state afterwards; what is unknown is 0."""
    lines = [" ".join(f"{c.get(name, 0):x}" for name in ila.inputs) for c in commands]
    (bench.parent / "commands.txt").write_text("\n".join(lines) + "\n")
    done = subprocess.run(["vvp", "-n", str(bench), "+state"], cwd=bench.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    answers = [(int(a), int(b), int(c.replace("x", "0"), 16)) for a, b, c, *_ in rows[: len(lines)]]
    return answers, {(name, int(at)): int(word, 16) for name, at, word in rows[len(lines) :]}


def run_words(bench: Path, words: Iterable[int], image: bytes, start: int, *options: str) -> tuple[list[list[int]], bytes]:
    """Return the row that the bench prints for each instruction word of a stream, and the memory outside afterwards."""
    folder = bench.parent
    (folder / "commands.txt").write_text("".join(f"{w:x}\n" for w in words))
    (folder / "before.hex").write_text("\n".join(f"{b:02x}" for b in image))
    given = ["+dram=before.hex", "+after=after.hex", f"+start={start}", f"+size={len(image)}", *options]
    done = subprocess.run(["vvp", "-n", str(bench), *given], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[int(x, 16 if n == 2 else 10) for n, x in enumerate(line.split())] for line in done.stdout.splitlines()]
    after = [line for line in (folder / "after.hex").read_text().splitlines() if not line.startswith("//")]
    return rows, bytes(int(x, 16) for line in after for x in line.split())
