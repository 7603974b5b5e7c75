"""A metric of the user's own: MODULE:FUNCTION, Python code that is trusted like a script; what it raises is told in one sentence."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..errors import FlexmatchError, InputError, UsageError
from ..ir.program import Data
from ..rewrite.userfile import module_at

Score = Callable[[Data, Data], Data]


def own_scores(name: str) -> tuple[Score, bool]:
    """Return a function (outputs, truth) → one score a sample, and whether lower is better.

    MODULE is a Python file or the name of a module. Higher is better unless the function has an attribute `lower_is_better`.
    """
    module, _, function = name.rpartition(":")
    path = _file_of(module)
    found = vars(module_at(path, "metric", "F203")).get(function)
    if not callable(found):
        raise UsageError("F203", f'{path} has no function "{function}"', help="give the metric as MODULE:FUNCTION")

    def score(outputs: Data, truth: Data) -> Data:
        try:
            scores = np.asarray(found(outputs, truth), np.float64)
        except FlexmatchError:
            raise
        except Exception as error:
            line = next(
                (f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if Path(f.filename) == path.absolute()), None
            )
            said = f"metric {function} failed: {type(error).__name__}: {error}"
            raise InputError("C108", said, place=str(path) if line is None else f"{path}:{line}") from None
        if scores.shape != (len(outputs),):
            shape = ", ".join(map(str, scores.shape))
            raise InputError(
                "C108", f"metric {function} must return one number for each of {len(outputs)} samples, not [{shape}]", place=str(path)
            )
        return scores

    return score, bool(getattr(found, "lower_is_better", False))


def _file_of(module: str) -> Path:
    """Return the file of a module: a path, or what Python finds under a dotted name, first of all in this folder."""
    if module.endswith(".py") or "/" in module:
        return Path(module)
    here = Path(*module.split(".")).with_suffix(".py")
    if here.is_file():
        return here
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError("F203", f'there is no module "{module}" for a metric', help="give a path ending in .py, or an installed module")
    return Path(spec.origin)
