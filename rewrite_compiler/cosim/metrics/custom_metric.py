"""A user's own metric, MODULE:FUNCTION: Python code that is trusted like a script; its errors are reported in one sentence."""

from __future__ import annotations

import hashlib
import inspect
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from ...errors import FlexmatchError, InputError, UsageError, did_you_mean
from ...ir.program import Data
from ...rewrite.user_file import module_at

Score = Callable[[Data, Data], Data]
RETURN = "end the function with `return …`: one that ends without it returns None"


def custom_scores(name: str) -> tuple[Score, bool, str]:
    """Return a function (outputs, truth) → scores [samples], whether lower is better, and the SHA-256 of its file.

    MODULE is a Python file or the name of a module. Higher is better unless the function has an attribute `lower_is_better`.

    Raises:
        UsageError: F203, there is no such module or function.
        InputError: R100, the module cannot be imported; from the returned function C108, the metric fails or returns no scores.
    """
    module, _, function = name.rpartition(":")
    if not module or not function:
        sentence = f'a metric of your own must be MODULE:FUNCTION, not "{name}"'
        raise UsageError("F203", sentence, help="for example ./metrics.py:accuracy")
    path, names = _module(module)
    metric = names.get(function)
    if not callable(metric):
        functions = [n for n, x in names.items() if inspect.isfunction(x)]
        remedy = did_you_mean(function, functions) or f"its functions are {', '.join(functions) or 'none'}"
        raise UsageError("F203", f'{path} has no function "{function}"', help=remedy)
    digest = hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()
    return _checked(metric, function, path), bool(getattr(metric, "lower_is_better", False)), digest


def scores_of_function(metric: Callable[[Data, Data], object]) -> tuple[str, Score, bool, str]:
    """Return the name of a function (outputs, truth) → scores [samples], its scores, whether lower is better, and the SHA-256 of its code.

    InputError C108 of the scores: the metric fails or returns no scores.
    """
    code = getattr(inspect.unwrap(metric), "__code__", None)
    name = getattr(metric, "__name__", type(metric).__name__)
    digest = hashlib.sha256(b"" if code is None else _bytes_of(code)).hexdigest()
    place = Path("a function of yours" if code is None else code.co_filename)
    return name, _checked(metric, name, place), bool(getattr(metric, "lower_is_better", False)), digest


def _bytes_of(code: CodeType) -> bytes:
    """Return what a function's code does: its instructions, names and constants, those of functions inside of it, too."""
    constants = (_bytes_of(c) if isinstance(c, CodeType) else repr(c).encode() for c in code.co_consts)
    return b"\0".join([code.co_code, *map(str.encode, code.co_names), *constants])


def _checked(metric: Callable[[Data, Data], object], function: str, path: Path) -> Score:
    """Return the scores of a metric, checked: one number a sample; what it raises is told at its line."""

    code = getattr(inspect.unwrap(metric), "__code__", None)
    place = str(path)
    if code is not None and Path(code.co_filename).absolute() == path.absolute():
        place = f"{path}:{code.co_firstlineno}"

    def score(outputs: Data, truth: Data) -> Data:
        try:
            result = metric(outputs.copy(), truth.copy())  # the function may write into what it gets
            scores = None if inspect.isawaitable(result) else np.asarray(result)
        except (FlexmatchError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the function raises
            line = next(
                (f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if Path(f.filename) == path.absolute()), None
            )
            sentence = f"metric {function} failed: {type(error).__name__}: {error}"
            raise InputError("C108", sentence, place=place if line is None else f"{path}:{line}") from None
        if scores is None or scores.dtype.kind not in "biuf":
            if inspect.iscoroutine(result):
                result.close()
            actual = f"elements of {result.dtype}" if isinstance(result, np.ndarray) else _kind_text(result)
            remedy = RETURN if result is None else ""
            raise InputError("C108", f"metric {function} must return one number a sample, not {actual}", place=place, help=remedy)
        if scores.shape != (len(outputs),):
            shape = ", ".join(map(str, scores.shape))
            sentence = f"metric {function} must return one number a sample, shape [{len(outputs)}], not [{shape}]"
            raise InputError("C108", sentence, place=place)
        if np.isnan(scores).any():
            raise InputError("C108", f"metric {function} must return numbers, not NaN", place=place)
        return scores.astype(np.float64)

    return score


def _kind_text(result: object) -> str:
    return "None" if result is None else f"a {type(result).__name__}"


def _module(module: str) -> tuple[Path, Mapping[str, Any]]:
    """Return the file and the names of a module: of a path, or of a dotted name, looked up in this folder first."""
    file = Path(module) if module.endswith(".py") or "/" in module else Path(*module.split(".")).with_suffix(".py")
    if file.is_file() or file == Path(module):
        return file, vars(module_at(file, "metric", "F203"))
    try:
        spec = find_spec(module)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin), vars(import_module(module))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _not_imported(module, error) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the module raises
        raise _not_imported(module, error) from None
    raise UsageError("F203", f'there is no module "{module}" for a metric', help="give a path ending in .py, or an installed module")


def _not_imported(module: str, error: BaseException) -> InputError:
    return InputError("R100", f"the module {module} of the metric cannot be imported: {type(error).__name__}: {error}")
