"""Two streams of one driver, for a design with several lanes an element and for the one with a lane an element, event by event.

Instructions and fields are the same but for where an access to external memory begins; external memory is cut into what the host
places and fetches, and an access lies in one such part, as many elements from its beginning in one design as in the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ila.verification.lane_correspondence import Access, Lane, LaneCorrespondence, LanesDiffer
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import ARITHMETIC, Expr
from ...lang.intervals import Interval
from ...readings.arrays.labelled_array import Data
from ...readings.smt.normal_form_evaluator import variables
from ...readings.smt.polynomial_terms import Term, Terms
from .lane_lifting import FETCHED, FetchedWords, Label, Lifting, PartLayout, Placement, lane_assignments

BYTE = (0, 255)


@dataclass(frozen=True)
class Event:
    """What a driver asks of its device: an instruction with its fields, or words placed in or fetched from an external memory."""

    kind: str
    name: str = ""
    fields: Mapping[str, int] = field(default_factory=dict)
    start: int = 0
    words: Data = field(default_factory=lambda: np.zeros(0, object))


@dataclass
class Recorder:
    """A streamed device that only records; what is fetched are variables."""

    terms: Terms
    events: list[Event] = field(default_factory=list)

    def attach(self, memory: str, words: int) -> None:
        """Record a new external memory."""
        self.events.append(Event("attach", memory, start=words))

    def place(self, memory: str, address: int, words: Data) -> None:
        """Record words that are placed."""
        self.events.append(Event("place", memory, start=address, words=np.asarray(words)))

    def fetch(self, memory: str, address: int, count: int) -> Data:
        """Return variables for the words of a part."""
        words = variables(self.terms, f"{FETCHED} {len(self.events)}", (count,), BYTE)
        self.events.append(Event("fetch", memory, start=address, words=words))
        return words

    def issue(self, instruction: str, **operands: int) -> None:
        """Record one instruction."""
        self.events.append(Event("issue", instruction, {name: int(n) for name, n in operands.items()}))

    def wait(self) -> None:
        """Record that the stream runs."""
        self.events.append(Event("wait"))


@dataclass
class StreamCorrespondence:
    """The events of both designs side by side; `layouts` say how elements lie in each part, by the number of its event."""

    wide: Sequence[Event]
    narrow: Sequence[Event]
    layouts: dict[int, set[tuple[int, int, tuple[tuple[Expr, int, int], ...]]]] = field(default_factory=dict)
    parts: dict[int, PartLayout] = field(default_factory=dict)
    labels_of: dict[Lane, Label] = field(default_factory=dict)  # of the lanes of operands and results: the lanes of elements
    contracted_labels: set[Label] = field(default_factory=set)
    multiplies: bool = False
    placements: Sequence[Placement] = ()
    diagonals: dict[Label, tuple[Label, str]] = field(default_factory=dict)  # contracted lanes of an operand that lies on their diagonal

    def compare(self, instructions: Mapping[str, LaneCorrespondence]) -> None:
        """Compare instructions and fields, and find how elements lie in each part.

        Raises:
            LanesDiffer: the streams are not the same up to the size of elements.
        """
        if [(e.kind, e.name) for e in self.wide] != [(e.kind, e.name) for e in self.narrow]:
            n = next((k for k, (a, b) in enumerate(zip(self.wide, self.narrow, strict=False)) if (a.kind, a.name) != (b.kind, b.name)), -1)
            raise LanesDiffer(f"the streams have {len(self.wide)} and {len(self.narrow)} events, and differ from event {n} on")
        visited = set[Any]()
        for parts, issues in self._epochs():
            for n in issues:
                a, b = self.wide[n], self.narrow[n]
                key = a.name, tuple(sorted(a.fields.items())), tuple(sorted(b.fields.items())), parts
                if key not in visited:
                    visited.add(key)
                    self._compare_issue(instructions[a.name], a, b, parts)
        used = {e.name: instructions[e.name] for e in self.wide if e.kind == "issue"}
        self._label(list(used.values()))

    def _epochs(self) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """Yield, for each external memory that is attached, the events of its parts and of the instructions that run on it."""
        starts = [n for n, e in enumerate(self.wide) if e.kind == "attach"]
        for first, last in zip(starts, [*starts[1:], len(self.wide)], strict=True):
            events = range(first, last)
            if not self.wide[first].start or not self.narrow[first].start:
                raise LanesDiffer("an external memory is empty")
            parts = tuple(n for n in events if self.wide[n].kind in ("place", "fetch"))
            self._check_disjoint(parts)
            yield parts, [n for n in events if self.wide[n].kind == "issue"]

    def _check_disjoint(self, parts: Sequence[int]) -> None:
        for events in (self.wide, self.narrow):
            spans = sorted((events[n].start, events[n].start + len(events[n].words)) for n in parts if len(events[n].words))
            if any(a[1] > b[0] for a, b in itertools.pairwise(spans)):
                raise LanesDiffer("parts of external memory overlap")

    def _compare_issue(self, of: LaneCorrespondence, a: Event, b: Event, parts: Sequence[int]) -> None:
        control_names = {leaf.name for leaf in of.control_leaves}
        for name in {*a.fields, *b.fields}:
            if a.fields.get(name, 0) != b.fields.get(name, 0) and (name in control_names or not of.accesses):
                raise LanesDiffer(f"{a.name} has {name}={a.fields.get(name, 0)}, and {b.fields.get(name, 0)} with a lane an element")
        memories = {self.wide[n].name for n in parts}
        for access in of.accesses:
            if access.memory.name in memories:
                self._compare_access(access, a, b, [n for n in parts if self.wide[n].name == access.memory.name])

    def _compare_access(self, access: Access, a: Event, b: Event, parts: Sequence[int]) -> None:
        spans = [_Spans(e.fields, access.extents) for e in (a, b)]
        if any(spans[0].of(n)[1] in (0, None) for n in access.extents.values()):
            return  # over nothing
        wide, narrow = spans[0].of(access.wide), spans[1].of_narrow(access)
        layout = access.layout
        if wide[0] is None or narrow[0] is None or wide[1] is None or narrow[1] is None:
            raise LanesDiffer(f"{a.name} has no bounds: {wide}, and {narrow} with a lane an element")
        run = self._adjacent_parts(wide, narrow, parts)
        if not run:
            raise LanesDiffer(f"{a.name} reaches beyond what the host places or fetches: {wide}, and {narrow} with a lane an element")
        first, narrow_first = wide[0] - self.wide[run[0]].start, narrow[0] - self.narrow[run[0]].start
        lanes = sum(stride * (extent - 1) for _, extent, stride in layout.lanes)
        same_place = divmod(first, layout.wide) == divmod(narrow_first, layout.narrow)
        same_count = (wide[1] - wide[0] - lanes) * layout.narrow == (narrow[1] - narrow[0]) * layout.wide
        if not same_place or not same_count:
            raise LanesDiffer(f"{a.name} begins {first} words into part {run[0]}, and {narrow_first} words with a lane an element")
        for n in run:
            counts = divmod(len(self.wide[n].words), layout.wide), divmod(len(self.narrow[n].words), layout.narrow)
            if len(run) > 1 and (counts[0] != counts[1] or counts[0][1]):
                raise LanesDiffer(f"part {n} of external memory does not end with an element")
            self.layouts.setdefault(n, set()).add((layout.wide, layout.narrow, layout.lanes))

    def _adjacent_parts(self, wide: Interval, narrow: Interval, parts: Sequence[int]) -> list[int]:
        """Return the parts that an access lies in, each of which begins where the one before ends; none where it leaves them."""
        ordered = sorted(parts, key=lambda n: self.wide[n].start)
        for at, first in enumerate(ordered):
            run = [first]
            while not _is_in(wide, self.wide, run) and at + len(run) < len(ordered):
                run.append(ordered[at + len(run)])
            if all(_is_in(span, events, run) and _are_adjacent(events, run) for span, events in ((wide, self.wide), (narrow, self.narrow))):
                return run
        return []

    # -- lanes

    def _label(self, used: Sequence[LaneCorrespondence]) -> None:
        """Give each kind of lane a label: axes of memories that one variable runs over have one."""
        labels = dict[Lane, Label]()
        for of in used:
            for lanes in of.uses.values():
                _join(labels, lanes)
        label_of = {v: labels[next(iter(lanes))] for of in used for v, lanes in of.uses.items()}
        self.contracted_labels = {label_of[v] for of in used for v in of.contracted}
        self.multiplies = any(of.multiplies for of in used)
        for n, access_layouts in self.layouts.items():
            layouts = {
                PartLayout(w, k, tuple((label_of[v], extent, stride) for v, extent, stride in lanes)) for w, k, lanes in access_layouts
            }
            if len(layouts) != 1:
                raise LanesDiffer(f"part {n} of external memory is read as elements of different kinds")
            self.parts[n] = layouts.pop()

    def compare_contents(self, lifting: Lifting) -> None:
        """Compare what the host places, element by element and lane by lane; learn along which lanes operands lie.

        Raises:
            LanesDiffer: a word is not the same up to lanes, or an operand lies otherwise than elements are multiplied.
        """
        for n, layout in self.parts.items():
            if self.wide[n].kind == "place":
                lifting.part(n, layout, self.wide[n].words, self.narrow[n].words)
        self.placements = lifting.placements
        if len(set(self._kinds_of_numbers())) > 1:
            raise LanesDiffer("numbers are multiplied with numbers, lane by lane")
        for p in self.placements:
            self._enter_diagonals(p)
        for p in self.placements:
            self._enter_labels(p)
        for p in self.placements:
            summed = {self.labels_of.get((p.operand, axis)) for axis, labels in p.assignment.items() if not labels}
            if not summed <= self.summed_labels:
                raise LanesDiffer(f"part {p.part} holds sums of {p.operand} over lanes that the stream does not sum over")

    def _kinds_of_numbers(self) -> Iterator[frozenset[Label]]:
        """Yield the kinds of elements that are multiplied and placed as numbers other than 0."""
        for n, layout in self.parts.items():
            kind = frozenset(layout.extents)
            words = self.narrow[n].words if kind & self.contracted_labels and self.narrow[n].kind == "place" else ()
            if any(not isinstance(word, Term) and word != 0 for word in words):
                yield kind

    @property
    def summed_labels(self) -> set[Label]:
        """The lanes over which products are summed: without those of which an operand holds the diagonal alone."""
        return self.contracted_labels - self.diagonals.keys()

    @property
    def multiplied_operands(self) -> set[str]:
        """The operands that lie along lanes over which products are summed, or along a diagonal of theirs."""
        return {p.operand for p in self.placements if p.used_labels & self.contracted_labels}

    def _enter_diagonals(self, p: Placement) -> None:
        if not p.labels & self.contracted_labels <= p.used_labels:
            raise LanesDiffer(f"{p.operand} is the same in all lanes that are summed")
        for labels in p.assignment.values():
            if len(labels) == 2:
                summed, lone = ([label for label in labels if (label in self.contracted_labels) == side] for side in (True, False))
                if len(summed) != 1 or not p.is_pure or self.diagonals.setdefault(summed[0], (lone[0], p.operand)) != (lone[0], p.operand):
                    raise LanesDiffer(f"{p.operand} lies on a diagonal of lanes of which not one alone is summed")

    def _enter_labels(self, p: Placement) -> None:
        for axis, labels in p.assignment.items():
            for label in labels:
                if self.labels_of.setdefault((p.operand, axis), self._merged(label)) != self._merged(label):
                    raise LanesDiffer(f"axis {axis} of {p.operand} lies along different lanes in two parts")

    def _merged(self, label: Label) -> Label:
        """Return the lanes that those of a diagonal are."""
        return self.diagonals[label][0] if label in self.diagonals else label

    def compare_results(self, name: str, lanes: Mapping[int, int], wide: Data, narrow: Data) -> None:
        """Compare the results as functions of what is fetched, lane by lane; learn along which lanes they lie.

        Raises:
            LanesDiffer: a result is not the same up to lanes.
        """
        layouts = self.fetched_layouts
        labels = {label: extent for layout in layouts.values() for label, extent in layout.extents.items()}
        for assignment in lane_assignments(lanes, labels):
            if FetchedWords(layouts).are_same(assignment, lanes, wide, narrow):
                self.labels_of |= {(name, axis): self._merged(label) for axis, label in assignment.items()}
                return
        raise LanesDiffer(f"the results {name} are not fetched alike")

    @property
    def fetched_layouts(self) -> dict[int, PartLayout]:
        """How elements lie in the parts that are fetched."""
        return {n: layout for n, layout in self.parts.items() if self.wide[n].kind == "fetch"}


def _join(labels: dict[Lane, Label], lanes: set[Lane]) -> None:
    """Give lanes, and all that have a label of one of them, one label."""
    joined = frozenset(lanes).union(*(labels[lane] for lane in lanes if lane in labels))
    for lane in joined:
        labels[lane] = joined


def _is_in(span: Interval, events: Sequence[Event], run: Sequence[int]) -> bool:
    """Tell whether a span begins in the first of some parts and ends in the last."""
    first, last = events[run[0]], events[run[-1]]
    begins = iv.inside((span[0], span[0]), (first.start, first.start + len(first.words) - 1))
    return begins and iv.inside(span, (first.start, last.start + len(last.words) - 1))


def _are_adjacent(events: Sequence[Event], run: Sequence[int]) -> bool:
    return all(events[a].start + len(events[a].words) == events[b].start for a, b in itertools.pairwise(run))


@dataclass(frozen=True)
class _Spans:
    """Intervals of terms at given fields, variables running over their extents."""

    fields: Mapping[str, int]
    extents: Mapping[Expr, Expr]

    def of(self, e: Expr) -> Interval:
        """Return the interval of a term; fields that are not given are 0."""
        if e.op == "const":
            return e.interval
        if e.op == "var":
            high = self.of(self.extents[e])[1]
            return 0, None if high is None else max(high - 1, 0)
        if e.op == "load" and isinstance(e.data, Leaf) and not e.args:
            n = self.fields.get(e.data.name, 0)
            return n, n
        if e.op not in ARITHMETIC:
            raise LanesDiffer(f"the address {e!r} is no function of the fields")
        return ARITHMETIC[e.op](*map(self.of, e.args))

    def of_narrow(self, access: Access) -> Interval:
        """Return the interval of the addresses of an access in the narrow design."""
        return _Spans(self.fields, access.narrow_extents).of(access.narrow)
