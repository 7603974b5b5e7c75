"""Regions: a program cut where few values are live, so that equal layers become equal regions.

Cuts are placed by structure: before what multiplies, never between an operator and those that fold into it, never inside
what may be an unrolled recurrence. A region of equal form as another one is the same region on other values.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...ir.program import Node, Program, Value
from ...ops.op import LAYOUT
from ..graph.encode import uniform

SMALLEST_REGION = 8  # operators of a region: fewer are joined with the next ones
NARROW, WIDE = 1, 2  # values that may be live at a cut: in any region, and once a region is long
LONG = 16
# what a cut may stand before, and what folds into the operator before it
STARTS = {"conv", "dense", "matmul", "layer_norm", "lstm", "gru", "rnn", "max_pool", "average_pool"}
FOLDABLE = {"bias_add", "scale", "batch_norm", "relu", "clip", "sigmoid", "tanh", "erf", "neg", "exp", "sqrt", "reciprocal", "abs"}
WITH_CONSTANT = {"add", "mul", "sub", "div"}
STEP_OPERATORS = {"slice", "gather", "reverse"}  # take steps of a sequence
FormKey = Hashable


@dataclass(frozen=True)
class Region:
    """Consecutive nodes of a program, their live-in values and constants, and their live-out values."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Value, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        """All values in canonical order: regions of one form correspond place by place."""
        return (*self.inputs, *self.constants, *(v for n in self.nodes for v in n.outputs))


def regions_of(p: Program) -> list[Region]:
    """Return the regions of a program, which together have all its nodes; nodes of constants belong to each region that reads them."""
    facts = UseDefFacts(p)
    computed_nodes = [n for n in p.nodes if any(v not in facts.fixed for v in n.outputs)]
    cuts = _cuts(facts, computed_nodes) if len(computed_nodes) >= 2 * SMALLEST_REGION else []
    return [region_of(facts, computed_nodes[a:b]) for a, b in itertools.pairwise([0, *cuts, len(computed_nodes)])]


def form_of(p: Program, r: Region) -> FormKey:
    """Return the canonical form of a region: operators, attributes, types, places of operands, values of small uniform constants."""
    place = {v: n for n, v in enumerate(r.values)}
    leaves = tuple(p.types[v] for v in r.inputs)
    constants = tuple((p.types[v], repr(uniform(p.constants[v]))) for v in r.constants)
    nodes = tuple((n.op, tuple(place[v] for v in n.inputs), n.attributes, tuple(p.types[v] for v in n.outputs)) for n in r.nodes)
    return leaves, constants, nodes, tuple(place[v] for v in r.outputs)


class UseDefFacts:
    """Use-def facts of a program: users and producer of each value; `fixed` are the compile-time constants."""

    def __init__(self, p: Program) -> None:
        self.p = p
        self.users, self.producer = p.users(), p.producer()
        self.fixed = set(p.constants)
        for n in p.nodes:
            if n.operator is not None and all(v in self.fixed for v in n.inputs):
                self.fixed.update(n.outputs)


def region_of(facts: UseDefFacts, nodes: Sequence[Node]) -> Region:
    """Return the region of some nodes, preceded by the nodes that compute its constants."""
    all_nodes = [*_makers(nodes, facts.producer, facts.fixed), *nodes]
    defined = {v for n in all_nodes for v in n.outputs}
    read = dict.fromkeys(v for n in all_nodes for v in n.inputs if v not in defined)
    members = {id(n) for n in nodes}
    users, program_outputs = facts.users, set(facts.p.outputs)
    outputs = tuple(
        v for n in nodes for v in n.outputs if v in program_outputs or any(id(u) not in members for u in users.get(v, ()))
    )  # fmt: skip
    constants = tuple(v for v in read if v in facts.p.constants)
    return Region(tuple(all_nodes), tuple(v for v in read if v not in facts.p.constants), outputs, constants)


def _makers(nodes: Sequence[Node], producer: Mapping[Value, Node], fixed: Collection[Value]) -> list[Node]:
    """Return the nodes that compute the constants which some nodes read, in topological order."""
    ordered: dict[int, Node] = {}
    work = [v for n in reversed(nodes) for v in reversed(n.inputs)]
    while work:
        v = work.pop()
        if v in fixed and v in producer and id(producer[v]) not in ordered:
            maker = producer[v]
            unordered = [x for x in maker.inputs if x in producer and id(producer[x]) not in ordered]
            if unordered:
                work.extend((v, *unordered))
            else:
                ordered[id(maker)] = maker
    return list(ordered.values())


def _cuts(facts: UseDefFacts, nodes: Sequence[Node]) -> list[int]:
    """Return the numbers of the nodes at which the second and later regions begin."""
    fixed = facts.fixed
    last = {v: k for k, n in enumerate(nodes) for v in n.inputs if v not in fixed}
    first = {v: k for k, n in reversed([*enumerate(nodes)]) for v in (*n.inputs, *n.outputs) if v not in fixed}
    forms = _CutRules(facts)
    alive: set[Value] = set()
    cuts, begin = [], 0
    ending: dict[int, list[Value]] = {}
    for v, k in last.items():
        ending.setdefault(k, []).append(v)
    starting: dict[int, list[Value]] = {}
    for v, k in first.items():
        starting.setdefault(k, []).append(v)
    for k in range(1, len(nodes)):
        alive.update(v for v in starting.get(k - 1, ()) if last.get(v, -1) >= k)
        alive.difference_update(ending.get(k - 1, ()))
        size = k - begin
        width = WIDE if size >= LONG else NARROW
        if size >= SMALLEST_REGION and len(nodes) - k >= SMALLEST_REGION and len(alive) <= width and forms.is_cut(alive):
            cuts.append(k)
            begin = k
    return cuts


class _CutRules:
    """Decides at which live values a program may be cut."""

    def __init__(self, facts: UseDefFacts) -> None:
        self.fixed, self.users, self.producer = facts.fixed, facts.users, facts.producer

    def is_cut(self, alive: Collection[Value]) -> bool:
        """Tell whether a cut at these live values separates no operator from what folds into it."""
        return any(map(self.starts_region, alive)) and all(map(self.ends_region, alive))

    def starts_region(self, v: Value) -> bool:
        """Tell whether a value reaches an operator of STARTS directly or through layout operators and scales."""
        return any(n.op in STARTS for n in self.readers(v, self.is_sum(v)))

    def ends_region(self, v: Value) -> bool:
        """Tell whether a value ends a region: no layout operator makes it, no step of it is taken, and nothing folds into its producer."""
        maker = self.producer.get(v)
        if (maker is not None and self.is_layout(maker)) or any(n.op in STEP_OPERATORS for n in self.users.get(v, ())):
            return False
        return self.is_sum(v) or not any(map(self.is_foldable, self.readers(v)))

    def is_sum(self, v: Value) -> bool:
        """Tell whether a value is an elementwise combination of two computed values, into which nothing later folds."""
        maker = self.producer.get(v)
        return maker is not None and maker.op in WITH_CONSTANT and not any(x in self.fixed for x in maker.inputs)

    def is_layout(self, n: Node) -> bool:
        """Tell whether an operator only moves data."""
        return n.operator is not None and n.operator.kind == LAYOUT

    def is_foldable(self, n: Node) -> bool:
        """Tell whether rules can fuse an operator with its producer."""
        return n.op in FOLDABLE or (n.op in WITH_CONSTANT and any(v in self.fixed for v in n.inputs))

    def readers(self, v: Value, through_folds: bool = False) -> Iterator[Node]:
        """Yield the users of a value, looking through layout operators and, with `through_folds`, through foldable operators."""
        work, visited = [v], {v}
        while work:
            for n in self.users.get(work.pop(), ()):
                if self.is_layout(n) or (through_folds and self.is_foldable(n)):
                    work.extend(x for x in n.outputs if x not in visited)
                    visited.update(n.outputs)
                else:
                    yield n
