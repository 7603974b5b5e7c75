"""What was written: strict simulation names the read of a vector that nothing can have written.

Every vector of the memories of a device is marked when it is written; registers have their reset values. An instruction is
refused that reads what was not. Two things are no mistake until what comes of them is read: a memory that only goes out may
be filled from anything, and vectors may be updated in place before they have contents when others are, that have them. Such
vectors are spoilt until they are written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang.binders import Leaf, static_shape
from ...readings.arrays.labelled_array import Data, Store
from ...readings.state.upward_exposed_reads import Needs, Runs
from ..model import Ila, Instruction
from ..verification.queue_interleavings import written_by
from .read_sets import Row, named_row, needed, places_of, tracked_by

CODE = "I104"
NEVER, WRITTEN, SPOILT = range(3)
REASONS = 64  # kept for each memory


@dataclass
class Written:
    """Which vectors of the data memories of one simulator were written, and why some are spoilt."""

    ila: Ila
    marks: dict[Leaf, Data] = field(default_factory=dict)
    why: dict[Leaf, list[tuple[Data, str]]] = field(default_factory=dict)

    @cached_property
    def tracked(self) -> Mapping[Leaf, int]:
        """The memories, with the elements of a vector."""
        return tracked_by(self.ila)

    def copy(self) -> Written:
        """Return the marks as they are now."""
        marks = {memory: marked.copy() for memory, marked in self.marks.items()}
        return Written(self.ila, marks, {memory: list(known) for memory, known in self.why.items()})

    def needs(self, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any], count: int = 0) -> Needs | None:
        """Return what an instruction that runs now needs, for `take`; with `count`, operands have an axis of commands first."""
        return None if named_row(instruction) else needed(self.ila, memories, instruction, operands, count, self.tracked)

    def take(self, instruction: Instruction, operands: Mapping[str, Any], needs: Needs | None) -> None:
        """Take an instruction that has run: mark what it wrote, and refuse it when it read what has no contents."""
        if needs is None:
            self._take_row(instruction, operands)
            return
        refusal = next((r for m, runs in needs.reads.items() if (r := self._refusal(instruction, m, runs, m in needs.writes))), None)
        spoilt = {m: self._among(m, runs, SPOILT) for m, runs in needs.reads.items() if m in needs.writes}
        for memory, runs in needs.in_place.items():
            spoilt[memory] = np.concatenate([spoilt.get(memory, np.empty(0, np.int64)), self._among(memory, runs, NEVER, SPOILT)])
        for memory, runs in needs.writes.items():
            self._mark(memory, runs)
        for memory, rows in spoilt.items():
            self._spoil(instruction, memory, rows, memory, rows)
        for part in needs.aside:
            bad = [(m, rows) for m, runs in part.reads.items() if (rows := self._among(m, runs, NEVER, SPOILT)).size]
            self._mark(part.memory, part.writes)
            if bad:
                self._spoil(instruction, part.memory, np.concatenate([np.arange(*run) for run in part.writes.tolist()]), *bad[0])
        if refusal is not None:
            raise refusal

    def _take_row(self, instruction: Instruction, operands: Mapping[str, Any]) -> None:
        """Take loads or stores of vectors that operands name."""
        found = named_row(instruction)
        if found is None or found[0] not in self.tracked:
            return
        memory, row, is_store = found
        marked, places = self._marked(memory), places_of(row, operands)
        if is_store:
            marked[places] = WRITTEN
        elif (marked[places] != WRITTEN).any():
            first = int(np.argmax(marked[places] != WRITTEN))
            raise self._unwritten(instruction, memory, int(np.ravel_multi_index([int(x[first]) for x in places], marked.shape)))

    # -- marks

    def _marked(self, memory: Leaf) -> Data:
        if memory not in self.marks:
            shape = static_shape(memory)
            self.marks[memory] = np.zeros(shape[:-1] or (-(-shape[0] // self.tracked[memory]),), np.uint8)
        return self.marks[memory]

    def _mark(self, memory: Leaf, runs: Runs) -> None:
        marked = self._marked(memory).reshape(-1)
        for start, stop in runs.tolist():
            marked[start:stop] = WRITTEN

    def _among(self, memory: Leaf, runs: Runs, *kinds: int) -> Data:
        """Return the vectors among runs whose mark is one of these."""
        marked = self._marked(memory).reshape(-1)
        open_runs = [(start, stop) for start, stop in runs.tolist() if (marked[start:stop] != WRITTEN).any()]
        return np.concatenate([np.empty(0, np.int64), *(a + np.flatnonzero(np.isin(marked[a:b], kinds)) for a, b in open_runs)])

    def _spoil(self, instruction: Instruction, memory: Leaf, rows: Data, source: Leaf, read: Data) -> None:
        if rows.size:
            self._marked(memory).reshape(-1)[rows] = SPOILT
            place = self._place(source, int(read[0]))
            known = self.why.setdefault(memory, [])
            known.append((rows, f"which {instruction.name} made of vector {place} of {source.name}"))
            del known[:-REASONS]

    # -- refusals

    def _refusal(self, instruction: Instruction, memory: Leaf, runs: Runs, is_written: bool) -> SpecError | None:
        """Return the refusal of the first read of a vector without contents; one that is spoilt may be updated in place."""
        bad = self._among(memory, runs, NEVER, *(() if is_written else (SPOILT,)))
        return self._unwritten(instruction, memory, int(bad[0])) if bad.size else None

    def _unwritten(self, instruction: Instruction, memory: Leaf, row: int) -> SpecError:
        place = self._place(memory, row)
        is_spoilt = self._marked(memory).reshape(-1)[row] == SPOILT
        made = next((f"{why}, " for rows, why in reversed(self.why.get(memory, ())) if row in rows), "") if is_spoilt else ""
        sentence = f"{instruction.name} reads vector {place} of {memory.name}, {made}which nothing has written"
        writers = [i for i in self.ila.instructions.values() if memory in written_by(i) and i is not instruction]
        stores = [i for i in writers if (known := named_row(i)) and _is_at(known[1], place)]
        return SpecError(CODE, sentence, help=f"write it first, by {(stores or writers)[0].name}" if writers else "")

    def _place(self, memory: Leaf, row: int) -> str:
        return ", ".join(str(int(n)) for n in np.unravel_index(row, self._marked(memory).shape))


def _is_at(row: Row, place: str) -> bool:
    """Tell whether a row with some operands may be this place."""
    return all(isinstance(x, str) or str(x) == n for x, n in zip(row, place.split(", "), strict=True))
