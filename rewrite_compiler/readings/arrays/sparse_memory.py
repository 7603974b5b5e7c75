"""Sparse images of large memories: only written elements are stored, the others have the reset value."""

from __future__ import annotations

from typing import Any


class SparseMemory:
    """An array that stores its written elements by index; every other element is `reset`."""

    def __init__(self, shape: tuple[int, ...], reset: Any) -> None:
        self.shape, self.reset = shape, reset
        self.elements: dict[tuple[int, ...], Any] = {}

    def __getitem__(self, place: tuple[int, ...]) -> Any:
        return self.elements.get(place, self.reset)

    def __setitem__(self, place: tuple[int, ...], value: Any) -> None:
        self.elements[place] = value
