"""Pages of documentation as blocks: found, run in order, and compared with what they promise.

A fence opens with its language and options: `console`, `python`, `output`, `toml`, `json` or `text`; `file=NAME` writes the block
into the page's folder instead of running it; `skip` leaves it out, for the reason in the HTML comment just above it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from once import once

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ("console", "python", "output", "toml", "json", "text")
SECONDS_A_COMMAND = 120
TIME = re.compile(r"\b\d[\d,.]*\s?(ns|µs|ms|s|min|h)\b")
REST = "…"
PLAIN = re.compile(r'(?:cd (\S+) && )?flexmatch ([^|;<>&$`*\\\n]*?)(?: 2>&1)?(; echo "exit code \$\?")?')  # no shell is needed


class PageError(AssertionError):
    """A block that is not well formed or does not do what the page says."""


@dataclass(frozen=True)
class Block:
    """One fenced block: where it starts, its language and options, its text, and the comment just above it."""

    path: Path
    line: int
    language: str
    options: tuple[str, ...]
    text: str
    comment: str

    @property
    def place(self) -> str:
        """Name the block for a reader."""
        shown = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path.name
        return f"{shown}:{self.line}"

    @property
    def file(self) -> str:
        """Name the file that the block is written to, if any."""
        return next((o.removeprefix("file=") for o in self.options if o.startswith("file=")), "")

    @property
    def is_skipped(self) -> bool:
        """Tell whether the block is left out."""
        return "skip" in self.options


def pages() -> list[Path]:
    """Return every page whose blocks must run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> list[Block]:
    """Return the blocks of a page; PageError names one that is not well formed."""
    found, lines = [], iter(enumerate(path.read_text("utf-8").splitlines(), 1))
    comment = ""
    for number, line in lines:
        if line.startswith("```"):
            language, *options = line.removeprefix("```").split() or [""]
            text = "\n".join(_until_fence(lines, f"{path.name}:{number}"))
            found.append(_checked(Block(path, number, language, tuple(options), text, comment)))
        elif match := re.fullmatch(r"<!--\s*(.*?)\s*-->", line):
            comment = match[1]
            continue
        comment = comment if not line else ""
    return found


def _until_fence(lines: Iterator[tuple[int, str]], place: str) -> Iterator[str]:
    for _, line in lines:
        if line == "```":
            return
        yield line
    raise PageError(f"{place}: the block is never closed")


def _checked(block: Block) -> Block:
    if block.is_skipped and not block.comment:
        raise PageError(f"{block.place}: a skipped block needs its reason in an HTML comment just above")
    if not block.is_skipped and block.language not in LANGUAGES:
        raise PageError(f'{block.place}: language must be one of {", ".join(LANGUAGES)}, not "{block.language}"')
    unknown = [o for o in block.options if o != "skip" and not o.startswith("file=")]
    if unknown:
        raise PageError(f'{block.place}: option must be "skip" or "file=NAME", not "{unknown[0]}"')
    return block


def skipped_blocks() -> Iterator[str]:
    """Yield one line for each block that does not run, with its reason, and for each page that cannot be read."""
    for path in pages():
        try:
            yield from (f"{block.place}: {block.comment}" for block in blocks(path) if block.is_skipped)
        except PageError as error:
            yield str(error)


@dataclass
class Session:
    """One page being run: its folder, the namespace of its Python blocks, what the last of them printed, and where its terminal is."""

    folder: Path
    space: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""
    terminal: str = "."

    def run(self, block: Block) -> None:
        """Run one block; PageError shows where it differs from the page."""
        if block.is_skipped:
            return
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text + "\n", "utf-8")
            return
        runners = {"console": self._console, "python": self._python, "output": self._output}
        runners.get(block.language, _parse)(block)

    def _console(self, block: Block) -> None:
        for command, expected in commands(block):
            said, code, self.terminal = shell(command, self.folder, self.terminal)
            compare(f"{block.place}: $ {command}", expected, said)
            if code and "error[" not in expected and "usage:" not in expected:
                raise PageError(f"{block.place}: $ {command}\nexit code {code} without an error that the page shows")

    def _python(self, block: Block) -> None:
        echoed: list[object] = []
        shown = mock.patch.object(sys, "displayhook", lambda value: None if value is None else echoed.append(value))
        with contextlib.redirect_stdout(io.StringIO()) as caught, shown:
            for statement in ast.parse("\n" * block.line + block.text).body:
                exec(compile(ast.Interactive([statement]), str(block.path), "single"), self.space)
        self.printed = caught.getvalue()
        if echoed:
            raise PageError(f"{block.place}: an interactive Python shows {echoed[0]!r}, which the page does not; give it a name")

    def _output(self, block: Block) -> None:
        compare(block.place, block.text, self.printed)


def can_run(path: Path) -> bool:
    """Tell whether this machine has what a page needs: a C compiler where it uses one."""
    text = path.read_text("utf-8")
    return all(f"$ {tool} " not in text or shutil.which(tool) is not None for tool in ("gcc", "iverilog"))


def run_once(path: Path) -> None:
    """Run a page in an empty folder, once for all tests that ask; PageError or AssertionError says what is wrong."""
    said = once(f"page {path}", lambda: _run(path))
    if said:
        raise PageError(said)


def _run(path: Path) -> str:
    """Return what is wrong with a page, or nothing."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        session = Session(Path(folder))
        try:
            for block in blocks(path):
                session.run(block)
        except Exception:
            return traceback.format_exc()
    return ""


def built_site() -> tuple[Path, str]:
    """Build the documentation as a site, once for all tests that ask; return its folder and what the builder complained of."""
    made = Path(os.environ["FLEXMATCH_CACHE"]) / "site"  # gone at the end of the run
    return made, once("site", lambda: _build_site(made))


def _build_site(made: Path) -> str:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "mkdocs.yml"), "-d", str(made)]
    run = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300)
    return run.stderr.strip() if run.returncode == 0 else run.stderr or "failed"


def _parse(block: Block) -> None:
    """Check that data shown on a page is well formed."""
    if block.language == "toml":
        tomllib.loads(block.text)
    if block.language == "json":
        json.loads(block.text)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output shown under it."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if parts[0].strip() or len(parts) < 2:
        raise PageError(f'{block.place}: a console block starts with a "$ " line')
    for part in parts[1:]:
        command = re.match(r"(?:.*\\\n)*.*", part)
        assert command
        yield command[0], part[command.end() :].strip("\n")


def shell(command: str, folder: Path, terminal: str = ".") -> tuple[str, int, str]:
    """Run one command as a reader would, with this interpreter's programs first in the path.

    Return what it says, its exit code, and where the terminal is after it: a `cd` holds for the commands that follow.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = os.environ | {"PATH": path, "NO_COLOR": "1", "COLUMNS": "100", "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    if plain := PLAIN.fullmatch(command):
        terminal = os.path.normpath(folder / terminal / (plain[1] or "."))
        said, code = _inside(shlex.split(plain[2]), Path(terminal), environment)
        return (f"{said}exit code {code}\n", 0, terminal) if plain[3] else (said, code, terminal)
    reading, writing = os.pipe()
    call = ["bash", "-o", "pipefail", "-c", f"{command}\nstatus=$?; pwd >&{writing}; exit $status" if "cd " in command else command]
    run = subprocess.run(
        call,
        cwd=folder / terminal,
        pass_fds=[writing],
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS_A_COMMAND,
    )
    os.close(writing)
    with open(reading, encoding="utf-8") as place:
        return run.stdout, run.returncode, place.read().strip() or terminal


def _inside(arguments: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[str, int]:
    """Run flexmatch in this process, where what it needs is imported already: a page has many commands."""
    from rewrite_compiler.cli.main import main

    said = io.StringIO()
    changed = mock.patch.dict(os.environ, environment)
    with changed, contextlib.chdir(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(arguments)
    return said.getvalue(), code


def normal(text: str) -> list[str]:
    """Return the lines of a text with times replaced, spaces folded and trailing space gone."""
    return [" ".join(TIME.sub("<time>", line).split()) for line in text.strip("\n").splitlines()]


def compare(place: str, expected: str, said: str) -> None:
    """Raise PageError unless both texts agree up to times and spacing; a line `…` stands for any lines, `…` in a line for any text."""
    pattern = "\n".join("(?:.*\n)*.*" if line == REST else re.escape(line).replace(REST, ".*") for line in normal(expected))
    if not re.fullmatch(pattern, "\n".join(normal(said))):
        raise PageError(f"{place}\nthe page shows:\n{expected}\nit said:\n{said}")
