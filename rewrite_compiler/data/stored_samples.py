"""Samples that stay in their files and are read on demand, so that data sets may be larger than memory."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.program import Data

CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class StoredSamples:
    """Samples in files: shape and type of the array they form, and random access to samples."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """The number of axes, the sample axis included."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def read(self, indices: Data) -> Data:
        """Return the samples with some indices."""


Raw = Data | StoredSamples


def samples_at(raw: Raw, indices: Data) -> Data:
    """Return the samples with some indices, of an array or of files."""
    return raw.read(indices) if isinstance(raw, StoredSamples) else raw[indices]


def chunks(raw: Raw) -> Iterator[tuple[int, Data]]:
    """Yield all samples in chunks of moderate size, each with the index of its first one."""
    chunk_size = max(1, CHUNK_BYTES // max(1, raw.dtype.itemsize * raw.size // max(1, len(raw))))
    for start in range(0, len(raw), chunk_size):
        yield start, samples_at(raw, np.arange(start, min(start + chunk_size, len(raw))))


@dataclass(frozen=True)
class StoredRows(StoredSamples):
    """The rows of an .npy file, read by position: a concurrent change is refused, and harms nothing."""

    path: Path
    offset: int
    stamp: tuple[int, int]  # size and time of change

    def read(self, indices: Data) -> Data:
        """Return the rows with some indices.

        Raises:
            InputError: the file changed since it was opened first.
        """
        row = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        rows = np.empty((len(indices), *self.shape[1:]), self.dtype)
        flat = rows.reshape(len(indices), row // self.dtype.itemsize)
        starts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        ends = [*starts[1:], len(indices)][: len(starts)]
        with open(self.path, "rb") as file:
            if file_stamp(file.fileno()) != self.stamp:
                raise changed_error(self.path)
            for first, last in zip(starts, ends, strict=True):
                data = os.pread(file.fileno(), row * int(last - first), self.offset + row * int(indices[first]))
                if len(data) != row * (last - first):
                    raise changed_error(self.path)
                flat[first:last] = np.frombuffer(data, self.dtype).reshape(last - first, flat.shape[1])
        return rows.astype(self.dtype.newbyteorder("="), copy=False)


def file_stamp(file: int) -> tuple[int, int]:
    """Return size and modification time of an open file."""
    state = os.fstat(file)
    return state.st_size, state.st_mtime_ns


def changed_error(path: Path) -> InputError:
    """Return the refusal of a file that changed while it was read."""
    return InputError("F106", "the file changed while it was read", place=str(path), help="run again when nobody writes to it")
