"""Parameters of a design: what each of them may be stands where it is declared, and what is impossible is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeVar

from ..errors import UsageError

T = TypeVar("T")


def choice(*values: Any) -> Any:
    """Declare a parameter that is one of these values, without another word the first one."""
    return field(default=values[0], metadata={"values": values})


def within(low: int, high: int, default: int | None, *, step: int = 1) -> Any:
    """Declare a parameter that is a multiple of `step` from `low` to `high`; None, too, where that is the default."""
    return field(default=default, metadata={"range": (low, high), "step": step, "may_be_none": default is None})


def one_of(model: str, name: str, value: str, known: Iterable[str]) -> str:
    """Return the value of a parameter; UsageError when it is not one of those known."""
    names = tuple(known)
    if value not in names:
        raise UsageError("F203", f'parameter {name} of {model} must be one of {", ".join(names)}, not "{value}"')
    return value


def designed(model: str, base: T, given: Mapping[str, Any], *, others: Iterable[str] = ()) -> T:
    """Return a design with single parameters replaced; `others` are parameters that are not part of it."""
    design: Any = base
    known = [f.name for f in fields(design)]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise UsageError("F203", f'{model} has no parameter "{unknown[0]}"', help=f"known: {', '.join((*others, *known))}")
    made: T = replace(design, **given)
    return made


def check_design(model: str, design: Any) -> None:
    """Refuse a parameter that is not what its declaration says."""
    for f in fields(design):
        value, subject = vars(design)[f.name], f"parameter {f.name} of {model}"
        if "values" in f.metadata and value not in f.metadata["values"]:
            shown = f'"{value}"' if isinstance(value, str) else value
            raise UsageError("F203", f"{subject} must be one of {', '.join(map(str, f.metadata['values']))}, not {shown}")
        if "range" in f.metadata and not (value is None and f.metadata["may_be_none"]):
            _check_number(subject, value, f.metadata["range"], f.metadata["step"])


def demand(condition: bool, sentence: str, *, help: str = "") -> None:
    """Refuse a design with this sentence where a condition on several of its parameters does not hold."""
    if not condition:
        raise UsageError("F203", sentence, help=help)


def _check_number(subject: str, value: object, ends: tuple[int, int], step: int) -> None:
    low, high = ends
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError("F203", f"{subject} must be an integer in {low}…{high}, not {value}")
    if value % step:
        raise UsageError("F203", f"{subject} must be a multiple of {step}, not {value}")
