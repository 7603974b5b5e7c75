"""Columns of a data set: one model input for all samples, preprocessed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.program import Data
from ..ir.types import TensorType
from .stored_samples import Raw, StoredSamples, chunks, samples_at


@dataclass(frozen=True)
class Layout:
    """A permutation of axes named by letters, source to target: "NHWC->NCHW", "NHW->NHW1"; the first letter is the sample axis."""

    source_axes: str
    target_axes: str

    @property
    def sample_axis(self) -> int:
        """The axis of the model's input that the samples come from; there it has extent 1."""
        return self.target_axes.index(self.source_axes[0])

    def channel_axis(self) -> int:
        """Return the axis of the source array along which means and standard deviations lie."""
        return self.source_axes.index("C") if "C" in self.source_axes else len(self.source_axes) - 1


def parse_layout(text: str, place: str) -> Layout:
    """Parse a layout.

    Raises:
        InputError: an axis is missing, duplicated or new.
    """
    source_axes, arrow, target_axes = (part.strip() for part in text.partition("->"))
    letters = target_axes.replace("1", "")
    distinct = len(set(source_axes)) == len(source_axes) and source_axes.isalpha()
    if not arrow or not distinct or sorted(letters) != sorted(source_axes):
        raise InputError(
            "C100", f'layout must name each axis once before and after "->", and 1 for new axes, not "{text}"', place=place,
            help='for example "NHWC->NCHW"',
        )  # fmt: skip
    return Layout(source_axes, target_axes)


@dataclass(frozen=True)
class Preparation:
    """Preprocessing of an array, in this order: cast, − zero_point, · scale, − mean, / std, layout."""

    cast: str = ""
    zero_point: float | None = None
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: Layout | None = None
    is_described: bool = False  # by a .toml: numbers of any kind may become floats

    @property
    def is_arithmetic(self) -> bool:
        """Tell whether values change, besides a cast."""
        return self.zero_point is not None or self.scale is not None or bool(self.mean or self.std)

    def apply(self, x: Data, to: str) -> Data:
        """Return preprocessed samples [samples, …] of element type `to`; infinities are refused elsewhere."""
        with np.errstate(all="ignore"):
            return self._applied(x, to)

    def _applied(self, x: Data, to: str) -> Data:
        x = self._values(x, to)
        if self.layout is None:
            return x.astype(to, copy=False)
        order = [self.layout.source_axes.index(c) for c in self.layout.target_axes.replace("1", "") if c != self.layout.source_axes[0]]
        x = x.transpose(0, *order)
        new = [n + 1 for n, c in enumerate(self._sample_letters()) if c == "1"]
        return np.expand_dims(x, tuple(new)).astype(to, copy=False)

    def _sample_letters(self) -> str:
        """Return the axes of one sample in the model: new ones, and the model's own batch axis, as 1."""
        assert self.layout is not None
        return self.layout.target_axes.replace(self.layout.source_axes[0], "1")

    def _values(self, x: Data, to: str) -> Data:
        if self.cast:
            x = x.astype(self.cast)
        if x.dtype.kind != "f" and (self.is_arithmetic or np.dtype(to).kind == "f"):
            x = x.astype(np.float32)
        if not self.cast and x.dtype == np.float64:
            x = x.astype(np.float32 if self.is_described else x.dtype)
        if self.zero_point is not None:
            x = x - np.asarray(self.zero_point, x.dtype)
        if self.scale is not None:
            x = x * np.asarray(self.scale, x.dtype)
        if self.mean:
            x = x - self._by_channel(self.mean, x)
        return x / self._by_channel(self.std, x) if self.std else x

    def _by_channel(self, values: Sequence[float], x: Data) -> Data:
        axis = self.layout.channel_axis() if self.layout else x.ndim - 1
        shape = [1] * x.ndim
        shape[axis] = len(values)
        return np.array(values, x.dtype).reshape(shape)


@dataclass(frozen=True)
class Column:
    """One model input: its samples [samples, …], in memory or in files, or None for zeros; preprocessing; the type of one sample.

    `rows` are the indices of the selected samples of those in files.
    """

    type: TensorType
    raw: Raw | None
    preparation: Preparation = field(default_factory=Preparation)
    rows: Data | None = None

    def take(self, indices: Data) -> Column:
        """Return the column of the samples with some indices."""
        if isinstance(self.raw, StoredSamples):
            return replace(self, rows=indices if self.rows is None else self.rows[indices])
        return self if self.raw is None else replace(self, raw=self.raw[indices])

    def array(self, count: int) -> Data:
        """Return the preprocessed samples: [count, *shape of the model's input]."""
        if self.raw is None:
            return np.zeros((count, *self.type.shape), self.type.dtype)
        raw = self.raw
        if isinstance(raw, StoredSamples):
            raw = raw.read(np.arange(len(raw)) if self.rows is None else self.rows)
        return np.ascontiguousarray(self.preparation.apply(raw, self.type.dtype).reshape(count, *self.type.shape))

    @property
    def sample_axis(self) -> int | None:
        """The axis of the model's input, of extent 1, that becomes the batch axis when samples are run at once; None: unknown."""
        if self.preparation.layout is not None:
            return self.preparation.layout.sample_axis
        if self.raw is None or self.raw.ndim == len(self.type.shape) + 1:
            return None
        return next((a for a in range(len(self.type.shape)) if _without(self.type.shape, a) == self.raw.shape[1:]), None)


LAYOUT_BESIDE = 'a .toml beside the data can say how axes are ordered: layout = "NHWC->NCHW"'
LAYOUT_IN_DESCRIPTION = 'layout = "NHWC->NCHW" here would say how its axes are ordered; or name another array'
CHANNELS = "channels lie along the axis C of the layout, without a layout along the last axis"


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def check_column(column: Column, name: str, array: str, place: str) -> None:
    """Check that the samples of a column have the model's shape and element type.

    Raises:
        InputError: shape, element type, layout, or number of means and deviations do not fit.
    """
    raw = column.raw
    if raw is None:
        return
    if raw.ndim == 0:
        raise InputError("C100", f'array "{array}" for the input "{name}" must have a first axis for the samples', place=place)
    _check_type(column, raw, f'array "{array}"', name, place)
    shape = (
        column.preparation.apply(samples_at(raw, np.arange(0)), column.type.dtype).shape[1:]
        if _check_layout(column, array, place)
        else raw.shape[1:]
    )
    expected = [column.type.shape, *(_without(column.type.shape, a) for a, n in enumerate(column.type.shape) if n == 1)]
    if shape not in expected:
        allowed = " or ".join(_shape_text(("samples", *s)) for s in dict.fromkeys(expected[:2]))
        raise InputError(
            "C100", f'array "{array}" for the input "{name}" must have shape {allowed}, not {_shape_text((len(raw), *shape))}', place=place,
            help=LAYOUT_IN_DESCRIPTION if column.preparation.is_described else LAYOUT_BESIDE,
        )  # fmt: skip


def _check_layout(column: Column, array: str, place: str) -> bool:
    layout, raw = column.preparation.layout, column.raw
    assert raw is not None
    if layout is not None and len(layout.source_axes) != raw.ndim:
        raise InputError(
            "C100",
            f'layout "{layout.source_axes}->{layout.target_axes}" needs an array of {len(layout.source_axes)} axes, '
            f'and "{array}" has {raw.ndim}',
            place=place,
            help=f'give a letter to each axis of "{array}" {_shape_text(raw.shape)}, the samples first',
        )
    statistics = column.preparation.mean or column.preparation.std
    channels = raw.shape[layout.channel_axis() if layout else raw.ndim - 1] if raw.ndim else 1
    if statistics and len(statistics) not in (1, channels):
        sentence = f'mean and std for array "{array}" must have 1 or {channels} values, not {len(statistics)}'
        raise InputError("C100", sentence, place=place, help=CHANNELS)
    return True


def _check_type(column: Column, raw: Raw, subject: str, name: str, place: str) -> None:
    p, to = column.preparation, np.dtype(column.type.dtype)
    dtype = raw.dtype
    if p.cast:
        _check_cast(raw, np.dtype(p.cast), subject, place)
        dtype = np.dtype(p.cast)
    if p.is_arithmetic or (p.is_described and to.kind == "f"):
        dtype = np.dtype(np.float32) if dtype.kind != "f" else dtype
    same_kind = to.kind == dtype.kind or (to.kind in "iu" and dtype.kind in "iu")
    narrows = p.is_described and to.kind == dtype.kind == "f"
    if not narrows and not (same_kind and np.can_cast(dtype, to)):
        raise InputError(
            "C100", f'{subject} for the input "{name}" must be {to}, not {dtype}', place=place,
            help="convert it, as numpy's astype does, or describe its preprocessing in a .toml",
        )  # fmt: skip


def _check_cast(raw: Raw, to: np.dtype[Any], subject: str, place: str) -> None:
    if to.kind not in "iu" or raw.size == 0:
        return
    low, high = np.iinfo(to).min, np.iinfo(to).max
    parts = [(x.min(), x.max(), raw.dtype.kind == "f" and bool((x != np.rint(x)).any())) for _, x in chunks(raw)]
    least, most = min(part[0] for part in parts), max(part[1] for part in parts)
    if not low <= least <= most <= high or any(is_fraction for *_, is_fraction in parts):
        raise InputError(
            "C100", f"{subject} must hold whole numbers from {low} to {high} to become {to}, not {least} to {most}", place=place
        )


def _shape_text(shape: Sequence[object]) -> str:
    return f"[{', '.join(map(str, shape))}]"
