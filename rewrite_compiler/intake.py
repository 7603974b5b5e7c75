"""Intake of files from outside as bytes, JSON or TOML: kind, size, depth and count are checked before memory is allocated."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InputError, UsageError
from .limits import KIB, MIB

MAX_DOCUMENT_BYTES = 512 * MIB  # of a plan, a report, a trace
MAX_TOML_BYTES = 256 * KIB
MAX_JSON_VALUES = 4_000_000  # of a JSON text
MAX_JSON_NESTING = 128
MAX_KEY_PARTS = 64  # of a TOML key: what reads it takes the square of their number
INTEGER_BITS = 64  # bits of TOML's whole numbers
_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
SPECIAL_FILES = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

# a string that does not end takes the rest of its line, so that no character is looked at twice
_PART = r"""(?:"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?|[A-Za-z0-9_-]++)"""
_TOKENS = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?+|'
    r"\'\'\'(?:[^\']++|\'(?!\'\'))*+(?:\'{3,5})?+|"
    rf"\#[^\n]*+|(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)",
    re.DOTALL,
)


@dataclass(frozen=True)
class FileBound:
    """What a kind of file is called in messages, how many bytes it may have, and the remedy for one that has more."""

    description: str
    bytes: int
    help: str = ""
    code: str = "F105"
    folder_help: str = ""


class MalformedText(ValueError):
    """A text is not valid JSON, TOML or UTF-8; the message is the reason."""


class ExcessiveText(MalformedText):
    """A text exceeds a bound on nesting, on its number of values or on the digits of a number."""


class RepeatedKey(MalformedText):
    """An object of a JSON text has a key twice, so that its readers would choose different values."""


FileIdentity = tuple[int, int]
_OPENED: set[FileIdentity] = set()


def identity(path: Path) -> FileIdentity | None:
    """Return device and number of a regular file, which all its names share; None where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def opened_files() -> frozenset[FileIdentity]:
    """Return the files that were opened as inputs since the last `forget_opened_files`."""
    return frozenset(_OPENED)


def remember_opened_file(descriptor: int) -> None:
    """Enter an open file among the inputs that no output of the command may replace."""
    status = os.fstat(descriptor)
    _OPENED.add((status.st_dev, status.st_ino))


def forget_opened_files() -> None:
    """Begin a new list of opened files: a new command starts."""
    _OPENED.clear()


@contextlib.contextmanager
def open_bounded(path: Path, bound: FileBound) -> Iterator[io.BufferedReader]:
    """Open a regular file within its size bound, and check at the end that it did not change in between.

    Raises:
        UsageError: the file is missing, not a regular file, or not readable.
        InputError: the file is too large, or changed while it was open.
    """
    place = str(path)
    try:
        _check_kind(os.stat(path).st_mode, bound, place)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError("F101", "there is no such file", place=place, help="check the path") from None
    except OSError as error:
        raise unreadable_error(place, error) from None
    remember_opened_file(descriptor)
    with os.fdopen(descriptor, "rb") as file:
        initial = os.fstat(descriptor)
        _check_kind(initial.st_mode, bound, place)
        check_size(initial.st_size, bound, place)
        yield file
        final = os.fstat(descriptor)
    if (final.st_size, final.st_mtime_ns) != (initial.st_size, initial.st_mtime_ns):
        raise _changed(place)


def read_bytes(path: Path, bound: FileBound) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        UsageError: the file is missing, not a regular file, or not readable.
        InputError: the file is too large, or changed while it was read.
    """
    with open_bounded(path, bound) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size + 1)
        except OSError as error:
            raise unreadable_error(str(path), error) from None
        if len(data) != size:
            raise _changed(str(path))
        return data


def check_size(size: int, bound: FileBound, place: str) -> None:
    """Check a number of bytes against the bound of a kind of file.

    Raises:
        InputError: there are more bytes than the bound allows.
    """
    if size > bound.bytes:
        sentence = f"{bound.description} file must have at most {bound.bytes} bytes, not {size}"
        raise InputError(bound.code, sentence, place=place, help=bound.help)


def unreadable_error(place: str, error: OSError) -> UsageError:
    """Return the refusal for a file that the operating system does not let us read."""
    reason = (error.strerror or type(error).__name__).lower()
    return UsageError("F100", f"the file cannot be read: {reason}", place=place)


def _changed(place: str) -> InputError:
    return InputError("F106", "the file changed while it was read", place=place, help="try again when it is complete")


def _check_kind(mode: int, bound: FileBound, place: str) -> None:
    if stat.S_ISDIR(mode):
        raise UsageError("F100", f"{bound.description} must be a file, not a directory", place=place, help=bound.folder_help)
    if not stat.S_ISREG(mode):
        kind = SPECIAL_FILES.get(stat.S_IFMT(mode), "something else")
        raise UsageError("F100", f"{bound.description} must be a regular file, not {kind}", place=place)


def parse_json(data: bytes) -> Any:
    """Parse a JSON text.

    Raises:
        ExcessiveText: it has too many values, too deep nesting or a number of thousands of digits.
        MalformedText: it is not JSON or not UTF-8.
        RepeatedKey: an object has a key twice.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_JSON_VALUES:
        raise ExcessiveText(f"it has more than {MAX_JSON_VALUES} values")
    if _is_nested_deeper(data, MAX_JSON_NESTING):
        raise ExcessiveText("it is nested too deeply")
    try:
        return _unambiguous(_text(data))
    except json.JSONDecodeError as error:
        raise MalformedText(f"{error.msg.removesuffix(' at')}, line {error.lineno}") from None
    except RecursionError:
        raise ExcessiveText("it is nested too deeply") from None
    except MalformedText:
        raise
    except ValueError:  # Python's own bound on the digits of a number
        raise ExcessiveText("it has a number of thousands of digits") from None


def _unambiguous(text: str) -> Any:
    repeated: list[tuple[str, dict[str, Any]]] = []

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            repeated.append((Counter(name for name, _ in pairs).most_common(1)[0][0], value))
        return value

    document = json.loads(text, object_pairs_hook=object_of)
    if repeated:
        name, value = repeated[-1]  # the outermost of those that lie in one another: none lies in a value that another key replaced
        place = _place_of(value, document)
        raise RepeatedKey(f"it has the key {json.dumps(name)} twice{place and f', in {place}'}")
    return document


def _place_of(wanted: Any, document: Any) -> str:
    """Return the keys and numbers that lead to an object of a document, "" for the document itself."""
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        place, value = pending.pop()
        if value is wanted:
            return place.removeprefix(".")
        if isinstance(value, dict):
            pending += [(f"{place}.{name}", x) for name, x in value.items() if isinstance(x, dict | list)]
        elif isinstance(value, list):
            pending += [(f"{place}[{n}]", x) for n, x in enumerate(value) if isinstance(x, dict | list)]
    return ""


def _is_nested_deeper(data: bytes, depth: int) -> bool:
    """Tell whether brackets that match are nested deeper; those of strings are left out, and every step takes the innermost ones away."""
    if data.count(b"[") + data.count(b"{") <= depth:
        return False
    structure = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_STRUCTURE).replace(b'""', b"")
    brackets = re.sub(rb'"[^"]*+"?', b"", structure).translate(bytes.maketrans(b"{}", b"[]"))
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        ExcessiveText: a key has too many parts, the nesting is too deep or a number has thousands of digits.
        MalformedText: it is not TOML or not UTF-8, or has an integer of more than 64 bits.
    """
    text = _text(data)
    if text.count(".") >= MAX_KEY_PARTS:
        for key in (m["key"] for m in _TOKENS.finditer(text) if m["key"] and m["key"].count(".") >= MAX_KEY_PARTS):
            if sum(1 for _ in re.finditer(_PART, key)) > MAX_KEY_PARTS:
                raise ExcessiveText(f"it has a key of more than {MAX_KEY_PARTS} parts")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ExcessiveText("it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise MalformedText(str(error)) from None
    except ValueError:
        raise ExcessiveText("it has a number of thousands of digits") from None
    _check_words(table)
    return table


_KEYS = rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+"
_KEY_LINE = re.compile(rf"[ \t]*+(?:\[\[?+[ \t]*+(?P<table>{_KEYS})|(?P<key>{_KEYS})[ \t]*+=)")


def key_line(data: bytes, keys: Sequence[str]) -> int:
    """Return the number of the line of a TOML text where a nested key is given, or the innermost table around it; 0 for none."""
    found_depth = found_line = 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(_text(data).split("\n"), 1):
        match = _KEY_LINE.match(line)
        if match is None:
            continue
        parts = tuple(part.strip("\"'") for part in re.findall(_PART, match["table"] or match["key"]))
        path = parts if match["table"] else (*table, *parts)
        table = parts if match["table"] else table
        depth = min(len(path), len(keys))
        if depth > found_depth and path[:depth] == tuple(keys[:depth]):
            found_depth, found_line = depth, number
    return found_line


def _check_words(table: dict[str, Any]) -> None:
    """Refuse whole numbers that TOML does not have, which need not be printable either."""
    pending: list[Any] = [table]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, int) and not -(1 << INTEGER_BITS - 1) <= value < 1 << INTEGER_BITS - 1:
            raise MalformedText(f"it has a whole number of more than {INTEGER_BITS} bits")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedText(f"it is not UTF-8 text: byte {error.start}") from None
