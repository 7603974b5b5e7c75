"""Calls of a target's functions, which are user code: failures are reported at their line, with the result that was expected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from ..errors import FlexmatchError, SpecError
from ..readings.oracle.counterexample import with_example
from ..rewrite.user_file import user_line
from ..user_code import ENGINE, error_text, is_a, package_of, quoted

CODE = "I102"
RETURN = "end the function with `return …`: one that ends without it returns None"


@dataclass(frozen=True)
class Role:
    """The purpose of a user's function: its subject ("The costs of toy.dense"), the result it must return, a place to report.

    `operands` are the names of what it is always given, `names` of what it is given where it has a parameter of that name.
    """

    subject: str
    expected: str
    place: str = ""
    operands: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def call_text(self, arguments: Mapping[str, Any]) -> str:
        """Return the operands of a call as text."""
        operands = ", ".join(self.operands or (arguments if not self.names else ()))
        optional = f"those of {', '.join(self.names)} that it names" if self.names else ""
        return f"it is called with {', and '.join(filter(None, (operands, optional))) or 'nothing'}"


def call_user(role: Role, kind: type | tuple[type, ...], f: Callable[..., Any], /, *operands: Any, **arguments: Any) -> Any:
    """Return the result of a target's function, a dictionary or tuple as Python's own.

    Raises:
        SpecError: I102 with file and line, where the function fails or returns another kind of value.
    """
    with reporting_failures(role, f, arguments, places=True):
        result = f(*operands, **arguments)
    if not is_a(result, kind):
        raise wrong_result(role, f, f"not {quoted(result)}", help=RETURN if result is None else "")
    if is_a(result, tuple):
        return tuple(tuple.__iter__(result))
    return dict(dict.items(result)) if is_a(result, dict) else result


def listed_by(
    role: Role, kind: type, f: Callable[..., Any], arguments: Mapping[str, Any], *, places: bool = False
) -> Iterator[Any]:  # fmt: skip
    """Yield the results of one kind that a target's function returns or yields; the next is asked for when it is needed.

    Raises:
        SpecError: I102 with file and line, where the function fails or a result is of another kind.
    """
    with reporting_failures(role, f, arguments, places=places):
        results = f(**arguments)
    if results is None or is_a(results, kind):
        one = f"return a tuple of them, (…,): this is a single {kind.__name__}"
        raise wrong_result(role, f, f"not {quoted(results)}", help=RETURN if results is None else one)
    with reporting_failures(role, f, arguments, places=places):
        remaining = iter(results)
    while True:
        with reporting_failures(role, f, arguments, places=places):
            result: Any = next(remaining, role)
        if result is role:
            return
        if not is_a(result, kind):
            raise wrong_result(role, f, f"not {quoted(result)} among them")
        yield result


def wrong_result(role: Role, f: Callable[..., Any] | None, actual: str, *, line: str = "", help: str = "") -> SpecError:
    """Return the refusal of a function's result: its subject, the expected result, and what it did instead."""
    place = line or place_of_function(f) or role.place
    return SpecError(CODE, f"{role.subject} must return {role.expected}, {actual}", place=place, help=help)


@contextmanager
def reporting_failures(
    role: Role, f: Callable[..., Any] | None, arguments: Mapping[str, Any] | None = None, *, places: bool = False
) -> Iterator[None]:
    """Turn exceptions of a user's function, and an exit that it asks for, into refusals; the engine's own and interrupts pass.

    Refusals without a place get the line of the user's file that they come through; where none is, the function's if `places` says so:
    they are about what it says, not about a device that it drives.

    Raises:
        SpecError: I102 at the line of the function that failed.
    """
    try:
        yield
    except FlexmatchError as error:
        place = place_of_function(f) or role.place
        line = "" if error.problem.place or not place else user_line(place, error)
        at = line if line.rpartition(":")[2].isdigit() else place if places else ""
        if error.problem.place or not at:
            raise
        raise with_example(error).at(at) from None
    except BaseException as error:  # whatever the function raises; an interrupt is the user's
        place = place_of_function(f) or role.place
        line = user_line(place, error) if place else ""
        is_inside = line.rpartition(":")[2].isdigit()
        if isinstance(error, KeyboardInterrupt) or package_of(type(error)) == ENGINE:
            raise
        at = line if is_inside else place  # a call with wrong operands never entered the function
        is_call = isinstance(error, TypeError) and at == place and arguments is not None
        narrowing = ", or narrow the guard or the limits to the sizes that it takes" if role.names else ""
        remedy = role.call_text(arguments or {}) if is_call else f"correct the line{narrowing}"
        raise wrong_result(role, f, f"not end with {error_text(error)}", line=at, help=remedy) from error


def place_of_function(f: Callable[..., Any] | None) -> str:
    """Return file and line of a function, of the first one that another is applied to, of what an object does when it is called."""
    while isinstance(f, partial):
        f = next(filter(callable, f.args), f.func)
    code = None if f is None else _code_of(f) or _code_of(inspect.getattr_static(type(f), "__call__", None))
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _code_of(f: object) -> CodeType | None:
    """Return the code of a function, of the one that it wraps at last; nothing where it is none or wrappers go in a circle."""
    trail = set[int]()
    while (inner := f.__func__ if isinstance(f, MethodType) else inspect.getattr_static(f, "__wrapped__", None)) is not None:
        if id(f) in trail:
            return None
        trail.add(id(f))
        f = inner
    return f.__code__ if isinstance(f, FunctionType) else None
