"""Terms of a design with one lane an element, lifted to a lane: what each must be in the design with several.

A variable of an operand becomes the element of the operand that lies at this lane, 0 where the operand ends before; what is fetched
becomes the word at this lane; and operators stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ila.verification.lane_correspondence import Lane, LanesDiffer
from ...readings.arrays.labelled_array import Data
from ...readings.smt.polynomial_terms import Term

Label = frozenset[Lane]  # the axes of memories that one kind of lane lies along
Place = Mapping[Label, int]  # a lane


@dataclass(frozen=True)
class OperandLanes:
    """The axes of an operand that elements have lanes along, how many, and the operand's shape."""

    lanes: Mapping[int, int]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PartLayout:
    """How elements lie in a part of external memory: their words in both designs, and each lane's extent and stride."""

    wide: int
    narrow: int
    lanes: tuple[tuple[Label, int, int], ...]

    def places(self) -> Iterator[tuple[Place, int]]:
        """Yield every lane with its first word in an element."""
        for place in itertools.product(*(range(extent) for _, extent, _ in self.lanes)):
            yield (
                {label: n for n, (label, _, _) in zip(place, self.lanes, strict=True)},
                sum(n * stride for n, (_, _, stride) in zip(place, self.lanes, strict=True)),
            )


def lane_assignments(lanes: Mapping[int, int], labels: Mapping[Label, int]) -> Iterator[dict[int, Label]]:
    """Yield every way to lay the axes of a tensor along different lanes of as many."""
    for labels_chosen in itertools.permutations(labels, len(lanes)):
        if all(labels[label] == n for label, n in zip(labels_chosen, lanes.values(), strict=True)):
            yield dict(zip(lanes, labels_chosen, strict=True))


@dataclass
class Lifting:
    """Compares words of both designs lane by lane, given the operands' lanes or the layouts of the parts that are fetched."""

    operands: Mapping[str, OperandLanes]
    fetched: Mapping[int, PartLayout] = field(default_factory=dict)
    labels_of: dict[Lane, Label] = field(default_factory=dict)
    variables: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)  # by the number of a term: its name, its index

    def part(self, n: int, layout: PartLayout, wide: Data, narrow: Data) -> None:
        """Compare the words of a part that is placed.

        Raises:
            LanesDiffer: they are not the same up to lanes.
        """
        if len(wide) * layout.narrow != len(narrow) * layout.wide or len(narrow) % layout.narrow:
            raise LanesDiffer(f"part {n} has {len(wide)} words, and {len(narrow)} with a lane an element")
        mine, other = wide.reshape(-1, layout.wide), narrow.reshape(-1, layout.narrow)
        if wide.dtype != object and narrow.dtype != object:
            if all(np.array_equal(mine[:, first : first + layout.narrow], other) for _, first in layout.places()):
                return
            raise LanesDiffer(f"the numbers of part {n} depend on the lanes of an element")
        names = sorted({self._name(t)[0] for t in self._some_variables(other)})
        if len(names) != 1 or names[0] not in self.operands:
            raise LanesDiffer(f"part {n} holds elements of {len(names)} operands")
        of = self.operands[names[0]]
        for assignment in lane_assignments(of.lanes, {label: extent for label, extent, _ in layout.lanes}):
            entered = {(names[0], axis): label for axis, label in assignment.items()}
            is_consistent = all(self.labels_of.get(lane, label) == label for lane, label in entered.items())
            if is_consistent and self._is_lifted(layout, assignment, mine, other):
                self.labels_of |= entered
                return
        raise LanesDiffer(f"part {n} does not hold {names[0]} in elements as with a lane an element")

    def _is_lifted(self, layout: PartLayout, assignment: Mapping[int, Label], mine: Data, other: Data) -> bool:
        for place, first in layout.places():
            lane = {axis: place[label] for axis, label in assignment.items()}
            block = mine[:, first : first + layout.narrow]
            if not all(self.is_at(lane, a, b) for a, b in zip(block.flat, other.flat, strict=True)):
                return False
        return True

    def results(self, assignment: Mapping[int, Label], lanes: Mapping[int, int], wide: Data, narrow: Data) -> bool:
        """Tell whether results are the same functions of what is fetched at their lanes."""
        if wide.ndim != narrow.ndim or any(
            -(-m // lanes.get(axis, 1)) != n for axis, (m, n) in enumerate(zip(wide.shape, narrow.shape, strict=True))
        ):
            return False
        for index in np.ndindex(*wide.shape):
            element = tuple(n // lanes.get(axis, 1) for axis, n in enumerate(index))
            place = {label: index[axis] % lanes[axis] for axis, label in assignment.items()}
            if not self._is_fetched(place, wide[index], narrow[element]):
                return False
        return True

    def _is_fetched(self, place: Place, a: Any, b: Any) -> bool:
        return self._compare(a, b, lambda x, y: self._is_word(place, x, y))

    def _is_word(self, place: Place, a: Term, b: Term) -> bool:
        (name, (at,)), (narrow_name, (narrow_at,)) = self._name(a), self._name(b)
        if name != narrow_name:
            return False
        layout = self.fetched.get(int(name.rpartition("_")[2]))
        if layout is None:
            return False
        element, rest = divmod(narrow_at, layout.narrow)
        return at == element * layout.wide + rest + sum(stride * place.get(label, 0) for label, _, stride in layout.lanes)

    def is_at(self, lane: Mapping[int, int], a: Any, b: Any) -> bool:
        """Tell whether a word is what a word of the narrow design is at a lane."""
        return self._compare(a, b, lambda x, y: self._is_element(lane, x, y))

    def _compare(self, a: Any, b: Any, is_same: Any) -> bool:
        if not isinstance(b, Term):
            return not isinstance(a, Term) and int(a) == int(b)
        if not isinstance(a, Term):
            return a == 0 and self._lies_outside(b, is_same)
        if b.op == "var":
            return a.op == "var" and bool(is_same(a, b))
        same = a.op == b.op and a.data == b.data and len(a.args) == len(b.args)
        return same and all(self._compare(x, y, is_same) for x, y in zip(a.args, b.args, strict=True))

    def _lies_outside(self, b: Term, is_same: Any) -> bool:
        """Tell whether a digit of an element lies at a lane beyond the operand's end, where it is 0."""
        while b.op in ("mod", "div"):
            (b,) = b.args
        return b.op == "var" and bool(is_same(None, b))

    def _is_element(self, lane: Mapping[int, int], a: Term | None, b: Term) -> bool:
        name, index = self._name(b)
        of = self.operands[name]
        lifted = tuple(n * of.lanes.get(axis, 1) + lane.get(axis, 0) for axis, n in enumerate(index))
        if any(n >= size for n, size in zip(lifted, of.shape, strict=True)):
            return a is None
        return a is not None and self._name(a) == (name, lifted)

    def _name(self, t: Term) -> tuple[str, tuple[int, ...]]:
        """Return the name and the index of a variable."""
        key = id(t)
        if key not in self.variables:
            self.variables[key] = _parsed(str(t.data), self.operands)
        return self.variables[key]

    def _some_variables(self, words: Data) -> Iterator[Term]:
        """Yield the variables of words."""
        for t in words.flat:
            while isinstance(t, Term) and t.op in ("mod", "div"):
                (t,) = t.args
            if isinstance(t, Term):
                if t.op != "var":
                    raise LanesDiffer("the driver computes with what it places")
                yield t


def _parsed(text: str, operands: Mapping[str, OperandLanes]) -> tuple[str, tuple[int, ...]]:
    """Return the name and the index of a variable `name_i_j`, whose name is that of an operand or has itself a number."""
    parts = text.split("_")
    name = max((n for n in operands if text.startswith(f"{n}_") or text == n), key=len, default=None)
    if name is None or not all(p.isdigit() for p in text[len(name) :].split("_")[1:]):
        return "_".join(parts[:-1]), (int(parts[-1]),)
    return name, tuple(map(int, text[len(name) :].split("_")[1:]))
