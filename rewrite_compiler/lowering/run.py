"""Run: arrays of terms over samples, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ..lang.binders import Array, Leaf
from ..lang.expr import Expr
from ..lang.named import Data
from .kernel import Held, Plain, kernel_of
from .stages import Map, Sequence, Stage, Stages, shown


class Lowered:
    """Arrays of terms as kernels, for operands of which those that move have a number of samples as their first axis."""

    def __init__(self, arrays: Iterable[Array], moving: Iterable[Leaf], samples: int, features: frozenset[str] | None = None) -> None:
        """Split `arrays` and compile every stage; NotLowered where they cannot be split."""
        self.stages = Stages(arrays, moving, samples)
        self.operands = {leaf: self.stages.leaf(leaf) for leaf in self.stages.batched if type(leaf) is Leaf}
        self.kernels = {m.target: kernel_of(m.value, features) for m in maps(self.stages.steps[0])}
        self.moving = set(self.stages.batched.values())
        self.last: dict[Leaf, Data] = {}
        self.held: Held = {}

    def show(self) -> str:
        """Return a line for each stage: what it fills, and by which schedule."""
        return "\n".join(shown(self.stages.steps[0], {leaf: str(k) for leaf, k in self.kernels.items()}))

    @property
    def notes(self) -> list[str]:
        """Why stages run in the plain reading."""
        return [f"{leaf.name}: {k}" for leaf, k in self.kernels.items() if isinstance(k, Plain)]

    def __call__(self, operands: Mapping[Leaf, Data]) -> list[Data]:
        """Return the elements of the arrays, samples first; operands that are those of the last call stay packed."""
        given = {self.operands.get(leaf, leaf): x for leaf, x in operands.items()}
        self.held = {leaf: h for leaf, h in self.held.items() if leaf in given and self.last.get(leaf) is given[leaf]}
        self.last = {leaf: x for leaf, x in given.items() if leaf not in self.moving}
        values = dict(given)
        self._run(self.stages.steps[0], values, {})
        found = [values[leaf] for leaf in self.stages.results]
        self.held = {leaf: h for leaf, h in self.held.items() if leaf in self.last}
        return found

    def _set(self, values: dict[Leaf, Data], leaf: Leaf, x: Data) -> None:
        values[leaf] = x
        self.held.pop(leaf, None)

    def _run(self, steps: Iterable[Stage], values: dict[Leaf, Data], variables: dict[Expr, int]) -> None:
        for s in steps:
            if isinstance(s, Map):
                self._set(values, s.target, self.kernels[s.target](values, variables, self.held))
            else:
                self._sequence(s, values)

    def _sequence(self, s: Sequence, values: dict[Leaf, Data]) -> None:
        every: dict[int, list[Data]] = {n: [] for n, is_every in s.results if is_every}
        for first, before, _ in s.states:
            self._set(values, before, values[first])
        for step in range(s.extent):
            self._run(s.steps, values, {s.variable: step})
            for _, before, after in s.states:
                self._set(values, before, values[after])
            for n, found in every.items():
                found.append(values[s.states[n][2]])
        for (n, is_every), target in s.results.items():
            self._set(values, target, np.stack(every[n], axis=1) if is_every else values[s.states[n][1]])


def maps(steps: Iterable[Stage]) -> Iterator[Map]:
    """Yield every array that is computed, those of folds too."""
    for s in steps:
        if isinstance(s, Map):
            yield s
        else:
            yield from maps(s.steps)
