"""Why a user's Python file fails while it is imported, and which name was meant where one does not exist."""

from __future__ import annotations

import builtins
import re
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType

from ..errors import did_you_mean
from ..user_code import ENGINE, error_text, package_of

MODULE_OF = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'|cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'")
OWN_PATH = re.compile(r" \([^()]*[/\\][^()]*\)$")  # where Python found a module


def cause_of(error: BaseException) -> str:
    """Return the kind and message of an exception without the place, which a refusal says before it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return OWN_PATH.sub("", error_text(error)) if isinstance(error, ImportError) else error_text(error)


def remedy_of(error: BaseException) -> str:
    """Return the nearest name where an exception is of one that does not exist, nothing elsewhere."""
    if type(error) is NameError:
        return did_you_mean(str(error.name), _visible(error))
    match = MODULE_OF.search(error_text(error)) if isinstance(error, AttributeError | ImportError) else None
    if match is not None:
        module = sys.modules.get(match["module"] or match[1])
        return did_you_mean(match["name"] or match[2], [] if module is None else dir(module))
    if type(error) is AttributeError and (isinstance(error.obj, ModuleType) or package_of(type(error.obj)) == ENGINE):
        return did_you_mean(str(error.name), dir(error.obj))
    return ""


def _visible(error: BaseException) -> Iterable[str]:
    """Return the names that are visible where an exception was raised."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = frames[-1]
    return (n for names in (last.f_locals, last.f_globals, vars(builtins)) for n in names if isinstance(n, str))
