"""Stages: arrays of terms as a list of arrays in memory, each of which reads operands and those before it.

What a loop reads again and again is computed once and kept: an array in it that is more than a copy, and a function of one
element, such as the value of a code. The samples are the first axis of every array that depends on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, index_variable, static_shape
from ..lang.expr import Expr, var
from ..lang.substitution import substitute
from ..lang.traversal import loads_of
from .alike import are_alike
from .rewriter import Rewriter
from .vectors import NotLowered


@dataclass(frozen=True)
class Map:
    """One array that is computed element by element."""

    target: Leaf
    value: Comprehension


@dataclass(frozen=True)
class Sequence:
    """A fold of arrays: its steps run for every value of the variable, then each state becomes what was computed of it."""

    variable: Expr
    extent: int
    states: tuple[tuple[Leaf, Leaf, Leaf], ...]  # what it starts with, its value before a step, and after it
    steps: tuple[Stage, ...]
    results: dict[tuple[int, bool], Leaf]  # by state: the last value, or with True every value


Stage = Map | Sequence


class Stages:
    """Splits arrays into stages; operands that move have the samples as their first axis."""

    def __init__(self, arrays: Iterable[Array], moving: Iterable[Leaf], samples: int) -> None:
        """Split `arrays`; `results` are where they will lie, with the axis of samples first."""
        self.sample, self.samples = index_variable("sample", samples), samples
        self.batched: dict[Array, Leaf] = {a: self._with_samples(a) for a in moving}
        self.kept: dict[Array, Leaf] = {}
        self.mapped: dict[tuple[Leaf, Expr], Leaf] = {}
        self.places: dict[Leaf, Expr] = {}
        self.sequences: dict[Fold, Sequence] = {}
        self.uses: Counter[Array] = Counter()
        self.inner: set[Expr | Leaf] = set()  # what changes with the fold whose steps are made now
        self.steps: list[list[Stage]] = [[]]
        found = list(arrays)
        self._count(found)
        self.results = [self.leaf(a, every=True) for a in found]

    def leaf(self, a: Array, *, every: bool = False) -> Leaf:
        """Return the leaf that holds an array; with `every` it has the axis of samples whether it depends on them or not."""
        known = self.batched.get(a) or self.kept.get(a)
        if known is None:
            known = a if isinstance(a, Leaf) and not every else self._stored(a, every)
            self.kept[a] = known
        return known

    def read(self, a: Array, indices: tuple[Expr, ...]) -> Expr:
        """Return an element of what is kept of an array."""
        leaf = self.leaf(a)
        return leaf[(self.sample, *indices) if leaf.rank > len(indices) else indices]

    def function(self, e: Expr, load: Expr) -> Expr:
        """Return an element of the array of a function's values on all elements of the leaf that `load` reads."""
        leaf = load.data
        place = self.places.setdefault(leaf, var(f"{leaf.name}_element", leaf.interval))
        made = substitute(e, {load: place})
        if (leaf, made) not in self.mapped:
            variables = _variables(static_shape(leaf))
            self.mapped[leaf, made] = self._map(leaf.shape, variables, substitute(made, {place: leaf[variables]}), f"{leaf.name} values")
        return self.mapped[leaf, made][load.args]

    def is_outside(self, variables: frozenset[Expr]) -> bool:
        """Tell whether a stage may depend on variables: samples, and the steps of the fold that is made now."""
        return variables <= {self.sample} | self.inner

    def is_fixed(self, e: Expr) -> bool:
        """Tell whether a term depends on no samples."""
        return self.sample not in e.free and not any(isinstance(leaf, Accumulator) for leaf in e.reads)

    def _stored(self, a: Array, every: bool) -> Leaf:
        if isinstance(a, FoldResult) and (a.rank or a.history):
            return self._result(a)
        shape = static_shape(a)
        variables = a.variables if isinstance(a, Comprehension) else _variables(shape)
        body = Rewriter(self).term(a.body if isinstance(a, Comprehension) else a[variables])
        if every or self.sample in body.free:
            shape, variables = (self.samples, *shape), (self.sample, *variables)
        return self._map(shape, variables, body, f"array {len(self.kept)}")

    def _map(self, shape: tuple[int | Expr, ...], variables: tuple[Expr, ...], body: Expr, name: str) -> Leaf:
        target = Leaf(shape, body.interval, body.real, name)
        is_inner = bool(body.free & self.inner or body.reads & self.inner)
        if is_inner:
            self.inner.add(target)
        self.steps[-1 if is_inner else 0].append(Map(target, Comprehension(shape, body.interval, body.real, variables, body)))
        return target

    def _result(self, a: FoldResult) -> Leaf:
        known = next((f for f in self.sequences if f is a.fold or are_alike(f, a.fold)), None)
        if known is None:
            if len(self.steps) > 1 or a.fold.extent.value is None or a.free:
                raise NotLowered("a fold of arrays", "in a loop, or of an extent that is not known")
            self.sequences[a.fold] = self._sequence(a.fold)
            self.steps[0].append(self.sequences[a.fold])
        made = self.sequences[known or a.fold]
        own = made.states[a.component][2].shape[1:]
        lead = (made.extent,) if a.history else ()
        leaf = Leaf((self.samples, *lead, *own), a.interval, a.real, f"result {a.component}")
        return made.results.setdefault((a.component, a.history), leaf)

    def _sequence(self, fold: Fold) -> Sequence:
        first = [self.leaf(x, every=True) for x in fold.initial]
        before = [self._with_samples(x) for x in fold.accumulators]
        self.batched.update(zip(fold.accumulators, before, strict=True))
        self._count(fold.bodies)
        self.inner |= {fold.variable, *before}
        self.steps.append([])
        after = [self.leaf(x, every=True) for x in fold.bodies]
        self.inner.clear()
        extent = int(fold.extent.value or 0)
        return Sequence(fold.variable, extent, tuple(zip(first, before, after, strict=True)), tuple(self.steps.pop()), {})

    def _with_samples(self, a: Leaf) -> Leaf:
        return Leaf((self.samples, *a.shape), a.interval, a.real, a.name)

    def _count(self, arrays: Iterable[Array]) -> None:
        """Count the places where arrays are read."""
        seen = {load for a in arrays if isinstance(a, Comprehension) for load in loads_of(a.body)}
        self.uses.update(load.data for load in seen)


def _variables(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(index_variable(f"i{n}", extent) for n, extent in enumerate(shape))


def shown(stages: Iterable[Stage], notes: Mapping[Leaf, str], lead: str = "") -> Iterable[str]:
    """Yield a line for each stage: what it fills, and how."""
    for s in stages:
        if isinstance(s, Map):
            yield f"{lead}{s.target.name} {list(s.target.shape)}: {notes.get(s.target, '')}"
        else:
            yield f"{lead}{s.extent} times:"
            yield from shown(s.steps, notes, lead + "  ")
