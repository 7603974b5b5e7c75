"""Initialisation tracking: strict simulation refuses the read of a vector that no instruction has written.

Every vector of the device's data memories is marked when it is written; registers have their reset values. Two reads of
unwritten vectors are refused only when their results are read: copies into a memory that is only read by the host or copied out,
and updates in place beside vectors that were written. What they write is marked as spoilt until it is written again.
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
from ...readings.state.access_bounds import AccessBounds
from ...readings.state.upward_exposed_reads import ExposedReads, Runs
from ..model import Ila, Instruction
from ..verification.queue_interleavings import written_by
from .read_sets import Row, addressed_row, bounds_of_operands, instruction_needs, is_access_static, row_indices, touches, vector_sizes_of

CODE = "I104"
NEVER, WRITTEN, SPOILT = range(3)
REASONS = 64  # kept for each memory


@dataclass
class InitialisationMap:
    """The marks of one simulator's data memories by vector (never written, written, spoilt), and why vectors are spoilt."""

    ila: Ila
    marks: dict[Leaf, Data] = field(default_factory=dict)
    reasons: dict[Leaf, list[tuple[Data, str]]] = field(default_factory=dict)
    settled_words: set[int] = field(default_factory=set)  # commands that read and write nothing but vectors that are written

    @cached_property
    def vector_sizes(self) -> Mapping[Leaf, int]:
        """The tracked memories, with the number of elements in a vector."""
        return vector_sizes_of(self.ila)

    def copy(self) -> InitialisationMap:
        """Return a copy of the marks."""
        marks = {memory: array.copy() for memory, array in self.marks.items()}
        return InitialisationMap(self.ila, marks, {memory: list(entries) for memory, entries in self.reasons.items()})

    def needs(
        self, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any], count: int = 0
    ) -> ExposedReads | None:
        """Return the reads and writes of an instruction in the current control state; None where its operands name a single vector.

        With `count`, operands have a leading axis of commands.
        """
        if addressed_row(instruction):
            return None
        return instruction_needs(self.ila, memories, instruction, operands, count, self.vector_sizes, self._is_initialised)

    def is_settled(self, memories: Mapping[Leaf, Store], instruction: Instruction, operands: Mapping[str, Any]) -> bool:
        """Tell whether a command leaves all marks as they are now and, as long as no vector is spoilt, whenever it is executed again."""
        row = addressed_row(instruction)
        if row is not None:
            return row[0] not in self.vector_sizes or bool((self._marks_of(row[0])[row_indices(row[1], operands)] == WRITTEN).all())
        if not touches(instruction, self.vector_sizes):
            return True
        if self._is_initialised(bounds_of_operands(self.ila, memories, instruction, operands)):
            return True
        needs = self.needs(memories, instruction, operands) if is_access_static(self.ila, instruction) else None
        if needs is None:
            return False
        parts = [needs.reads, needs.in_place, needs.writes, *(x for p in needs.deferred for x in (p.reads, {p.memory: p.writes}))]
        runs = ((self._marks_of(m).reshape(-1), run) for part in parts for m, x in part.items() for run in x.tolist())
        return all((marks[first:behind] == WRITTEN).all() for marks, (first, behind) in runs)

    def _is_initialised(self, bounds: AccessBounds) -> bool:
        """Tell whether all vectors within bounds are written: nothing changes then, whatever is read and written there."""
        accesses = ((m, x) for part in (bounds.reads, bounds.writes) for m, x in part.items() if m in self.vector_sizes)
        sizes = self.vector_sizes
        return all((self._marks_of(m).reshape(-1)[low // sizes[m] : high // sizes[m] + 1] == WRITTEN).all() for m, (low, high) in accesses)

    def observe(self, instruction: Instruction, operands: Mapping[str, Any], needs: ExposedReads | None) -> None:
        """Mark what an executed instruction wrote, and check what it read.

        Raises:
            SpecError: I104, it read a vector that no instruction has written.
        """
        if needs is None:
            self._observe_row(instruction, operands)
            return
        refusal = next((r for m, runs in needs.reads.items() if (r := self._refusal(instruction, m, runs, m in needs.writes))), None)
        spoilt_rows = {m: self._rows_with_mark(m, runs, SPOILT) for m, runs in needs.reads.items() if m in needs.writes}
        for memory, runs in needs.in_place.items():
            spoilt_rows[memory] = np.concatenate(
                [spoilt_rows.get(memory, np.empty(0, np.int64)), self._rows_with_mark(memory, runs, NEVER, SPOILT)]
            )
        for memory, runs in needs.writes.items():
            self._mark(memory, runs)
        for memory, rows in spoilt_rows.items():
            self._spoil(instruction, memory, rows, memory, rows)
        for part in needs.deferred:
            uninitialised = [(m, rows) for m, runs in part.reads.items() if (rows := self._rows_with_mark(m, runs, NEVER, SPOILT)).size]
            self._mark(part.memory, part.writes)
            if uninitialised:
                self._spoil(instruction, part.memory, np.concatenate([np.arange(*run) for run in part.writes.tolist()]), *uninitialised[0])
        if refusal is not None:
            raise refusal

    def _observe_row(self, instruction: Instruction, operands: Mapping[str, Any]) -> None:
        """Mark and check the vectors of an instruction that loads or stores exactly the vector its operands name."""
        access = addressed_row(instruction)
        if access is None or access[0] not in self.vector_sizes:
            return
        memory, row, is_store = access
        marks, places = self._marks_of(memory), row_indices(row, operands)
        if is_store:
            marks[places] = WRITTEN
        elif (marks[places] != WRITTEN).any():
            first = int(np.argmax(marks[places] != WRITTEN))
            raise self._uninitialised_read(instruction, memory, int(np.ravel_multi_index([int(x[first]) for x in places], marks.shape)))

    # -- marks

    def _marks_of(self, memory: Leaf) -> Data:
        if memory not in self.marks:
            shape = static_shape(memory)
            self.marks[memory] = np.zeros(shape[:-1] or (-(-shape[0] // self.vector_sizes[memory]),), np.uint8)
        return self.marks[memory]

    def _mark(self, memory: Leaf, runs: Runs) -> None:
        marks = self._marks_of(memory).reshape(-1)
        for start, stop in runs.tolist():
            marks[start:stop] = WRITTEN

    def _rows_with_mark(self, memory: Leaf, runs: Runs, *kinds: int) -> Data:
        """Return the vectors of these runs whose mark is one of `kinds`."""
        marks = self._marks_of(memory).reshape(-1)
        open_runs = [(start, stop) for start, stop in runs.tolist() if (marks[start:stop] != WRITTEN).any()]
        return np.concatenate([np.empty(0, np.int64), *(a + np.flatnonzero(np.isin(marks[a:b], kinds)) for a, b in open_runs)])

    def _spoil(self, instruction: Instruction, memory: Leaf, rows: Data, source: Leaf, source_rows: Data) -> None:
        if rows.size:
            self.settled_words.clear()
            self._marks_of(memory).reshape(-1)[rows] = SPOILT
            place = self._place(source, int(source_rows[0]))
            entries = self.reasons.setdefault(memory, [])
            entries.append((rows, f"which {instruction.name} made of vector {place} of {source.name}"))
            del entries[:-REASONS]

    # -- refusals

    def _refusal(self, instruction: Instruction, memory: Leaf, runs: Runs, is_written: bool) -> SpecError | None:
        """Return the refusal of the first read of a vector without contents; one that is spoilt may be updated in place."""
        uninitialised = self._rows_with_mark(memory, runs, NEVER, *(() if is_written else (SPOILT,)))
        return self._uninitialised_read(instruction, memory, int(uninitialised[0])) if uninitialised.size else None

    def _uninitialised_read(self, instruction: Instruction, memory: Leaf, row: int) -> SpecError:
        place = self._place(memory, row)
        is_spoilt = self._marks_of(memory).reshape(-1)[row] == SPOILT
        cause = next((f"{reason}, " for rows, reason in reversed(self.reasons.get(memory, ())) if row in rows), "") if is_spoilt else ""
        sentence = f"{instruction.name} reads vector {place} of {memory.name}, {cause}which nothing has written"
        writers = [i for i in self.ila.instructions.values() if memory in written_by(i) and i is not instruction]
        stores = [i for i in writers if (access := addressed_row(i)) and _is_at(access[1], place)]
        return SpecError(CODE, sentence, help=f"write it first, by {(stores or writers)[0].name}" if writers else "")

    def _place(self, memory: Leaf, row: int) -> str:
        return ", ".join(str(int(n)) for n in np.unravel_index(row, self._marks_of(memory).shape))


def _is_at(row: Row, place: str) -> bool:
    """Tell whether a row with some operands may be this place."""
    return all(isinstance(x, str) or str(x) == n for x, n in zip(row, place.split(", "), strict=True))
