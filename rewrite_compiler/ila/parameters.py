"""Design parameters: dataclass fields with declared values or ranges, and the checks that refuse an impossible design."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeVar

from ..errors import UsageError

T = TypeVar("T")


def choice(*values: Any) -> Any:
    """Declare a parameter that is one of these values; the first is the default."""
    return field(default=values[0], metadata={"values": values})


def within(low: int, high: int, default: int | None, *, step: int = 1) -> Any:
    """Declare a parameter that is a multiple of `step` in low … high, or None where None is the default."""
    return field(default=default, metadata={"range": (low, high), "step": step, "may_be_none": default is None})


def one_of(model: str, name: str, value: str, allowed: Iterable[str]) -> str:
    """Return the value of a parameter if it is one of the allowed ones.

    Raises:
        UsageError: F203, it is not.
    """
    names = tuple(allowed)
    if value not in names:
        raise UsageError("F203", f'parameter {name} of {model} must be one of {", ".join(names)}, not "{value}"')
    return value


def designed(model: str, base: T, overrides: Mapping[str, Any], *, extra_names: Iterable[str] = ()) -> T:
    """Return the design `base` with some parameters replaced; the last argument names known parameters that are not part of it.

    Raises:
        UsageError: F203, the model has no parameter of a name.
    """
    design: Any = base
    names = [f.name for f in fields(design)]
    unknown_names = sorted(overrides.keys() - set(names))
    if unknown_names:
        raise UsageError("F203", f'{model} has no parameter "{unknown_names[0]}"', help=f"known: {', '.join((*extra_names, *names))}")
    revised: T = replace(design, **overrides)
    return revised


def check_design(model: str, design: Any) -> None:
    """Check every parameter of a design against its declaration.

    Raises:
        UsageError: F203, a parameter has a value that its declaration excludes.
    """
    for f in fields(design):
        value, subject = vars(design)[f.name], f"parameter {f.name} of {model}"
        if "values" in f.metadata and value not in f.metadata["values"]:
            value_text = f'"{value}"' if isinstance(value, str) else value
            raise UsageError("F203", f"{subject} must be one of {', '.join(map(str, f.metadata['values']))}, not {value_text}")
        if "range" in f.metadata and not (value is None and f.metadata["may_be_none"]):
            _check_number(subject, value, f.metadata["range"], f.metadata["step"])


def demand(condition: bool, sentence: str, *, help: str = "") -> None:
    """Check a condition on several parameters of a design.

    Raises:
        UsageError: F203 with this sentence, the condition does not hold.
    """
    if not condition:
        raise UsageError("F203", sentence, help=help)


def _check_number(subject: str, value: object, ends: tuple[int, int], step: int) -> None:
    low, high = ends
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError("F203", f"{subject} must be an integer in {low}…{high}, not {value}")
    if value % step:
        raise UsageError("F203", f"{subject} must be a multiple of {step}, not {value}")
