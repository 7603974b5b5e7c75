"""The reader of traces in all three forms: truncated files, and items that the model does not have, are refused by their place."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import InputError, SpecError, printable
from ...intake import MalformedText, RepeatedKey, parse_json
from ...readings.arrays.labelled_array import Data, storage_dtype
from ..mmio import Command
from ..model import Ila
from .assembly import instruction_of, parse_command
from .trace import SCHEMA, Attach, Commands, Fetch, Header, Item, Place, Section, Trace, Wait, bus_lanes, columns_of
from .writer import CHUNK, COMMANDS, COUNT, END, KEYS, MAGIC, OTHER, WORDS

AGAIN = "emit the trace again"
ITEMS: dict[str, type[Section | Wait | Attach]] = {"section": Section, "wait": Wait, "attach": Attach}
FIELDS: dict[type, dict[str, type]] = {
    Section: {"part": int, "offload": str, "call": int, "phase": str, "constant": bool},
    Wait: {},
    Attach: {"memory": str, "words": int},
    Place: {"memory": str, "address": int, "words": str},
    Fetch: {"memory": str, "address": int, "count": int},
}
IlaOf = Callable[[Header], Ila]


def read_header(data: bytes, place: str) -> Header:
    """Return the header of a trace file in any form.

    Raises:
        InputError: F103, the file is not a trace, of another schema version, or its header lacks a field.
    """
    line = data[: data.find(b"\n") if b"\n" in data else len(data)]
    if data.startswith(MAGIC):
        line = data[len(MAGIC) + COUNT.size :][: COUNT.unpack_from(data, len(MAGIC))[0]] if len(data) > len(MAGIC) + COUNT.size else b""
    try:
        content = _parsed(line.removeprefix(b".trace "))
    except SpecError as refusal:
        raise InputError("F103", refusal.problem.sentence, place=f"{place}:1", help=AGAIN) from None
    if content is None or "schema" not in content:
        raise InputError("F103", "the file is not a trace", place=place, help="give a file that flexmatch emit trace wrote")
    if content["schema"] != SCHEMA:
        schema_text = printable(str(content["schema"]), 60)
        raise InputError("F103", f'Schema of a trace must be "{SCHEMA}", not "{schema_text}"', place=place, help=AGAIN)
    target, parameters, sha256, about = (content.get(key) for key in ("target", "parameters", "sha256", "about"))
    are_texts = isinstance(parameters, dict) and all(isinstance(x, str) for x in parameters.values())
    if not (isinstance(target, str) and are_texts and isinstance(sha256, str) and isinstance(about, dict)):
        raise InputError("F103", "the header of a trace must name its target, parameters and sha256", place=place, help=AGAIN)
    assert isinstance(parameters, dict)
    return Header(target, parameters, sha256, about)


def read_trace(data: bytes, ila_of: IlaOf, place: str) -> Trace:
    """Return the trace in a file of any form, for the model that `ila_of` returns for its header.

    Raises:
        InputError: F103, the file is malformed, truncated or corrupted; or I101, the model does not decode one of its commands.
    """
    header = read_header(data, place)
    ila = ila_of(header)
    try:
        if data.startswith(MAGIC):
            items, promised = _binary(data, ila, place)
        else:
            items, promised = _lines(data, ila, place)
    except SpecError as refusal:
        raise InputError(refusal.problem.code, refusal.problem.sentence, place=refusal.problem.place or place, help=AGAIN) from None
    trace = Trace(header, tuple(items))
    if trace.commands != promised:
        raise InputError(
            "F103", f"the trace must have the {promised} commands of its last line, not {trace.commands}", place=place, help=AGAIN
        )
    return trace


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        content = parse_json(line)
    except RepeatedKey as error:
        raise SpecError("F103", f"a line of a trace must say each thing once: {error}") from None
    except MalformedText:
        return None
    return content if isinstance(content, dict) else None


def _lines(data: bytes, ila: Ila, place: str) -> tuple[list[Item], int]:
    reader = _Lines(ila)
    _, *lines = data.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, 2):
        if not line or line.startswith("#"):
            continue
        try:
            reader.line(line, is_assembly=data.startswith(b".trace "))
        except SpecError as refusal:
            raise refusal.at(f"{place}:{number}") from None
    if reader.promised is None or not data.endswith(b"\n"):
        raise InputError("F103", f"the trace ends early: its last line, {len(lines) + 1}, does not close it", place=place, help=AGAIN)
    return reader.finished(), reader.promised


class _Lines:
    """Reads lines in either text form; consecutive commands become one block of columns."""

    def __init__(self, ila: Ila) -> None:
        self.ila = ila
        self.items: list[Item] = []
        self.pending: list[Command] = []
        self.gives: list[bytes | None] = []
        self.promised: int | None = None

    def line(self, line: str, *, is_assembly: bool) -> None:
        """Read one line."""
        if self.promised is not None:
            raise SpecError("F103", "nothing may follow the end of a trace")
        if is_assembly:
            self._assembly(line)
            return
        content = _parsed(line.encode())
        if content is None:
            raise SpecError("F103", f'a line of a trace must be a JSON object, not "{printable(line, 60)}"')
        key = next(iter(content), "")
        if key == "end" or key in KEYS.values():
            self._item(key, content[key])
        else:
            gives = content.pop("gives", None)
            content.pop("is", None)
            self._command({name: _number(name, x, self.ila) for name, x in content.items()}, gives)

    def _assembly(self, line: str) -> None:
        if not line.startswith("."):
            text, arrow, gives = line.partition(" -> ")
            self._command(parse_command(self.ila, text).command, gives if arrow else None)
            return
        key, _, body = line[1:].partition(" ")
        try:
            content = parse_json(body.encode())
        except RepeatedKey as error:
            raise SpecError("F103", f".{printable(key, 20)} must say each thing once: {error}") from None
        except MalformedText:
            raise SpecError("F103", f'.{printable(key, 20)} must be followed by JSON, not "{printable(body, 60)}"') from None
        self._item(key, content)

    def _command(self, command: Command, gives: object) -> None:
        instruction_of(self.ila, command)  # refuses what no instruction decodes
        gives_bytes = None if gives is None else _bytes("gives", gives, prefix="0x")[::-1]
        if self.pending and _width(self.gives[-1]) != _width(gives_bytes):
            self._close()
        self.pending.append(command)
        self.gives.append(gives_bytes)

    def _item(self, key: str, content: Any) -> None:
        if key == "end":
            if isinstance(content, bool) or not isinstance(content, int):
                raise SpecError("F103", f"the end of a trace must give its number of commands, not {content!r}")
            self.promised = content
            return
        self._close()
        self.items.append(_item(self.ila, key, content))

    def _close(self) -> None:
        if self.pending:
            rows = [g for g in self.gives if g is not None]
            gives = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1) if rows else None
            self.items.append(Commands(columns_of(self.ila, self.pending), gives))
            self.pending, self.gives = [], []

    def finished(self) -> list[Item]:
        """Return the items."""
        self._close()
        return self.items


def _width(gives: bytes | None) -> int:
    return -1 if gives is None else len(gives)


def _number(name: str, value: object, ila: Ila) -> int:
    if name not in ila.inputs:
        raise SpecError("I101", f'{ila.name} has no input "{printable(name, 40)}"', help=f"inputs: {', '.join(ila.inputs)}")
    if isinstance(value, str) and value.startswith("0x"):
        return int.from_bytes(_bytes(name, value, prefix="0x"), "big")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise SpecError("F103", f'{name} must be a number or hexadecimal in quotes, not "{printable(str(value), 60)}"')


def _bytes(name: str, value: object, *, prefix: str = "") -> bytes:
    text = value.removeprefix(prefix) if isinstance(value, str) and value.startswith(prefix) else None
    try:
        if text is None or (prefix and not text):
            raise ValueError("no digits")
        return bytes.fromhex(text if len(text) % 2 == 0 or not prefix else f"0{text}")
    except ValueError:
        raise SpecError("F103", f'{name} must be hexadecimal, not "{printable(str(value), 60)}"') from None


def _item(ila: Ila, key: str, content: Any) -> Item:
    kind = next((k for k, name in KEYS.items() if name == key), None)
    if kind is None:
        raise SpecError("F103", f'a trace has no item "{printable(key, 40)}"', help=f"items: {', '.join(KEYS.values())}, end")
    fields = dict(content) if isinstance(content, dict) else {}
    gives = fields.pop("gives", None) if kind is Fetch else None
    expected = FIELDS[kind]
    fits = fields.keys() == expected.keys() and all(type(fields[name]) is t for name, t in expected.items())
    if not fits or any(type(x) is int and x < 0 for x in fields.values()):
        raise SpecError("F103", f"{key} must have {_field_list(expected)}")
    if kind is Place:
        return Place(fields["memory"], fields["address"], _words(ila, fields["memory"], _bytes("words", fields["words"])))
    if kind is Fetch:
        gives_words = None if gives is None else _words(ila, fields["memory"], _bytes("gives", gives))
        return Fetch(fields["memory"], fields["address"], fields["count"], gives_words)
    return ITEMS[key](**fields)


def _field_list(expected: Mapping[str, type]) -> str:
    names = {str: "a text", int: "a whole number from 0 on", bool: "true or false"}
    return ", ".join(f"{name} ({names[t]})" for name, t in expected.items()) or "no fields"


def _words(ila: Ila, memory: str, data: bytes) -> Data:
    if memory not in ila.externals:
        names = ", ".join(ila.externals) or "none"
        raise SpecError("F103", f'{ila.name} has no external memory "{printable(memory, 40)}"', help=f"known: {names}")
    dtype = np.dtype(storage_dtype(ila.externals[memory].leaf.interval)).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise SpecError("F103", f"words of {memory} have {dtype.itemsize} bytes; {len(data)} bytes are not a whole number of them")
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))


def _binary(data: bytes, ila: Ila, place: str) -> tuple[list[Item], int]:
    """Return the items of a binary trace and the number of commands that its last chunk declares."""
    offset = len(MAGIC) + COUNT.size + COUNT.unpack_from(data, len(MAGIC))[0]
    items: list[Item] = []
    while True:
        kind, payload = _chunk_at(data, offset, place)
        if kind == END:
            break
        items.append(_read_chunk(ila, kind, payload, f"{place}, byte {offset}"))
        offset += CHUNK.size + len(payload)
    if len(payload) != 2 * COUNT.size or offset + CHUNK.size + len(payload) != len(data):
        raise InputError(
            "F103", f"the trace must end at byte {offset + CHUNK.size + 2 * COUNT.size}, not {len(data)}", place=place, help=AGAIN
        )
    promised, checksum = (COUNT.unpack_from(payload, n)[0] for n in (0, COUNT.size))
    if zlib.crc32(data[:offset]) != checksum:
        raise InputError(
            "F103", f"the checksum of the trace must be {checksum:#010x}, not {zlib.crc32(data[:offset]):#010x}", place=place, help=AGAIN
        )
    return items, promised


def _chunk_at(data: bytes, offset: int, place: str) -> tuple[int, bytes]:
    if offset + CHUNK.size <= len(data):
        kind, size = CHUNK.unpack_from(data, offset)
        if offset + CHUNK.size + size <= len(data):
            return kind, data[offset + CHUNK.size : offset + CHUNK.size + size]
    raise InputError("F103", f"the trace ends early, at byte {len(data)}: it is not closed", place=place, help=AGAIN)


def _read_chunk(ila: Ila, kind: int, payload: bytes, place: str) -> Item:
    if kind == COMMANDS and len(payload) >= 2 * COUNT.size:
        return _read_columns(ila, payload, place)
    if kind == WORDS and len(payload) >= COUNT.size:
        size = COUNT.unpack_from(payload)[0]
        content, words = _parsed(payload[COUNT.size : COUNT.size + size]), payload[COUNT.size + size :].hex()
        if content is not None and len(content) == 1 and (key := next(iter(content))) in ("place", "fetch"):
            extra = {"words": words} if key == "place" else {"gives": words} if words else {}
            return _item(ila, key, {**content[key], **extra} if isinstance(content[key], dict) else None)
    if kind == OTHER and (document := _parsed(payload)) is not None and len(document) == 1:
        ((key, content),) = document.items()
        return _item(ila, key, content)
    raise SpecError("F103", f"a chunk of kind {kind} and {len(payload)} bytes is none of a trace", place=place)


def _read_columns(ila: Ila, payload: bytes, place: str) -> Commands:
    count, width = (COUNT.unpack_from(payload, n)[0] for n in (0, COUNT.size))
    offset, columns = 2 * COUNT.size, {}
    kinds = {name: (np.dtype(storage_dtype(leaf.interval)), bus_lanes(ila, name)) for name, leaf in ila.inputs.items()}
    row = sum(kind.itemsize * int(np.prod(lanes, dtype=int)) for kind, lanes in kinds.values()) + width
    if len(payload) != offset + count * row:
        raise SpecError(
            "F103", f"a block of {count} commands of {row} bytes must have {count * row} bytes, not {len(payload) - offset}", place=place
        )
    for name, (kind, lanes) in kinds.items():
        size = count * kind.itemsize * int(np.prod(lanes, dtype=int))
        columns[name] = np.frombuffer(payload, kind.newbyteorder("<"), size // kind.itemsize, offset).astype(kind).reshape(count, *lanes)
        offset += size
    gives = np.frombuffer(payload, np.uint8, count * width, offset).reshape(count, width) if width else None
    commands = Commands(columns, gives)
    for n, (command, _) in enumerate(commands.rows()):
        try:
            instruction_of(ila, command)
        except SpecError as refusal:
            raise refusal.at(f"{place}, command {n}") from None
    return commands
