"""Execution of lowered arrays of terms over samples, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..lang.binders import Array, Leaf
from ..lang.expr import Expr
from ..readings.arrays.labelled_array import Data
from .kernel import FallbackStage, PackedOperands, kernel_of
from .stages import ElementwiseStage, FoldStage, Stage, Stages, stage_lines


class Lowered:
    """Arrays of terms as kernels; operands that differ between samples have the axis of samples first."""

    def __init__(self, arrays: Iterable[Array], moving: Iterable[Leaf], samples: int, features: frozenset[str] | None = None) -> None:
        """Split `arrays` into stages and compile them; `moving` operands differ between samples.

        Raises:
            NotLowered: the arrays cannot be split into stages.
        """
        self.stages = Stages(arrays, moving, samples)
        self.operands = {leaf: self.stages.leaf(leaf) for leaf in self.stages.batched if type(leaf) is Leaf}
        self.kernels = {m.target: kernel_of(m.value, features) for m in maps(self.stages.steps[0])}
        self.constant = constant_leaves(self.stages)

    def show(self) -> str:
        """Return a listing, one line a stage: the array that it computes, and its schedule."""
        return "\n".join(stage_lines(self.stages.steps[0], {leaf: str(k) for leaf, k in self.kernels.items()}))

    @property
    def notes(self) -> list[str]:
        """The stages without machine code, each with its reason."""
        return [f"{leaf.name}: {k}" for leaf, k in self.kernels.items() if isinstance(k, FallbackStage)]

    def __call__(self, operands: Mapping[Leaf, Data], constants: Constants | None = None) -> list[Data]:
        """Return the arrays [samples, …]; stages that depend on constant operands alone are cached in `constants` for later calls."""
        constant_cache = Constants() if constants is None else constants
        values = {self.operands.get(leaf, leaf): x for leaf, x in operands.items()} | constant_cache.values
        call = _Call(self, values, constant_cache)
        call.run(self.stages.steps[0], {})
        return [values[leaf] for leaf in self.stages.results]


@dataclass(frozen=True)
class Constants:
    """A cache for calls with the same constant operands: arrays computed from them, and their packed layouts."""

    values: dict[Leaf, Data] = field(default_factory=dict)
    packed_operands: PackedOperands = field(default_factory=dict)


class _Call:
    """One run of all stages."""

    def __init__(self, code: Lowered, values: dict[Leaf, Data], constants: Constants) -> None:
        self.code, self.values, self.constants = code, values, constants
        self.packed_operands: PackedOperands = {leaf: constants.packed_operands.setdefault(leaf, {}) for leaf in code.constant}

    def _set(self, leaf: Leaf, x: Data) -> None:
        self.values[leaf] = x
        self.packed_operands.pop(leaf, None)

    def run(self, steps: Iterable[Stage], variables: dict[Expr, int]) -> None:
        """Run stages in order, except those with cached results."""
        for s in steps:
            if isinstance(s, FoldStage):
                self._sequence(s)
            elif s.target not in self.code.constant:
                self._set(s.target, self.code.kernels[s.target](self.values, variables, self.packed_operands))
            elif s.target not in self.values:
                self.values[s.target] = self.code.kernels[s.target](self.values, variables, self.packed_operands)
                self.constants.values[s.target] = self.values[s.target]

    def _sequence(self, s: FoldStage) -> None:
        values = self.values
        histories: dict[int, list[Data]] = {n: [] for n, is_every in s.results if is_every}
        for first, state, _ in s.states:
            self._set(state, values[first])
        for step in range(s.extent):
            self.run(s.steps, {s.variable: step})
            for _, state, next_state in s.states:
                self._set(state, values[next_state])
            for n, history in histories.items():
                history.append(values[s.states[n][2]])
        for (n, is_every), target in s.results.items():
            self._set(target, np.stack(histories[n], axis=1) if is_every else values[s.states[n][1]])


def maps(steps: Iterable[Stage]) -> Iterator[ElementwiseStage]:
    """Yield every elementwise stage, those inside folds included."""
    for s in steps:
        if isinstance(s, ElementwiseStage):
            yield s
        else:
            yield from maps(s.steps)


def constant_leaves(stages: Stages) -> frozenset[Leaf]:
    """Return the operands that are the same for all samples, and the arrays that depend on them alone."""
    moving: set[Expr | Leaf] = {stages.sample, *stages.batched.values()}
    constants: set[Leaf] = set()
    for s in stages.steps[0]:
        if isinstance(s, FoldStage):
            moving.update(s.results.values(), (next_state for *_, next_state in s.states), (m.target for m in maps(s.steps)))
        elif moving.isdisjoint(s.value.body.reads | s.value.body.free):
            constants.add(s.target)
        else:
            moving.add(s.target)
    return frozenset(constants | {leaf for leaf in stages.stored_leaves.values() if leaf not in moving})
