"""Printing: lines for people in what the terminal can show, documents as UTF-8; nobody listening is no error, a full disk is one."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import UsageError

ASCII = {"·": "-", "…": "...", "–": "-", "−": "-", "×": "x", "≤": "<=", "→": "->", "∘": "o", "Σ": "sum ", "²": "^2"}


def document_bytes(document: Any) -> bytes:
    """Return a JSON document as it is written: keys in the order given, UTF-8, a final newline."""
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def print_json(document: Any) -> None:
    """Print a document, UTF-8 whatever the locale."""
    out = sys.stdout
    if out is None:  # closed before we began
        return
    with standard_output():
        if hasattr(out, "buffer"):
            out.flush()
            out.buffer.write(document_bytes(document))
        else:
            out.write(document_bytes(document).decode())


def say(given: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print lines for people, unless quiet or standard output is the document's."""
    if not given.quiet and given.json != "-":
        show("\n".join(lines))


def show(text: str) -> None:
    """Print text in what standard output can show."""
    if sys.stdout is None:
        return
    with standard_output():
        print(_printable(text))


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Flush what the body prints; UsageError when it cannot be written, SystemExit 0 when nobody listens any more."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()
        sys.exit(0)
    except OSError as error:
        _discard()
        raise UsageError(
            "F100", f"standard output cannot be written: {error.strerror}", help="free some space, or write elsewhere"
        ) from None


def _discard() -> None:
    """Send the rest of standard output nowhere, so that the end of the process is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _printable(text: str) -> str:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return "".join(c if _can(c, encoding) else ASCII.get(c, "?") for c in text)


def _can(c: str, encoding: str) -> bool:
    try:
        c.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def is_live(given: argparse.Namespace) -> bool:
    """Tell whether live lines on standard error are wanted: a terminal, not quiet."""
    return not given.quiet and given.json != "-" and sys.stderr is not None and os.isatty(2) and sys.stderr.isatty()
