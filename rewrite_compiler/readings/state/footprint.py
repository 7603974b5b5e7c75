"""The footprint of a step: the elements of each memory that it reads and writes, from its addresses alone.

Loops are followed as axes, so that a footprint costs one evaluation of each address, whatever the extents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import SpecError
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.step import Let, Loop, Seq, Step, Together, Update, When, updates_of
from ..arrays.evaluator import NotUniform
from ..arrays.labelled_array import Data
from .dependence_test import element_numbers, loads_and_binders
from .interpreter import Machine


@dataclass
class Footprint:
    """Row-major element numbers by memory; an element may be listed more than once."""

    reads: dict[Leaf, list[Data]] = field(default_factory=dict)
    writes: dict[Leaf, list[Data]] = field(default_factory=dict)


def footprint(machine: Machine, step: Step, memories: frozenset[Leaf]) -> Footprint:
    """Return the elements of the `watched` memories that `step` reads and writes in the present control state of the machine.

    Both branches of a `select` count as read.

    Raises:
        SpecError: an address, a length or a condition depends on what the step itself writes.
    """
    walk = _Walk(machine, memories, frozenset(u.memory for u in updates_of(step)))
    with np.errstate(all="ignore"):
        walk.step(step)
    return walk.footprint


@dataclass
class _Walk:
    machine: Machine
    memories: frozenset[Leaf]
    written_memories: frozenset[Leaf]
    footprint: Footprint = field(default_factory=Footprint)

    def step(self, step: Step) -> None:
        if isinstance(step, Update):
            self._update(step)
        elif isinstance(step, Seq | Together):
            for part in step.steps if isinstance(step, Seq) else step.updates:
                self.step(part)
        elif isinstance(step, When):
            self.step(step.then if self._number(step.condition) else step.otherwise)
        elif isinstance(step, Loop):
            self._loop(step)
        elif isinstance(step, Let):
            self._loads(step.array[(0,) * step.array.rank])
            self.machine.bind(step.local, self.machine.evaluator.store_of(step.array))
            self.step(step.body)

    def _number(self, e: Expr) -> int:
        self._require_invariant(e)
        return self.machine.evaluator.number(e)

    def _require_invariant(self, e: Expr) -> None:
        if not e.reads.isdisjoint(self.written_memories):
            raise SpecError("I102", f"the footprint of a step cannot be known before it runs: {e!r} depends on what it writes")

    def _loop(self, step: Loop) -> None:
        extent = self._number(step.extent)
        snapshot = [
            (accesses, {leaf: len(x) for leaf, x in accesses.items()}) for accesses in (self.footprint.reads, self.footprint.writes)
        ]
        if extent == 0:
            return
        try:
            with self.machine.evaluator.inner_scope(axes=[(step.variable, extent)]):
                self.step(step.body)
        except NotUniform:
            for recorded, lengths in snapshot:
                for leaf in recorded:
                    del recorded[leaf][lengths.get(leaf, 0) :]
            for k in range(extent):
                with self.machine.evaluator.inner_scope({step.variable: k}):
                    self.step(step.body)

    def _update(self, u: Update) -> None:
        extents = [self._number(n) for n in u.extents]
        if 0 in extents:
            return
        with self.machine.evaluator.inner_scope(axes=list(zip(u.variables, extents, strict=True))):
            if u.memory in self.memories:
                self._record(self.footprint.writes, u.memory, u.address)
            for term in (u.value, *u.address):
                self._loads(term)

    def _loads(self, term: Expr) -> None:
        loads, extents = loads_and_binders(term)
        for load in loads:
            if load.data in self.memories:
                self._load(load, extents)

    def _load(self, load: Expr, extents: dict[Expr, Expr]) -> None:
        bound = dict.fromkeys(v for i in load.args for v in i.free if v in extents)
        inner = [(v, self._number(extents[v])) for v in bound]
        if all(n for _, n in inner):
            with self.machine.evaluator.inner_scope(axes=inner):
                self._record(self.footprint.reads, load.data, load.args)

    def _record(self, accesses: dict[Leaf, list[Data]], memory: Leaf, address: Sequence[Expr]) -> None:
        for a in address:
            self._require_invariant(a)
        accesses.setdefault(memory, []).append(element_numbers(self.machine, memory, address).data.reshape(-1))
