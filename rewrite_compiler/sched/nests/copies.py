"""Copies inside of an accelerator: instructions that take runs of elements from one memory to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...ila import Ila
from ...ila.summary import Opaque, Transition, summarise
from ...lang.expr import Expr
from ..instructions.control import Addressing, Settings, free_names, is_register
from ..instructions.copies import NoCopy
from .nest import symbolic_parts
from .search import registers_of
from .terms import Grid


@dataclass(frozen=True, eq=False)
class RunCopy:
    """An instruction that copies elements that follow each other: how both ends and the length follow from fields and registers."""

    instruction: str
    source: str
    memory: str
    reading: Addressing
    writing: Addressing
    length: Expr

    def settings(self, to: int, at: int, count: int, control: Mapping[str, int]) -> tuple[Settings, int] | None:
        """Return the fields and registers with which it copies at least so many elements, and how many it copies; None for none."""
        destination, origin = self.writing.settings((to,), control), self.reading.settings((at,), control)
        names = registers_of(self.length) & self.writing.free
        if destination is None or origin is None or len(names) != 1:
            return None
        name, low, high = min(names), 0, count
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._copied(name, middle, control) >= count else (middle + 1, high)
        copied = self._copied(name, low, control)
        return ({**destination, **origin, name: low}, copied) if copied >= count else None

    def _copied(self, name: str, x: int, control: Mapping[str, int]) -> int:
        return int(Grid({}, {**control, name: x}).of(self.length))


@lru_cache(maxsize=16)
def run_copies(ila: Ila) -> tuple[RunCopy, ...]:
    """Return the copies between memories of a model."""
    return tuple(c for name in ila.instructions for c in _of(ila, name))


def _of(ila: Ila, name: str) -> Iterator[RunCopy]:
    summary = summarise(ila, name)
    if isinstance(summary, Opaque) or any(o.leaf.shape for o in summary.instruction.operands.values()):
        return
    data = [x for x in summary.transitions() if not is_register(ila, x[2].write.memory)]
    if len(data) != 1 or data[0][0] or data[0][1] or not _is_run(ila, data[0][2]):
        return
    t, free = data[0][2], free_names(ila, name)
    read = t.reads[0].access
    yield RunCopy(
        name, read.memory, t.write.memory, Addressing(read, summary.symbols, free), Addressing(t.write, summary.symbols, free),
        t.update.extents[0],
    )  # fmt: skip


def _is_run(ila: Ila, t: Transition) -> bool:
    """Tell whether a transition copies whole elements in their order from one memory to another."""
    if len(t.loops) != 1 or len(t.reads) != 1 or not {t.write.memory, t.reads[0].access.memory} <= ila.states.keys():
        return False
    try:
        parts = symbolic_parts(t.value)
    except NoCopy:
        return False
    (loop, _), bits = t.loops[0], ila.states[t.write.memory].bits
    steps = [[p.get((loop,), 0) for p in a.address] for a in (t.write, t.reads[0].access)]
    return len(parts) == 1 and (parts[0].low, parts[0].width, parts[0].at) == (0, bits, 0) and steps == [[1], [1]]
