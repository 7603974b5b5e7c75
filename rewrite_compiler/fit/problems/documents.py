"""JSON documents of problems, clusters and schedules: checks of their shape, each with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError

WORD_BITS = 62  # of a number in a document, so that sums of two are words of 64 bits
MAX_ENTRIES = 64  # dimensions, tensors and axes of a problem, levels of an architecture


def check_keys(document: Any, subject: str, needed: Sequence[str], allowed: Sequence[str] = ()) -> None:
    """Check that a JSON value is an object with the needed keys and no others but the allowed ones.

    Raises:
        InputError: it is not (F230).
    """
    if not isinstance(document, Mapping):
        raise InputError("F230", f"{subject} must be an object, not {document!r}")
    for name in needed:
        if name not in document:
            raise InputError("F230", f'{subject} must have the key "{name}"')
    for name in document:
        if name not in needed and name not in allowed:
            raise InputError("F230", f'{subject} must not have the key "{name}", only {", ".join((*needed, *allowed))}')


def check_schema(document: Mapping[str, Any], name: str) -> None:
    """Check that a document that names its schema names that of documents of this name.

    Raises:
        InputError: it names another (F230).
    """
    schema = f"flexmatch.{name}/1"
    if document.get("schema", schema) != schema:
        raise InputError("F230", f'The schema must be "{schema}", not {document["schema"]!r}')


def checked_object(document: Any, subject: str) -> Mapping[str, Any]:
    """Return a JSON object whose keys are names.

    Raises:
        InputError: the value is anything else (F230).
    """
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise InputError("F230", f"{subject[0].upper()}{subject[1:]} must be an object of names, not {document!r}")
    return document


def checked_list(document: Any, subject: str) -> Sequence[Any]:
    """Return a JSON list.

    Raises:
        InputError: the value is anything else (F230).
    """
    if not isinstance(document, list | tuple):
        raise InputError("F230", f"{subject} must be a list, not {document!r}")
    return document


def checked_name(value: Any, subject: str) -> str:
    """Return a text that is not empty.

    Raises:
        InputError: the value is anything else (F230).
    """
    if not isinstance(value, str) or not value:
        raise InputError("F230", f"{subject} must be a text, not {value!r}")
    return value


def positive_integer(value: Any, subject: str) -> int:
    """Return a positive integer that fits a word.

    Raises:
        InputError: the value is anything else (F230).
    """
    if type(value) is not int or value < 1:
        raise InputError("F230", f"{subject} must be a positive integer, not {value!r}")
    if value >= 1 << WORD_BITS:
        raise InputError("F230", f"{subject} must be below 2^{WORD_BITS}, not {value:,}")
    return value


def check_count(entries: Sequence[Any] | Mapping[str, Any], subject: str) -> None:
    """Check that a document has an entry of a kind, and no more than can be searched.

    Raises:
        InputError: it has none, or more (F230).
    """
    if not entries:
        raise InputError("F230", f"There must be {subject}, not none")
    if len(entries) > MAX_ENTRIES:
        raise InputError("F230", f"There must be at most {MAX_ENTRIES} {subject}, not {len(entries):,}")
