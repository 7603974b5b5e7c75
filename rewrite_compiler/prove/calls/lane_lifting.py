"""Words of a design with one lane an element, lifted to a lane: what each must be in the design with several.

A variable of an operand becomes the element of the operand that lies at this lane; where an axis with lanes has none in a part of
external memory, the sum of its lanes, which is the element times an element of ones; off the diagonal, where one axis lies along two
kinds of lanes, 0. Operators stay. What is fetched becomes the word at this lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ila.verification.lane_correspondence import Lane, LanesDiffer
from ...readings.arrays.labelled_array import Data
from ...readings.smt.polynomial_terms import Number, Term, Terms

Label = frozenset[Lane]  # the axes of memories that one kind of lane lies along
Place = Mapping[Label, int]  # a lane
Assignment = Mapping[int, tuple[Label, ...]]  # of an axis with lanes: along which it lies; two where on their diagonal, none where summed


@dataclass(frozen=True)
class OperandLanes:
    """The axes of an operand that elements have lanes along, how many, and the operand's variables in both designs."""

    lanes: Mapping[int, int]
    wide: Data
    narrow: Data


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

    @property
    def extents(self) -> dict[Label, int]:
        """How many lanes of each kind an element has."""
        return {label: extent for label, extent, _ in self.lanes}


@dataclass(frozen=True)
class Placement:
    """Along which lanes the axes of an operand lie in a part, by the number of its event, and the kinds of lanes that the part has."""

    part: int
    operand: str
    assignment: Assignment
    labels: frozenset[Label]
    is_pure: bool  # whether the part holds digits of variables, and 0

    @property
    def used_labels(self) -> frozenset[Label]:
        """The kinds of lanes that the operand lies along."""
        return frozenset(label for labels in self.assignment.values() for label in labels)


def lane_assignments(lanes: Mapping[int, int], labels: Mapping[Label, int]) -> Iterator[dict[int, Label]]:
    """Yield every way to lay the axes of a tensor along different lanes of as many."""
    for labels_chosen in itertools.permutations(labels, len(lanes)):
        if all(labels[label] == n for label, n in zip(labels_chosen, lanes.values(), strict=True)):
            yield dict(zip(lanes, labels_chosen, strict=True))


def operand_assignments(lanes: Mapping[int, int], labels: Mapping[Label, int]) -> Iterator[Assignment]:
    """Yield every way to lay an operand in a part: each axis along lanes of its own, one on a diagonal, some summed."""
    for lone in lane_assignments(lanes, labels):
        yield {axis: (label,) for axis, label in lone.items()}
    for axis in lanes:
        for both in lane_assignments({**lanes, _SECOND: lanes[axis]}, labels):
            yield {a: (both[a], both[_SECOND]) if a == axis else (both[a],) for a in lanes}
    for count in reversed(range(len(lanes))):
        for axes in itertools.combinations(lanes, count):
            for lone in lane_assignments({a: lanes[a] for a in axes}, labels):
                yield {a: (lone[a],) if a in lone else () for a in lanes}


_SECOND = -1  # stands for an axis once more


class _Beyond(Exception):
    """A variable lies at a lane beyond its operand's end."""


@dataclass
class Lifting:
    """Compares what both designs place lane by lane; `terms` are those of the wide one."""

    operands: Mapping[str, OperandLanes]
    terms: Terms
    placements: list[Placement] = field(default_factory=list)
    unpadded: set[str] = field(default_factory=set)  # operands beyond whose end lanes are not 0
    indices: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)  # by the number of a variable of the narrow design

    def __post_init__(self) -> None:
        for name, of in self.operands.items():
            self.indices |= {t.number: (name, index) for index, t in np.ndenumerate(of.narrow) if isinstance(t, Term)}

    def part(self, n: int, layout: PartLayout, wide: Data, narrow: Data) -> None:
        """Compare the words of a part that is placed.

        Raises:
            LanesDiffer: they are not the same up to lanes.
        """
        if check_numbers(n, layout, wide, narrow):
            return
        mine, other = wide.reshape(-1, layout.wide), narrow.reshape(-1, layout.narrow)
        names = sorted({self.indices[t.number][0] for t in placed_variables(other.flat)})
        if not names:
            raise LanesDiffer(f"part {n} holds no operand")
        ways = [list(operand_assignments(self.operands[name].lanes, layout.extents)) for name in names]
        for assignments in itertools.product(*ways):
            if self._is_lifted(layout, dict(zip(names, assignments, strict=True)), mine, other):
                labels = frozenset(layout.extents)
                self.placements += [Placement(n, name, a, labels, _is_pure(other)) for name, a in zip(names, assignments, strict=True)]
                return
        raise LanesDiffer(f"part {n} does not hold {' and '.join(names)} in elements as with a lane an element")

    def _is_lifted(self, layout: PartLayout, assignments: Mapping[str, Assignment], mine: Data, other: Data) -> bool:
        unpadded = set[str]()
        for place, first in layout.places():
            at = {name: _Lane.of(self.operands[name], assignment, place) for name, assignment in assignments.items()}
            lifted = _LiftedWords(self, at)
            block = mine[:, first : first + layout.narrow]
            for a, b in zip(block.flat, other.flat, strict=True):
                try:
                    expected = lifted.of(b)
                except _Beyond:
                    if a != 0:
                        unpadded |= set(assignments)
                    continue
                if a is not expected and (isinstance(a, Term) or isinstance(expected, Term) or int(a) != int(expected)):
                    return False
        self.unpadded |= unpadded
        return True


@dataclass(frozen=True)
class _Lane:
    """Where a lane of a part lies in an operand: its first element along each axis that has lanes, and the axes that are summed."""

    of_operand: OperandLanes
    offsets: Mapping[int, int]
    summed: frozenset[int]
    is_off_diagonal: bool

    @classmethod
    def of(cls, operand: OperandLanes, assignment: Assignment, place: Place) -> _Lane:
        """Return where a lane lies."""
        offsets = {axis: {place[label] for label in labels} for axis, labels in assignment.items()}
        first = {axis: min(lanes, default=0) for axis, lanes in offsets.items()}
        return cls(operand, first, frozenset(a for a, x in offsets.items() if not x), any(len(x) > 1 for x in offsets.values()))

    def variable(self, terms: Terms, index: Sequence[int]) -> Number:
        """Return what a variable of the narrow design is at this lane."""
        if self.is_off_diagonal:
            return 0
        lanes, wide = self.of_operand.lanes, self.of_operand.wide
        first = [i * lanes.get(axis, 1) + self.offsets.get(axis, 0) for axis, i in enumerate(index)]
        if any(i >= n for i, n in zip(first, wide.shape, strict=True)):
            raise _Beyond
        if not self.summed:
            return wide[tuple(first)]  # type: ignore[no-any-return]
        return terms.total(wide[tuple(slice(i, i + lanes[a]) if a in self.summed else i for a, i in enumerate(first))].flat)


@dataclass
class _LiftedWords:
    """Words at one lane."""

    lifting: Lifting
    at: Mapping[str, _Lane]
    results: dict[int, Number] = field(default_factory=dict)

    def of(self, word: Any) -> Number:
        """Return what a word of the narrow design is at the lane.

        Raises:
            _Beyond: an operand has ended before.
        """
        return substituted(self.lifting.terms, word, self._variable, self.results)

    def _variable(self, t: Term) -> Number:
        if t.op != "var":
            raise LanesDiffer("the driver places products of what it is given")
        name, index = self.lifting.indices[t.number]
        return self.at[name].variable(self.lifting.terms, index)


def check_numbers(n: int, layout: PartLayout, wide: Data, narrow: Data) -> bool:
    """Tell whether a part holds numbers alone, which are then the same in all lanes.

    Raises:
        LanesDiffer: they are not, or there are not as many elements in both designs.
    """
    if len(wide) * layout.narrow != len(narrow) * layout.wide or len(narrow) % layout.narrow:
        raise LanesDiffer(f"part {n} has {len(wide)} words, and {len(narrow)} with a lane an element")
    if wide.dtype == object or narrow.dtype == object:
        return False
    mine, other = wide.reshape(-1, layout.wide), narrow.reshape(-1, layout.narrow)
    if not all(np.array_equal(mine[:, first : first + layout.narrow], other) for _, first in layout.places()):
        raise LanesDiffer(f"the numbers of part {n} depend on the lanes of an element")
    return True


def substituted(terms: Terms, word: Any, variable: Callable[[Term], Number], results: dict[int, Number]) -> Number:
    """Return a word of sums, quotients and remainders with others in place of its variables and products, kept by number in `results`.

    Raises:
        LanesDiffer: it is made by another operator.
    """
    if not isinstance(word, Term):
        return int(word)
    result = results.get(word.number)
    if result is not None:
        return result
    if word.op in ("var", "mul"):
        result = variable(word)
    elif word.op in ("mod", "div"):
        operand = substituted(terms, word.args[0], variable, results)
        result = terms.modulo(operand, word.data) if word.op == "mod" else terms.quotient(operand, word.data)
    elif word.op == "sum":
        parts = [(c, substituted(terms, t, variable, results)) for c, t in zip(word.data[1], word.args, strict=True)]
        result = terms.linear_combination([(1, word.data[0]), *parts])
    else:
        raise LanesDiffer(f"the driver places {word.op} of what it is given")
    results[word.number] = result
    return result


def placed_variables(words: Iterable[Any]) -> Iterator[Term]:
    """Yield the variables of words, each once."""
    return (t for t in terms_below(words) if t.op == "var")


def terms_below(words: Iterable[Any]) -> Iterator[Term]:
    """Yield every term that words are made of, each once."""
    work, visited = [t for t in words if isinstance(t, Term)], set[int]()
    while work:
        t = work.pop()
        if t.number not in visited:
            visited.add(t.number)
            yield t
            work += t.args


def _is_pure(words: Data) -> bool:
    """Tell whether words are digits of variables, or 0."""
    return all(w.op == "var" if isinstance(w, Term) else w == 0 for w in map(_number_of_digit, words.flat))


def _number_of_digit(word: Any) -> Any:
    while isinstance(word, Term) and word.op in ("mod", "div"):
        (word,) = word.args
    return word


# -- results


@dataclass(frozen=True)
class FetchedWords:
    """Compares results as functions of what both designs fetch, lane by lane, given how elements lie in each part that is fetched."""

    layouts: Mapping[int, PartLayout]

    def are_same(self, assignment: Mapping[int, Label], lanes: Mapping[int, int], wide: Data, narrow: Data) -> bool:
        """Tell whether results are the same functions of what is fetched at their lanes."""
        if wide.ndim != narrow.ndim or any(
            -(-m // lanes.get(axis, 1)) != n for axis, (m, n) in enumerate(zip(wide.shape, narrow.shape, strict=True))
        ):
            return False
        for index in np.ndindex(*wide.shape):
            element = tuple(n // lanes.get(axis, 1) for axis, n in enumerate(index))
            place = {label: index[axis] % lanes[axis] for axis, label in assignment.items()}
            if not self.is_same(place, wide[index], narrow[element]):
                return False
        return True

    def is_same(self, place: Place, a: Any, b: Any) -> bool:
        """Tell whether a result is at a lane the function that another one is on the narrow design."""
        if not isinstance(a, Term) or not isinstance(b, Term):
            return not isinstance(a, Term) and not isinstance(b, Term) and int(a) == int(b)
        if b.op == "var":
            return a.op == "var" and self._is_word(place, fetched_word(a), fetched_word(b))
        same = a.op == b.op and a.data == b.data and len(a.args) == len(b.args)
        return same and all(self.is_same(place, x, y) for x, y in zip(a.args, b.args, strict=True))

    def _is_word(self, place: Place, a: tuple[int, int], b: tuple[int, int]) -> bool:
        (part, at), (narrow_part, narrow_at) = a, b
        layout = self.layouts.get(part)
        if part != narrow_part or layout is None:
            return False
        element, rest = divmod(narrow_at, layout.narrow)
        return at == element * layout.wide + rest + sum(stride * place.get(label, 0) for label, _, stride in layout.lanes)


def fetched_word(t: Term) -> tuple[int, int]:
    """Return the part of a variable that stands for a fetched word, and the word's number in it; −1 where it is another variable."""
    mark, _, numbers = str(t.data).rpartition(" ")
    part, _, at = numbers.partition("_")
    return (int(part), int(at)) if mark == FETCHED else (-1, -1)


FETCHED = "fetched"  # marks the words of a part that the host reads
