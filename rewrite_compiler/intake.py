"""Intake: a file from outside as bytes, JSON or TOML; its kind, size, depth and count are decided before memory is taken for it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InputError, UsageError
from .limits import KIB, MIB

DOCUMENT_BYTES = 512 * MIB  # of a plan, a report, a trace
TOML_BYTES = 256 * KIB
VALUES = 4_000_000  # of a JSON text
PARTS = 64  # of a TOML key: what reads it takes the square of their number
WORD = 64  # bits of TOML's whole numbers
KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

# a string that does not end takes the rest of its line, so that no character is looked at twice
_PART = r"""(?:"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?|[A-Za-z0-9_-]++)"""
_TOKENS = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?+|'
    r"\'\'\'(?:[^\']++|\'(?!\'\'))*+(?:\'{3,5})?+|"
    rf"\#[^\n]*+|(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Bound:
    """What a file is, how many bytes it may have, and what to do about one that has more."""

    what: str
    bytes: int
    help: str = ""
    code: str = "F105"
    folder_help: str = ""


class Unreadable(ValueError):
    """A text is not what it should be, for the reason that stands in it."""


class Excessive(Unreadable):
    """A text has more of something than any honest one."""


@contextlib.contextmanager
def opened(path: Path, bound: Bound) -> Iterator[io.BufferedReader]:
    """Open a regular file of at most so many bytes; one sentence when it is none, and when it changes while it is open."""
    place = str(path)
    try:
        _check_kind(os.stat(path).st_mode, bound, place)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError("F101", "there is no such file", place=place, help="check the path") from None
    except OSError as error:
        raise unreadable(place, error) from None
    with os.fdopen(descriptor, "rb") as file:
        initial = os.fstat(descriptor)
        _check_kind(initial.st_mode, bound, place)
        check_size(initial.st_size, bound, place)
        yield file
        final = os.fstat(descriptor)
    if (final.st_size, final.st_mtime_ns) != (initial.st_size, initial.st_mtime_ns):
        raise _changed(place)


def read_bytes(path: Path, bound: Bound) -> bytes:
    """Return the bytes of a regular file; one sentence when it is missing, not readable, too large or changing."""
    with opened(path, bound) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size + 1)
        except OSError as error:
            raise unreadable(str(path), error) from None
        if len(data) != size:
            raise _changed(str(path))
        return data


def check_size(size: int, bound: Bound, place: str) -> None:
    """Raise the refusal of what has more bytes than its bound."""
    if size > bound.bytes:
        sentence = f"{bound.what} file must have at most {bound.bytes} bytes, not {size}"
        raise InputError(bound.code, sentence, place=place, help=bound.help)


def unreadable(place: str, error: OSError) -> UsageError:
    """Return the refusal of a file that the system does not give."""
    reason = (error.strerror or type(error).__name__).lower()
    return UsageError("F100", f"the file cannot be read: {reason}", place=place)


def _changed(place: str) -> InputError:
    return InputError("F106", "the file changed while it was read", place=place, help="try again when it is complete")


def _check_kind(mode: int, bound: Bound, place: str) -> None:
    if stat.S_ISDIR(mode):
        raise UsageError("F100", f"{bound.what} must be a file, not a directory", place=place, help=bound.folder_help)
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "something else")
        raise UsageError("F100", f"{bound.what} must be a regular file, not {kind}", place=place)


def json_of(data: bytes) -> Any:
    """Return what a JSON text says; Unreadable with the reason when it is none, or says too much."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > VALUES:
        raise Excessive(f"it has more than {VALUES} values")
    try:
        return json.loads(_text(data))
    except json.JSONDecodeError as error:
        raise Unreadable(f"{error.msg.removesuffix(' at')}, line {error.lineno}") from None
    except RecursionError:
        raise Excessive("it is nested too deeply") from None
    except Unreadable:
        raise
    except ValueError:  # Python's own bound on the digits of a number
        raise Excessive("it has a number of thousands of digits") from None


def toml_of(data: bytes) -> dict[str, Any]:
    """Return what a TOML text says; Unreadable with the reason when it is none, or says too much."""
    text = _text(data)
    if text.count(".") >= PARTS:
        for key in (m["key"] for m in _TOKENS.finditer(text) if m["key"] and m["key"].count(".") >= PARTS):
            if sum(1 for _ in re.finditer(_PART, key)) > PARTS:
                raise Excessive(f"it has a key of more than {PARTS} parts")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise Excessive("it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(str(error)) from None
    except ValueError:
        raise Excessive("it has a number of thousands of digits") from None
    _check_words(table)
    return table


def _check_words(table: dict[str, Any]) -> None:
    """Refuse whole numbers that TOML does not have, which need not be printable either."""
    pending: list[Any] = [table]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, int) and not -(1 << WORD - 1) <= value < 1 << WORD - 1:
            raise Unreadable(f"it has a whole number of more than {WORD} bits")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 text: byte {error.start}") from None
