"""Splits arrays of terms into stages: a list of arrays in memory, each of which reads operands and those before it.

Invariants of loops are stages of their own: an array that is more than a copy, and a function of one element, such as the
value of a code. The samples are the first axis of every array that depends on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..lang.alpha_equivalence import are_alpha_equivalent
from ..lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, index_variable, static_shape
from ..lang.expr import Expr, var
from ..lang.substitution import substitute
from ..lang.traversal import loads_of
from .rewriter import Rewriter
from .vectors import NotLowered


@dataclass(frozen=True)
class ElementwiseStage:
    """An elementwise stage: one array computed from the term of its element."""

    target: Leaf
    value: Comprehension


@dataclass(frozen=True)
class FoldStage:
    """A fold of arrays: its stages run for every value of the variable, after which each state becomes its successor."""

    variable: Expr
    extent: int
    states: tuple[tuple[Leaf, Leaf, Leaf], ...]  # what it starts with, its value before a step, and after it
    steps: tuple[Stage, ...]
    results: dict[tuple[int, bool], Leaf]  # by state: the last value, or with True every value


Stage = ElementwiseStage | FoldStage


class Stages:
    """The stages of some arrays; operands that differ between samples have the axis of samples first."""

    def __init__(self, arrays: Iterable[Array], moving: Iterable[Leaf], samples: int) -> None:
        """Split `arrays`; `results` are where they will lie, with the axis of samples first."""
        self.sample, self.samples = index_variable("sample", samples), samples
        self.batched: dict[Array, Leaf] = {a: self._with_samples(a) for a in moving}
        self.stored_leaves: dict[Array, Leaf] = {}
        self.tabulated_functions: dict[tuple[Leaf, Expr], Leaf] = {}
        self.element_variables: dict[Leaf, Expr] = {}
        self.sequences: dict[Fold, FoldStage] = {}
        self.uses: Counter[Array] = Counter()
        self.varying_in_fold: set[Expr | Leaf] = set()  # what varies within the fold being split
        self.steps: list[list[Stage]] = [[]]
        outputs = list(arrays)
        self._count(outputs)
        self.results = [self.leaf(a, with_samples=True) for a in outputs]

    def leaf(self, a: Array, *, with_samples: bool = False) -> Leaf:
        """Return the leaf that stores an array; with `every` it has the axis of samples even where it does not depend on them."""
        target = self.batched.get(a) or self.stored_leaves.get(a)
        if target is None:
            target = a if isinstance(a, Leaf) and not with_samples else self._stored(a, with_samples)
            self.stored_leaves[a] = target
        return target

    def read(self, a: Array, indices: tuple[Expr, ...]) -> Expr:
        """Return an element of a stored array, at the present sample where it has the axis of samples."""
        leaf = self.leaf(a)
        return leaf[(self.sample, *indices) if leaf.rank > len(indices) else indices]

    def tabulated(self, e: Expr, load: Expr) -> Expr:
        """Return an element of the array of a function's values on all elements of the leaf that `load` reads."""
        leaf = load.data
        place = self.element_variables.setdefault(leaf, var(f"{leaf.name}_element", leaf.interval))
        body = substitute(e, {load: place})
        if (leaf, body) not in self.tabulated_functions:
            variables = _variables(static_shape(leaf))
            self.tabulated_functions[leaf, body] = self._map(
                leaf.shape, variables, substitute(body, {place: leaf[variables]}), f"{leaf.name} values"
            )
        return self.tabulated_functions[leaf, body][load.args]

    def is_bound_outside(self, variables: frozenset[Expr]) -> bool:
        """Tell whether all these variables are bound outside of a stage: the sample, and the step of the fold being split."""
        return variables <= {self.sample} | self.varying_in_fold

    def is_sample_invariant(self, e: Expr) -> bool:
        """Tell whether a term is the same for all samples."""
        return self.sample not in e.free and not any(isinstance(leaf, Accumulator) for leaf in e.reads)

    def _stored(self, a: Array, with_samples: bool) -> Leaf:
        if isinstance(a, FoldResult) and (a.rank or a.history):
            return self._result(a)
        shape = static_shape(a)
        variables = a.variables if isinstance(a, Comprehension) else _variables(shape)
        body = Rewriter(self).term(a.body if isinstance(a, Comprehension) else a[variables])
        if with_samples or self.sample in body.free:
            shape, variables = (self.samples, *shape), (self.sample, *variables)
        return self._map(shape, variables, body, f"array {len(self.stored_leaves)}")

    def _map(self, shape: tuple[int | Expr, ...], variables: tuple[Expr, ...], body: Expr, name: str) -> Leaf:
        target = Leaf(shape, body.interval, body.real, name)
        is_inner = bool(body.free & self.varying_in_fold or body.reads & self.varying_in_fold)
        if is_inner:
            self.varying_in_fold.add(target)
        self.steps[-1 if is_inner else 0].append(ElementwiseStage(target, Comprehension(shape, body.interval, body.real, variables, body)))
        return target

    def _result(self, a: FoldResult) -> Leaf:
        equal_fold = next((f for f in self.sequences if f is a.fold or are_alpha_equivalent(f, a.fold)), None)
        if equal_fold is None:
            if len(self.steps) > 1 or a.fold.extent.value is None or a.free:
                raise NotLowered("a fold of arrays", "in a loop, or of an extent that is not known")
            self.sequences[a.fold] = self._sequence(a.fold)
            self.steps[0].append(self.sequences[a.fold])
        sequence = self.sequences[equal_fold or a.fold]
        state_shape = sequence.states[a.component][2].shape[1:]
        history_shape = (sequence.extent,) if a.history else ()
        leaf = Leaf((self.samples, *history_shape, *state_shape), a.interval, a.real, f"result {a.component}")
        return sequence.results.setdefault((a.component, a.history), leaf)

    def _sequence(self, fold: Fold) -> FoldStage:
        initial_leaves = [self.leaf(x, with_samples=True) for x in fold.initial]
        state_leaves = [self._with_samples(x) for x in fold.accumulators]
        self.batched.update(zip(fold.accumulators, state_leaves, strict=True))
        self._count(fold.bodies)
        self.varying_in_fold |= {fold.variable, *state_leaves}
        self.steps.append([])
        next_leaves = [self.leaf(x, with_samples=True) for x in fold.bodies]
        self.varying_in_fold.clear()
        extent = int(fold.extent.value or 0)
        return FoldStage(
            fold.variable, extent, tuple(zip(initial_leaves, state_leaves, next_leaves, strict=True)), tuple(self.steps.pop()), {}
        )

    def _with_samples(self, a: Leaf) -> Leaf:
        return Leaf((self.samples, *a.shape), a.interval, a.real, a.name)

    def _count(self, arrays: Iterable[Array]) -> None:
        """Count the places where arrays are read."""
        loads = {load for a in arrays if isinstance(a, Comprehension) for load in loads_of(a.body)}
        self.uses.update(load.data for load in loads)


def _variables(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(index_variable(f"i{n}", extent) for n, extent in enumerate(shape))


def stage_lines(stages: Iterable[Stage], notes: Mapping[Leaf, str], indent: str = "") -> Iterable[str]:
    """Yield a listing line for each stage: the array that it computes, and a note on how."""
    for s in stages:
        if isinstance(s, ElementwiseStage):
            yield f"{indent}{s.target.name} {list(s.target.shape)}: {notes.get(s.target, '')}"
        else:
            yield f"{indent}{s.extent} times:"
            yield from stage_lines(s.steps, notes, indent + "  ")
