"""Data descriptions: a .toml that says where each model input comes from and how it is preprocessed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, did_you_mean, printable
from ..intake import MAX_TOML_BYTES, FileBound, MalformedText, key_line, parse_toml, read_bytes
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
    `place` is the line of the description that gives it.
    """

    file: Path | None
    array: str = ""
    preparation: Preparation = field(default_factory=Preparation)
    source: ImageFolder | Text | None = None
    derived: str = ""
    place: str = ""


@dataclass(frozen=True)
class Description:
    """The origins of all inputs, of labels and of targets."""

    inputs: Mapping[str, Origin]
    labels: Origin | None
    targets: Origin | None


@dataclass(frozen=True)
class _Entry:
    """A value of a description, with the keys that lead to it."""

    path: Path
    text: bytes
    keys: tuple[str, ...]
    value: Any

    @property
    def subject(self) -> str:
        """The entry as a message calls it, as inputs."x".scale."""
        return (
            "".join(f'."{k}"' if n == 1 and self.keys[0] == "inputs" else f".{k}" for n, k in enumerate(self.keys))[1:] or "the description"
        )

    def refusal(self, requirement: str, *, help: str, key: str = "") -> InputError:
        """Return the refusal of the entry, or of one of its keys, at the line of the description."""
        line = key_line(self.text, (*self.keys, key) if key else self.keys)
        place = f"{self.path}:{line}" if line else str(self.path)
        return InputError("C100", f"{self.subject} {requirement}", place=place, help=help)

    def table(self) -> dict[str, _Entry]:
        """Return the entries of a table by key.

        Raises:
            InputError: the entry is no table.
        """
        if not isinstance(self.value, dict):
            raise self.refusal(f"must be a table, not {printable(repr(self.value), 40)}", help=TABLE_HELP.get(self.keys[0], TABLE_FORM))
        return {k: _Entry(self.path, self.text, (*self.keys, k), v) for k, v in self.value.items()}

    def known(self, allowed_keys: tuple[str, ...]) -> dict[str, _Entry]:
        """Return the entries of a table that has these keys only.

        Raises:
            InputError: the entry is no table, or has another key.
        """
        table = self.table()
        unknown = next((k for k in table if k not in allowed_keys), None)
        if unknown is not None:
            remedy = did_you_mean(unknown, allowed_keys) or f"known: {', '.join(allowed_keys)}"
            raise self.refusal(f'has no key "{unknown}"', key=unknown, help=remedy)
        return table


def read_description(path: Path) -> Description:
    """Parse a description of data.

    Raises:
        UsageError: F101, there is no such description.
        InputError: the file is not TOML, has an unknown key, or a value that is not valid for its key.
    """
    text = read_bytes(path, FILE)
    try:
        root = _Entry(path, text, (), parse_toml(text))
    except MalformedText as error:
        remedy = next((r for sentence, r in SYNTAX_HELP if sentence in str(error)), "")
        raise InputError("C100", f"the file is not TOML: {error}", place=str(path), help=remedy) from None
    table = root.known(("inputs", "labels", "targets"))
    inputs = table["inputs"].table() if "inputs" in table else {}
    if not inputs:
        raise root.refusal("must say where the inputs come from", help='add a table [inputs."NAME"]')
    truths = (_truth(table[k], derived) if k in table else None for k, derived in (("labels", "folders"), ("targets", "next")))
    return Description({name: _origin(entry, KEYS) for name, entry in inputs.items()}, *truths)


def _truth(entry: _Entry, derived: str) -> Origin:
    """Return the origin of labels or targets: an array, or what follows from the input."""
    table = entry.known(("file", "array", derived))
    if derived not in table:
        return _origin(entry, ("file", "array"))
    if table[derived].value is not True or len(table) > 1:
        raise entry.refusal(f"must have a file and an array, or only {derived} = true", help="keep one of the two")
    return Origin(None, derived=derived, place=_place(entry))


def _place(entry: _Entry) -> str:
    return entry.refusal("", help="").problem.place


def _origin(entry: _Entry, allowed_keys: tuple[str, ...]) -> Origin:
    table = entry.known(allowed_keys)
    if "zeros" in table and (table["zeros"].value is not True or len(table) > 1):
        other = next((k for k in table if k != "zeros"), "")
        if other:
            raise entry.refusal(
                f"must have a file and an array, or only zeros = true, not {other} beside it", key="zeros", help="remove one of them"
            )
        raise table["zeros"].refusal(f"must be true, not {printable(repr(table['zeros'].value), 40)}", help=FORMS)
    if "zeros" in table:
        return Origin(None, place=_place(entry))
    preparation = Preparation(**{key: read(table[key]) for key, read in READERS.items() if key in table}, is_described=True)
    source = _source(entry, table)
    if source is not None:
        return Origin(None, preparation=preparation, source=source, place=_place(entry))
    file, array = (_text_of(table[k]) if k in table else "" for k in ("file", "array"))
    if not file or not array:
        missing = " and ".join(f"{k} = …" for k, value in (("file", file), ("array", array)) if not value)
        raise entry.refusal(f"must have a file and an array, and lacks {missing}", help=FORMS)
    path = entry.path.parent / file
    if not os.path.exists(path):
        near = did_you_mean(path.name, _names_in(path.parent)) or "files are relative to the description"
        raise table["file"].refusal(f'must be an .npz archive, and there is no file "{file}"', help=near)
    if not os.path.isfile(path):
        raise table["file"].refusal(f'must be an .npz archive, not a folder or a device as "{file}" is', help="numpy.savez writes one")
    return Origin(path, array, preparation, place=_place(table["array"]))


def _names_in(folder: Path) -> list[str]:
    """Return the names of the files of a folder, none where it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


def _text_of(entry: _Entry) -> str:
    if not isinstance(entry.value, str) or not entry.value:
        raise entry.refusal(f"must be text, not {printable(repr(entry.value), 40)}", help=f'put it in quotes: {entry.keys[-1]} = "…"')
    return entry.value


def _source(entry: _Entry, table: Mapping[str, _Entry]) -> ImageFolder | Text | None:
    """Return the image folder or the text that an input comes from, or None."""
    kind = next((k for k in SOURCES if k in table), "file")
    allowed = (kind, *SOURCES.get(kind, ("array",)))
    wrong = next((k for k in table if k in SOURCE_KEYS and k not in allowed), None)
    if wrong is not None:
        owner = next((k for k, keys in SOURCES.items() if wrong in keys), "")
        remedy = f"{wrong} belongs to {owner} = …" if owner else FORMS
        raise entry.refusal(f"comes from a {kind} and cannot have {wrong}", key=wrong, help=remedy)
    if kind == "file":
        return None
    folder = entry.path.parent
    texts = {k: _text_of(table[k]) for k in allowed if k in table and k not in ("window", *SIZES)}
    if kind == "folder":
        channels = texts.get("channels", "RGB")
        if channels not in CHANNELS:
            remedy = f"{did_you_mean(channels, CHANNELS) or 'L is one channel of grey'}"
            raise table["channels"].refusal(f'must be one of {", ".join(CHANNELS)}, not "{channels}"', help=remedy)
        return ImageFolder(folder / texts["folder"], channels, *(_size(table[k]) if k in table else () for k in SIZES))
    window = table["window"].value if "window" in table else None
    if type(window) is not int or window < 1:
        defect = "lacks window" if window is None else f"has window = {printable(repr(window), 40)}"
        raise entry.refusal(
            f"must have a vocabulary and a window of at least one word, and {defect}", key="window", help="for example window = 16"
        )
    if "vocabulary" not in texts:
        remedy = 'for example vocabulary = "words.txt", one word a line'
        raise entry.refusal("must have a vocabulary and a window of at least one word, and lacks vocabulary", help=remedy)
    return Text(folder / texts["text"], folder / texts["vocabulary"], window, texts.get("unknown", ""), texts.get("end_of_line", ""))


def _size(entry: _Entry) -> tuple[int, ...]:
    """Return one or two numbers of pixels."""
    value = entry.value
    sides = tuple(value) if isinstance(value, list) else (value,)
    if len(sides) not in (1, 2) or any(type(n) is not int or not 1 <= n <= MAX_SIDE_PIXELS for n in sides):
        requirement = f"must be 1 to {MAX_SIDE_PIXELS} pixels, or rows and columns, not {printable(repr(value), 40)}"
        raise entry.refusal(requirement, help=f"for example {entry.keys[-1]} = 224 or [224, 224]")
    return sides


def _finite(entry: _Entry, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        remedy = NUMBER_HELP if isinstance(value, str) else f"for example {entry.keys[-1]} = 0.5"
        raise entry.refusal(f"must be a finite number, not {printable(repr(value), 40)}", help=remedy)
    return float(value)


def _number(entry: _Entry) -> float:
    return _finite(entry, entry.value)


def _numbers(entry: _Entry) -> tuple[float, ...]:
    values = entry.value if isinstance(entry.value, list) else [entry.value]
    if not values:
        raise entry.refusal("must have at least one number", help="give one for all channels, or one for each, or leave the key out")
    return tuple(_finite(entry, v) for v in values)


def _deviations(entry: _Entry) -> tuple[float, ...]:
    values = _numbers(entry)
    if any(np.float32(v) == 0 for v in values):
        raise entry.refusal("must not be 0", help="samples are divided by it: 1 leaves a channel as it is")
    return values


def _cast(entry: _Entry) -> str:
    if entry.value not in CASTS:
        near = did_you_mean(entry.value, CASTS) if isinstance(entry.value, str) else ""
        remedy = f"{near and near + ' '}known: {', '.join(CASTS)}"
        raise entry.refusal(f"must be an element type, not {printable(repr(entry.value), 40)}", help=remedy)
    return str(entry.value)


def _layout(entry: _Entry) -> Layout:
    if not isinstance(entry.value, str):
        raise entry.refusal(f"must be text, not {printable(repr(entry.value), 40)}", help='for example layout = "NHWC->NCHW"')
    return parse_layout(entry.value, _place(entry))


# key of a preparation → how it is read
READERS: dict[str, Callable[[_Entry], Any]] = {
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
TABLE_FORM = 'write [inputs."NAME"] and below it file = "data.npz" and array = "NAME"'
TABLE_HELP = {k: f'write [{k}] and below it file = "data.npz" and array = "{k}"' for k in ("labels", "targets")}
NUMBER_HELP = "write it without quotes and as one number: 1/255 is 0.00392157"
# what Python's parser says → remedy
SYNTAX_HELP = (
    ("Invalid value", 'texts are in quotes, as file = "data.npz"; numbers and true are not'),
    ("Cannot overwrite a value", "keep one of the two: a key is given once in a table"),
    ("Cannot declare", "a table is declared once: put all its keys below that line"),
    ("Expected ']'", 'a table begins with its name in brackets on a line of its own, as [inputs."x"]'),
    ("Expected '='", 'a key and a value are parted by =, as file = "data.npz"'),
    ("Expected newline", "one key a line; texts are in quotes"),
)
FORMS = "an input has file and array; or folder (of images); or text, vocabulary and window; or zeros = true"
KEYS = (*SOURCE_KEYS, *READERS)
