"""What verbs share: options, parsing that answers in sentences, and writing files whole."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours: one sentence, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raise the problem instead of printing usage."""
        raise UsageError(
            "F203",
            message.replace("unrecognized arguments:", "unknown arguments:"),
            help=f"flexmatch {self.prog.split()[-1]} --help lists the options",
        )


def parser(verb: str, about: str) -> Parser:
    """Return a verb's parser with the options every verb has."""
    made = Parser(prog=f"flexmatch {verb}", description=about, allow_abbrev=False)
    made.add_argument("--json", metavar="FILE|-", help="write the document there; - is standard output")
    made.add_argument("-q", "--quiet", action="store_true", help="errors only")
    made.add_argument("-v", "--verbose", action="store_true", help="more detail")
    made.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    return made


def steering(made: Parser) -> None:
    """Add the options that steer compilation."""
    made.add_argument(
        "--accel", action="append", default=[], metavar="NAME[:key=value,…]", help="accelerator by name or path; repeat for several"
    )
    made.add_argument("--exact", action="store_true", help="match the program as written, no rewriting")
    made.add_argument("--only", default="", metavar="MAPPING,…", help="use only these operations")
    made.add_argument("--without", default="", metavar="MAPPING|RULE,…", help="leave these operations or rules out")
    made.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,32,32", help="bind the shape of an input")
    made.add_argument("--limits", action="append", default=[], metavar="KEY=VALUE", help="change a limit")


def compile_options(given: argparse.Namespace) -> Any:
    """Return the Options that the steering arguments describe."""
    from ..compile import Options
    from ..limits import DEFAULT

    return Options(
        exact=given.exact, shapes=dict(map(_shape, given.shape)), only=_names(given.only), without=_names(given.without),
        limits=DEFAULT.with_overrides(given.limits),
    )  # fmt: skip


def accelerators(given: argparse.Namespace) -> list[str]:
    """Return the accelerators asked for; a comma separates plain names."""
    found: list[str] = []
    for text in given.accel:
        found.extend([text] if ":" in text else [part for part in text.split(",") if part])
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition("=")
    parts = dims.split(",")
    if not name or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise UsageError("F160", f'--shape must be NAME=1,3,32,32 with positive sizes, not "{text}"')
    return name, tuple(map(int, parts))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UsageError("F100", f"{path} cannot be written: {error.strerror}", help="choose another folder") from None
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def document_bytes(document: Any) -> bytes:
    """Return a JSON document as it is written: keys in the order given, UTF-8, a final newline."""
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def emit_json(document: Any, where: str | None) -> None:
    """Write a document to a file or to standard output."""
    if where == "-":
        sys.stdout.write(document_bytes(document).decode())
    elif where:
        write_whole(Path(where), document_bytes(document))


def say(given: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print lines for people, unless quiet or standard output is the document's."""
    if not given.quiet and given.json != "-":
        for line in lines:
            print(_printable(line))


def _printable(line: str) -> str:
    encoding = sys.stdout.encoding or "ascii"
    return line.encode(encoding, "replace").decode(encoding)
