"""Text: words of a file as vocabulary indices, cut into windows; the targets of a language model are the following words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..intake import FileBound, read_bytes
from ..ir.program import Data
from ..limits import MIB, Limits

TEXT_BYTES = 256 * MIB


@dataclass(frozen=True)
class Text:
    """A text, its vocabulary file (one word a line), words a window, and the words for unknown ones and for line ends."""

    file: Path
    vocabulary: Path
    window: int
    unknown: str = ""
    end_of_line: str = ""


def read_text(source: Text, limits: Limits) -> tuple[Data, Data, str]:
    """Return the windows [samples, words], the words after each word [samples, words], and the SHA-256 over both files.

    Raises:
        InputError: the vocabulary lacks a word, or the text is too short, too large or not UTF-8.
        UsageError: a file is missing or not readable.
    """
    bound = FileBound("a text", min(TEXT_BYTES, limits.data_bytes), "give less of the text, or raise --limits data_bytes=", code="C101")
    vocabulary, text = read_bytes(source.vocabulary, bound), read_bytes(source.file, bound)
    number = {word: n for n, word in enumerate(_decoded(vocabulary, source.vocabulary).split())}
    for word in filter(None, (source.unknown, source.end_of_line)):
        if word not in number:
            raise InputError("C100", f'the vocabulary must have the word "{word}"', place=str(source.vocabulary))
    words = np.fromiter(_words(source, number, _decoded(text, source.file)), np.int64)
    samples = (len(words) - 1) // source.window
    if samples < 1:
        raise InputError("C100", f"the text must have more than {source.window} words, not {len(words)}", place=str(source.file))
    word_count = samples * source.window
    digest = hashlib.sha256(text + b"\0" + vocabulary).hexdigest()
    return words[:word_count].reshape(samples, -1), words[1 : word_count + 1].reshape(samples, -1), digest


def _words(source: Text, number: dict[str, int], text: str) -> Iterator[int]:
    for line_number, line in enumerate(text.splitlines(), 1):
        for word in line.split():
            if word not in number and not source.unknown:
                place, remedy = f"{source.file}:{line_number}", 'or name a word for others: unknown = "<unk>"'
                raise InputError("C100", f'the vocabulary must have the word "{word}"', place=place, help=remedy)
            yield number[word] if word in number else number[source.unknown]
        if source.end_of_line:
            yield number[source.end_of_line]


def _decoded(raw: bytes, file: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("C100", f"the file is not UTF-8 text: byte {error.start}", place=str(file)) from None
