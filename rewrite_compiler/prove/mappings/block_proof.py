"""Calls of a design with several lanes an element, proved on the design with one: the same stream, elements in place of numbers.

Both drivers run on devices that record. The streams must be the same up to the size of an element, what lies in external memory
the same up to lanes, and so must the results as functions of what is fetched. By the block lemma
(`ila.verification.lane_correspondence`) the wide design then computes with elements what the narrow one computes with numbers;
and there driver and numerics are one term, whose products are of one element of each of two operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import Any

from ...errors import FlexmatchError
from ...ila.verification.lane_correspondence import (
    LaneCorrespondence,
    LanesDiffer,
    array_correspondence,
    instruction_correspondence,
)
from ...lang.binders import Comprehension, Leaf, unbounded_sums
from ...readings.smt.normal_form_code import NotInteger
from ...readings.smt.normal_form_evaluator import variables
from ...readings.smt.polynomial_terms import Term, Terms
from ...target import Blocks, Mapping, Stay, Target
from .lane_lifting import Lifting, OperandLanes
from .mappings import (
    PREVIOUS_CALL_MARK,
    attributes_at,
    execute,
    formats_at,
    is_same_term,
    refusal_at,
    run_call,
    shapes_at,
    sizes_text,
    with_results,
)
from .stream_correspondence import Recorder, StreamCorrespondence

Instructions = dict[str, LaneCorrespondence]


@dataclass
class BlockProofs:
    """Proofs of the calls of one target, whose instructions are compared once."""

    target: Target
    instructions: Instructions = field(default_factory=dict)

    def failure(self, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None = None) -> str:
        """Return why a call is not proved on the design with one lane an element, nothing when it is."""
        blocks = self.target.blocks(self.target.values) if self.target.blocks is not None else None
        if blocks is None:
            return "its elements have no lanes"
        try:
            narrow = self.target.variant(blocks.parameters)
            return _failure(_Call(self.target, narrow, m, narrow.mappings[m.variant], sizes, blocks, stay), self.instructions)
        except LanesDiffer as difference:
            return str(difference)
        except NotInteger:
            return "it computes with real numbers"
        except FlexmatchError as error:
            return error.problem.sentence


@dataclass(frozen=True)
class _Call:
    """A call on a wide and on a narrow design."""

    wide: Target
    narrow: Target
    mapping: Mapping
    narrow_mapping: Mapping
    sizes: MappingOf[str, Any]
    blocks: Blocks
    stay: Stay | None

    @property
    def narrow_sizes(self) -> dict[str, Any]:
        """Sizes in elements."""
        m, lanes = self.mapping, self.blocks.lanes
        operand_sizes = {
            d: n for d, n in self.sizes.items() if d in {e for v in m.operands for e in m.axes.of[v.name]} or d in dict(m.statics)
        }
        return with_results(m, {d: -(-n // lanes[d]) if d in lanes else n for d, n in operand_sizes.items()})

    def lanes_of(self, tensor: str) -> dict[int, int]:
        """Return the axes of a tensor that elements have lanes along, and how many."""
        lanes = ((axis, self.blocks.lanes.get(d, 1)) for axis, d in enumerate(self.mapping.axes.of[tensor]))
        return {axis: n for axis, n in lanes if n > 1}


def _failure(call: _Call, instructions: Instructions) -> str:
    sizes = call.narrow_sizes
    refused = refusal_at(call.narrow_mapping, sizes)
    if refused:
        return f"the design with one lane an element does not admit {sizes_text(sizes)}: {refused}"
    streams = _stream_correspondence(call, sizes, instructions)
    numerics = _numerics_correspondence(call, sizes)
    _check_labels(call, streams, numerics)
    return _narrow_failure(call, sizes, numerics)


def _stream_correspondence(call: _Call, sizes: MappingOf[str, Any], instructions: Instructions) -> StreamCorrespondence:
    """Compare both streams, what lies in external memory, and the results.

    Raises:
        LanesDiffer: they are not the same up to lanes.
    """
    wide, narrow = _recorded(call, call.mapping, call.sizes), _recorded(call, call.narrow_mapping, sizes)
    streams = StreamCorrespondence(wide[0].events, narrow[0].events)
    for name in dict.fromkeys(e.name for e in wide[0].events if e.kind == "issue"):
        if name not in instructions:
            instructions[name] = instruction_correspondence(call.wide.ila(), call.narrow.ila(), name)
    streams.compare(instructions)
    shapes = shapes_at(call.mapping, call.sizes)
    operands = {n + mark: OperandLanes(call.lanes_of(n), shape) for n, shape in shapes.items() for mark in ("", PREVIOUS_CALL_MARK)}
    streams.compare_contents(Lifting(operands))
    for name, result, narrow_result in zip(call.mapping.axes.results, wide[1], narrow[1], strict=True):
        streams.compare_results(name, call.lanes_of(name), result, narrow_result)
    return streams


def _recorded(call: _Call, m: Mapping, sizes: MappingOf[str, Any]) -> tuple[Recorder, tuple[Any, ...]]:
    terms = Terms(unbounded=True)
    recorder, formats = Recorder(terms), formats_at(m)

    def symbolic(mark: str) -> dict[str, Any]:
        return {n: variables(terms, n + mark, shape, formats[n].codes) for n, shape in shapes_at(m, sizes).items()}

    results = run_call(m, recorder, sizes, symbolic(""), call.stay, symbolic)
    return recorder, results if isinstance(results, tuple) else (results,)


def _numerics_correspondence(call: _Call, sizes: MappingOf[str, Any]) -> LaneCorrespondence:
    """Compare the numerics of the call with those in elements.

    Raises:
        LanesDiffer: they are not the same up to lanes.
    """
    m, formats = call.mapping, formats_at(call.mapping)

    def numerics(mapping: Mapping, at: MappingOf[str, Any]) -> tuple[list[Leaf], Any]:
        leaves = [Leaf(shape, formats[n].codes, False, n) for n, shape in shapes_at(mapping, at).items()]
        with unbounded_sums(1):
            return leaves, mapping.result_codes(leaves, formats, attributes_at(mapping, at))

    (leaves, wide), (narrow_leaves, narrow) = numerics(m, call.sizes), numerics(call.narrow_mapping, sizes)
    if not isinstance(wide, Comprehension) or not isinstance(narrow, Comprehension):
        raise LanesDiffer("its numerics are no single array of elements")
    pairs = dict(zip(leaves, narrow_leaves, strict=True))
    lanes = {leaf: frozenset(call.lanes_of(leaf.name)) for leaf in leaves}
    return array_correspondence(wide, narrow, pairs, lanes, (m.axes.result, frozenset(call.lanes_of(m.axes.result))))


def _check_labels(call: _Call, streams: StreamCorrespondence, numerics: LaneCorrespondence) -> None:
    """Check that the lanes of tensors lie in those of elements as the numerics combine them, each kind of lane in one of its own.

    Raises:
        LanesDiffer: they do not.
    """
    label_of = dict[Any, Any]()
    for v, lanes in numerics.uses.items():
        labels = {streams.labels_of[lane] for lane in lanes if lane in streams.labels_of}
        missing = [lane for lane in lanes if lane not in streams.labels_of]
        if len(labels) != 1 or missing:
            raise LanesDiffer(f"{v!r} of the numerics runs over the lanes {sorted(map(str, labels))} of elements")
        label_of[v] = labels.pop()
    by_lane = {lane: label_of[v] for v, lanes in numerics.uses.items() for lane in lanes}
    kinds = {frozenset(other for other in by_lane if by_lane[other] == label) for label in by_lane.values()}
    classes = _classes(numerics.uses.values())
    if {frozenset(c) for c in classes} != kinds:
        raise LanesDiffer("two dimensions that the numerics keep apart lie along one axis of elements")
    contracted = {label_of[v] for v in numerics.contracted}
    if contracted != streams.contracted_labels:
        raise LanesDiffer("the stream sums products over other lanes than the numerics")
    if contracted and (numerics.multiplies or streams.multiplies):
        raise LanesDiffer("products of lanes and products of elements both occur")


def _classes(groups: Any) -> list[set[Any]]:
    """Return the union of the groups that share an element."""
    classes: list[set[Any]] = []
    for group in groups:
        joined = set(group)
        for c in [c for c in classes if c & joined]:
            classes.remove(c)
            joined |= c
        classes.append(joined)
    return classes


def _narrow_failure(call: _Call, sizes: MappingOf[str, Any], numerics: LaneCorrespondence) -> str:
    """Return why driver and numerics are not one term of products of two operands on the narrow design, nothing when they are."""
    with unbounded_sums(1):
        run = execute(call.narrow_mapping, call.narrow.ila(), sizes, Terms(unbounded=True), call.stay)
    if any(not is_same_term(a, b) for a, b in run.pairs):
        return f"driver and numerics are not one term at {sizes_text(sizes)} on the design with one lane an element"
    if not numerics.contracted:
        return ""
    operand_of = {t.number: name for name, x in run.operands.items() for t in x.flat if isinstance(t, Term)}
    contracting = {lane[0] for v in numerics.contracted for lane in numerics.uses[v]}
    for t in _terms([a for a, _ in run.pairs]):
        names = [operand_of.get(a.number) for a in t.args]
        is_product = len(names) == 2 == len(set(names)) and set(names) <= contracting
        if (t.op == "mul" and not is_product) or (t.op != "mul" and not contracting.isdisjoint(names)):
            return f"{t!r} is no product of one element of each of two operands"
    return ""


def _terms(roots: list[Any]) -> Iterator[Term]:
    """Yield every term below some values once."""
    work, visited = [t for t in roots if isinstance(t, Term)], set[int]()
    while work:
        t = work.pop()
        if t.number not in visited:
            visited.add(t.number)
            yield t
            work.extend(t.args)
