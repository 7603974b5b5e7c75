"""Twin: what a tape computes, on memory of its own, so that another thread plays the same recording at the same time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .tape import Arena, Call, Copied, Ran, Span, must_hold


class NoTwin(Exception):
    """A recording with a call that knows its memory otherwise than by the addresses that it is given."""


class Twin:
    """The blocks of an arena once more, and arrays and calls on them; what lies elsewhere does not change and is shared."""

    def __init__(self, first: Arena) -> None:
        """Take as many blocks of the same sizes: memory that is never touched takes none."""
        self.first, self.arena = first, Arena()
        self.blocks = {block.ctypes.data: self.arena.blocks[self.arena.add(len(block))] for block in first.blocks}

    def of(self, x: Any) -> Any:
        """Return the same elements of the other blocks."""
        block = self.first.block_of(x) if isinstance(x, np.ndarray) and x.size else None
        if block is None:
            return x
        start = block.ctypes.data
        return np.ndarray(x.shape, x.dtype, self.blocks[start], x.ctypes.data - start, x.strides)

    def call(self, call: Call) -> Call:
        """Return a call that does there what this one does; NoTwin where it cannot be made."""
        if isinstance(call, Ran):
            return self._ran(call)
        if isinstance(call, Copied):
            return Copied(self.of(call.target), self.of(call.source))
        if isinstance(call, partial) and call.func is must_hold:
            return partial(must_hold, self.of(call.args[0]))
        raise NoTwin(f"{call!r} cannot be made for other memory")

    def _ran(self, call: Ran) -> Ran:
        made = Ran(self.of(call.out), [self._span(r) for r in call.reads], call.bind, call.code, call.key)
        made.fold = call.fold
        if call.unary is not None:
            made.unary = replace(call.unary, source=self.of(call.unary.source))
        if call.grid is not None:
            made.grid = replace(call.grid, operands=tuple(map(self.of, call.grid.operands)))
        return made

    def _span(self, r: Span) -> Span:
        block = self.first.block_at(r.address)
        return r if block is None else r.at(r.address + self.blocks[block.ctypes.data].ctypes.data - block.ctypes.data, self.arena)
