"""A scanner for the protobuf wire format: fields of a message, and the byte where a message stops making sense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import InputError

MAX_NESTING = 100  # protobuf parses messages nested no deeper
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# message → field number → (what it is called, the message it holds)
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "model": {7: ("graph", "graph"), 8: ("opset_import", "opset"), 14: ("metadata_props", "entry"), 25: ("functions", "function")},
    "graph": {1: ("node", "node"), 5: ("initializer", "tensor"), 11: ("input", "info"), 12: ("output", "info"), 13: ("value_info", "info")},
    "node": {5: ("attribute", "attribute")},
    "attribute": {5: ("t", "tensor"), 6: ("g", "graph"), 10: ("tensors", "tensor"), 11: ("graphs", "graph")},
    "function": {7: ("node", "node"), 9: ("opset_import", "opset")},
    "info": {2: ("type", "type")},
}


@dataclass(frozen=True)
class Span:
    """The bytes of one message: start, end, message kind, nesting depth."""

    start: int
    end: int
    message: str
    depth: int


@dataclass(frozen=True)
class Field:
    """A field: number, wire type, the byte where its tag begins, and start and end of its contents; a varint has none."""

    number: int
    wire: int
    tag_start: int
    start: int
    end: int


class MalformedField(Exception):
    """Bytes that are not a valid field: the position, the field's number, the message, and whether the message ended too early."""

    def __init__(self, position: int, field: int, message: str, is_truncated: bool) -> None:
        super().__init__(position)
        self.position, self.field, self.message, self.is_truncated = position, field, message, is_truncated


def parse_refusal(data: bytes, place: str) -> InputError:
    """Return the refusal of bytes that protobuf does not parse, with the position of the first malformed field."""
    work = [Span(0, len(data), "model", 1)]
    try:
        while work:
            span = work.pop()
            if span.depth > MAX_NESTING:
                return InputError(
                    "F125", f"its messages are nested deeper than {MAX_NESTING}, which protobuf refuses to parse", place=place
                )
            work.extend(reversed(_nested_messages(data, span)))
    except MalformedField as broken:
        name = MESSAGES.get(broken.message, {}).get(broken.field, (f"of {broken.message}", ""))[0]
        if broken.is_truncated and broken.message == "model":
            return InputError("F103", f"not an ONNX model: ends inside field {broken.field} ({name}) at byte {len(data)}", place=place)
        return InputError("F103", f"not an ONNX model: field {broken.field} ({name}) is malformed at byte {broken.position}", place=place)
    return InputError("F103", f"not an ONNX model: its {len(data)} bytes are no valid message", place=place)


def _nested_messages(data: bytes, span: Span) -> list[Span]:
    """Return the messages directly inside one.

    Raises:
        MalformedField: a field does not fit.
    """
    kinds = MESSAGES.get(span.message, {})
    nested = ((f, kinds[f.number][1]) for f in fields(data, span) if f.number in kinds and f.wire == BYTES)
    return [Span(f.start, f.end, kind, span.depth + 1) for f, kind in nested]


def fields(data: bytes, span: Span) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        MalformedField: a field has no valid tag, or exceeds the message.
    """
    position = span.start
    while position < span.end:
        tag, value = _varint(data, position, span, 0)
        field, wire = tag >> 3, tag & 7
        if field == 0 or wire not in (VARINT, FIXED64, BYTES, FIXED32):
            raise MalformedField(position, field, span.message, False)
        if wire == VARINT:
            length, start = 0, _varint(data, value, span, field)[1]
        else:
            length, start = _varint(data, value, span, field) if wire == BYTES else (8 if wire == FIXED64 else 4, value)
        if start + length > span.end:
            raise MalformedField(start, field, span.message, True)
        yield Field(field, wire, position, start, start + length)
        position = start + length


def varint(value: int) -> bytes:
    """Return a number in protobuf's varint encoding: seven bits a byte, the lowest first."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def _varint(data: bytes, position: int, span: Span, field: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(position + 10, span.end)):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return value, place + 1
        shift += 7
    raise MalformedField(position, field, span.message, position + 10 > span.end)
