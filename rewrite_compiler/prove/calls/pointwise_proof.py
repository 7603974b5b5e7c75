"""Calls whose results are each computed from the operands' elements at its own index: any of them may share an element of the design.

On the design with one lane an element a tensor is as many elements as the other one has, in one row. Which element of the operand lies
at which lane of which of these is read off what both drivers place; each result must be the function of the word at the same lane
that the narrow design's is, and there driver and numerics must be one term.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ila import DATA
from ...ila.verification.lane_correspondence import LanesDiffer, array_correspondence, lane_axes
from ...lang.binders import Comprehension, Leaf, static_shape
from ...lang.expr import Expr
from ...lang.substitution import substitute
from ...ops.op import ShapeError
from ...readings.arrays.labelled_array import Data
from ...readings.smt.polynomial_terms import Term, Terms
from ...target import Mapping
from ..mappings.mappings import attributes_at, execute, formats_at, is_same_term, refusal_at, shapes_at, sizes_text, with_results
from .block_call import BlockCall, Instructions, recorded, recorded_streams
from .lane_lifting import FetchedWords, PartLayout, Place, check_numbers, fetched_word, placed_variables
from .stream_correspondence import StreamCorrespondence

Index = tuple[int, ...]


def pointwise_failure(call: BlockCall, numbers: frozenset[int], instructions: Instructions) -> str:
    """Return why a call whose numerics are of one element of each operand is not proved by elements, nothing when it is.

    `numbers` are the axes whose index the numerics use as a number.

    Raises:
        LanesDiffer: the streams are not the same up to lanes.
    """
    if call.stay is not None:
        raise LanesDiffer("tensors stay on the device")
    reasons = list[str]()
    for sizes in _narrow_sizes(call, numbers):
        refused = refusal_at(call.narrow_mapping, sizes)
        if refused:
            reasons.append(f"the design with one lane an element does not admit {sizes_text(sizes)}: {refused}")
            continue
        try:
            return _failure_at(call, sizes, numbers, instructions)
        except LanesDiffer as difference:
            reasons.append(str(difference))
    raise LanesDiffer("; ".join(dict.fromkeys(reasons)) or "its elements have no lanes")


def _failure_at(call: BlockCall, sizes: MappingOf[str, Any], numbers: frozenset[int], instructions: Instructions) -> str:
    wide, narrow = recorded(call, call.mapping, call.sizes), recorded(call, call.narrow_mapping, sizes)
    streams = recorded_streams(call, wide, narrow, instructions)
    if streams.contracted_labels:
        raise LanesDiffer("the stream sums products over lanes")
    _check_numerics(call, sizes, numbers)
    elements = ElementIndices.of(wide.operands, narrow.operands)
    elements.learn(streams)
    shape = tuple(call.sizes[d] for d in call.mapping.axes.of[call.mapping.axes.result])
    elements.check_results(streams, shape, wide.results[0], narrow.results[0], numbers)
    run = execute(call.narrow_mapping, call.narrow.ila(), sizes, Terms())
    if any(not is_same_term(a, b) for a, b in run.pairs):
        return f"driver and numerics are not one term at {sizes_text(sizes)} on the design with one lane an element"
    return ""


# -- the numerics


def _numerics(m: Mapping, sizes: MappingOf[str, Any]) -> tuple[list[Leaf], Any]:
    formats = formats_at(m)
    leaves = [Leaf(shape, formats[n].codes, False, n) for n, shape in shapes_at(m, sizes).items()]
    return leaves, m.result_codes(leaves, formats, attributes_at(m, sizes))


def number_axes(call: BlockCall) -> frozenset[int] | None:
    """Return the axes whose index the numerics use as a number, None where they read an operand elsewhere than at the result's index."""
    if len({*call.mapping.axes.of.values()}) != 1:
        return None
    leaves, result = _numerics(call.mapping, call.sizes)
    if not isinstance(result, Comprehension):
        return None
    uses = _uses(result.body, result.variables, set(leaves))
    return None if uses is None else frozenset(axis for axis, v in enumerate(result.variables) if v in uses)


def _uses(root: Expr, index: Sequence[Expr], leaves: set[Leaf]) -> set[Expr] | None:
    """Return the variables in a term but for those that are the index of an operand; None where an operand is read at another index."""
    work, visited, variables = [root], set[Expr](), set[Expr]()
    while work:
        e = work.pop()
        if e in visited:
            continue
        visited.add(e)
        if e.op == "var":
            variables.add(e)
        elif e.op == "load" and isinstance(e.data, Comprehension):
            work.append(substitute(e.data.body, dict(zip(e.data.variables, e.args, strict=True))))
        elif e.op == "load" and e.data in leaves:
            if tuple(e.args) != tuple(index):
                return None
        else:
            work += e.args
    return variables


def _check_numerics(call: BlockCall, sizes: MappingOf[str, Any], numbers: frozenset[int]) -> None:
    """Check that the numerics are one function of the elements at both sizes.

    Raises:
        LanesDiffer: they are not.
    """
    (leaves, wide), (narrow_leaves, narrow) = _numerics(call.mapping, call.sizes), _numerics(call.narrow_mapping, sizes)
    others = frozenset(range(len(wide.variables))) - numbers
    name = call.mapping.axes.result
    array_correspondence(wide, narrow, dict(zip(leaves, narrow_leaves, strict=True)), dict.fromkeys(leaves, others), (name, others))


def _narrow_sizes(call: BlockCall, numbers: frozenset[int]) -> Iterator[dict[str, Any]]:
    """Yield sizes of as many elements in one row as the wide design may have; axes that are numbers stay."""
    m = call.mapping
    dims = m.axes.of[m.axes.result]
    others = [d for axis, d in enumerate(dims) if axis not in numbers]
    count = math.prod(call.sizes[d] for d in others)
    for lanes in _lanes(call) if others else ():
        row = {**dict.fromkeys(others, 1), others[-1]: -(-count // lanes)}
        try:
            yield with_results(m, {**{d: call.sizes[d] for d in (*dims, *dict(m.statics))}, **row})
        except ShapeError:
            continue


def _lanes(call: BlockCall) -> list[int]:
    """Return how many lanes the elements of memories have."""
    wide, narrow = call.wide.ila().states, call.narrow.ila().states
    pairs = ((s.leaf, narrow[n].leaf) for n, s in wide.items() if s.binding == DATA and n in narrow and s.leaf.rank == narrow[n].leaf.rank)
    return sorted({math.prod(static_shape(a)[axis] for axis in lane_axes(a, b)) for a, b in pairs} - {1})


# -- elements


@dataclass
class ElementIndices:
    """Where the elements of the narrow design lie in the wide one's operands: by lane, operand and index."""

    variables: MappingOf[int, tuple[str, Index]]
    narrow_variables: MappingOf[int, tuple[str, Index]]
    indices: dict[tuple[frozenset[Any], str, Index], Index] = field(default_factory=dict)
    beyond: set[tuple[frozenset[Any], str, Index]] = field(default_factory=set)  # lanes of which a word is a number

    @classmethod
    def of(cls, wide: MappingOf[str, Data], narrow: MappingOf[str, Data]) -> ElementIndices:
        """Return those of operands, none of which is known yet."""
        return cls(_variables(wide), _variables(narrow))

    def learn(self, streams: StreamCorrespondence) -> None:
        """Read off what both designs place.

        Raises:
            LanesDiffer: words are not the same functions of an element, or an element lies at two indices.
        """
        for n, layout in streams.parts.items():
            if streams.wide[n].kind == "place":
                wide, narrow = streams.wide[n].words, streams.narrow[n].words
                if check_numbers(n, layout, wide, narrow):
                    continue
                mine, other = wide.reshape(-1, layout.wide), narrow.reshape(-1, layout.narrow)
                for place, first in layout.places():
                    lane = frozenset(place.items())
                    for a, b in zip(mine[:, first : first + layout.narrow].flat, other.flat, strict=True):
                        if not self._enter(lane, a, b):
                            raise LanesDiffer(f"part {n} does not hold elements as with a lane an element")

    def _enter(self, lane: frozenset[Any], a: Any, b: Any) -> bool:
        """Enter the element that a word is of; numbers in place of one lie beyond the operand's end."""
        if not isinstance(a, Term):
            self.beyond |= {(lane, *self.narrow_variables[t.number]) for t in placed_variables([b])}
            return isinstance(b, Term) or int(a) == int(b)
        if not isinstance(b, Term) or a.op != b.op or len(a.args) != len(b.args):
            return False
        if a.op == "var":
            (name, index), (narrow_name, narrow_index) = self.variables[a.number], self.narrow_variables[b.number]
            return name == narrow_name and self.indices.setdefault((lane, name, narrow_index), index) == index
        return a.data == b.data and all(self._enter(lane, x, y) for x, y in zip(a.args, b.args, strict=True))

    def check_results(
        self, streams: StreamCorrespondence, shape: Index, wide: Data, narrow: Data, numbers: frozenset[int]
    ) -> None:  # fmt: skip
        """Check that each result is the function of its word that the narrow design's is, and is of the elements at its index.

        Raises:
            LanesDiffer: one is not.
        """
        if wide.shape != shape:
            raise LanesDiffer(f"the driver returns a result of the shape {wide.shape}")
        layouts = streams.fetched_layouts
        words, names = FetchedWords(layouts), {name for name, _ in self.variables.values()}
        origins = {n: dict(_origins(layout)) for n, layout in layouts.items()}
        narrow_index = {_first_word(b, layouts): j for j, b in np.ndenumerate(narrow)}
        for i, a in np.ndenumerate(wide):
            part, at = _fetched(a)
            place, rest = origins[part][at % layouts[part].wide] if part in layouts else ({}, 0)
            j = narrow_index.get((part, at // layouts[part].wide, rest)) if part in layouts else None
            if j is None or not words.is_same(place, a, narrow[j]) or any(i[axis] != j[axis] for axis in numbers):
                raise LanesDiffer(f"the result at {i} is not fetched as with a lane an element")
            lane = frozenset(place.items())
            if any((lane, name, j) in self.beyond or self.indices.get((lane, name, j)) != i for name in names):
                raise LanesDiffer(f"the result at {i} is of other elements than those at its index")


def _variables(operands: MappingOf[str, Data]) -> dict[int, tuple[str, Index]]:
    return {t.number: (name, index) for name, x in operands.items() for index, t in np.ndenumerate(x) if isinstance(t, Term)}


def _origins(layout: PartLayout) -> Iterator[tuple[int, tuple[Place, int]]]:
    """Yield for every word of an element the lane that it is of, and which of the lane's words it is."""
    for place, first in layout.places():
        yield from ((first + rest, (place, rest)) for rest in range(layout.narrow))


def _fetched(a: Any) -> tuple[int, int]:
    """Return the part and the number of the first word that a result is made of."""
    while isinstance(a, Term) and a.args:
        a = a.args[0]
    return fetched_word(a) if isinstance(a, Term) else (-1, -1)


def _first_word(b: Any, layouts: MappingOf[int, PartLayout]) -> tuple[int, int, int]:
    part, at = _fetched(b)
    return (part, *divmod(at, layouts[part].narrow)) if part in layouts else (-1, 0, 0)
