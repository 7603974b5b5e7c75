"""What was written: strict simulation names the read of a vector that nothing can have written.

A store marks the vectors it names. What an engine writes depends on its configuration, so that after it every vector of its
memories counts as written: no program is refused that reads only what was written. Of streams the elements that every
instruction touches are known; there a store to memory outside of the device is what reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import SpecError
from ..lang.binders import Comprehension, Leaf
from ..lang.expr import Expr
from ..lang.footprint import Footprint
from ..lang.named import Data
from ..lang.step import Update, updates_of
from .model import CONTROL, Ila, Instruction
from .queues import written_by

CODE = "I104"
Row = tuple[int | str, ...]  # of each axis but the last: a number, or the operand that gives it


Effects = tuple[tuple[Leaf, Row | None], ...]  # memories with the vector of each where it is named


@dataclass
class Written:
    """Which vectors of the data memories of one simulator were written."""

    ila: Ila
    vectors: dict[Leaf, Data] = field(default_factory=dict)
    whole: set[Leaf] = field(default_factory=set)

    def __post_init__(self) -> None:
        external = {e.leaf for e in self.ila.externals.values()}
        found = [s.leaf for s in self.ila.states.values() if s.binding != CONTROL and s.leaf.rank and s.leaf not in external]
        self.tracked = frozenset(leaf for leaf in found if all(isinstance(n, int) for n in leaf.shape))

    def copy(self) -> Written:
        """Return the marks as they are now."""
        return Written(self.ila, {memory: marked.copy() for memory, marked in self.vectors.items()}, set(self.whole))

    def see(self, instruction: Instruction, operands: Mapping[str, Any]) -> None:
        """Take an instruction with the values of its operands (an axis of commands first, or none): refuse, then mark."""
        loads, stores = _effects(instruction)
        self._check(instruction.name, loads, operands)
        for memory, row in stores:
            if memory in self.whole or memory not in self.tracked:
                continue
            if row is None:
                self.whole.add(memory)
                continue
            self._marks(memory)[_places(row, operands)] = True

    def take(self, instruction: Instruction, touched: Footprint) -> None:
        """Take an instruction of a stream with the elements it touches: refuse one that stores what nothing has written, then mark."""
        if not written_by(instruction).isdisjoint(e.leaf for e in self.ila.externals.values()):
            for memory in self.tracked & touched.reads.keys():
                rows, marked = _rows(memory, touched.reads[memory]), self._marks(memory)
                missing = rows[~marked.reshape(-1)[rows]]
                if missing.size:
                    raise _unwritten(
                        instruction.name, memory, marked, tuple(map(np.atleast_1d, np.unravel_index(missing.min(), marked.shape)))
                    )
        for memory in self.tracked & touched.writes.keys():
            self._marks(memory).reshape(-1)[_rows(memory, touched.writes[memory])] = True

    def _marks(self, memory: Leaf) -> Data:
        return self.vectors.setdefault(memory, np.zeros(memory.shape[:-1], bool))  # type: ignore[arg-type]

    def _check(self, name: str, loads: Effects, operands: Mapping[str, Any]) -> None:
        for memory, row in loads:
            if memory not in self.tracked or memory in self.whole:
                continue
            marked = self.vectors.get(memory)
            places = None if row is None else _places(row, operands)
            if marked is not None and (places is None or np.all(marked[places])):
                continue
            raise _unwritten(name, memory, marked, places)


def _unwritten(name: str, memory: Leaf, marked: Data | None, places: tuple[Data, ...] | None) -> SpecError:
    which = "" if places is None else f" vector {_first(marked, places)} of"
    return SpecError(CODE, f"{name} reads{which} {memory.name}, which nothing has written")


def _rows(memory: Leaf, numbers: Sequence[Data]) -> Data:
    """Return the numbers of the vectors in which elements lie, given by their numbers; those outside of the memory are not among them."""
    shape = tuple(int(n) for n in memory.shape)  # type: ignore[arg-type]
    every = np.concatenate(numbers)
    return np.asarray(every[(every >= 0) & (every < math.prod(shape))] // shape[-1])


def _first(marked: Data | None, places: tuple[Data, ...]) -> str:
    """Return the first place that is not marked."""
    rows = np.broadcast_arrays(*places)
    n = 0 if marked is None else int(np.argmin(np.atleast_1d(marked[places])))
    return ", ".join(str(int(np.atleast_1d(r)[n])) for r in rows)


def _places(row: Row, operands: Mapping[str, Any]) -> tuple[Data, ...]:
    return tuple(np.asarray(operands[x] if isinstance(x, str) else x, np.int64).reshape(-1) for x in row)


def _row(address: tuple[Expr, ...], instruction: Instruction) -> Row | None:
    """Return the vector that an address names by numbers and operands alone, None when it is computed."""
    known = {id(o.leaf[()]): name for name, o in instruction.operands.items() if not o.leaf.rank}
    row = [known.get(id(e)) if e.value is None else int(e.value) for e in address[:-1]]
    return None if not row or None in row else tuple(x for x in row if x is not None)


@lru_cache(maxsize=1024)
def _effects(instruction: Instruction) -> tuple[Effects, Effects]:
    """Return what an instruction returns something of, and what it writes."""
    written = {u.memory: None for u in updates_of(instruction.update)}
    return tuple(_loaded(instruction)), tuple((memory, _stored(instruction, memory)) for memory in written)


def _stored(instruction: Instruction, memory: Leaf) -> Row | None:
    """Return the one whole vector that a store writes, None for any other update."""
    u = instruction.update
    if not isinstance(u, Update) or u.memory is not memory or len(u.variables) != 1 or u.address[-1] is not u.variables[0]:
        return None
    return _row(u.address, instruction) if u.extents[0].value == memory.shape[-1] else None


def _loaded(instruction: Instruction) -> Iterator[tuple[Leaf, Row | None]]:
    """Yield the memories that a read returns something of, and the vector where it names one."""
    if not isinstance(instruction.result, Comprehension):
        return
    work, seen = [instruction.result.body], set[int]()
    while work:
        e = work.pop()
        if e.op == "load" and isinstance(e.data, Leaf):
            yield e.data, _row(e.args, instruction)
        work.extend(x for x in e.args if id(x) not in seen)
        seen.update(map(id, e.args))
