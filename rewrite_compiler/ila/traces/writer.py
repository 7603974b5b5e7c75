"""The writer of traces as JSON lines, as binary chunks and as ILA assembly; every form ends with its number of commands."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...readings.arrays.labelled_array import Data
from ..mmio import Command
from ..model import Ila
from .assembly import disassemble
from .trace import Attach, Commands, Fetch, Item, Place, Section, Trace, Wait

MAGIC = b"fmtrace1"
COMMANDS, WORDS, OTHER, END = range(4)  # kinds of chunk
CHUNK = struct.Struct("<BI")
COUNT = struct.Struct("<I")
KEYS = {Section: "section", Wait: "wait", Attach: "attach", Place: "place", Fetch: "fetch"}


def to_json_lines(trace: Trace, ila: Ila, *, comments: bool = False) -> bytes:
    """Return the trace with one command a line; with `comments`, each also as its disassembly."""
    lines = [_dumped(trace.header.document)]
    for item in trace.items:
        lines.extend(_command_lines(ila, item, comments) if isinstance(item, Commands) else [_dumped(_document(item))])
    return "\n".join([*lines, _dumped({"end": trace.commands}), ""]).encode()


def to_assembly(trace: Trace, ila: Ila) -> bytes:
    """Return the trace as ILA assembly, one command a line."""
    lines = [f".trace {_dumped(trace.header.document)}"]
    for item in trace.items:
        if isinstance(item, Commands):
            lines.extend(_named_line(ila, command, gives, item) for command, gives in item.rows())
        else:
            ((key, content),) = _document(item).items()
            lines.append(f".{key} {_dumped(content)}")
    return "\n".join([*lines, f".end {trace.commands}", ""]).encode()


def to_binary(trace: Trace, ila: Ila) -> bytes:
    """Return the trace as chunks of columns, closed by the number of commands and a CRC-32 checksum."""
    header = _dumped(trace.header.document).encode()
    parts = [MAGIC, COUNT.pack(len(header)), header]
    for item in trace.items:
        kind, payload = _chunk(ila, item)
        parts += [CHUNK.pack(kind, len(payload)), payload]
    body = b"".join(parts)
    return body + CHUNK.pack(END, 2 * COUNT.size) + COUNT.pack(trace.commands) + COUNT.pack(zlib.crc32(body))


def _dumped(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True)


def _document(item: Item) -> dict[str, Any]:
    content = dict(vars(item))
    if isinstance(item, Place):
        content["words"] = _hex(item.words)
    if isinstance(item, Fetch):
        content = {key: x for key, x in content.items() if x is not None}
        if item.gives is not None:
            content["gives"] = _hex(item.gives)
    return {KEYS[type(item)]: content}


def _hex(words: Data) -> str:
    """Return words as bytes in hexadecimal, each word little-endian."""
    return np.ascontiguousarray(words).astype(words.dtype.newbyteorder("<"), copy=False).tobytes().hex()


def _command_lines(ila: Ila, block: Commands, comments: bool) -> Iterator[str]:
    """Yield the lines of a block: flags as numbers, words in hexadecimal, inputs that are 0 left out."""
    for command, gives in block.rows():
        parts = [f'"{name}":{x}' if x < 2 else f'"{name}":"{x:#x}"' for name, x in command.items()]
        if gives is not None and block.gives is not None:
            parts.append(f'"gives":"0x{gives:0{2 * block.gives.shape[1]}x}"')
        if comments:
            parts.append(f'"is":"{disassemble(ila, command)}"')
        yield "{" + ",".join(parts) + "}"


def _named_line(ila: Ila, command: Command, gives: int | None, block: Commands) -> str:
    line = str(disassemble(ila, command))
    return line if gives is None or block.gives is None else f"{line} -> 0x{gives:0{2 * block.gives.shape[1]}x}"


def _chunk(ila: Ila, item: Item) -> tuple[int, bytes]:
    if isinstance(item, Commands):
        gives = b"" if item.gives is None else np.ascontiguousarray(item.gives, np.uint8).tobytes()
        width = 0 if item.gives is None else item.gives.shape[1]
        columns = [_raw(item.columns[name]) for name in ila.inputs]
        return COMMANDS, b"".join([COUNT.pack(len(item)), COUNT.pack(width), *columns, gives])
    if isinstance(item, Place | Fetch):
        words = item.words if isinstance(item, Place) else item.gives
        content = {key: x for key, x in vars(item).items() if key not in ("words", "gives")}
        head = _dumped({KEYS[type(item)]: content}).encode()
        return WORDS, COUNT.pack(len(head)) + head + (b"" if words is None else _raw(words))
    return OTHER, _dumped(_document(item)).encode()


def _raw(data: Data) -> bytes:
    return np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
