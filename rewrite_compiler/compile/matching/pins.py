"""Pins: placement constraints of a user on nodes of the model."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...egraph.extraction.prune import CostOf
from ...egraph.graph.graph import EGraph, ENode
from ...egraph.graph.term_rows import operator_named
from ...errors import AnswerNo, UsageError
from ...ir.program import OPAQUE, Program
from ...ops.op import ELEMENTWISE, LAYOUT
from ...target import Mapping, Target

HOST = "host"


@dataclass(frozen=True)
class Pins:
    """The place of each pinned source node, a target's name or `host`; `work` are the source nodes that are not merely elementwise."""

    place: MappingOf[int, str] = field(default_factory=dict)
    work: frozenset[int] = frozenset()

    def restrict(self, cost_of: CostOf, graph: EGraph, devices: MappingOf[str, Mapping]) -> CostOf:
        """Return a cost function that forbids e-nodes with the work of a node pinned elsewhere."""

        def cost(c: int, node: ENode) -> tuple[int, ...] | None:
            at = devices[node.op].target if node.op in devices else HOST
            misplaced = [s for s in node.origins if self.place.get(s, at) != at]
            if not graph.classes[c].fixed and any(at != HOST or self.decides(node, s) for s in misplaced):
                return None
            return cost_of(c, node)

        return cost if self.place else cost_of

    def decides(self, node: ENode, source: int) -> bool:
        """Tell whether a host operator is the main work of a source node; a bias that a product left on the host is not."""
        op = operator_named(node.op)
        return op is None or (op.kind != LAYOUT and (op.kind != ELEMENTWISE or source not in self.work))


NO_PINS = Pins()


def pins_of(texts: Sequence[str], p: Program, targets: Sequence[Target]) -> Pins:
    """Return the pins of `PLACE=NODE` texts.

    Raises:
        UsageError: (F203) a place or a node does not exist, or a node has two places.
    """
    numbers = {s.name: n for n, s in enumerate(p.sources)}
    places = [HOST, *(t.name for t in targets)]
    places_of: dict[int, str] = {}
    for text in texts:
        place, _, name = text.partition("=")
        if place not in places:
            raise UsageError("F203", f'Place of a node must be one of {", ".join(places)}, not "{place}"', help="write PLACE=NODE")
        if name not in numbers:
            raise UsageError("F203", f'the model has no node called "{name}"', help="the plan of the model names every node")
        if places_of.setdefault(numbers[name], place) != place:
            raise UsageError("F203", f'node "{name}" cannot be both on {places_of[numbers[name]]} and on {place}')
    compute = [n for n in p.nodes if n.op == OPAQUE or (n.operator is not None and n.operator.kind not in (ELEMENTWISE, LAYOUT))]
    return Pins(places_of, frozenset(s for n in compute for s in n.origins))


def require_pins(pins: Pins, p: Program, extracted: Program, devices: MappingOf[str, Mapping]) -> None:
    """Check that every node pinned to a target is in an offload there.

    Raises:
        AnswerNo: (F216) a node is not.
    """
    offloaded = {(s, devices[n.op].target) for n in extracted.nodes if n.op in devices for s in n.origins}
    for s, place in pins.place.items():
        if place != HOST and (s, place) not in offloaded:
            raise unmet_pin(p.sources[s].name, place, "none of its operations takes the node")


def unmet_pin(name: str, place: str, reason: str) -> AnswerNo:
    """Return the refusal (F216) of a pin with its reason."""
    return AnswerNo("F216", f'node "{name}" cannot be on {place}: {reason}', help="flexmatch explain MODEL NODE says what is missing")
