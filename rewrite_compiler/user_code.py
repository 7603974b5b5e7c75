"""Objects and exceptions of classes that the user wrote: what is told of them without asking them, and whose a failure is."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any

from .errors import SpecError

ENGINE = __name__.partition(".")[0]
PREFIX = "flexmatch_"  # of the names of modules that users' files become


def is_a(value: object, kind: type | tuple[type, ...]) -> bool:
    """Tell whether a value is of a kind by its class alone; what it says itself is code of the user, which may fail or lie."""
    return issubclass(type(value), kind)


def package_of(kind: type) -> str:
    """Return the package that a class is of."""
    return str(type.__dict__["__module__"].__get__(kind)).partition(".")[0]


def error_text(error: BaseException) -> str:
    """Return the kind and the message of an exception, its kind alone where it has no message or cannot say it."""
    message = text_or_nothing(str, error)
    return f"{type_name(error)}: {message}" if message else type_name(error)


def type_name(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def text_or_nothing(text_of: Callable[[Any], str], value: object) -> str:
    """Return the text of a value, nothing where its class, which may be the user's, fails to say it."""
    try:
        return text_of(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # an exit too
        return ""


def quoted(value: Any) -> str:
    """Return a value as messages quote it: short ones by their text, others by their type."""
    text = text_or_nothing(repr, value)  # of a class of the user, or of a number that is too long to print
    return text if 0 < len(text) <= 40 and "\n" not in text else f"a {type_name(value)}"


def name_text(subject: str, name: object) -> str:
    """Return a name as Python's own text.

    Raises:
        SpecError: I102, it is no text.
    """
    if not is_a(name, str):
        raise SpecError("I102", f"{subject} must be a text, not {quoted(name)}")
    return str.__str__(name)


def entries_of(subject: str, values: object, kind: type, *, noun: str = "") -> tuple[Any, ...]:
    """Return the entries of a tuple or list, which are of one kind (a `noun`, the kind's name if none is given).

    Raises:
        SpecError: I102, it is neither, or an entry is of another kind.
    """
    noun = noun or type.__dict__["__name__"].__get__(kind)
    if not is_a(values, (tuple, list)):
        raise SpecError("I102", f"{subject} must be a tuple of {noun}, not {quoted(values)}")
    entries: Iterable[object] = (tuple if is_a(values, tuple) else list).__iter__(values)  # type: ignore[arg-type]
    checked = tuple(entries)
    odd = [x for x in checked if not is_a(x, kind)]
    if odd:
        raise SpecError("I102", f"{subject} must be a tuple of {noun}, not of {quoted(odd[0])}")
    return checked


def user_failure(error: BaseException) -> str:
    """Return file and line of a user's file where an exception comes from that its code raised last, nothing for one of the engine."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", ""))
        is_engine = name.partition(".")[0] == ENGINE
        place = "" if is_engine else f"{frame.f_code.co_filename}:{line}" if name.startswith(PREFIX) else place
    return place
