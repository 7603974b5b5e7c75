"""Calls of a design with several lanes an element, proved on the design with one: the same stream, elements in place of numbers.

Both drivers run on devices that record. The streams must be the same up to the size of an element, what lies in external memory
the same up to lanes, and so must the results as functions of what is fetched. By the block lemma
(`ila.verification.lane_correspondence`) the wide design then computes with elements what the narrow one computes with numbers;
and there driver and numerics are one term, whose products are of one element of each of two operands.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import FlexmatchError
from ...ila.verification.lane_correspondence import LaneCorrespondence, LanesDiffer, array_correspondence
from ...lang.binders import Comprehension, Leaf, unbounded_sums
from ...readings.smt.normal_form_code import NotInteger
from ...readings.smt.polynomial_terms import Term
from ...target import Mapping, Stay, Target
from ..mappings.mappings import PREVIOUS_CALL_MARK, attributes_at, execute, formats_at, is_same_term, refusal_at, shapes_at, sizes_text
from .block_call import BlockCall, Instructions, recorded, recorded_streams
from .lane_lifting import Lifting, OperandLanes, terms_below
from .pointwise_proof import number_axes, pointwise_failure
from .stream_correspondence import StreamCorrespondence
from .unit_element import ONES, ElementTerms, UnitDevice


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
        narrow = self.target.variant(blocks.parameters)
        call = BlockCall(self.target, narrow, m, narrow.mappings[m.variant], sizes, blocks, stay)
        try:
            numbers = number_axes(call)
            return _failure(call, self.instructions) if numbers is None else pointwise_failure(call, numbers, self.instructions)
        except LanesDiffer as difference:
            return str(difference)
        except NotInteger:
            return "it computes with real numbers"
        except FlexmatchError as error:
            return error.problem.sentence


def _failure(call: BlockCall, instructions: Instructions) -> str:
    sizes = call.narrow_sizes
    refused = refusal_at(call.narrow_mapping, sizes)
    if refused:
        return f"the design with one lane an element does not admit {sizes_text(sizes)}: {refused}"
    streams, lifting = _stream_correspondence(call, sizes, instructions)
    numerics = _numerics_correspondence(call, sizes)
    _check_labels(call, streams, numerics)
    return _narrow_failure(call, sizes, streams, lifting)


def _stream_correspondence(
    call: BlockCall, sizes: MappingOf[str, Any], instructions: Instructions
) -> tuple[StreamCorrespondence, Lifting]:  # fmt: skip
    """Compare both streams, what lies in external memory, and the results.

    Raises:
        LanesDiffer: they are not the same up to lanes.
    """
    wide, narrow = recorded(call, call.mapping, call.sizes), recorded(call, call.narrow_mapping, sizes)
    streams = recorded_streams(call, wide, narrow, instructions)
    operands = {n: OperandLanes(call.lanes_of(n.removesuffix(PREVIOUS_CALL_MARK)), x, narrow.operands[n]) for n, x in wide.operands.items()}
    lifting = Lifting(operands, wide.device.terms)
    streams.compare_contents(lifting)
    for name, result, narrow_result in zip(call.mapping.axes.results, wide.results, narrow.results, strict=True):
        if np.shape(result) != tuple(call.sizes[d] for d in call.mapping.axes.of[name]):
            raise LanesDiffer(f"the driver returns {name} of the shape {np.shape(result)}")
        streams.compare_results(name, call.lanes_of(name), result, narrow_result)
    return streams, lifting


def _numerics_correspondence(call: BlockCall, sizes: MappingOf[str, Any]) -> LaneCorrespondence:
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


def _check_labels(call: BlockCall, streams: StreamCorrespondence, numerics: LaneCorrespondence) -> None:
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
    if contracted != streams.summed_labels:
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


def _narrow_failure(call: BlockCall, sizes: MappingOf[str, Any], streams: StreamCorrespondence, lifting: Lifting) -> str:
    """Return why driver and numerics are not one term of products of two operands on the narrow design, nothing when they are."""
    units, summed_parts = _with_ones(streams, lifting)
    terms = ElementTerms(units)
    with unbounded_sums(1):
        run = execute(
            call.narrow_mapping, call.narrow.ila(), sizes, terms, call.stay, lambda device: UnitDevice(device, terms, summed_parts)
        )
    if any(not is_same_term(a, b) for a, b in run.pairs):
        return f"driver and numerics are not one term at {sizes_text(sizes)} on the design with one lane an element"
    multiplied = streams.multiplied_operands
    if not multiplied:
        return ""
    operand_of = {t.number: name for name, x in run.operands.items() for t in x.flat if isinstance(t, Term)} | {terms.ones.number: ONES}
    diagonal = {operand for _, operand in streams.diagonals.values()}
    products = _allowed_products(multiplied, units, diagonal, multiplied - lifting.unpadded)
    for t in terms_below(a for a, _ in run.pairs):
        names = [operand_of.get(a.number, "") for a in t.args]
        is_product = t.op == "mul" and len(names) == 2 and frozenset(names) in products
        if (t.op == "mul" and not is_product) or (t.op != "mul" and not multiplied.isdisjoint(names)):
            return f"{t!r} is no product of one element of each of two operands"
    return ""


def _with_ones(streams: StreamCorrespondence, lifting: Lifting) -> tuple[set[str], frozenset[int]]:
    """Return the operands whose product with ones occurs, and the parts that hold such products in place of elements.

    Ones stand for numbers, or for what an element is more than a variable. Where no part has either there is no such product.
    """
    multiplied, contracted = streams.multiplied_operands, streams.contracted_labels
    placements = [p for p in streams.placements if p.operand in multiplied]
    summed_parts = frozenset(p.part for p in placements if not p.used_labels & contracted)
    impure = {p.operand for p in placements if not p.is_pure and p.part not in summed_parts}
    if not summed_parts and not impure:
        return set(), frozenset()
    return multiplied - impure - lifting.unpadded, summed_parts


def _allowed_products(multiplied: set[str], units: set[str], diagonal: set[str], padded: set[str]) -> set[frozenset[str]]:
    """Return the pairs of operands whose products are those of elements.

    One of both is 0 in the lanes beyond its end; and where an operand lies on a diagonal of lanes it is one of both.
    """
    pairs = {frozenset((a, b)) for a in multiplied for b in multiplied if a != b and not padded.isdisjoint((a, b))}
    pairs |= {frozenset((ONES, a)) for a in units & padded}
    return {pair for pair in pairs if not diagonal or pair & diagonal}
