"""Calls of public functions: arguments are checked against the signature and a table of kinds before anything else is done."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from numbers import Integral
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .errors import UsageError, did_you_mean
from .limits import Limits

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
SHARED_LETTERS = 5  # at the beginning of two names that are near


@dataclass(frozen=True)
class ArgumentKind:
    """What an argument must be, in the words of a refusal: its types, the least number, what its entries are, and what is passed on."""

    expected: str
    types: tuple[type, ...] = (object,)
    least: int | None = None
    entry: ArgumentKind | None = None  # of a sequence; one entry alone is taken, too
    conversion: Callable[[Any], Any] = lambda value: value
    help: str = ""

    def checked(self, value: Any, name: str) -> Any:
        """Return the value as it is passed on.

        Raises:
            UsageError: F203, it is of another kind.
        """
        if self.entry is not None and isinstance(value, Iterable) and not isinstance(value, (*self.entry.types, bytes, Mapping)):
            return tuple(self.entry.checked(x, f"an entry of {name}") for x in value)
        if self.entry is not None and isinstance(value, self.entry.types):
            return (self.entry.checked(value, name),)
        is_number = self.types == (Integral,)
        if self.entry is not None or not isinstance(value, self.types) or (is_number and isinstance(value, bool)):
            raise UsageError("F203", f"{name} must be {self.expected}, not {type(value).__qualname__}", help=self.help)
        number: Any = value
        if self.least is not None and number < self.least:
            raise UsageError("F203", f"{name} must be {self.expected}, not {value}", help=self.help)
        return self.conversion(value)


NAME = ArgumentKind("a name", (str,))
TEXT = ArgumentKind("a text", (str,))
NAMES = ArgumentKind("a name or a sequence of names", entry=NAME)
WHOLE = ArgumentKind("a whole number", (Integral,), conversion=int)
COUNT = ArgumentKind("a whole number from 1 on", (Integral,), least=1, conversion=int)
NATURAL = ArgumentKind("a whole number from 0 on", (Integral,), least=0, conversion=int)
FLAG = ArgumentKind("True or False", (bool,))
FILE = ArgumentKind("the path of a file", (str, os.PathLike), conversion=Path)
FILES = ArgumentKind("the path of a file or a sequence of paths", entry=FILE)
LIMITS = ArgumentKind("rewrite_compiler.limits.Limits", (Limits,))
CALLBACK_OF_NAME = ArgumentKind("a function of a name", (Callable,), help="give print, or none")  # type: ignore[arg-type]
CALLBACK_OF_COUNTS = ArgumentKind("a function of the samples finished and of all", (Callable,), help="give print, or none")  # type: ignore[arg-type]
SHAPE = ArgumentKind("whole numbers", entry=COUNT)
SHAPES = ArgumentKind('a dict of shapes by input name, as {"x": (1, 3, 224, 224)}', (Mapping,), conversion=lambda table: _shapes(table))


def public(name: str, record: str = "", /, **kinds: ArgumentKind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a public function refuse arguments that it does not have, or of another kind, under the name by which users call it.

    `record` is the parameter whose kind is a dataclass: where a field of it is given as an argument, the remedy says so.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*arguments: P.args, **options: P.kwargs) -> R:
            try:
                bound = signature.bind(*arguments, **options)
            except TypeError:
                raise _misfit(name, signature, arguments, options, _fields_of(record, kinds)) from None
            for parameter, value in bound.arguments.items():
                if parameter in kinds and value is not signature.parameters[parameter].default:
                    bound.arguments[parameter] = kinds[parameter].checked(value, parameter)
            return function(*bound.args, **bound.kwargs)

        return checked

    return decorated


def public_record(name: str, /, **kinds: ArgumentKind) -> Callable[[type[C]], type[C]]:
    """Let the constructor of a public class refuse as `public` lets a function."""

    def decorated(kind: type[C]) -> type[C]:
        kind.__init__ = public(name, **kinds)(kind.__init__)  # type: ignore[method-assign]
        return kind

    return decorated


def _shapes(table: Mapping[Any, Any]) -> dict[str, tuple[int, ...]]:
    return {NAME.checked(k, "an input of shapes"): SHAPE.checked(v, f'the shape of "{k}"') for k, v in table.items()}


def _fields_of(record: str, kinds: Mapping[str, ArgumentKind]) -> dict[str, str]:
    """Return how each field of a record of settings is given, by the field's name."""
    if not record:
        return {}
    kind = kinds[record]
    return {f.name: f"{record}={kind.expected}({f.name}=…)" for f in fields(kind.types[0])}


def _misfit(
    name: str, signature: inspect.Signature, arguments: tuple[Any, ...], options: Mapping[str, Any], of_record: Mapping[str, str]
) -> UsageError:
    """Return the refusal of a call that does not fit a signature."""
    parameters = [p for p in signature.parameters.values() if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    names = [p.name for p in parameters]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    count = len(arguments) - ("self" in signature.parameters)
    call = f"{name}({', '.join(p.name for p in parameters if p.default is p.empty)})"
    unknown = [k for k in options if k not in names]
    if unknown:
        return UsageError("F203", f'{name} has no argument "{unknown[0]}"', help=_remedy(unknown[0], names, of_record))
    if count > len(positional):
        by_name = [f"{n}=…" for n in names[len(positional) :]]
        remedy = f"name the others: {', '.join(by_name)}" if by_name else f"write {call}"
        bound_text = f"{len(positional)} argument{'s' if len(positional) != 1 else ''}"
        return UsageError("F203", f"{name} takes at most {bound_text} without a name, not {count}", help=remedy)
    for n in positional[:count]:
        if n in options:
            return UsageError("F203", f"{name} is given the argument {n} twice, by its position and by its name", help=f"write {call}")
    missing = next(p.name for p in parameters if p.default is p.empty and p.name not in {*positional[:count], *options})
    return UsageError("F203", f"the argument {missing} of {name} is missing", help=f"write {call}")


def _remedy(unknown: str, names: Collection[str], of_record: Mapping[str, str]) -> str:
    """Return what may be meant by a name that is no argument: another one, a field of the record of settings, or one of all."""
    if unknown in of_record:
        return f"give {of_record[unknown]}"
    guesses = (f'did you mean "{n}"?' for n in names if _is_alike(unknown, n))
    return did_you_mean(unknown, names) or next(guesses, f"it has {', '.join(names)}")


def _is_alike(a: str, b: str) -> bool:
    """Tell whether two names begin alike, or one contains the other."""
    return a[:SHARED_LETTERS] == b[:SHARED_LETTERS] or a in b or b in a
