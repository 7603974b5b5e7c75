"""Data sets: samples for a model's inputs, with labels or targets, from .npz files or a .toml that describes them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, Problem, UsageError, did_you_mean
from ..ir.program import Data, Program
from ..ir.types import TensorType
from ..limits import DEFAULT, Limits
from ..public_calls import ArgumentKind
from .arrays import Archive, read_npy, read_npz
from .column import Column, Preparation, check_column
from .description import CASTS, Origin, read_description
from .images import ImageFolder, read_images
from .in_memory import FORMS, samples_in_memory
from .onnx_test_sets import NamedArrays, read_test_sets, test_set_folders
from .stored_samples import Raw, StoredSamples, chunks, samples_at
from .text import read_text


class TaskKind(StrEnum):
    """The kind of task that labels and targets of a data set imply; it decides the metric."""

    CLASSIFICATION = "classification"
    """One class a sample."""
    MAPS = "maps of classes"
    """A class for each place of the output, as in segmentation."""
    LANGUAGE_MODEL = "language model"
    """The next word for each word."""
    NO_TASK = "none"
    """No labels, or targets that are real numbers."""


CLASSIFICATION: str = TaskKind.CLASSIFICATION
MAPS: str = TaskKind.MAPS
LANGUAGE_MODEL: str = TaskKind.LANGUAGE_MODEL
CALIBRATION_SAMPLES = 32
MOST_CLASS = np.iinfo(np.int64).max
RECURRENT = ("lstm", "gru", "rnn")


@dataclass(frozen=True)
class Dataset:
    """Samples of all inputs; `labels` is one class a sample or a map of them, `targets` one array a sample; both may be absent."""

    columns: Mapping[str, Column]
    count: int
    sha256: str
    place: str
    labels: Data | None = None
    targets: Data | None = None
    warnings: tuple[Problem, ...] = field(default=())
    numbers: Data | None = None  # of the samples in the files; None: all in order

    def number(self, n: int) -> int:
        """Return the index that a sample has in its files."""
        return n if self.numbers is None else int(self.numbers[n])

    @property
    def task(self) -> TaskKind:
        """The kind of task that labels and targets imply."""
        if self.labels is not None:
            return TaskKind.CLASSIFICATION if self.labels.ndim == 1 else TaskKind.MAPS
        return TaskKind.LANGUAGE_MODEL if self.targets is not None and self.targets.dtype.kind in "iu" else TaskKind.NO_TASK

    @property
    def inputs(self) -> dict[str, Data]:
        """All samples, preprocessed: for each input an array [samples, *shape of the input]."""
        return {name: c.array(self.count) for name, c in self.columns.items()}

    def batches(self, size: int) -> Iterator[Dataset]:
        """Yield the data in order, at most `size` samples at a time."""
        for start in range(0, self.count, size):
            yield self.rows(slice(start, start + size))

    def take(self, indices: Data) -> Dataset:
        """Return the samples with some indices; sha256 stays that of the files."""
        truths = [None if a is None else a[indices] for a in (self.labels, self.targets)]
        columns = {name: c.take(indices) for name, c in self.columns.items()}
        numbers = indices if self.numbers is None else self.numbers[indices]
        return replace(self, columns=columns, count=len(indices), labels=truths[0], targets=truths[1], numbers=numbers)

    def rows(self, part: slice) -> Dataset:
        """Return the samples of a slice."""
        return self.take(np.arange(part.start, min(part.stop, self.count)))

    def evenly(self, n: int) -> Dataset:
        """Return n evenly spaced samples, the first and the last among them.

        Raises:
            UsageError: n is not 1 to the number of samples.
        """
        if not 1 <= n <= self.count:
            raise UsageError("F203", f"Number of samples must be 1 to {self.count}, not {n}", place=self.place)
        return self.take(np.linspace(0, self.count - 1, n).astype(int))

    def split(self, n: int = CALIBRATION_SAMPLES) -> tuple[Dataset, Dataset]:
        """Return the first n samples for calibration and the others, which must not be none.

        Raises:
            InputError: there are no more than n samples.
        """
        if self.count <= n:
            raise InputError(
                "C100", f"data must have more than {n} samples when the first {n} are for calibration, not {self.count}", place=self.place,
                help="give more samples, or --calibrate FILE",
            )  # fmt: skip
        order = np.arange(self.count)
        return self.take(order[:n]), self.take(order[n:])


Samples = str | Path | Dataset | Mapping[str, Any] | Iterable[Any]  # what data is given as: a file, or arrays in memory
SAMPLES = ArgumentKind("samples or the file of them", (str, os.PathLike, Dataset, Mapping, Iterable), help=FORMS)


def check_existence(samples: Samples | None) -> None:
    """Refuse the path of samples where nothing is; samples in memory are not looked at.

    Raises:
        UsageError: F101, there is no such file or folder.
    """
    if isinstance(samples, (str, os.PathLike)) and not Path(samples).exists():
        raise UsageError("F101", "there is no such file or folder", place=str(samples))


def load_data(path: str | Path, inputs: Mapping[str, TensorType], *, zeros: Collection[str] = (), limits: Limits = DEFAULT) -> Dataset:
    """Read data for a model with these inputs; `zeros` are inputs that stand for a zero state where the data lacks them.

    An .npz has one array for each input (first axis: samples), and `labels` or `targets`; a folder has such files, which
    follow one another by name, or one .npy for each array, or ONNX's test_data_set_… folders; a .toml describes where each
    input comes from.

    Raises:
        UsageError: the path is missing or not readable.
        InputError: the data is malformed, over the limits, or does not fit the inputs.
    """
    file = Path(path)
    for name, t in inputs.items():
        if t.dtype not in CASTS:
            raise InputError("C100", f'the input "{name}" has elements of type {t.dtype}, which data cannot give', place=str(file))
    check_existence(file)
    if file.suffix == ".toml":
        return _from_description(file, inputs, limits)
    return _from_folder(file, inputs, zeros, limits) if file.is_dir() else _from_arrays(_arrays_of(read_npz(file, limits)), inputs, zeros)


def _from_folder(folder: Path, inputs: Mapping[str, TensorType], zeros: Collection[str], limits: Limits) -> Dataset:
    sets = test_set_folders(folder)
    if sets:
        return _from_arrays(read_test_sets(folder, sets, inputs, limits), inputs, zeros)
    files = {suffix: sorted(f for f in folder.iterdir() if f.suffix == suffix) for suffix in (".npz", ".npy")}
    if files[".npz"]:
        remaining, parts = limits, []
        for f in files[".npz"]:
            archive = read_npz(f, remaining)
            remaining = replace(remaining, data_bytes=remaining.data_bytes - sum(a.nbytes for a in archive.arrays.values()))
            parts.append(_from_arrays(_arrays_of(archive), inputs, zeros))
        return _joined(parts, str(folder))
    if not files[".npy"]:
        raise InputError(
            "C100", "the folder must have .npz files, .npy files or folders test_data_set_0, …, and has none", place=str(folder)
        )
    stored_rows = {f: read_npy(f, limits) for f in files[".npy"]}
    arrays: dict[str, Raw] = {f.stem: rows for f, (rows, _) in stored_rows.items()}
    return _from_arrays(NamedArrays(folder, arrays, _digest({f.name: digest for f, (_, digest) in stored_rows.items()})), inputs, zeros)


def _arrays_of(archive: Archive) -> NamedArrays:
    return NamedArrays(archive.path, archive.arrays, archive.sha256)


def samples_for(p: Program, data: Samples, limits: Limits = DEFAULT) -> Dataset:
    """Return data for a program's inputs, read from a path or taken from arrays in memory.

    Raises:
        InputError: the data does not fit the inputs; C102 for samples that are not finite.
        UsageError: the path is missing or not readable.
    """
    if isinstance(data, Dataset):
        return data
    inputs = {p.names[v]: p.types[v] for v in p.inputs}
    if isinstance(data, (str, Path)):
        dataset = load_data(data, inputs, zeros=_states(p), limits=limits)
    else:
        dataset = _from_arrays(samples_in_memory(data, inputs), inputs, _states(p))
    for name, column in dataset.columns.items():
        _check_finite(name, column, dataset.place)
        _check_prepared(name, column, dataset.place)
    return dataset


def single_samples(p: Program, data: Samples | None, limits: Limits = DEFAULT) -> dict[str, tuple[int, ...]]:
    """Return the input shapes for one sample, where data does not come in a model's fixed batches; else nothing.

    Raises:
        InputError: the data fits neither the fixed batch nor single samples.
    """
    types = {p.names[v]: p.types[v] for v in p.inputs}
    fixed = {t.shape[0] if t.shape else 1 for t in types.values()}
    if not isinstance(data, (str, Path, Mapping, np.ndarray)) or len(fixed) != 1 or fixed <= {0, 1}:
        return {}
    single_shapes = {name: (1, *t.shape[1:]) for name, t in types.items()}
    try:
        samples_for(p, data, limits)
    except InputError as error:
        single_types = {v: replace(p.types[v], shape=single_shapes[p.names[v]]) for v in p.inputs}
        try:
            samples_for(replace(p, types=tuple(single_types.get(v, t) for v, t in enumerate(p.types))), data, limits)
        except InputError:
            raise error from None
        return single_shapes
    return {}


def _check_finite(name: str, column: Column, place: str) -> None:
    if column.raw is None or column.raw.dtype.kind != "f":
        return
    nonfinite = [start + n for start, x in chunks(column.raw) for n in np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))]
    if nonfinite:
        sentence = (
            f'the input "{name}" must be finite, not so in {len(nonfinite)} of {len(column.raw)} samples, first in sample {nonfinite[0]}'
        )
        raise InputError("C102", sentence, place=place)


def _check_prepared(name: str, column: Column, place: str) -> None:
    """Refuse preprocessing that overflows to infinity: it is monotonic in a value, so both ends of the range decide."""
    raw = column.raw
    if raw is None or not column.preparation.is_described or np.dtype(column.type.dtype).kind != "f":
        return
    low, high = _value_range(raw)
    extremes = np.stack([np.full(raw.shape[1:], v, raw.dtype) for v in (low, high)])
    if not np.isfinite(column.preparation.apply(extremes, column.type.dtype)).all():
        sentence = f'the input "{name}" must be finite after its preprocessing, not so for samples from {low} to {high}'
        raise InputError("C102", sentence, place=place, help="correct cast, zero_point, scale, mean and std")


def _value_range(raw: Raw) -> tuple[Any, Any]:
    """Return the least and the largest value; for bytes and words those of the type, so that no image is decoded."""
    if raw.dtype.kind in "iu" and raw.dtype.itemsize <= 2:
        return np.iinfo(raw.dtype).min, np.iinfo(raw.dtype).max
    extremes = [(x.min(), x.max()) for _, x in chunks(raw) if x.size]
    return (min(a for a, _ in extremes), max(b for _, b in extremes)) if extremes else (raw.dtype.type(0), raw.dtype.type(0))


def _states(p: Program) -> list[str]:
    """Return the inputs that recurrent operators read as their initial state, which data may omit: they are then zero."""
    read = {v for n in p.nodes if n.op in RECURRENT for v in n.inputs[1:]}
    return [p.names[v] for v in p.inputs if v in read]


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in parts.items()).encode()).hexdigest()


# -- arrays named as the inputs


def _from_arrays(archive: NamedArrays, inputs: Mapping[str, TensorType], zeros: Collection[str]) -> Dataset:
    place, columns = str(archive.path), {}
    for name, t in inputs.items():
        if name not in archive.arrays and name not in zeros:
            array_names = ", ".join(f'"{n}"' for n in archive.arrays)
            raise InputError(
                "C100", f'there is no array for the input "{name}"', place=place,
                help=f"it has {array_names or 'no arrays'}; name arrays as the model's inputs, or describe the data in a .toml",
            )  # fmt: skip
        columns[name] = Column(t, archive.arrays.get(name))
        check_column(columns[name], name, name, place)
    extra = {k: _in_memory(archive.arrays[k]) for k in ("labels", "targets") if k not in inputs and k in archive.arrays}
    return _checked_dataset(place, columns, extra, archive.sha256)


def _in_memory(raw: Raw) -> Data:
    return samples_at(raw, np.arange(len(raw))) if isinstance(raw, StoredSamples) else raw


def _joined(parts: Sequence[Dataset], place: str) -> Dataset:
    """Return the concatenated samples of several files."""
    first = parts[0]
    for part in parts[1:]:
        for name, expected, actual in _paired_arrays(first, part):
            if (expected is None) != (actual is None) or (expected is not None and actual is not None and _kind(expected) != _kind(actual)):
                texts = ["none" if a is None else f"{a.dtype}[samples{''.join(f', {n}' for n in a.shape[1:])}]" for a in (expected, actual)]
                raise InputError(
                    "C100", f"all files must agree on {name}: {texts[0]} in {Path(first.place).name}, not {texts[1]}", place=part.place
                )
    columns = {name: replace(c, raw=_concatenated([_array_of(p, name) for p in parts])) for name, c in first.columns.items()}
    return Dataset(
        columns, sum(p.count for p in parts), _digest({Path(p.place).name: p.sha256 for p in parts}), place,
        _concatenated([p.labels for p in parts]), _concatenated([p.targets for p in parts]), tuple(w for p in parts for w in p.warnings),
    )  # fmt: skip


def _paired_arrays(first: Dataset, second: Dataset) -> Iterator[tuple[str, Data | None, Data | None]]:
    for name in first.columns:
        yield f'the input "{name}"', _array_of(first, name), _array_of(second, name)
    yield "labels", first.labels, second.labels
    yield "targets", first.targets, second.targets


def _array_of(part: Dataset, name: str) -> Data | None:
    raw = part.columns[name].raw
    assert not isinstance(raw, StoredSamples)
    return raw


def _concatenated(arrays: Sequence[Data | None]) -> Data | None:
    present = [a for a in arrays if a is not None]
    return np.concatenate(present) if present else None


def _kind(a: Data) -> tuple[object, ...]:
    return a.dtype, a.shape[1:]


# -- arrays that a .toml names


def _from_description(file: Path, inputs: Mapping[str, TensorType], limits: Limits) -> Dataset:
    description = read_description(file)
    place = str(file)
    for names, available, sentence in (
        (inputs, description.inputs, 'the description does not say where the input "{}" comes from'),
        (description.inputs, inputs, 'the model has no input called "{}"'),
    ):
        missing = next((n for n in names if n not in available), None)
        if missing is not None:
            remedy = f"the model's inputs are {', '.join(inputs)}; the description has {', '.join(description.inputs)}"
            raise InputError("C100", sentence.format(missing), place=place, help=did_you_mean(missing, available) or remedy)
    origins = {**description.inputs, "labels": description.labels, "targets": description.targets}
    archives: dict[Path | None, Archive] = {
        o.file: read_npz(o.file, limits) for o in origins.values() if o is not None and o.file is not None
    }
    sources = {name: _source_samples(o, limits) for name, o in description.inputs.items() if o.source is not None}
    columns = {
        name: _column(name, inputs[name], o, sources[name].raw if name in sources else _of_archive(o, archives))
        for name, o in description.inputs.items()
    }
    truths = (("labels", description.labels), ("targets", description.targets))
    extra = {k: _truth(o, sources, archives) for k, o in truths if o is not None}
    parts = {file.name: hashlib.sha256(file.read_bytes()).hexdigest(), **{a.path.name: a.sha256 for a in archives.values()}}
    parts.update({name: m.sha256 for name, m in sources.items()})
    return _checked_dataset(place, {name: columns[name] for name in inputs}, extra, _digest(parts))


@dataclass(frozen=True)
class _SourceSamples:
    """Samples of an image folder or a text, and the labels or targets that follow from them."""

    raw: Raw
    sha256: str
    derived: Mapping[str, Data]


def _source_samples(o: Origin, limits: Limits) -> _SourceSamples:
    if isinstance(o.source, ImageFolder):
        images, classes, digest = read_images(o.source, limits)
        return _SourceSamples(images, digest, {} if classes is None else {"folders": classes})
    assert o.source is not None
    windows, following, digest = read_text(o.source, limits)
    return _SourceSamples(windows, digest, {"next": following})


def _truth(o: Origin, sources: Mapping[str, _SourceSamples], archives: Mapping[Path | None, Archive]) -> Data:
    if not o.derived:
        return _stored_array(o, archives)
    derived = [m.derived[o.derived] for m in sources.values() if o.derived in m.derived]
    if len(derived) != 1:
        requirement = {"folders": "one input of images that lie in one folder a class", "next": "one input of text"}[o.derived]
        remedy = "name an array instead: file and array"
        raise InputError("C100", f"{o.derived} = true needs {requirement}, not {len(derived)}", place=o.place, help=remedy)
    return derived[0]


def _of_archive(o: Origin, archives: Mapping[Path | None, Archive]) -> Data | None:
    return None if o.file is None else _stored_array(o, archives)


def _column(name: str, t: TensorType, origin: Origin, raw: Raw | None) -> Column:
    if raw is None:
        return Column(t, None, Preparation(is_described=True))
    column = Column(t, raw, origin.preparation)
    check_column(column, name, origin.array or name, origin.place)
    return column


def _stored_array(origin: Origin, archives: Mapping[Path | None, Archive]) -> Data:
    archive = archives[origin.file]
    if origin.array not in archive.arrays:
        array_names = ", ".join(f'"{n}"' for n in archive.arrays)
        remedy = did_you_mean(origin.array, archive.arrays) or f"it has {array_names or 'none'}"
        raise InputError("C100", f'{archive.path.name} has no array "{origin.array}"', place=origin.place, help=remedy)
    return archive.arrays[origin.array]


# -- what must hold in any case


def _checked_dataset(place: str, columns: Mapping[str, Column], extra: Mapping[str, Data], digest: str) -> Dataset:
    arrays: dict[str, Raw] = {**{f'the input "{n}"': c.raw for n, c in columns.items() if c.raw is not None}, **extra}
    counts = {name: (len(a) if a.ndim else 0) for name, a in arrays.items()}
    if not counts or not any(c.raw is not None for c in columns.values()):
        remedy = "give one input an array at least: zeros are for the others"
        raise InputError("C100", "data must give at least one input", place=place, help=remedy)
    first, count = next(iter(counts.items()))
    for name, n in counts.items():
        if n != count:
            sentence = f"all arrays must have the same number of samples, not {count} for {first} and {n} for {name}"
            raise InputError("C100", sentence, place=place, help=_sample_axis(name, arrays[name].shape, count))
    if count == 0:
        raise InputError("C100", "data must have at least one sample, not 0", place=place)
    labels, targets = extra.get("labels"), extra.get("targets")
    if labels is not None:
        labels = _classes(labels, place)
    return Dataset(columns, count, digest, place, labels, targets, tuple(_not_finite(arrays, place)))


def _sample_axis(name: str, shape: Sequence[int], count: int) -> str:
    """Return where an array has its samples, and where it would have the number of them that another one has."""
    where = f"samples are the first axis, and {name} is [{', '.join(map(str, shape))}]"
    return f"{where}: transpose it so that axis {list(shape).index(count)} is the first one" if count in shape else where


def _classes(labels: Data, place: str) -> Data:
    """Return class indices [samples], or maps of class indices [samples, …], from 0."""
    per_sample = labels.size // len(labels)
    expected = "one class number from 0 for each sample" if per_sample == 1 else "class numbers from 0"
    extents = f"[{len(labels)}]" if per_sample == 1 else f"[samples, {', '.join(map(str, labels.shape[1:]))}]"
    sentence = f"labels must be {expected}, not {labels.dtype}{extents}"
    if labels.dtype.kind not in "iu" or per_sample < 1:
        remedy = "numbers that are no classes are called targets" if labels.dtype.kind == "f" else ""
        raise InputError("C100", sentence, place=place, help=remedy)
    invalid = np.flatnonzero((labels < 0).reshape(-1) | (labels > MOST_CLASS).reshape(-1))
    if len(invalid):
        raise InputError("C100", f"{sentence} with {labels.reshape(-1)[invalid[0]]} in sample {invalid[0] // per_sample}", place=place)
    return labels.reshape(-1 if per_sample == 1 else labels.shape).astype(np.int64)


def _not_finite(arrays: Mapping[str, Raw], place: str) -> Iterator[Problem]:
    for name, a in arrays.items():
        if a.dtype.kind != "f":
            continue
        parts = [(at, np.argwhere(~np.isfinite(x))) for at, x in chunks(a)] if a.ndim else []
        count = sum(len(places) for _, places in parts)
        if count:
            at, places = next(part for part in parts if len(part[1]))
            first = [at + int(places[0][0]), *map(int, places[0][1:])]
            yield Problem("C102", f"{name} has {count} values that are not finite, the first at {first}", place)
