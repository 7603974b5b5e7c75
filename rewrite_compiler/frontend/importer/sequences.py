"""Sequences of tensors whose lengths are known: what takes them apart and joins them reads the tensors themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from ...errors import InputError
from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.context import UnknownShape, Unsupported
from ..site.site import Site

TensorSequence = tuple[Value, ...]


def _position(site: Site, n: int, count: int) -> int:
    """Return an operand that names a place among `count`, counted from the front; the last place where it is absent."""
    place = int(site.scalar(n, "position", count - 1))
    if not -count <= place < count:
        raise ShapeError(f"Position of {site.op} must be in {-count}…{count - 1}, not {place}")
    return place % count


SequenceLowering = Callable[[Site, TensorSequence], Value | TensorSequence]


def _construct(site: Site, _: TensorSequence) -> TensorSequence:
    return tuple(site.values())


def _split(site: Site, _: TensorSequence) -> TensorSequence:
    """Split a tensor into slices, without their axis where no lengths are given and keepdims is 0."""
    axis = site.axis(0, site.rank(0))
    if not 0 <= axis < site.rank(0):
        raise ShapeError(f"axis of SplitToSequence must be in {-site.rank(0)}…{site.rank(0) - 1}, not {axis}")
    extent = site.shape(0)[axis]
    ends = list(itertools.accumulate(_lengths(site, extent)))
    bounds = zip([0, *ends], ends, strict=False)
    parts = [site.apply("slice", site.value(0), axis=axis, start=a, stop=b, step=1) for a, b in bounds]
    if site.has(1) or site.flag("keepdims", 1):
        return tuple(parts)
    return tuple(site.reshape(p, [n for a, n in enumerate(site.type(p).shape) if a != axis]) for p in parts)


def _lengths(site: Site, extent: int) -> list[int]:
    """Return the lengths of the parts of a split: the operand's, equal ones of a given length and the rest, or ones."""
    lengths = np.asarray(site.required_data(1, "lengths")) if site.has(1) else np.asarray(1)
    if lengths.ndim == 0:
        if lengths < 1:
            raise ShapeError(f"Length of the parts of SplitToSequence must be positive, not {lengths}")
        return [min(int(lengths), extent - start) for start in range(0, extent, int(lengths))]
    if lengths.sum() != extent or (lengths < 0).any():
        raise ShapeError(f"Lengths of SplitToSequence must add up to the {extent} elements of its axis, not {lengths.tolist()}")
    return [int(n) for n in lengths]


def _insert(site: Site, sequence: TensorSequence) -> TensorSequence:
    place = _position(site, 2, len(sequence) + 1)
    return (*sequence[:place], site.value(1), *sequence[place:])


def _erase(site: Site, sequence: TensorSequence) -> TensorSequence:
    place = _position(site, 1, len(sequence))
    return (*sequence[:place], *sequence[place + 1 :])


def _element(site: Site, sequence: TensorSequence) -> Value:
    return sequence[_position(site, 1, len(sequence))]


def _length(site: Site, sequence: TensorSequence) -> Value:
    return site.constant(np.asarray(len(sequence), np.int64), "length")


def _joined(site: Site, sequence: TensorSequence) -> Value:
    """Join tensors along an axis, or along a new one."""
    new = site.flag("new_axis")
    if not sequence:
        raise ShapeError("ConcatFromSequence must join at least one tensor, not none")
    rank = len(site.type(sequence[0]).shape) + new
    axis = site.axis(0, rank)
    if not 0 <= axis < rank:
        raise ShapeError(f"axis of ConcatFromSequence must be in {-rank}…{rank - 1}, not {site.get('axis', 0)}")
    parts = [site.reshape(v, (*site.type(v).shape[:axis], 1, *site.type(v).shape[axis:])) if new else v for v in sequence]
    return parts[0] if len(parts) == 1 else site.apply("concat", *parts, axis=axis)


_MAKING: Mapping[str, SequenceLowering] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SplitToSequence": _split,
}
_READING: Mapping[str, SequenceLowering] = {
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _element,
    "SequenceLength": _length,
    "ConcatFromSequence": _joined,
}


def is_sequence_operator(domain: str, op: str) -> bool:
    """Tell whether an operator makes or reads sequences of tensors."""
    return domain == "" and (op in _MAKING or op in _READING)


def lower_sequence(site: Site, sequence: TensorSequence | None) -> Value | TensorSequence:
    """Return the tensor or the sequence that a node gives; `sequence` is its first operand, None where that is a tensor.

    Raises:
        UnknownShape: which tensors they are depends on data.
        InputError: the first operand must be a sequence and is a tensor.
    """
    lowering = {**_MAKING, **_READING}[site.op]
    if (site.op in _READING) != (sequence is not None):
        types = ("sequence", "tensor") if sequence is None else ("tensor", "sequence")
        raise InputError("F133", f"operand 0 of {site.op} must be a {types[0]}, not a {types[1]}", place=site.place)
    try:
        return lowering(site, sequence or ())
    except Unsupported as reason:
        raise UnknownShape(
            "F133", f"the tensors of a sequence must be known when the model is compiled: {reason}",
            place=site.place, help="write the model without sequences, or with constant lengths and positions",
        ) from None  # fmt: skip
