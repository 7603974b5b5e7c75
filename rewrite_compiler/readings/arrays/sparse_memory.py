"""Memories of which few elements are written: the others are what the memory was reset to."""

from __future__ import annotations

from typing import Any


class Sparse:
    """An array of which only written elements take room."""

    def __init__(self, shape: tuple[int, ...], reset: Any) -> None:
        self.shape, self.reset = shape, reset
        self.written: dict[tuple[int, ...], Any] = {}

    def __getitem__(self, place: tuple[int, ...]) -> Any:
        return self.written.get(place, self.reset)

    def __setitem__(self, place: tuple[int, ...], value: Any) -> None:
        self.written[place] = value
