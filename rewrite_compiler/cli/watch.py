"""The option --watch: a command runs again when one of its files changes, until it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from .main import main
from .options import Parser
from .output import print_error

OPTION = "--watch"
SECONDS = 0.5  # between two looks
Stamps = dict[Path, tuple[int, int]]


def add_watch_option(verb_parser: Parser) -> None:
    """Add the option that repeats a command."""
    verb_parser.add_argument(OPTION, action="store_true", help="run again when a file of the command changes, until Ctrl-C")


def watch(verb: str, arguments: Sequence[str], files: Iterable[str | Path | None]) -> int:
    """Run a command now and after each change of its files, and return the exit code of the last run once interrupted."""
    words = [verb, *(word for word in arguments if word != OPTION)]
    paths = [Path(f) for f in files if f is not None]
    stamps = stamps_of(paths)
    code = main(words)
    print_error(f"watching  {len(stamps)} files; Ctrl-C ends")
    try:
        while True:
            time.sleep(SECONDS)
            current = stamps_of(paths)
            if current != stamps:
                changed = sorted(str(p) for p in {*current, *stamps} if current.get(p) != stamps.get(p))
                stamps = current
                print_error(f"changed   {', '.join(changed)}")
                code = main(words)
    except KeyboardInterrupt:
        return code


def stamps_of(paths: Iterable[Path]) -> Stamps:
    """Return size and time of files, of a Python file also of those beside it, which it may import."""
    files = {file for p in paths for file in ([p, *p.parent.glob("*.py")] if p.suffix == ".py" else [p, *_parts(p)])}
    return {file: _stamp(file) for file in files}


def _parts(path: Path) -> list[Path]:
    return [p for p in path.iterdir() if p.is_file()] if path.is_dir() else []


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (-1, -1)
    return status.st_size, status.st_mtime_ns
