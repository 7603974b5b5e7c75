"""Zero-copy weights: the raw bytes of large initializers are split off before parsing, so that a model is in memory once.

A parsed message copies all its bytes, and reading a field copies them again. So the weights are cut out of the bytes before
they are parsed, and read from the original buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from .protobuf_scan import BYTES, Field, MalformedField, Span, fields, varint

LARGE_BYTES = 1 << 16  # bytes of a weight from which on it is cut out
MIN_FIELD_BYTES = 64  # bytes that the fields of a model have at least, taken together, where it is worth looking for weights
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # fields of a model, its graph, a tensor
Payloads = Mapping[int, memoryview]
NO_PAYLOADS: Payloads = {}


@dataclass(frozen=True)
class SplitModel:
    """A model without the bytes of its large weights, and these by the index of their initializer."""

    model: bytes
    payloads: Payloads


def split_payloads(data: bytes) -> SplitModel:
    """Split the raw bytes of large initializers off a model; the model is unchanged where they are not plainly there."""
    unsplit = SplitModel(data, {})
    if len(data) < LARGE_BYTES:
        return unsplit
    try:
        max_fields = len(data) // MIN_FIELD_BYTES
        model = list(islice(fields(data, Span(0, len(data), "model", 1)), max_fields))
        graphs = [f for f in model if f.number == GRAPH]
        if len(graphs) != 1 or graphs[0].wire != BYTES or len(model) == max_fields:
            return unsplit
        inner = fields(data, Span(graphs[0].start, graphs[0].end, "graph", 2))
        if next(islice(inner, max_fields, None), None) is not None:
            return unsplit
        payloads: dict[int, memoryview] = {}
        (graph,) = graphs
        graph_bytes = b"".join(_graph_pieces(data, graph, payloads))
    except MalformedField:  # protobuf refuses it, too
        return unsplit
    return (
        SplitModel(b"".join([data[: graph.tag_start], _message(GRAPH, graph_bytes), data[graph.end :]]), payloads) if payloads else unsplit
    )


def _graph_pieces(data: bytes, graph: Field, payloads: dict[int, memoryview]) -> Iterator[bytes]:
    """Yield the bytes of a graph without its large weights, which are put into `payloads` by initializer index."""
    number, copied = 0, graph.start
    for f in fields(data, Span(graph.start, graph.end, "graph", 2)):
        if f.number != INITIALIZER:
            continue
        raw = _raw_data_field(data, f) if f.wire == BYTES and f.end - f.start >= LARGE_BYTES else None
        if raw is not None:
            payloads[number] = memoryview(data)[raw.start : raw.end]
            yield data[copied : f.tag_start]
            yield _message(INITIALIZER, data[f.start : raw.tag_start] + _message(RAW_DATA, b"") + data[raw.end : f.end])
            copied = f.end
        number += 1
    yield data[copied : graph.end]


def _raw_data_field(data: bytes, tensor: Field) -> Field | None:
    """Return the `raw_data` field of a tensor; None unless it is one field that holds nearly all of the tensor's bytes."""
    raw_fields = [f for f in fields(data, Span(tensor.start, tensor.end, "tensor", 3)) if f.number == RAW_DATA]
    return (
        raw_fields[0]
        if len(raw_fields) == 1 and raw_fields[0].wire == BYTES and raw_fields[0].end - raw_fields[0].start >= LARGE_BYTES // 2
        else None
    )


def _message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(data)) + data
