"""Where numerics read fields of formats: formats that tell who reads a binary point or a bias, and that give another value there.

A shift that is computed from formats is no term: it is a number of Python. Numerics are therefore built on formats whose fields say
the expression of the target's file that asks for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...lang.formats import Format
from .source_places import SourcePlace, place_outside

FIELDS = ("fraction", "bias")
OBSERVER = "_observer"
KINDS: dict[type[Format], type[Format]] = {}  # of formats that are observed: two copies of equal formats are equal


@dataclass(frozen=True)
class Read:
    """An expression of a target's file that reads a field of a tensor's format."""

    place: SourcePlace
    tensor: str
    field: str

    def __str__(self) -> str:
        return f"{self.tensor}.{self.field}"


def observed(formats: Mapping[str, Format], value_of: Callable[[Read, int], int]) -> dict[str, Format]:
    """Return formats whose binary points and biases are, at each place that reads them, what `value_of` makes of the true ones."""
    return {tensor: _observed(f, tensor, value_of) for tensor, f in formats.items()}


def _observed(f: Format, tensor: str, value_of: Callable[[Read, int], int]) -> Format:
    kind = KINDS.get(type(f)) or KINDS.setdefault(type(f), _observed_kind(type(f)))
    copy = object.__new__(kind)
    vars(copy).update(vars(f))
    vars(copy)[OBSERVER] = lambda place, field, value: value_of(Read(place, tensor, field), value)
    return copy


def _observed_kind(kind: type[Format]) -> type[Format]:
    """Return the kind of format with fields that are observed."""

    def read(self: Format, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name not in FIELDS:
            return value
        place = place_outside(sys._getframe(0))
        return value if place is None else object.__getattribute__(self, "__dict__")[OBSERVER](place, name, value)

    return type(kind.__name__, (kind,), {"__getattribute__": read})
