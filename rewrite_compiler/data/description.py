"""Data descriptions: a .toml that says where each model input comes from and how it is preprocessed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, printable
from ..intake import MAX_TOML_BYTES, FileBound, MalformedText, parse_toml, read_bytes
from .column import Layout, Preparation, parse_layout
from .images import CHANNELS, ImageFolder
from .text import Text

CASTS = ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
FILE = FileBound("a description", MAX_TOML_BYTES, code="C101", help="give large arrays in .npz or .npy files")
MAX_SIDE_PIXELS = 1 << 14  # of a side of an image


@dataclass(frozen=True)
class Origin:
    """The origin of one input, of the labels or of the targets: an array of a file, images or a text, preprocessed; or zeros.

    `derived` is what follows from an input: "folders", classes by the folders of images; "next", the words after a text's.
    """

    file: Path | None
    array: str = ""
    preparation: Preparation = field(default_factory=Preparation)
    source: ImageFolder | Text | None = None
    derived: str = ""


@dataclass(frozen=True)
class Description:
    """The origins of all inputs, of labels and of targets."""

    inputs: Mapping[str, Origin]
    labels: Origin | None
    targets: Origin | None


def read_description(path: Path) -> Description:
    """Parse a description of data.

    Raises:
        InputError: the file is not TOML, has an unknown key, or a value that is not valid for its key.
    """
    place = str(path)
    try:
        table = parse_toml(read_bytes(path, FILE))
    except MalformedText as error:
        raise InputError("C100", f"the file is not TOML: {error}", place=place) from None
    _check_keys(table, ("inputs", "labels", "targets"), "the description", place)
    inputs = _table(table.get("inputs", {}), "inputs", place)
    if not inputs:
        raise InputError("C100", "the description must say where the inputs come from", place=place, help='add a table [inputs."NAME"]')
    return Description(
        {name: _origin(entry, f'inputs."{name}"', path, KEYS) for name, entry in inputs.items()},
        *(_truth(table[k], k, path, derived) if k in table else None for k, derived in (("labels", "folders"), ("targets", "next"))),
    )


def _truth(entry: Any, subject: str, path: Path, derived: str) -> Origin:
    """Return the origin of labels or targets: an array, or what follows from the input."""
    if _table(entry, subject, str(path)) == {derived: True}:
        return Origin(None, derived=derived)
    return _origin(entry, subject, path, ("file", "array"))


def _table(value: Any, subject: str, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError("C100", f"{subject} must be a table, not {value!r}", place=place)
    return value


def _check_keys(table: Mapping[str, Any], allowed_keys: tuple[str, ...], subject: str, place: str) -> None:
    for key in table:
        if key not in allowed_keys:
            raise InputError("C100", f'{subject} has no key "{key}"', place=place, help=f"known: {', '.join(allowed_keys)}")


def _origin(entry: Any, subject: str, path: Path, allowed_keys: tuple[str, ...]) -> Origin:
    place = str(path)
    table = _table(entry, subject, place)
    _check_keys(table, allowed_keys, subject, place)
    if table.get("zeros") is True and len(table) == 1:
        return Origin(None)
    values = {key: read(table[key], f"{subject}.{key}", place) for key, read in READERS.items() if key in table}
    preparation = Preparation(**values, is_described=True)
    source = _source(table, subject, path)
    if source is not None:
        return Origin(None, preparation=preparation, source=source)
    if "zeros" in table or not all(isinstance(table.get(k), str) for k in ("file", "array")):
        raise InputError("C100", f"{subject} must have a file and an array, or only zeros = true", place=place, help=FORMS)
    return Origin(path.parent / table["file"], table["array"], preparation)


def _source(table: Mapping[str, Any], subject: str, path: Path) -> ImageFolder | Text | None:
    """Return the image folder or the text that an input comes from, or None."""
    kind = next((k for k in SOURCES if k in table), None)
    if kind is None:
        return None
    allowed = (kind, *SOURCES[kind])
    wrong = next((k for k in table if k in SOURCE_KEYS and k not in allowed), None)
    if wrong is not None:
        raise InputError("C100", f"{subject} comes from a {kind} and cannot have {wrong}", place=str(path), help=FORMS)
    texts = {k: table[k] for k in allowed if k in table and k not in ("window", *SIZES)}
    invalid = next((k for k, v in texts.items() if not isinstance(v, str) or not v), None)
    if invalid is not None:
        raise InputError("C100", f"{subject}.{invalid} must be text, not {texts[invalid]!r}", place=str(path))
    if kind == "folder":
        channels = texts.get("channels", "RGB")
        if channels not in CHANNELS:
            raise InputError("C100", f'{subject}.channels must be one of {", ".join(CHANNELS)}, not "{channels}"', place=str(path))
        sizes = [_size(table.get(k), f"{subject}.{k}", str(path)) for k in SIZES]
        return ImageFolder(path.parent / texts["folder"], channels, *sizes)
    window = table.get("window")
    if type(window) is not int or window < 1 or "vocabulary" not in texts:
        raise InputError("C100", f"{subject} must have a vocabulary and a window of at least one word", place=str(path), help=FORMS)
    return Text(
        path.parent / texts["text"], path.parent / texts["vocabulary"], window, texts.get("unknown", ""), texts.get("end_of_line", "")
    )


def _size(value: Any, subject: str, place: str) -> tuple[int, ...]:
    """Return one or two numbers of pixels; none where the description has none."""
    if value is None:
        return ()
    sides = tuple(value) if isinstance(value, list) else (value,)
    if len(sides) not in (1, 2) or any(type(n) is not int or not 1 <= n <= MAX_SIDE_PIXELS for n in sides):
        sentence = f"{subject} must be 1 to {MAX_SIDE_PIXELS} pixels, or rows and columns, not {printable(repr(value), 40)}"
        raise InputError("C100", sentence, place=place, help=f"for example {subject.rpartition('.')[2]} = 224 or [224, 224]")
    return sides


def _number(value: Any, subject: str, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise InputError("C100", f"{subject} must be a finite number, not {printable(repr(value), 40)}", place=place)
    return float(value)


def _numbers(value: Any, subject: str, place: str) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError("C100", f"{subject} must have at least one number", place=place)
    return tuple(_number(v, subject, place) for v in values)


def _deviations(value: Any, subject: str, place: str) -> tuple[float, ...]:
    values = _numbers(value, subject, place)
    if any(np.float32(v) == 0 for v in values):
        raise InputError("C100", f"{subject} must not be 0", place=place)
    return values


def _cast(value: Any, subject: str, place: str) -> str:
    if value not in CASTS:
        raise InputError("C100", f"{subject} must be an element type, not {value!r}", place=place, help=f"known: {', '.join(CASTS)}")
    return str(value)


def _layout(value: Any, subject: str, place: str) -> Layout:
    if not isinstance(value, str):
        raise InputError("C100", f"{subject} must be text, not {value!r}", place=place)
    return parse_layout(value, place)


# key of a preparation → how it is read
READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "cast": _cast,
    "zero_point": _number,
    "scale": _number,
    "mean": _numbers,
    "std": _deviations,
    "layout": _layout,
}
# what an input that is no array comes from → what else may be said of it
SIZES = ("resize", "crop")
SOURCES = {"folder": ("channels", *SIZES), "text": ("vocabulary", "window", "unknown", "end_of_line")}
SOURCE_KEYS = ("file", "array", "zeros", *SOURCES, *(k for keys in SOURCES.values() for k in keys))
FORMS = "an input has file and array; or folder (of images); or text, vocabulary and window; or zeros = true"
KEYS = (*SOURCE_KEYS, *READERS)
