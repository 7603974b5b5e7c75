"""Printing: lines for people in the terminal's encoding, documents as UTF-8; a closed pipe is no error, a full disk is one."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..report.tables import columns, printable_text


def document_bytes(document: Any) -> bytes:
    """Return a JSON document as bytes: keys in the order given, UTF-8, a final newline."""
    return (json.dumps(with_finite_numbers(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def with_finite_numbers(x: Any) -> Any:
    """Return a document with null for infinities and NaN, which JSON does not have."""
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, Mapping):
        return {key: with_finite_numbers(value) for key, value in x.items()}
    return [with_finite_numbers(value) for value in x] if isinstance(x, list | tuple) else x


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


def print_lines(args: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print lines for people, unless quiet or standard output is the document's."""
    if not args.quiet and args.json != "-":
        print_text("\n".join(wrap_line(printable_text(line)) for line in lines))


def wrap_line(line: str) -> str:
    """Return a line wrapped to the terminal's width, continuation lines indented by two more; long words stay whole."""
    indent = line[: len(line) - len(line.lstrip())]
    width = columns()
    if len(line) <= width:
        return line
    wrapped = textwrap.wrap(line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped)


def print_unwrapped(args: argparse.Namespace, text: str) -> None:
    """Print text that must not be wrapped, unless JSON is on standard output or the run is quiet."""
    if not args.quiet and args.json != "-":
        print_text(text)


def print_error(text: str) -> None:
    """Print text to standard error, if there is one."""
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def print_text(text: str) -> None:
    """Print text in what standard output can show."""
    if sys.stdout is None:
        return
    with standard_output():
        print(_printable(text))


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Flush what the body prints; a closed pipe ends the process with code 0.

    Raises:
        UsageError: standard output cannot be written (F100).
    """
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
    return "\n".join("\t".join(printable_text(part) for part in line.split("\t")) for line in text.split("\n"))


def is_live(args: argparse.Namespace) -> bool:
    """Tell whether live lines on standard error are wanted: a terminal, not quiet."""
    return not args.quiet and args.json != "-" and sys.stderr is not None and os.isatty(2) and sys.stderr.isatty()
