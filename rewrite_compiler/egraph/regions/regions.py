"""Regions: a program cut where few values are alive, so that equal layers become equal regions.

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

SMALLEST = 8  # operators of a region: fewer are joined with the next ones
NARROW, WIDE = 1, 2  # values that may be alive at a cut: any time, and once a region is long
LONG = 16
# what a cut may stand before, and what folds into the operator before it
STARTS = {"conv", "dense", "matmul", "layer_norm", "lstm", "gru", "rnn", "max_pool", "average_pool"}
FOLDS = {"bias_add", "scale", "batch_norm", "relu", "clip", "sigmoid", "tanh", "erf", "neg", "exp", "sqrt", "reciprocal", "abs"}
WITH_CONSTANT = {"add", "mul", "sub", "div"}
STEPS = {"slice", "gather", "reverse"}  # take steps of a sequence
Shape = Hashable


@dataclass(frozen=True)
class Region:
    """Some nodes of a program in order, the values they read from other regions, and those that others read."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Value, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value in the order of first occurrence: two regions of one form have the same at each place."""
        return (*self.inputs, *self.constants, *(v for n in self.nodes for v in n.outputs))


def regions_of(p: Program) -> list[Region]:
    """Return the regions of a program; the nodes of all of them are its nodes, those of constants where they are read."""
    known = Known(p)
    moving = [n for n in p.nodes if any(v not in known.fixed for v in n.outputs)]
    cuts = _cuts(known, moving) if len(moving) >= 2 * SMALLEST else []
    return [region_of(known, moving[a:b]) for a, b in itertools.pairwise([0, *cuts, len(moving)])]


def form_of(p: Program, r: Region) -> Shape:
    """Return what two regions must share to be the same on other values: operators, attributes, types, places, small uniform constants."""
    place = {v: n for n, v in enumerate(r.values)}
    leaves = tuple(p.types[v] for v in r.inputs)
    constants = tuple((p.types[v], repr(uniform(p.constants[v]))) for v in r.constants)
    nodes = tuple((n.op, tuple(place[v] for v in n.inputs), n.attributes, tuple(p.types[v] for v in n.outputs)) for n in r.nodes)
    return leaves, constants, nodes, tuple(place[v] for v in r.outputs)


class Known:
    """What is asked of a program again and again; `fixed` are the values that follow from constants alone."""

    def __init__(self, p: Program) -> None:
        self.p = p
        self.users, self.producer = p.users(), p.producer()
        self.fixed = set(p.constants)
        for n in p.nodes:
            if n.operator is not None and all(v in self.fixed for v in n.inputs):
                self.fixed.update(n.outputs)


def region_of(known: Known, nodes: Sequence[Node]) -> Region:
    """Return the region of some nodes, with those that make its constants."""
    whole = [*_makers(nodes, known.producer, known.fixed), *nodes]
    made = {v for n in whole for v in n.outputs}
    read = dict.fromkeys(v for n in whole for v in n.inputs if v not in made)
    mine = {id(n) for n in nodes}
    users, outside = known.users, set(known.p.outputs)
    outputs = tuple(
        v for n in nodes for v in n.outputs if v in outside or any(id(u) not in mine for u in users.get(v, ()))
    )  # fmt: skip
    constants = tuple(v for v in read if v in known.p.constants)
    return Region(tuple(whole), tuple(v for v in read if v not in known.p.constants), outputs, constants)


def _makers(nodes: Sequence[Node], producer: Mapping[Value, Node], fixed: Collection[Value]) -> list[Node]:
    """Return the nodes that make the constants which some nodes read, operands first."""
    found: dict[int, Node] = {}
    work = [v for n in reversed(nodes) for v in reversed(n.inputs)]
    while work:
        v = work.pop()
        if v in fixed and v in producer and id(producer[v]) not in found:
            maker = producer[v]
            waiting = [x for x in maker.inputs if x in producer and id(producer[x]) not in found]
            if waiting:
                work.extend((v, *waiting))
            else:
                found[id(maker)] = maker
    return list(found.values())


def _cuts(known: Known, nodes: Sequence[Node]) -> list[int]:
    """Return the numbers of the nodes that a region begins with, but the first."""
    fixed = known.fixed
    last = {v: k for k, n in enumerate(nodes) for v in n.inputs if v not in fixed}
    first = {v: k for k, n in reversed([*enumerate(nodes)]) for v in (*n.inputs, *n.outputs) if v not in fixed}
    forms = _Forms(known)
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
        if size >= SMALLEST and len(nodes) - k >= SMALLEST and len(alive) <= width and forms.separate(alive):
            cuts.append(k)
            begin = k
    return cuts


class _Forms:
    """Tells at which values a program may be cut."""

    def __init__(self, known: Known) -> None:
        self.fixed, self.users, self.producer = known.fixed, known.users, known.producer

    def separate(self, alive: Collection[Value]) -> bool:
        """Tell whether a cut at these values leaves together what belongs together."""
        return any(map(self.starts, alive)) and all(map(self.ends, alive))

    def starts(self, v: Value) -> bool:
        """Tell whether a value goes into something that multiplies, as it is, moved or scaled."""
        return any(n.op in STARTS for n in self.readers(v, self.is_sum(v)))

    def ends(self, v: Value) -> bool:
        """Tell whether a value is whole: not between moves, no sequence of which steps are taken, not to be scaled or shifted."""
        maker = self.producer.get(v)
        if (maker is not None and self.moves(maker)) or any(n.op in STEPS for n in self.users.get(v, ())):
            return False
        return self.is_sum(v) or not any(map(self.folds, self.readers(v)))

    def is_sum(self, v: Value) -> bool:
        """Tell whether a value joins two others, so that nothing after it folds into what is before."""
        maker = self.producer.get(v)
        return maker is not None and maker.op in WITH_CONSTANT and not any(x in self.fixed for x in maker.inputs)

    def moves(self, n: Node) -> bool:
        """Tell whether an operator only moves data."""
        return n.operator is not None and n.operator.kind == LAYOUT

    def folds(self, n: Node) -> bool:
        """Tell whether an operator is one that rules join with the operator before it."""
        return n.op in FOLDS or (n.op in WITH_CONSTANT and any(v in self.fixed for v in n.inputs))

    def readers(self, v: Value, through_folds: bool = False) -> Iterator[Node]:
        """Yield what reads a value, also through moves of data and, if wanted, through what folds."""
        work, seen = [v], {v}
        while work:
            for n in self.users.get(work.pop(), ()):
                if self.moves(n) or (through_folds and self.folds(n)):
                    work.extend(x for x in n.outputs if x not in seen)
                    seen.update(n.outputs)
                else:
                    yield n
